"""Unit vectors in fixed point, and dot products that are exact.

A vector is stored as int16 multiples of 2**-15 (error at most 1.6e-5 a component, two bytes a component like fp16).
The product of two such numbers is a multiple of 2**-30, and a sum of up to 2**22 of them fits the 53 bits of a
float64: whatever the order of summation, the block size, the batch or the device, the result has the same bits.
That is what makes rankings independent of how questions were batched.
"""

import numpy as np
import torch
from jaxtyping import Float64, Int16
from torch import Tensor

SCALE = 2.0**-15
_MAX = 32767


def to_fixed(vectors: np.ndarray) -> np.ndarray:
    """Rounds float vectors with components in [-1, 1] to the int16 grid, shape kept."""
    return np.clip(np.rint(vectors.astype(np.float64) / SCALE), -_MAX, _MAX).astype(np.int16)


def to_float(vectors: np.ndarray) -> np.ndarray:
    """The float32 values of fixed-point vectors, shape kept."""
    return vectors.astype(np.float32) * np.float32(SCALE)


def exact_dot(
    queries: Int16[Tensor, "queries dim"],
    rows: Int16[Tensor, "rows dim"],
    block_rows: int = 65_536,
) -> Float64[Tensor, "queries rows"]:
    """All dot products of two sets of fixed-point vectors, exact.

    Rows are converted block by block, so that the float64 copy never exceeds `block_rows` x dim.
    """
    out = torch.empty(len(queries), len(rows), dtype=torch.float64, device=queries.device)
    left = queries.double()
    for start in range(0, len(rows), block_rows):
        block = rows[start : start + block_rows].to(queries.device).double()
        torch.mm(left, block.T, out=out[:, start : start + block_rows]) if len(queries) else None
    return out.mul_(SCALE * SCALE)


def exact_pair_dot(left: Int16[Tensor, "pairs dim"], right: Int16[Tensor, "pairs dim"]) -> Float64[Tensor, " pairs"]:
    """Row-by-row dot products of two equally long sets, exact."""
    return (left.double() * right.double()).sum(dim=1).mul_(SCALE * SCALE)
