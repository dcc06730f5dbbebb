"""Ranks inside ragged segments: the fusion of rankings and the cut to the best few (AnchorRAG, relation ranking).

The published code adds a BM25 score to a cosine; here their ranks are fused, so neither scale drowns the other.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float64, Int64, Num
from torch import Tensor


def segment_ranks(scores: Num[Tensor, " items"], owners: Int64[Tensor, " items"]) -> Int64[Tensor, " items"]:
    """Rank of each item among those of its owner, from 1; higher scores first, ties by the lowest position.

    Args:
        scores: any numbers without NaN.
        owners: non-falling.
    """
    order = torch.argsort(scores, descending=True, stable=True)
    order = order[torch.argsort(owners[order], stable=True)]
    counts = torch.bincount(owners) if owners.numel() else owners.new_zeros(1)
    first = counts.cumsum(0) - counts
    ranks = torch.empty_like(owners)
    ranks[order] = torch.arange(owners.numel(), device=owners.device) - first[owners[order]] + 1
    return ranks


def fuse_ranks(
    score_columns: Sequence[Num[Tensor, " items"]], owners: Int64[Tensor, " items"], constant: float = 60.0
) -> Float64[Tensor, " items"]:
    """Reciprocal rank fusion inside each owner's items: sum over the columns of 1 / (constant + rank)."""
    fused = torch.zeros(owners.shape, dtype=torch.float64, device=owners.device)
    for scores in score_columns:
        fused += 1.0 / (constant + segment_ranks(scores, owners).double())
    return fused


def keep_best(scores: Num[Tensor, " items"], owners: Int64[Tensor, " items"], k: int) -> Int64[Tensor, " kept"]:
    """Positions of the best `k` items of each owner, ascending; ties by the lowest position."""
    return torch.nonzero(segment_ranks(scores, owners) <= k).flatten()
