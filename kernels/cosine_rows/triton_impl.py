"""cosine_rows in Triton: a program gathers its pairs' vectors chunk by chunk and keeps only their sums."""

# Triton turns plain values into constexpr at the call, which its annotations do not say.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

PAIRS, DIMS = 16, 128


@triton.jit
def _dot_kernel(
    queries, rows, query_ids, row_ids, out, num_pairs, dim, WIDE: tl.constexpr, PAIRS: tl.constexpr, DIMS: tl.constexpr
):
    pair = tl.program_id(0).to(tl.int64) * PAIRS + tl.arange(0, PAIRS)
    inside = pair < num_pairs
    left = queries + tl.load(query_ids + pair, mask=inside, other=0) * dim
    right = rows + tl.load(row_ids + pair, mask=inside, other=0) * dim
    total = tl.zeros([PAIRS], WIDE)
    for start in range(0, dim, DIMS):
        column = start + tl.arange(0, DIMS)
        both = inside[:, None] & (column < dim)[None, :]
        first = tl.load(left[:, None] + column[None, :], mask=both, other=0).to(WIDE)
        second = tl.load(right[:, None] + column[None, :], mask=both, other=0).to(WIDE)
        total += tl.sum(first * second, axis=1)
    tl.store(out + pair, total, mask=inside)


def dot_pairs(
    queries: Tensor, rows: Tensor, query_ids: Tensor, row_ids: Tensor, out: Tensor, accumulate: torch.dtype, _block: int
) -> None:
    """Write the dot product of every pair into ``out``."""
    wide = tl.float64 if accumulate == torch.float64 else tl.float32
    grid = (triton.cdiv(query_ids.numel(), PAIRS),)
    _dot_kernel[grid](
        queries.contiguous(),
        rows.contiguous(),
        query_ids.contiguous(),
        row_ids.contiguous(),
        out,
        query_ids.numel(),
        queries.shape[1],
        WIDE=wide,
        PAIRS=PAIRS,
        DIMS=DIMS,
    )
