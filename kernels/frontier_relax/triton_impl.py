"""The two inner steps of frontier_relax in Triton: min-plus over in-edges, and the least arrival at each key.

Both give the bits of the torch forms: a minimum does not depend on the order, and the atomic one compares
(cost, candidate) as one integer, so that ties are settled by the candidate's place.
"""

# Triton turns plain values into constexpr at the call, which its annotations do not say.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.frontier_relax.problem import INFINITY, Problem, cost_bits
from kernels.frontier_relax.torch_dense import edge_block, edge_step

COLUMNS, CANDIDATES = 64, 512
SCRATCH_KEYS = 1 << 27  # 1 GiB of int64; a wider span of keys is sorted instead
_LARGEST = torch.iinfo(torch.int64).max


@triton.jit
def _relax_kernel(
    layer,
    offsets,
    sources,
    edges,
    out,
    width,
    first,
    past,
    groups,
    edge_width,
    EDGES: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    node = tl.program_id(0).to(tl.int64)
    column = first + tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < past
    least = tl.full([COLUMNS], float("inf"), tl.float32)
    begin = tl.load(offsets + node).to(tl.int64)
    end = tl.load(offsets + node + 1).to(tl.int64)
    for slot in range(begin, end):
        source = tl.load(sources + slot).to(tl.int64)
        arriving = tl.load(layer + source * width + column, mask=inside, other=float("inf"))
        if EDGES:
            question = tl.minimum((column - first) // groups, edge_width - 1)
            arriving += tl.load(edges + slot * edge_width + question, mask=inside, other=0.0)
        least = tl.minimum(least, arriving)
    tl.store(out + node * width + column, least, mask=inside)


def relax_once(problem: Problem, layer: Tensor) -> Tensor:
    """Least cost of arriving at each node by one more edge, the node's own cost not yet counted."""
    offsets, sources, slots = problem.graph.incoming
    out = torch.empty_like(layer)
    groups = problem.num_groups
    step = problem.num_questions if problem.edge_costs is None else edge_step(problem)
    for first in range(0, problem.num_questions if layer.numel() else 0, max(1, step)):
        past = min(first + step, problem.num_questions)
        edges = layer if problem.edge_costs is None else edge_block(problem, slots, first, past).contiguous()
        grid = (layer.shape[0], triton.cdiv((past - first) * groups, COLUMNS))
        _relax_kernel[grid](
            layer,
            offsets,
            sources,
            edges,
            out,
            layer.shape[1],
            first * groups,
            past * groups,
            groups,
            edges.shape[1],
            EDGES=problem.edge_costs is not None,
            COLUMNS=COLUMNS,
        )
    return out if layer.numel() else out.fill_(INFINITY)


@triton.jit
def _least_kernel(keys, packed, table, count, CANDIDATES: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * CANDIDATES + tl.arange(0, CANDIDATES)
    inside = place < count
    key = tl.load(keys + place, mask=inside, other=0)
    value = tl.load(packed + place, mask=inside, other=0)
    tl.atomic_min(table + key, value, mask=inside)


def least_arrivals(keys: Tensor, arriving: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct keys, rising, and the candidate with the least cost for each; ties go to the first candidate."""
    from kernels.frontier_relax.problem import least_arrivals as by_sorting

    if not keys.numel():
        return keys, keys
    base = keys.min()
    span = int(keys.max() - base) + 1
    if span > SCRATCH_KEYS:
        return by_sorting(keys, arriving)
    table = torch.full((span,), _LARGEST, dtype=torch.int64, device=keys.device)
    places = torch.arange(keys.numel(), device=keys.device)
    packed = (cost_bits(arriving) << 32) | places
    grid = (triton.cdiv(keys.numel(), CANDIDATES),)
    _least_kernel[grid]((keys - base).contiguous(), packed, table, keys.numel(), CANDIDATES=CANDIDATES)
    winners = torch.nonzero(table[keys - base] == packed).flatten()
    distinct, order = torch.sort(keys[winners])
    return distinct, winners[order]
