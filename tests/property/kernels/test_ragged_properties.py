"""csr_expand, segment_topk, cosine_rows and maxsim against their plain references on random data."""

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_strategies import FAST_BACKENDS, csr_graphs, ragged_scores

from kernels import cosine_rows, csr_expand, maxsim, segment_topk, segment_topk_mean

common = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


@common
@given(graph=csr_graphs(), data=st.data())
def test_csr_expand_any_rows_equals_reference(graph, data):
    offsets, _ = graph
    rows = torch.tensor(data.draw(st.lists(st.integers(0, offsets.numel() - 2), max_size=12)), dtype=torch.int64)
    expected = csr_expand(offsets, rows, backend="reference")
    for backend in FAST_BACKENDS:
        actual = csr_expand(offsets, rows, backend=backend)
        assert torch.equal(actual.slots, expected.slots) and torch.equal(actual.owners, expected.owners)


@common
@given(ragged=ragged_scores(), k=st.integers(1, 11))
def test_segment_topk_any_segments_equals_reference(ragged, k):
    scores, offsets = ragged
    expected = segment_topk(scores, offsets, k, backend="reference")
    for form, backend in [(scores.double(), "torch"), *((scores, name) for name in FAST_BACKENDS)]:
        actual = segment_topk(form, offsets, k, backend=backend)
        assert torch.equal(actual.indices, expected.indices)
        assert torch.equal(actual.values.float(), expected.values)


@common
@given(ragged=ragged_scores(), k=st.integers(1, 11))
def test_segment_topk_mean_each_segment_alone_gives_the_same_bits(ragged, k):
    scores, offsets = ragged
    scores = scores.clamp(-10, 10)
    whole = segment_topk_mean(scores, offsets, k)
    bounds = offsets.tolist()
    for segment in range(len(bounds) - 1):
        own = scores[bounds[segment] : bounds[segment + 1]]
        alone = segment_topk_mean(own, torch.tensor([0, own.numel()]), k)
        assert torch.equal(alone, whole[segment : segment + 1])


@common
@given(data=st.data(), dim=st.integers(1, 9), block=st.integers(1, 5))
def test_cosine_rows_any_pairs_equals_reference(data, dim, block):
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    queries, rows = torch.randint(-64, 65, (3, dim)) / 64, torch.randint(-64, 65, (4, dim)) / 64
    pairs = data.draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=12))
    ids = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
    expected = cosine_rows(queries, rows, ids[:, 0], ids[:, 1], backend="reference")
    for backend in FAST_BACKENDS:
        actual = cosine_rows(queries, rows, ids[:, 0], ids[:, 1], block_pairs=block, backend=backend)
        assert torch.equal(actual, expected)


@common
@given(data=st.data(), kind=st.sampled_from([torch.float32, torch.int8]))
def test_maxsim_any_ranges_and_pairs_equals_reference(data, kind):
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    num_tokens, dim = data.draw(st.integers(0, 12)), data.draw(st.integers(1, 5))
    tokens = torch.randint(-8, 9, (num_tokens, dim)).to(kind)
    lengths = data.draw(st.lists(st.integers(0, 4), max_size=5))
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    questions = torch.randint(-8, 9, (int(offsets[-1]), dim)).float() / 8
    place = st.integers(0, num_tokens)
    runs = data.draw(st.lists(st.tuples(place, place, place, place), max_size=6))
    ranges = torch.tensor([[sorted(run[:2]), sorted(run[2:])] for run in runs], dtype=torch.int64).reshape(-1, 2, 2)
    options = {"token_scale": torch.rand(num_tokens) + 0.5 if num_tokens else None, "block_tokens": 3}
    expected = maxsim(tokens, ranges, questions, offsets, backend="reference", **options)
    for backend in FAST_BACKENDS:
        assert torch.equal(maxsim(tokens, ranges, questions, offsets, backend=backend, **options), expected)
    if not lengths or not runs:
        return
    pair = st.tuples(st.integers(0, len(lengths) - 1), st.integers(0, len(runs) - 1))
    ids = torch.tensor(data.draw(st.lists(pair, max_size=8)), dtype=torch.int64).reshape(-1, 2)
    options |= {"question_ids": ids[:, 0], "sentence_ids": ids[:, 1], "padding": 9.0}
    expected = maxsim(tokens, ranges, questions, offsets, backend="reference", **options)
    for backend in FAST_BACKENDS:
        assert torch.equal(maxsim(tokens, ranges, questions, offsets, backend=backend, **options), expected)
