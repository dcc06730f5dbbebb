"""What the benchmarks run on ragged data: segment_topk, cosine_rows, triple_beam and maxsim against their peers."""

from collections.abc import Iterator

import torch
from torch import Tensor

from kernels import cosine_rows, maxsim, segment_topk, triple_beam
from pipelines.bench_timing import Comparison

DIM = 384


def seeded(seed: int = 0) -> torch.Generator:
    """A generator of its own for each case."""
    return torch.Generator().manual_seed(seed)


def ragged(num_segments: int, longest: int, seed: int) -> Tensor:
    """Offsets of segments of 1 to ``longest`` items."""
    lengths = torch.randint(1, longest + 1, (num_segments,), generator=seeded(seed))
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def topk_cases() -> Iterator[Comparison]:
    """The five best of 50,000 segments, against torch_geometric's top-k over a batch vector."""
    offsets = ragged(50_000, 40, 0)
    scores = torch.rand(int(offsets[-1]), generator=seeded(1))
    batch = torch.repeat_interleave(torch.arange(50_000), offsets.diff())

    def pyg():
        from torch_geometric.nn.pool.select.topk import topk

        return topk(scores, 5, batch)

    def agree(ours, chosen) -> bool:
        return torch.equal(torch.sort(ours.indices[ours.indices >= 0]).values, torch.sort(chosen).values)

    yield Comparison(
        "segment_topk, k = 5",
        1,
        lambda: segment_topk(scores, offsets, 5),
        "PyG topk",
        pyg,
        agree,
        bytes_moved=scores.numel() * 12,
    )


def cosine_cases() -> Iterator[Comparison]:
    """100,000 pairs of 64 questions and 200,000 rows in float64, against one full gather."""
    rows, queries = torch.rand(200_000, DIM, generator=seeded(2)), torch.rand(64, DIM, generator=seeded(3))
    row_ids = torch.randint(0, 200_000, (100_000,), generator=seeded(4))
    query_ids = torch.randint(0, 64, (100_000,), generator=seeded(5))
    yield Comparison(
        "cosine_rows",
        1,
        lambda: cosine_rows(queries, rows, query_ids, row_ids),
        "torch gather in full",
        lambda: (queries[query_ids].double() * rows[row_ids].double()).sum(1).float(),
        lambda ours, peer: torch.allclose(ours, peer, atol=1e-6),
        bytes_moved=100_000 * DIM * 4,
    )


def beam_cases() -> Iterator[Comparison]:
    """64 questions of 10 beams of up to 100 extensions, against loops over lists."""
    parents = torch.arange(64).repeat_interleave(10)
    offsets = ragged(640, 100, 6)
    owners = torch.repeat_interleave(torch.arange(640), offsets.diff())
    scores = torch.rand(owners.numel(), generator=seeded(7))
    yield Comparison(
        "triple_beam",
        64,
        lambda: triple_beam(scores, owners, parents, 64),
        "loops over lists",
        lambda: triple_beam(scores, owners, parents, 64, backend="reference"),
        lambda ours, peer: torch.equal(ours.indices, peer.indices),
        peer_batch=64,
    )


def maxsim_cases() -> Iterator[Comparison]:
    """64 questions against 24,000 sentences of 6,119 passages, each with its title's tokens."""
    num_passages = 6_119
    sentences = torch.randint(2, 7, (num_passages,), generator=seeded(8))
    bounds = ragged(int(sentences.sum()), 50, 9)
    first = torch.repeat_interleave(sentences.cumsum(0) - sentences, sentences)
    titles = torch.stack([bounds[first], torch.minimum(bounds[first] + 5, bounds[first + 1])], 1)
    ranges = torch.stack([titles, torch.stack([bounds[:-1], bounds[1:]], 1)], 1)
    offsets = ragged(64, 30, 10)
    wide = torch.nn.functional.normalize(torch.randn(int(bounds[-1]), 128, generator=seeded(11)), dim=1)
    questions = torch.nn.functional.normalize(torch.randn(int(offsets[-1]), 128, generator=seeded(12)), dim=1)
    scale = wide.abs().amax(1) / 127
    short = torch.round(wide / scale[:, None]).to(torch.int8)
    own = questions[: int(offsets[1])]
    # the peer's sentences as one run of token rows each, titles repeated; a question at a time
    starts, lengths = ranges[..., 0].flatten(), (ranges[..., 1] - ranges[..., 0]).flatten()
    steps = torch.repeat_interleave(torch.arange(lengths.numel()), lengths)
    rows = starts[steps] + torch.arange(steps.numel()) - (lengths.cumsum(0) - lengths)[steps]
    joined = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])[::2].contiguous()

    def one_question():
        return torch.segment_reduce((wide @ own.T)[rows], "max", offsets=joined, axis=0)

    for name, tokens, token_scale, bound in (("float32", wide, None, 1e-5), ("int8", short, scale, 0.01)):

        def all_questions(tokens=tokens, token_scale=token_scale) -> Tensor:
            return maxsim(tokens, ranges, questions, offsets, token_scale=token_scale)

        yield Comparison(
            f"maxsim, all sentences, PCA-128 {name}",
            64,
            all_questions,
            "torch, a question at a time",
            one_question,
            lambda ours, peer, bound=bound: bool((ours[:, : own.shape[0]] - peer).abs().max() < bound),
            note=f"{bounds[-1]:,} tokens",
        )
