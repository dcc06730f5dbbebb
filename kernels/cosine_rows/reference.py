"""The definition of cosine_rows: gather both sides in full, multiply, add up."""

import torch
from torch import Tensor


def dot_pairs(
    queries: Tensor, rows: Tensor, query_ids: Tensor, row_ids: Tensor, out: Tensor, accumulate: torch.dtype, _block: int
) -> None:
    """Write the dot product of every pair into ``out``."""
    out.copy_((queries[query_ids].to(accumulate) * rows[row_ids].to(accumulate)).sum(1))
