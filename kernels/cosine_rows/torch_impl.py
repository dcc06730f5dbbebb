"""cosine_rows in torch: blocks of gathered pairs that stay in the cache."""

import torch
from torch import Tensor


def dot_pairs(
    queries: Tensor, rows: Tensor, query_ids: Tensor, row_ids: Tensor, out: Tensor, accumulate: torch.dtype, block: int
) -> None:
    """Write the dot product of every pair into ``out``, ``block`` pairs at a time."""
    wide_queries = queries.to(accumulate)
    for start in range(0, query_ids.numel(), block):
        part = slice(start, start + block)
        left = wide_queries.index_select(0, query_ids[part])
        left *= rows.index_select(0, row_ids[part])
        out[part] = left.sum(1)
