"""CUDA: each op that has a Triton form, Triton against torch, with the bytes that have to move."""

from collections.abc import Iterator

import torch

from kernels import RelaxGraph, RelaxSeeds, cosine_rows, csr_expand, maxsim, relax_field, segment_topk
from kernels.backend import has_triton
from pipelines.bench_graphs import BenchGraph, power_law
from pipelines.bench_ragged_cases import ragged
from pipelines.bench_timing import Comparison

QUESTIONS, GROUPS, DIM = 64, 3, 384


def device_cases(device: str) -> Iterator[tuple[Comparison, BenchGraph]]:
    """Comparisons on ``device``; none where triton is not installed."""
    if not has_triton():
        return
    graph = power_law(1_000_000)
    offsets = graph.offsets.to(device)
    rows = torch.randint(0, graph.num_nodes, (100_000,), device=device)
    slots = int(graph.offsets.diff()[rows.cpu()].sum())
    yield _pair("csr_expand", lambda form: csr_expand(offsets, rows, backend=form), 16 * slots), graph
    bounds = ragged(50_000, 40, 0).to(device)
    scores = torch.rand(int(bounds[-1]), device=device)
    yield (
        _pair("segment_topk, k = 5", lambda form: segment_topk(scores, bounds, 5, backend=form), 4 * len(scores)),
        graph,
    )
    vectors = (torch.rand(200_000, DIM, device=device) * 1024).round() / 1024
    row_ids = torch.randint(0, 200_000, (1_000_000,), device=device)
    query_ids = row_ids % QUESTIONS
    yield (
        _pair(
            "cosine_rows",
            lambda form: [cosine_rows(vectors[:QUESTIONS], vectors, query_ids, row_ids, backend=form)],
            1_000_000 * DIM * 4,
        ),
        graph,
    )
    yield _pair("maxsim, int8", _maxsim(device), 0), graph
    yield _relax(graph, device), graph


def _pair(name: str, run, bytes_moved: int) -> Comparison:
    def agree(ours, theirs) -> bool:
        return all(torch.equal(left, right) for left, right in zip(ours, theirs, strict=True))

    return Comparison(
        f"{name}, Triton",
        1,
        lambda: run("triton"),
        "its torch form",
        lambda: run("torch"),
        agree,
        bytes_moved=bytes_moved,
    )


def _maxsim(device: str):
    bounds = ragged(20_000, 50, 1)
    ranges = torch.stack([bounds[:-1], bounds[1:]], 1).to(device)
    tokens = torch.randint(-127, 128, (int(bounds[-1]), 128), dtype=torch.int8, device=device)
    questions = torch.randn(QUESTIONS * 20, 128, device=device)
    offsets = torch.arange(0, QUESTIONS * 20 + 1, 20, device=device)
    return lambda form: [maxsim(tokens, ranges, questions, offsets, backend=form)]


def _relax(graph: BenchGraph, device: str) -> Comparison:
    on_device = RelaxGraph(graph.offsets.to(device), graph.neighbours.to(device))
    pairs = torch.arange(QUESTIONS * GROUPS, device=device)
    nodes = torch.randint(0, graph.num_nodes, (len(pairs),), device=device)
    seeds = RelaxSeeds(pairs // GROUPS, pairs % GROUPS, nodes)
    costs = torch.rand(QUESTIONS, graph.num_nodes, device=device)
    moved = 2 * graph.neighbours.numel() * 4 * len(pairs)
    return _pair(
        "frontier_relax, dense field",
        lambda form: [relax_field(on_device, seeds, costs, num_hops=3, backend=form)],
        moved,
    )
