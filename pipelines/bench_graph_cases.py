"""What the benchmarks run on graphs: ppr, frontier_relax, k_hop and csr_expand against their named peers."""

import heapq
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from kernels import RelaxSeeds, csr_expand, frontier_relax, k_hop, ppr, ppr_residual, relax_field
from pipelines.bench_graphs import BenchGraph
from pipelines.bench_timing import Comparison

QUESTIONS, GROUPS, HOPS = 64, 3, 3
LARGE_NODES, FEW_QUESTIONS = 2_000_000, 8  # past that many nodes a batch has fewer questions, for memory's sake
DENSE_CELLS = 5e7  # nodes * questions * groups up to which the dense field is compared


def seeded(seed: int = 0) -> torch.Generator:
    """A generator of its own for each case."""
    return torch.Generator().manual_seed(seed)


def batch_of(graph: BenchGraph) -> int:
    """Questions in a batch on this graph."""
    return QUESTIONS if graph.num_nodes <= LARGE_NODES else FEW_QUESTIONS


def ppr_cases(graph: BenchGraph) -> Iterator[Comparison]:
    """Personalised PageRank of a batch of questions of five restart nodes, against igraph's prpack."""
    num_questions = batch_of(graph)
    restart = torch.zeros(num_questions, graph.num_nodes)
    for question in range(num_questions):
        restart[question, torch.randperm(graph.num_nodes, generator=seeded(question))[:5]] = 1 / torch.arange(1.0, 6.0)
    reset = (restart[0].double() / restart[0].double().sum()).tolist()

    def agree(ours, peer) -> bool:
        reference = torch.tensor(peer, dtype=torch.float64)
        residual = float(ppr_residual(graph.walk, ours, restart).max())
        return residual < 1e-6 and same_ranking(ours[0].double(), reference, 100, 1e-7)

    yield Comparison(
        "ppr, residual < 1e-6",
        num_questions,
        lambda: ppr(graph.walk, restart),
        "igraph prpack",
        lambda: graph.igraph.personalized_pagerank(damping=0.5, reset=reset, directed=False),
        agree,
        bytes_moved=20 * graph.neighbours.numel() * 4 * num_questions,
    )


def same_ranking(ours: Tensor, peer: Tensor, count: int, tie: float) -> bool:
    """True where the first ``count`` are are in the same order; peer scores closer than ``tie`` are equal."""
    left, right = torch.topk(ours, min(count, ours.numel())).indices, torch.topk(peer, min(count, ours.numel())).indices
    return bool(((peer[left] - peer[right]).abs() <= tie).all())


def relax_inputs(graph: BenchGraph) -> tuple[RelaxSeeds, Tensor]:
    """Two seeds for each of three groups of 64 questions, and node costs between 0.1 and 1."""
    num_questions = batch_of(graph)
    pairs = num_questions * GROUPS
    seeds = RelaxSeeds(
        torch.arange(num_questions).repeat_interleave(2 * GROUPS),
        torch.arange(GROUPS).repeat_interleave(2).repeat(num_questions),
        torch.randint(0, graph.num_nodes, (2 * pairs,), generator=seeded()),
    )
    return seeds, torch.rand(num_questions, graph.num_nodes, generator=seeded(1)) * 0.9 + 0.1


def relax_cases(graph: BenchGraph) -> Iterator[Comparison]:
    """Dense field against scipy and a heap in Python on small graphs; labels within a cost limit on all."""
    num_questions = batch_of(graph)
    seeds, costs = relax_inputs(graph)
    starts = seeds.node_ids.view(num_questions, GROUPS, 2).numpy()
    matrix = scipy_matrix(graph, costs[0])
    graph.relax.incoming  # noqa: B018 - made once for a graph, as the peers' matrices are
    if graph.num_nodes * num_questions * GROUPS <= DENSE_CELLS:
        yield from _dense_cases(graph, seeds, costs, starts, matrix)
    limit = _limit_for(graph, seeds, costs, labels=1000)

    def within():
        return frontier_relax(graph.relax, seeds, costs, num_hops=30, max_cost=limit, form="sparse")

    def agree(labels, peer) -> bool:
        first = slice(0, int(labels.question_offsets[1]))
        final = labels.is_final[first]
        field = torch.full((GROUPS, graph.num_nodes), float("inf"))
        field[labels.group_ids[first][final], labels.node_ids[first][final]] = labels.costs[first][final]
        other = torch.from_numpy(np.stack(peer))
        # rounding decides on which side of the limit a node is that lies on it
        border = ((other - limit).abs() < 1e-5) | ((field - limit).abs() < 1e-5)
        return bool((torch.isclose(field.double(), other, atol=1e-5) | border).all())

    yield Comparison(
        "frontier_relax, sparse labels within a cost",
        num_questions,
        within,
        "scipy dijkstra(limit)",
        lambda: [dijkstra(matrix, row, limit) for row in starts[0]],
        agree,
        note=f"limit {limit:.2f}, about 1,000 labels a question",
    )


def _dense_cases(graph: BenchGraph, seeds: RelaxSeeds, costs: Tensor, starts, matrix) -> Iterator[Comparison]:
    """The whole field within three hops, and its cheapest labels."""
    num_questions = batch_of(graph)

    def field():
        return relax_field(graph.relax, seeds, costs, num_hops=HOPS)

    def equals_scipy(_, peer) -> bool:
        unlimited = relax_field(graph.relax, seeds, costs, num_hops=60)
        other = torch.from_numpy(np.stack(peer))
        return torch.allclose(unlimited[0].double(), other, atol=1e-5)

    def equals_heap(ours, peer) -> bool:
        return torch.allclose(ours[0, 0].double(), torch.from_numpy(peer), atol=1e-5)

    moved = 2 * graph.neighbours.numel() * 4 * num_questions * GROUPS
    scipy_all = lambda: [dijkstra(matrix, row) for row in starts[0]]  # noqa: E731
    yield Comparison(
        "frontier_relax, dense field, 3 hops",
        num_questions,
        field,
        "scipy dijkstra",
        scipy_all,
        equals_scipy,
        bytes_moved=moved,
    )
    yield Comparison(
        "frontier_relax, dense field, 3 hops",
        num_questions * GROUPS,
        field,
        "heap Dijkstra in Python (one group)",
        lambda: heap_dijkstra(graph, starts[0, 0], costs[0]),
        equals_heap,
    )

    def labels():
        return frontier_relax(graph.relax, seeds, costs, num_hops=HOPS, max_labels=500, form="dense")

    def head_of_field(table, _) -> bool:
        cheapest = torch.sort(field()[0].reshape(-1)).values[:500]
        first = slice(0, int(table.question_offsets[1]))
        return torch.equal(table.costs[first][table.is_final[first]], cheapest)

    yield Comparison(
        "frontier_relax, dense, 500 labels with parents",
        num_questions,
        labels,
        "scipy dijkstra, predecessors",
        lambda: [dijkstra(matrix, row, predecessors=True) for row in starts[0]],
        head_of_field,
    )
    yield Comparison(
        "frontier_relax, sparse, 500 labels with parents",
        num_questions,
        lambda: frontier_relax(graph.relax, seeds, costs, num_hops=HOPS, max_labels=500, form="sparse"),
        "its own dense form",
        labels,
        lambda ours, theirs: all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True)),
        peer_batch=num_questions,
    )


def _limit_for(graph: BenchGraph, seeds: RelaxSeeds, costs: Tensor, labels: int) -> float:
    """A cost limit under which a question has about ``labels`` labels."""
    table = frontier_relax(graph.relax, seeds, costs, num_hops=10, max_labels=labels, form="sparse")
    return float(torch.median(table.costs[table.question_offsets[1:] - 1]))


def scipy_matrix(graph: BenchGraph, costs: Tensor):
    """Edge weights of one question: what entering the edge's end costs."""
    from scipy.sparse import csr_matrix

    weights = costs[graph.neighbours].double().numpy()
    shape = (graph.num_nodes, graph.num_nodes)
    return csr_matrix((weights, graph.short.numpy(), graph.offsets.int().numpy()), shape=shape)


def dijkstra(matrix, starts, limit: float = float("inf"), predecessors: bool = False):
    """scipy's Dijkstra from the nearest of several starts."""
    from scipy.sparse.csgraph import dijkstra as run

    return run(matrix, indices=starts, min_only=True, limit=limit, return_predecessors=predecessors)


def heap_dijkstra(graph: BenchGraph, starts, costs: Tensor) -> np.ndarray:
    """Least costs within HOPS edges by a heap of (cost, node, hops), as one would write it in Python."""
    offsets, neighbours, entering = graph.offsets.tolist(), graph.neighbours.tolist(), costs.tolist()
    best = [float("inf")] * graph.num_nodes
    fewest = [HOPS + 1] * graph.num_nodes
    heap = [(0.0, int(node), 0) for node in starts]
    while heap:
        cost, node, hops = heapq.heappop(heap)
        if hops >= fewest[node]:
            continue
        fewest[node] = hops
        best[node] = min(best[node], cost)
        if hops < HOPS:
            for slot in range(offsets[node], offsets[node + 1]):
                after = neighbours[slot]
                if hops + 1 < fewest[after]:
                    heapq.heappush(heap, (cost + entering[after], after, hops + 1))
    return np.array(best)


def k_hop_cases(graph: BenchGraph) -> Iterator[Comparison]:
    """Three hops of 64 questions of three anchors, against igraph and torch_geometric."""
    num_questions = batch_of(graph)
    anchors = torch.randint(0, graph.num_nodes, (num_questions * GROUPS,), generator=seeded(2))
    each = torch.arange(num_questions * GROUPS)

    def per_anchor():
        return k_hop(graph.offsets, graph.short, anchors, each, each.numel(), HOPS)

    def per_question():
        return k_hop(graph.offsets, graph.short, anchors, each // GROUPS, num_questions, HOPS)

    def igraph_lists():
        return graph.igraph.neighborhood(anchors.tolist(), order=HOPS)

    def igraph_unions():
        lists = igraph_lists()
        return [np.unique(np.concatenate(lists[first : first + GROUPS])) for first in range(0, len(lists), GROUPS)]

    def same_sets(ours, lists) -> bool:
        bounds = ours.offsets.tolist()
        return all(
            np.array_equal(ours.node_ids[bounds[row] : bounds[row + 1]].numpy(), np.sort(nodes))
            for row, nodes in enumerate(lists)
        )

    name = f"k_hop, 3 hops, {num_questions} x 3"
    yield Comparison(
        f"{name} anchors",
        num_questions,
        per_anchor,
        "igraph neighborhood",
        igraph_lists,
        same_sets,
        peer_batch=num_questions,
    )
    yield Comparison(
        f"{name}, union",
        num_questions,
        per_question,
        "igraph neighborhood, numpy union",
        igraph_unions,
        same_sets,
        peer_batch=num_questions,
    )
    yield from _pyg_cases(graph, name, anchors, per_question)
    yield Comparison(
        "k_hop, 3 hops, one anchor",
        1,
        lambda: k_hop(graph.offsets, graph.short, anchors[:1], each[:1], 1, HOPS),
        "igraph neighborhood",
        lambda: graph.igraph.neighborhood(anchors[:1].tolist(), order=HOPS),
        same_sets,
    )


def _pyg_cases(graph: BenchGraph, name: str, anchors: Tensor, per_question) -> Iterator[Comparison]:
    """torch_geometric walks one question's anchors at a time."""
    edge_index = torch.stack([graph.neighbours, graph.sources])

    def pyg():
        from torch_geometric.utils import k_hop_subgraph

        return k_hop_subgraph(anchors[:GROUPS], HOPS, edge_index, num_nodes=graph.num_nodes)[0]

    def same_first(ours, nodes) -> bool:
        return torch.equal(ours.node_ids[: int(ours.offsets[1])], torch.sort(nodes).values)

    batch = batch_of(graph)
    yield Comparison(f"{name}, union", batch, per_question, "PyG k_hop_subgraph", pyg, same_first)


def expand_cases(graph: BenchGraph) -> Iterator[Comparison]:
    """The neighbours of 100,000 rows (or all), against scipy's row selection."""
    from scipy.sparse import csr_matrix

    rows = torch.randint(0, graph.num_nodes, (min(100_000, graph.num_nodes),), generator=seeded(3))
    data = (np.ones(graph.neighbours.numel(), np.int8), graph.short.numpy(), graph.offsets.int().numpy())
    matrix = csr_matrix(data, shape=(graph.num_nodes, graph.num_nodes))
    chosen = rows.numpy()

    def ours():
        slots, owners = csr_expand(graph.offsets, rows)
        return graph.short.index_select(0, slots), owners

    yield Comparison(
        "csr_expand and gather",
        1,
        ours,
        "scipy rows (no owners)",
        lambda: matrix[chosen],
        lambda mine, other: np.array_equal(mine[0].numpy(), other.indices),
        bytes_moved=int(graph.offsets.diff()[rows].sum()) * 28,
    )
