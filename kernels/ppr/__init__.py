"""Batched personalised PageRank over a weighted CSR graph."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from kernels import backend as backends
from kernels import checks

COLUMNS = 64  # questions that share one pass over the edges
LANES = 16  # columns are padded to whole cache lines


class PprGraph(NamedTuple):
    """The graph as the walk reads it: for each node, who can step to it, with what weight.

    Made once by ``ppr_graph`` and used for any number of calls.
    """

    offsets: Int[Tensor, " nodes_plus_one"]
    sources: Int[Tensor, " slots"]
    weights: Float[Tensor, " slots"] | None
    strengths: Float[Tensor, " nodes"]


def ppr_graph(
    offsets: Int[Tensor, " nodes_plus_one"],
    neighbours: Int[Tensor, " slots"],
    weights: Float[Tensor, " slots"] | None = None,
    *,
    symmetric: bool = False,
) -> PprGraph:
    """Prepare a CSR graph for ``ppr``.

    The walk's convention: from node u it steps to ``neighbours[slot]`` with probability ``weights[slot]`` over the
    sum of u's weights (all 1 where weights are None). Duplicate edges count as often as they stand there, and a
    self-loop is a step that stays. A CSR over both directions walks both ways.

    Args:
        offsets, neighbours: out-edges of each node.
        weights: at least 0 and finite.
        symmetric: promise that every edge stands in both directions with one weight, so that nothing needs
            sorting; rows are then read as they are.

    Raises:
        ValueError: lengths, offsets or weights that do not fit. IndexError: a neighbour outside the graph.
        OverflowError: more than 2^31 - 1 slots.
    """
    neighbours = checks.integers("neighbours", neighbours)
    checks.same_device(offsets=offsets, neighbours=neighbours, weights=weights)
    checks.items_fit("slots", neighbours.numel(), "split the graph")
    offsets = checks.offsets_over("offsets", offsets, neighbours.numel(), "neighbours")
    num_nodes = offsets.numel() - 1
    checks.ids_below("neighbours", neighbours, num_nodes, "the graph")
    degrees = offsets[1:] - offsets[:-1]
    strengths = degrees.float()
    if weights is not None:
        checks.floats("weights", weights, 1)
        checks.same_length(neighbours=neighbours, weights=weights)
        if weights.numel() and not (bool(torch.isfinite(weights).all()) and float(weights.min()) >= 0):
            raise ValueError("weights must be finite and at least 0")
        running = torch.cat([weights.new_zeros(1, dtype=torch.float64), weights.double().cumsum(0)])
        strengths = (running[offsets[1:]] - running[offsets[:-1]]).float()
        strengths = torch.where(degrees > 0, strengths, 0.0)
    if symmetric:
        return PprGraph(offsets.int(), neighbours.int(), None if weights is None else weights.float(), strengths)
    order = torch.argsort(neighbours, stable=True)
    sources = torch.repeat_interleave(torch.arange(num_nodes, device=offsets.device), degrees)[order]
    counts = torch.bincount(neighbours, minlength=num_nodes)
    incoming = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return PprGraph(incoming.int(), sources.int(), None if weights is None else weights.float()[order], strengths)


def ppr(
    graph: PprGraph,
    restart: Float[Tensor, "questions nodes"],
    damping: float = 0.5,
    tolerance: float = 1e-6,
    *,
    columns: int = COLUMNS,
    backend: str = "auto",
) -> Float[Tensor, "questions nodes"]:
    """Personalised PageRank of every question (HippoRAG's retrieval step; Page et al. 1999).

    ``x = (1 - damping) restart + damping P^T x``, P the walk of ``ppr_graph``. A node without a way out hands its
    mass back to the restart. That changes a question's solution by one factor only, so the walk is run without it
    and the result is scaled to sum 1.

    The number of passes follows from ``damping`` and ``tolerance`` alone (``num_passes``), and a column never
    meets another one, so a question's result does not depend on the rest of the batch.

    Args:
        graph: from ``ppr_graph``.
        restart: weights at least 0; each row is scaled to sum 1. A row of zeros gives zeros.
        damping: chance of going on, within 0..1 (1 excluded).
        tolerance: bound on the L1 norm of ``x - (1 - damping) restart - damping P^T x``, before rounding.
        columns: questions that share a pass; changes memory and speed only.
        backend: ``auto``, ``reference`` (a dense solve in float64) or ``torch``.

    Returns:
        float32 [questions, nodes], each row of sum 1.

    Raises:
        ValueError: shapes, damping, tolerance, or restart weights below 0 or not finite.

    Working set: see ``ppr_bytes``.
    """
    checks.floats("restart", restart, 2)
    checks.same_device(graph=graph.sources, restart=restart)
    num_nodes = graph.strengths.numel()
    if restart.shape[1] != num_nodes:
        raise ValueError(f"restart must have a column for each of the {num_nodes} nodes (got {restart.shape[1]})")
    if not 0 <= damping < 1:
        raise ValueError(f"damping must lie in 0..1, 1 excluded (got {damping})")
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance must lie between 0 and 1 (got {tolerance})")
    if columns < 1:
        raise ValueError(f"columns must be at least 1 (got {columns})")
    if (restart.numel() and not float(restart.min()) >= 0) or not bool(torch.isfinite(restart.sum(1)).all()):
        raise ValueError("restart weights must be finite and at least 0")
    if backends.choose(backend, "ppr", has_triton_form=False) == "reference":
        from kernels.ppr.reference import solve
    else:
        from kernels.ppr.torch_impl import solve
    return solve(graph, restart, damping, num_passes(damping, tolerance), columns)


def num_passes(damping: float, tolerance: float) -> int:
    """Passes after which the L1 residual is at most ``tolerance``, whatever the graph: ``2 damping^(t + 1)`` bounds it.

    The walk starts from the restart itself. Summing the series from its first term would need a pass fewer by its own
    bound, but errs ten times more on real graphs: there the last term, which this start keeps, has mixed.
    """
    if damping == 0:
        return 0
    return max(0, math.ceil(math.log(tolerance / 2) / math.log(damping)) - 1)


def ppr_residual(
    graph: PprGraph, scores: Tensor, restart: Float[Tensor, "questions nodes"], damping: float = 0.5
) -> Float[Tensor, " questions"]:
    """L1 norm of ``x - (1 - damping) restart - damping (P^T x + lost mass restart)`` per question, in float64."""
    from kernels.ppr.torch_impl import residual

    return residual(graph, scores, restart, damping)


def ppr_bytes(num_questions: int, num_nodes: int, num_restarts: int = 0, columns: int = COLUMNS) -> int:
    """Peak bytes of the torch form above its inputs.

    Two float32 fields [nodes, columns], columns rounded up to whole cache lines; the output, which takes the place of
    one of them where all questions share one block; 16 bytes a node for the inverse strengths and their
    factors; 48 for each restart entry. (The CPU counts pages of the output from when they are written.)
    """
    width = min(columns, num_questions)
    width += -width % LANES
    fields, output = 8 * num_nodes * width, 4 * num_questions * num_nodes
    peak = max(fields, fields // 2 + output) if num_questions <= columns else fields + output
    return peak + 16 * num_nodes + 48 * num_restarts
