"""Dot products of gathered (query, row) pairs, without a [pairs, dim] matrix."""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from kernels import backend as backends
from kernels import checks


def cosine_rows(
    queries: Shaped[Tensor, "queries dim"],
    rows: Shaped[Tensor, "rows dim"],
    query_ids: Int[Tensor, " pairs"],
    row_ids: Int[Tensor, " pairs"],
    *,
    accumulate: torch.dtype = torch.float64,
    block_pairs: int | None = None,
    backend: str = "auto",
) -> Float[Tensor, " pairs"]:
    """``queries[query_ids[i]] . rows[row_ids[i]]`` for every pair i; the cosine where both are unit vectors.

    Products of float32 numbers are exact in float64. Vectors on a fixed-point grid of 2^-24 or coarser (and all
    float16 and int8 ones) have exact sums as well: then the result is the same for any order of additions, any
    block and any batch. Other float32 vectors agree to the last bit of float32 but for ties of rounding.

    Args:
        queries, rows: float or int8 vectors; they may be of two types.
        query_ids, row_ids: the pairs.
        accumulate: type of products and sums; float64 unless speed on a GPU matters more than exactness.
        block_pairs: pairs gathered at a time (None: what fits a core's cache); changes memory and speed only.
        backend: ``auto``, ``reference``, ``torch`` or ``triton``.

    Returns:
        float32 (float64 where both inputs are float64).

    Raises:
        ValueError: dims differ or lengths differ. IndexError: ids outside. OverflowError: past 2^31 - 1 pairs.

    Working set: see ``cosine_rows_bytes``.
    """
    checks.floats("queries", queries, 2, also=(torch.int8,))
    checks.floats("rows", rows, 2, also=(torch.int8,))
    if queries.shape[1] != rows.shape[1]:
        raise ValueError(f"queries and rows must have one dim (got {queries.shape[1]} and {rows.shape[1]})")
    query_ids, row_ids = checks.integers("query_ids", query_ids), checks.integers("row_ids", row_ids)
    checks.same_device(queries=queries, rows=rows, query_ids=query_ids, row_ids=row_ids)
    checks.items_fit("pairs", checks.same_length(query_ids=query_ids, row_ids=row_ids), "split the pairs")
    checks.ids_below("query_ids", query_ids, queries.shape[0], "queries")
    checks.ids_below("row_ids", row_ids, rows.shape[0], "rows")
    if block_pairs is None:
        block_pairs = default_block(rows.shape[1])
    if block_pairs < 1:
        raise ValueError(f"block_pairs must be at least 1 (got {block_pairs})")
    both_double = queries.dtype == rows.dtype == torch.float64
    out = torch.empty(query_ids.shape, dtype=torch.float64 if both_double else torch.float32, device=rows.device)
    chosen = backends.choose(backend, "cosine_rows")
    if query_ids.numel() == 0:
        return out
    if chosen == "reference":
        from kernels.cosine_rows.reference import dot_pairs
    elif chosen == "triton":
        from kernels.cosine_rows.triton_impl import dot_pairs
    else:
        from kernels.cosine_rows.torch_impl import dot_pairs
    dot_pairs(queries, rows, query_ids, row_ids, out, accumulate, block_pairs)
    return out


def default_block(dim: int) -> int:
    """Pairs of a block: 2^17 numbers, so that both float64 sides stay in a core's second-level cache."""
    return max(16, (1 << 17) // max(dim, 1))


def cosine_rows_bytes(num_pairs: int, num_queries: int, dim: int, block_pairs: int | None = None) -> int:
    """Peak bytes of the torch form above its inputs.

    The output, the queries in float64, and for one block the gathered queries in float64 and rows as stored (float32).
    """
    block = min(num_pairs, block_pairs or default_block(dim))
    return 4 * num_pairs + 8 * num_queries * dim + block * dim * 12
