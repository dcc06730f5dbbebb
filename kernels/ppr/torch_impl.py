"""ppr in torch: power iteration on [nodes, questions] fields, one pass over the edges for a block of questions.

A pass is torch's embedding_bag (sum of the rows that each node's slots name): it prefetches the rows and runs about
twice as fast on the CPU as the sparse matrix product. The field holds ``x / strength``, so an unweighted graph
needs no weight per slot; the division and the damping are one factor for each node.
"""

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from kernels.ppr import LANES, PprGraph


def solve(graph: PprGraph, restart: Tensor, damping: float, passes: int, columns: int) -> Tensor:
    """[questions, nodes] float32, each row of sum 1 (or 0 where the restart is empty)."""
    out = None
    safe = torch.where(graph.strengths > 0, graph.strengths, 1.0)
    for start in range(0, restart.shape[0], columns):
        part = slice(start, start + columns)
        field, totals = _solve_block(graph, restart[part], damping, passes, safe)
        if out is None:  # not before one of the first block's two fields is free
            out = torch.empty(restart.shape, dtype=torch.float32, device=restart.device)
        torch.div(field.T[: totals.numel()], torch.where(totals > 0, totals, 1.0).float()[:, None], out=out[part])
        del field
    return torch.empty_like(restart, dtype=torch.float32) if out is None else out


def _solve_block(graph: PprGraph, restart: Tensor, damping: float, passes: int, safe: Tensor) -> tuple[Tensor, Tensor]:
    """The walk's scores [nodes, padded questions], not yet scaled, and the float64 sum of each question's."""
    questions, nodes, mass = _entries(restart)
    width = restart.shape[0] + -restart.shape[0] % LANES
    field = torch.zeros((safe.numel(), width), dtype=torch.float32, device=restart.device)
    # a node without a way out has no slot that reads it: dividing it by 1 keeps its own score
    field[nodes, questions] = (mass / safe[nodes].double()).float()
    again = ((1 - damping) * mass / safe[nodes].double()).float()
    factor = (damping / safe)[:, None]
    for _ in range(passes):
        field = gather_sum(graph, field)
        field *= factor
        field[nodes, questions] += again  # each (node, question) stands there once
    field *= safe[:, None]
    return field, _column_sums(field)[: restart.shape[0]]


def gather_sum(graph: PprGraph, field: Tensor) -> Tensor:
    """``out[v] = sum over v's slots of weight * field[source]``."""
    return embedding_bag(
        graph.sources,
        field,
        graph.offsets,
        mode="sum",
        per_sample_weights=None if graph.weights is None else graph.weights.to(field.dtype),
        include_last_offset=True,
    )


def _entries(restart: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Questions, nodes and float64 weights of the restart's entries, each question's weights of sum 1."""
    questions, nodes = torch.nonzero(restart, as_tuple=True)
    mass = restart[questions, nodes].double()
    totals = restart.sum(1, dtype=torch.float64)
    return questions, nodes, mass / totals[questions]


def _column_sums(field: Tensor) -> Tensor:
    """float64 sums of the columns, in an order that depends on the number of nodes alone."""
    totals = torch.zeros(field.shape[1], dtype=torch.float64, device=field.device)
    for block in torch.split(field, 1 << 14):
        totals += block.sum(0, dtype=torch.float64)
    return totals


def residual(graph: PprGraph, scores: Tensor, restart: Tensor, damping: float) -> Tensor:
    """L1 residual of each question in float64."""
    wide = scores.double().T.contiguous()  # [nodes, questions]
    start = restart.double().T
    start = start / start.sum(0).clamp(min=torch.finfo(torch.float64).tiny)
    safe = torch.where(graph.strengths > 0, graph.strengths, 1.0).double()
    moved = gather_sum(graph, wide / safe[:, None])
    lost = wide[graph.strengths == 0].sum(0)
    return (wide - (1 - damping) * start - damping * (moved + lost * start)).abs().sum(0)
