"""Bubble expansion (BubbleRAG, Section 4.3): fronts of the anchor groups, their meetings, and what lies between.

For each (question, group) the least cost of a path from the group to every node within h hops, on a field where
entering node v costs `1 - cos(question, v)` and an edge `edge_weight (1 - cos(question, edge))`. A node that two or
more groups reach is a meeting; its cost is the sum of theirs less (m - 1) times its own, which is counted once.
The best meetings are traced back to candidate subgraphs. The hop limit is the local graph: nothing farther is reached.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

from kernels import csr_expand
from kernels.frontier_relax import RelaxGraph, RelaxLabels, RelaxSeeds, frontier_relax, trace_paths
from kgrag_gpu.tensors.csr_graph import CsrGraph


class BubbleGraph(NamedTuple):
    """The graph that fronts run over. Hubs keep a seeded sample of their edges: `num_dropped` says how many not."""

    relax: RelaxGraph
    edge_ids: Int64[Tensor, " slots"]
    num_dropped: Int64[Tensor, " entities"]


class Candidates(NamedTuple):
    """Candidate subgraphs, question by question, best meeting first.

    `covered[c, g]` says whether group g of the question reaches candidate c. Nodes and edges are ragged: candidate c
    holds `node_ids[node_offsets[c] : node_offsets[c + 1]]`, each once, and likewise its edges.
    """

    question_ids: Int64[Tensor, " candidates"]
    meeting_ids: Int64[Tensor, " candidates"]  # the node where the fronts met; the end of the path where none did
    costs: Float64[Tensor, " candidates"]
    covered: Bool[Tensor, "candidates groups"]
    diameters: Int64[Tensor, " candidates"]
    node_offsets: Int64[Tensor, " candidates_plus_1"]
    node_ids: Int64[Tensor, " nodes"]
    node_hops: Int64[Tensor, " nodes"]  # steps from the start of the path that brought the node in, the longest
    edge_offsets: Int64[Tensor, " candidates_plus_1"]
    edge_ids: Int64[Tensor, " edges"]


def bubble_graph(graph: CsrGraph, hub_limit: int, seed: int) -> BubbleGraph:
    """The KG's edges in both directions, at most `hub_limit` at a node; which ones of a hub stay is drawn by `seed`."""
    degrees = graph.degrees()
    dropped = (degrees - hub_limit).clamp(min=0)
    if not bool(dropped.any()):
        return BubbleGraph(RelaxGraph(graph.offsets, graph.neighbours), graph.edge_ids.long(), dropped)
    owners = torch.repeat_interleave(torch.arange(graph.num_entities, device=degrees.device), degrees)
    slots = torch.arange(graph.num_slots, device=degrees.device)
    # A hash of the slot in place of a random number: the same for any device and order.
    noise = (slots * 0x9E3779B1 + (seed + 1) * 0x85EBCA77) % 0x7FFFFFFF
    noise = (noise * 48271) % 0x7FFFFFFF
    order = torch.argsort(noise, stable=True)
    order = order[torch.argsort(owners[order], stable=True)]
    place = torch.arange(len(order), device=order.device) - graph.offsets[owners[order]]
    kept = torch.sort(order[place < hub_limit]).values
    offsets = torch.cat([degrees.new_zeros(1), (degrees - dropped).cumsum(0)])
    return BubbleGraph(RelaxGraph(offsets, graph.neighbours[kept]), graph.edge_ids[kept].long(), dropped)


def expand(
    graph: BubbleGraph,
    seeds: RelaxSeeds,
    node_costs: Float[Tensor, "questions nodes"],
    edge_costs: Float[Tensor, "questions edges"] | None,
    num_hops: int,
    max_labels: int | None,
    num_groups: int,
) -> RelaxLabels:
    """The fronts of all groups of a batch, cheapest labels first (`kernels.frontier_relax`)."""
    return frontier_relax(
        graph.relax,
        seeds,
        node_costs,
        num_hops=num_hops,
        edge_costs=edge_costs,
        edge_ids=graph.edge_ids,
        max_labels=max_labels,
        num_questions=node_costs.shape[0],
        num_groups=num_groups,
    )


class Meetings(NamedTuple):
    """Nodes that two or more groups of a question reach, sorted by (question, coverage falling, cost, node)."""

    question_ids: Int64[Tensor, " meetings"]
    node_ids: Int64[Tensor, " meetings"]
    costs: Float64[Tensor, " meetings"]
    coverage: Float64[Tensor, " meetings"]
    num_groups: Int64[Tensor, " meetings"]


def meetings(
    labels: RelaxLabels,
    node_costs: Float[Tensor, "questions nodes"],
    weights: Float64[Tensor, "questions groups"],
) -> Meetings:
    """Where fronts meet: cost `sum_g D[g, v] - (m - 1) cost(v)`, coverage the weight of the groups that reach v."""
    rows = torch.nonzero(labels.is_final).flatten()
    questions, nodes = labels.question_ids[rows], labels.node_ids[rows]
    num_nodes = node_costs.shape[1]
    keys, inverse, counts = torch.unique(questions * num_nodes + nodes, return_inverse=True, return_counts=True)
    # Sorted first, then added in order: sums in float64 of few float32 numbers are the same for any batch.
    total = torch.zeros(len(keys), dtype=torch.float64, device=keys.device).index_add_(
        0, inverse, labels.costs[rows].double()
    )
    reached = torch.zeros_like(total).index_add_(0, inverse, weights[questions, labels.group_ids[rows]])
    met = counts >= 2
    keys, counts, reached = keys[met], counts[met], reached[met].mul(1e9).round().div(1e9)
    at = keys // num_nodes
    own = node_costs.reshape(-1)[keys].double()
    costs = total[met] - (counts - 1) * own
    order = torch.argsort(costs, stable=True)
    order = order[torch.argsort(reached[order], descending=True, stable=True)]
    order = order[torch.argsort(at[order], stable=True)]
    return Meetings(at[order], (keys % num_nodes)[order], costs[order], reached[order], counts[order])


class MatchedEdges(NamedTuple):
    """Edges that groups are matched by: where a front of such a group starts, and with which edge.

    `keys`, ascending, are `(question * groups + group) * nodes + node` for both ends of each edge.
    """

    keys: Int64[Tensor, " starts"]
    edge_ids: Int64[Tensor, " starts"]
    ends: Int64[Tensor, "edges 2"]  # heads and tails of all edges


def candidates(
    labels: RelaxLabels, found: Meetings, num_questions: int, num_groups: int, num_nodes: int, graph: BubbleGraph,
    num_kept: int, matched: MatchedEdges | None = None,
) -> Candidates:  # fmt: skip
    """The best `num_kept` meetings of each question traced back; where none met, the cheapest paths of one group.

    A path that starts at an end of a matched edge brings the edge and its other end in: the group is the edge.
    """
    place = torch.arange(len(found.node_ids), device=found.node_ids.device) - torch.searchsorted(
        found.question_ids, found.question_ids
    )
    kept = place < num_kept
    questions, nodes, costs = found.question_ids[kept], found.node_ids[kept], found.costs[kept]
    rows, owners = _labels_at(labels, questions, nodes, num_nodes)
    lonely = torch.ones(num_questions, dtype=torch.bool, device=nodes.device)
    lonely[questions] = False
    single = torch.nonzero(labels.is_final & (labels.hops > 0) & lonely[labels.question_ids]).flatten()
    place = torch.arange(len(single), device=single.device) - torch.searchsorted(
        labels.question_ids[single], labels.question_ids[single]
    )
    single = single[place < num_kept]
    owners = torch.cat([owners, len(questions) + torch.arange(len(single), device=single.device)])
    rows = torch.cat([rows, single])
    questions = torch.cat([questions, labels.question_ids[single]])
    nodes = torch.cat([nodes, labels.node_ids[single]])
    costs = torch.cat([costs, labels.costs[single].double()])
    order = torch.argsort(questions, stable=True)
    new_place = torch.empty_like(order)
    new_place[order] = torch.arange(len(order), device=order.device)
    return _traced(labels, rows, new_place[owners], questions[order], nodes[order], costs[order], num_groups, graph,
                   matched)  # fmt: skip


def _labels_at(labels: RelaxLabels, questions: Tensor, nodes: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Rows of the final labels at each (question, node), and the pair's position; by pair."""
    rows = torch.nonzero(labels.is_final).flatten()
    keys = labels.question_ids[rows] * num_nodes + labels.node_ids[rows]
    order = torch.argsort(keys, stable=True)
    keys, rows = keys[order], rows[order]
    wanted = questions * num_nodes + nodes
    left, right = torch.searchsorted(keys, wanted), torch.searchsorted(keys, wanted, right=True)
    counts = right - left
    bounds = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    slots, owners = csr_expand(bounds, torch.arange(len(wanted), device=wanted.device))
    return rows[left[owners] + slots - bounds[owners]], owners


def _traced(
    labels: RelaxLabels, rows: Tensor, owners: Tensor, questions: Tensor, nodes: Tensor, costs: Tensor,
    num_groups: int, graph: BubbleGraph, matched: MatchedEdges | None,
) -> Candidates:  # fmt: skip
    num = len(questions)
    order = torch.argsort(owners, stable=True)
    rows, owners = rows[order], owners[order]
    covered = torch.zeros(num, num_groups, dtype=torch.bool, device=rows.device)
    covered[owners, labels.group_ids[rows]] = True
    paths = trace_paths(labels, rows)
    lengths = paths.offsets[1:] - paths.offsets[:-1]
    path_of_step = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), lengths)
    step_owner = owners[path_of_step]
    hops = torch.arange(len(paths.node_ids), device=rows.device) - paths.offsets[path_of_step]
    num_nodes = graph.relax.num_nodes
    node_keys = step_owner * num_nodes + paths.node_ids
    steps = torch.nonzero(paths.slots >= 0).flatten()
    num_edges = int(graph.edge_ids.max()) + 1 if len(graph.edge_ids) else 1
    edge_keys = step_owner[steps] * num_edges + graph.edge_ids[paths.slots[steps]]
    if matched is not None and len(matched.keys):
        starts = paths.node_ids[paths.offsets[:-1]]
        keys = (labels.question_ids[rows] * num_groups + labels.group_ids[rows]) * num_nodes + starts
        place = torch.searchsorted(matched.keys, keys).clamp(max=len(matched.keys) - 1)
        has_edge = matched.keys[place] == keys
        edges, own = matched.edge_ids[place[has_edge]], owners[has_edge]
        edge_keys = torch.cat([edge_keys, own * num_edges + edges])
        node_keys = torch.cat([node_keys, (own[:, None] * num_nodes + matched.ends[edges]).flatten()])
        hops = torch.cat([hops, hops.new_zeros(2 * len(edges))])
    node_keys, inverse = torch.unique(node_keys, return_inverse=True)
    node_hops = torch.zeros_like(node_keys).scatter_reduce_(0, inverse, hops, "amax")
    edge_keys = torch.unique(edge_keys)
    return Candidates(
        questions,
        nodes,
        costs,
        covered,
        _diameters(labels.hops[rows], owners, num),
        _offsets(node_keys // num_nodes, num),
        node_keys % num_nodes,
        node_hops,
        _offsets(edge_keys // num_edges, num),
        edge_keys % num_edges,
    )


def _diameters(hops: Tensor, owners: Tensor, num: int) -> Int64[Tensor, " candidates"]:
    """Hops of the two longest paths that meet, together; 1 at least."""
    order = torch.argsort(hops, descending=True, stable=True)
    order = order[torch.argsort(owners[order], stable=True)]
    sorted_owners = owners[order]
    place = torch.arange(len(order), device=order.device) - torch.searchsorted(sorted_owners, sorted_owners)
    longest = torch.where(place < 2, hops[order], 0)
    return torch.zeros(num, dtype=torch.int64, device=hops.device).index_add_(0, sorted_owners, longest).clamp(min=1)


def _offsets(owners: Tensor, num: int) -> Int64[Tensor, " candidates_plus_1"]:
    counts = torch.bincount(owners, minlength=num)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])
