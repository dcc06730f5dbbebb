"""The definition of frontier_relax: hop by hop, node by node, slot by slot, in plain loops and float32."""

import numpy as np
import torch
from torch import Tensor

from kernels.frontier_relax.labels import RawLabels
from kernels.frontier_relax.problem import Problem


def reference_labels(problem: Problem) -> RawLabels:
    """Labels of all questions, the final ones marked, with the older ones that their paths need."""
    rows: list[list] = []  # key, cost, hops, parent, slot
    final: dict[int, int] = {}  # key -> row of its least label
    keys, costs = problem.starts()
    for key, cost in zip(keys.tolist(), costs.cpu().numpy(), strict=True):
        final[key] = len(rows)
        rows.append([key, cost, 0, -1, -1])
    frontier = dict(final)
    for hop in range(1, problem.num_hops + 1):
        arrivals = _arrivals(problem, rows, frontier)
        frontier = {}
        for key in sorted(arrivals):
            arriving, slot, parent = arrivals[key]
            cost = np.float32(arriving + _node_cost(problem, key))
            if cost <= problem.max_cost and np.isfinite(cost) and (key not in final or cost < rows[final[key]][1]):
                frontier[key] = len(rows)
                rows.append([key, cost, hop, parent, slot])
        final |= frontier
    return _trim(problem, rows, final)


def _arrivals(problem: Problem, rows: list[list], frontier: dict[int, int]) -> dict[int, tuple]:
    """For each key that the frontier reaches: least cost before the node's own, lowest slot, parent row."""
    num_nodes = problem.graph.num_nodes
    offsets, neighbours = problem.graph.offsets.tolist(), problem.graph.neighbours.tolist()
    arrivals: dict[int, tuple] = {}
    for key in sorted(frontier):
        column, node = divmod(key, num_nodes)
        for slot in range(offsets[node], offsets[node + 1]):
            arriving = np.float32(rows[frontier[key]][1])
            edge = problem.edge_costs_at(_one(problem, column // problem.num_groups), _one(problem, slot))
            if edge is not None:
                arriving = np.float32(arriving + edge.cpu().numpy()[0])
            target = column * num_nodes + neighbours[slot]
            if target not in arrivals or (arriving, slot) < arrivals[target][:2]:
                arrivals[target] = (arriving, slot, frontier[key])
    return arrivals


def _one(problem: Problem, number: int) -> Tensor:
    return torch.tensor([number], device=problem.device)


def _node_cost(problem: Problem, key: int) -> np.float32:
    column, node = divmod(key, problem.graph.num_nodes)
    return problem.node_costs_at(_one(problem, column // problem.num_groups), _one(problem, node)).cpu().numpy()[0]


def _trim(problem: Problem, rows: list[list], final: dict[int, int]) -> RawLabels:
    """Cut each question to its cheapest labels and drop the rows that no kept path passes."""
    span = problem.num_groups * problem.graph.num_nodes
    kept: set[int] = set()
    for question in range(problem.num_questions):
        own = [row for key, row in final.items() if key // span == question]
        own.sort(key=lambda row: (rows[row][1], rows[row][2], rows[row][0]))
        kept |= set(own if problem.max_labels is None else own[: problem.max_labels])
    needed = set(kept)
    for row in kept:
        while row >= 0:
            needed.add(row)
            row = rows[row][3]
    order = sorted(needed)
    place = {row: new for new, row in enumerate(order)}
    return RawLabels(
        keys=torch.tensor([rows[row][0] for row in order], dtype=torch.int64, device=problem.device),
        costs=torch.tensor([rows[row][1] for row in order], dtype=torch.float32, device=problem.device),
        hops=torch.tensor([rows[row][2] for row in order], dtype=torch.int64, device=problem.device),
        parents=torch.tensor([place.get(rows[row][3], -1) for row in order], dtype=torch.int64, device=problem.device),
        slots=torch.tensor([rows[row][4] for row in order], dtype=torch.int64, device=problem.device),
        is_final=torch.tensor([row in kept for row in order], dtype=torch.bool, device=problem.device),
    )
