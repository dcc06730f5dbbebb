"""Puts the benchmark of the graph ops together: which graphs, which cases, and how cost grows with the graph."""

import argparse
import sys
from collections.abc import Callable, Iterator

import torch

from kernels import csr_expand, frontier_relax, k_hop
from pipelines import bench_graph_cases as on_graphs
from pipelines import bench_ragged_cases as on_ragged
from pipelines.bench_graphs import BenchGraph, fb15k237, power_law
from pipelines.bench_timing import BenchRow, Comparison, clock, compare, device_copy_rate

GRAPH_CASES: dict[str, Callable[[BenchGraph], Iterator[Comparison]]] = {
    "csr_expand": on_graphs.expand_cases,
    "ppr": on_graphs.ppr_cases,
    "frontier_relax": on_graphs.relax_cases,
    "k_hop": on_graphs.k_hop_cases,
}
RAGGED_CASES: dict[str, Callable[[], Iterator[Comparison]]] = {
    "segment_topk": on_ragged.topk_cases,
    "cosine_rows": on_ragged.cosine_cases,
    "triple_beam": on_ragged.beam_cases,
    "maxsim": on_ragged.maxsim_cases,
}
LARGE_EDGES = 100_000_000
GROWTH = 100  # how many times larger the graph of equal degrees is


def run(options: argparse.Namespace) -> list[BenchRow]:
    """All lines asked for; each is also written to standard error as soon as it is there."""
    device = _device(options.device)
    chosen = set(options.ops or [*GRAPH_CASES, *RAGGED_CASES, "growth"])
    rate = device_copy_rate(device)
    rows: list[BenchRow] = []
    for name, make in RAGGED_CASES.items():
        for case in make() if name in chosen else ():
            rows.append(_shown(compare(case, "-", 0, options.repeats, rate)))
    for graph in _graphs(options) if chosen & set(GRAPH_CASES) else ():
        for name, make in GRAPH_CASES.items():
            for case in make(graph) if name in chosen else ():
                rows.append(_shown(compare(case, graph.name, graph.num_edges, options.repeats, rate)))
    if "growth" in chosen:
        rows += [_shown(row) for row in growth_rows(options.repeats)]
    if device != "cpu":
        from pipelines.bench_device_cases import device_cases

        for case, graph in device_cases(device):
            rows.append(_shown(compare(case, graph.name, graph.num_edges, options.repeats, rate)))
    return rows


def _shown(row: BenchRow) -> BenchRow:
    ratio = "differs" if row.ratio is None else f"{row.ratio:.1f}x"
    print(f"{row.op} | {row.graph} | {row.peer}: {ratio}", file=sys.stderr, flush=True)
    return row


def _device(asked: str) -> str:
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return asked


def _graphs(options: argparse.Namespace) -> Iterator[BenchGraph]:
    real = fb15k237()
    if real is None:
        print("FB15k-237 left out: $KGRAG_DATA/fb15k237/train.txt.gz is not there", file=sys.stderr)
    else:
        yield real
    for num_edges in [*options.edges, *([LARGE_EDGES] if options.large else [])]:
        yield power_law(int(num_edges))


def growth_rows(repeats: int) -> Iterator[BenchRow]:
    """Local ops on a graph of 10^5 edges and on one of 100 times as many, of equal degrees: the ratio is the growth."""
    small, large = power_law(100_000, seed=5), power_law(100_000 * GROWTH, seed=5, copies=GROWTH)
    for name, on_small, on_large in zip(LOCAL_OPS, _local(small), _local(large), strict=True):
        on_small()
        on_large()
        pairs = [(clock(on_small), clock(on_large)) for _ in range(max(5, repeats))]
        walls, cpus = ([[pair[side][kind] for pair in pairs] for side in (0, 1)] for kind in (0, 1))
        small_s, large_s = (sorted(column)[len(column) // 2] / on_graphs.QUESTIONS for column in walls)
        small_cpu_s, large_cpu_s = (sorted(column)[len(column) // 2] / on_graphs.QUESTIONS for column in cpus)
        yield BenchRow(
            op=f"growth: {name}",
            graph=large.name,
            num_edges=large.num_edges,
            batch=on_graphs.QUESTIONS,
            ours_s=small_s,
            peer=f"the same on {large.num_edges / small.num_edges:.0f} times the edges",
            peer_s=large_s,
            ratio=large_s / small_s,
            equal=True,
            ours_cpu_s=small_cpu_s,
            peer_cpu_s=large_cpu_s,
            note="to stay under 2",
        )


LOCAL_OPS = ("csr_expand, 64 x 3 anchors", "k_hop, 1 hop, 64 x 3 anchors", "frontier_relax, 3 hops, 200 labels")


def _local(graph: BenchGraph) -> list[Callable[[], object]]:
    """What a question asks of its neighbourhood, from the same seeds' worth of work on any graph."""
    count = on_graphs.QUESTIONS * on_graphs.GROUPS
    anchors = torch.randint(0, graph.num_nodes, (count,), generator=on_graphs.seeded(9))
    seeds, costs = on_graphs.relax_inputs(graph)
    each = torch.arange(count)

    def expand() -> torch.Tensor:
        return graph.neighbours.index_select(0, csr_expand(graph.offsets, anchors).slots)

    return [
        expand,
        lambda: k_hop(graph.offsets, graph.short, anchors, each, count, 1, form="lists"),
        lambda: frontier_relax(graph.relax, seeds, costs, num_hops=3, max_labels=200, form="sparse"),
    ]
