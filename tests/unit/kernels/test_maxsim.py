"""maxsim: exact maxima, title ranges, pairs, int8 digits and batch independence."""

import pytest
import torch

from kernels import maxsim

TOKENS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.5, 0.5], [0.0, -1.0]])
RANGES = torch.tensor([[0, 2], [2, 3], [3, 5], [5, 5]])
QUESTIONS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
OFFSETS = torch.tensor([0, 2, 2, 3])
INF = float("inf")


def both(backend, device, **options):
    where = {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in options.items()}
    ranges = where.pop("ranges", RANGES.to(device))
    tokens = where.pop("tokens", TOKENS.to(device))
    return maxsim(tokens, ranges, QUESTIONS.to(device), OFFSETS.to(device), backend=backend, **where)


def test_maxsim_all_sentences_gives_best_token_of_each(backend, device):
    out = both(backend, device)
    assert out.tolist() == [[1.0, 1.0, -1.0], [-1.0, 0.0, 1.0], [0.5, 0.5, 1.0], [-INF, -INF, -INF]]


def test_maxsim_two_ranges_join_title_and_sentence(backend, device):
    title = torch.tensor([0, 1]).expand(4, 2)
    out = both(backend, device, ranges=torch.stack([title, RANGES], 1))
    assert out.tolist() == [[1.0, 1.0, -1.0], [1.0, 0.0, 1.0], [1.0, 0.5, 1.0], [1.0, 0.0, -1.0]]


def test_maxsim_pairs_pad_the_shorter_question(backend, device):
    pairs = {"question_ids": torch.tensor([2, 0, 1, 0]), "sentence_ids": torch.tensor([1, 2, 0, 3])}
    out = both(backend, device, **pairs, padding=7.0, empty=-2.0)
    assert out.tolist() == [[1.0, 7.0], [0.5, 0.5], [7.0, 7.0], [-2.0, -2.0]]


def test_maxsim_no_pairs_gives_no_rows(backend):
    none = torch.empty(0, dtype=torch.int64)
    assert both(backend, "cpu", question_ids=none, sentence_ids=none).shape == (0, 2)


def test_maxsim_token_scale_counts_before_the_maximum(backend, device):
    out = both(backend, device, token_scale=torch.tensor([0.5, 4.0, 1.0, 1.0, 1.0]))
    assert out[0].tolist() == [0.5, 4.0, -0.5]


def test_maxsim_int8_tokens_and_questions_are_exact_integers(backend):
    torch.manual_seed(0)
    tokens = torch.randint(-127, 128, (40, 33), dtype=torch.int8)
    questions = torch.randint(-127, 128, (7, 33), dtype=torch.int8)
    ranges = torch.tensor([[0, 13], [13, 40]])
    out = maxsim(tokens, ranges, questions, torch.tensor([0, 7]), backend=backend)
    products = tokens.long() @ questions.long().T
    assert torch.equal(out.long(), torch.stack([products[:13].amax(0), products[13:].amax(0)]))


def test_maxsim_int8_tokens_float_questions_stay_within_the_grid(backend):
    torch.manual_seed(1)
    wide = torch.nn.functional.normalize(torch.randn(60, 100), dim=1)
    scale = wide.abs().amax(1) / 127
    tokens = torch.round(wide / scale[:, None]).to(torch.int8)
    questions = torch.nn.functional.normalize(torch.randn(5, 100), dim=1)
    ranges = torch.tensor([[0, 31], [31, 60]])
    out = maxsim(tokens, ranges, questions, torch.tensor([0, 5]), token_scale=scale, backend=backend)
    exact = (tokens.double() * scale[:, None].double()) @ questions.double().T
    expected = torch.stack([exact[:31].amax(0), exact[31:].amax(0)])
    assert (out - expected).abs().max() < 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
def test_maxsim_blocks_and_batches_do_not_change_the_bits(dtype):
    torch.manual_seed(2)
    grid = torch.randint(-60, 61, (500, 63)).float()
    tokens = grid.to(dtype) if dtype == torch.int8 else (grid / 2**9).to(dtype)
    bounds = torch.sort(torch.randint(0, 501, (61,))).values
    ranges = torch.stack([bounds[:-1], bounds[1:]], 1)
    offsets = torch.tensor([0, 5, 12, 13])
    questions = torch.randint(-512, 513, (13, 63)).float() / 2**11
    whole = maxsim(tokens, ranges, questions, offsets)
    assert torch.equal(whole, maxsim(tokens, ranges, questions, offsets, block_tokens=17))
    assert torch.equal(whole, maxsim(tokens, ranges, questions, offsets, backend="reference"))
    alone = maxsim(tokens, ranges, questions[5:12], torch.tensor([0, 7]))
    assert torch.equal(whole[:, 5:12], alone)
    ids = torch.randperm(60)
    some = maxsim(tokens, ranges, questions, offsets, question_ids=torch.ones_like(ids), sentence_ids=ids)
    assert torch.equal(some, alone[ids])


def test_maxsim_range_outside_raises_index_error():
    with pytest.raises(IndexError, match="sentence_ranges must lie in"):
        maxsim(TOKENS, torch.tensor([[0, 6]]), QUESTIONS, OFFSETS)


def test_maxsim_half_of_the_pairs_raises_value_error():
    with pytest.raises(ValueError, match="give both"):
        maxsim(TOKENS, RANGES, QUESTIONS, OFFSETS, question_ids=torch.tensor([0]))


def test_maxsim_int8_questions_on_float_tokens_raise_type_error():
    with pytest.raises(TypeError, match="need int8 tokens"):
        maxsim(TOKENS, RANGES, QUESTIONS.to(torch.int8), OFFSETS)


def test_maxsim_wrong_scale_length_raises_value_error():
    with pytest.raises(ValueError, match="token_scale must be one number"):
        maxsim(TOKENS, RANGES, QUESTIONS, OFFSETS, token_scale=torch.ones(3))
