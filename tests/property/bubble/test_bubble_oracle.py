"""Meetings and candidates against a heap and brute force on small random graphs."""

import heapq
import itertools
import random
import statistics

import numpy as np
import pytest
import torch

from kernels.frontier_relax import RelaxSeeds
from kgrag_gpu.expansion.bubble import bubble_graph, candidates, expand, meetings
from kgrag_gpu.tensors.csr_graph import CsrGraph

HOPS = 3


def random_case(seed: int, num_nodes: int, num_groups: int):
    """(graph, edges, node costs, starts of each group): a random connected graph and costs in steps of 1/64."""
    draw = random.Random(seed)
    edges = [(draw.randrange(v), v) for v in range(1, num_nodes)]
    edges += [tuple(draw.sample(range(num_nodes), 2)) for _ in range(num_nodes // 2)]
    costs = torch.tensor([[draw.randrange(1, 128) / 64 for _ in range(num_nodes)]])
    starts = [draw.sample(range(num_nodes), draw.randint(1, 2)) for _ in range(num_groups)]
    heads, tails = np.array(edges).T
    graph = CsrGraph.from_triples(heads, np.zeros_like(heads), tails, num_nodes)
    return graph, edges, costs, starts


def search(graph, costs, starts, num_kept=10, hops=HOPS):
    pairs = [(g, v) for g, row in enumerate(starts) for v in row]
    groups, nodes = (torch.tensor(column) for column in zip(*pairs, strict=True))
    bubbles = bubble_graph(graph, 1000, 0)
    weights = torch.full((1, len(starts)), 1 / len(starts), dtype=torch.float64)
    labels = expand(bubbles, RelaxSeeds(torch.zeros_like(groups), groups, nodes), costs, None, hops, None, len(starts))
    met = meetings(labels, costs, weights)
    return met, candidates(labels, met, 1, len(starts), costs.shape[1], bubbles, num_kept)


def distances(edges, costs, starts, hops=HOPS) -> dict[int, float]:
    """Least cost of a path of at most `hops` edges, by a heap over (cost, hops, node)."""
    near: dict[int, list[int]] = {}
    for a, b in edges:
        near.setdefault(a, []).append(b)
        near.setdefault(b, []).append(a)
    best: dict[int, float] = {}
    seen: dict[int, int] = {}
    heap = [(0.0, 0, v) for v in sorted(starts)]
    while heap:
        cost, steps, node = heapq.heappop(heap)
        if seen.get(node, hops + 1) <= steps:
            continue
        seen[node] = steps
        best.setdefault(node, cost)
        if steps < hops:
            for other in near.get(node, []):
                heapq.heappush(heap, (cost + costs[other], steps + 1, other))
    return best


@pytest.mark.parametrize("block", range(10))
def test_meetings_equal_brute_force(block):
    for seed in range(100 * block, 100 * block + 100):
        num_nodes, num_groups = 8 + seed % 53, 2 + seed % 2
        graph, edges, costs, starts = random_case(seed, num_nodes, num_groups)
        met, _ = search(graph, costs, starts)
        fields = [distances(edges, costs[0].tolist(), row) for row in starts]
        expected = {}
        for node in range(num_nodes):
            reached = [field[node] for field in fields if node in field]
            if len(reached) >= 2:
                expected[node] = (len(reached), sum(reached) - (len(reached) - 1) * float(costs[0, node]))
        found = {
            n: (c, cost)
            for n, c, cost in zip(met.node_ids.tolist(), met.num_groups.tolist(), met.costs.tolist(), strict=True)
        }
        assert found.keys() == expected.keys()
        for node, (count, cost) in expected.items():
            assert found[node][0] == count
            assert found[node][1] == pytest.approx(cost, abs=1e-5)
        order = [(-n / num_groups, cost) for n, cost in zip(met.num_groups.tolist(), met.costs.tolist(), strict=True)]
        assert order == sorted(order)


def test_candidates_are_connected_and_hold_their_meeting():
    for seed in range(100):
        graph, edges, costs, starts = random_case(seed, 10 + seed % 30, 3)
        _, found = search(graph, costs, starts)
        for c in range(len(found.question_ids)):
            nodes = set(found.node_ids[found.node_offsets[c] : found.node_offsets[c + 1]].tolist())
            rows = found.edge_ids[found.edge_offsets[c] : found.edge_offsets[c + 1]].tolist()
            assert int(found.meeting_ids[c]) in nodes
            reached, left = {int(found.meeting_ids[c])}, [edges[row] for row in rows]
            while any((a in reached) != (b in reached) for a, b in left):
                reached |= {v for a, b in left if a in reached or b in reached for v in (a, b)}
            assert reached == nodes
            for group, row in enumerate(starts):
                assert not found.covered[c, group] or nodes & set(row)


def steiner_cost(edges, costs, starts, num_nodes: int) -> float:
    """Least cost of a connected set that touches every group: its nodes' costs, one start of each group free."""
    best = float("inf")
    for picked in itertools.product(*starts):
        free = set(picked)
        others = [v for v in range(num_nodes) if v not in free]
        for size in range(len(others) + 1):
            for extra in itertools.combinations(others, size):
                nodes = free | set(extra)
                total = sum(costs[v] for v in extra)
                if total < best and _connected(nodes, edges):
                    best = total
    return best


def _connected(nodes: set[int], edges) -> bool:
    reached, grown = {min(nodes)}, True
    while grown:
        grown = False
        for a, b in edges:
            if a in nodes and b in nodes and (a in reached) != (b in reached):
                reached |= {a, b}
                grown = True
    return reached == nodes


def test_best_candidate_is_near_the_exact_steiner_optimum():
    ratios = []
    for seed in range(300):
        num_nodes = 5 + seed % 4
        graph, edges, costs, starts = random_case(seed, num_nodes, 3)
        _, found = search(graph, costs, starts, hops=num_nodes)
        own = []
        for c in torch.nonzero(found.covered.all(1)).flatten().tolist():
            nodes = set(found.node_ids[found.node_offsets[c] : found.node_offsets[c + 1]].tolist())
            free = [min(nodes & set(row), key=lambda v: -float(costs[0, v])) for row in starts]
            own.append(sum(float(costs[0, v]) for v in nodes - set(free)))
        best = steiner_cost(edges, costs[0].tolist(), starts, num_nodes)
        ratios.append(min(own) / best if best else 1.0 + min(own))
    assert len(ratios) == 300
    assert min(ratios) >= 1.0 - 1e-6
    assert statistics.median(ratios) <= 1.05
