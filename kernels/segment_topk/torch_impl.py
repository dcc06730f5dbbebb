"""segment_topk in torch: segments of like length are padded to one matrix of unique int64 keys.

The key holds the score in its high half and the place in its segment in its low half, so that equal scores
are told apart and any top-k routine gives the one right order.
"""

import torch
from torch import Tensor

BLOCK_CELLS = 1 << 22
_LOW = (1 << 32) - 1
_LEAST = torch.iinfo(torch.int64).min


def topk(scores: Tensor, offsets: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and positions of the k best of each segment."""
    num_segments = offsets.numel() - 1
    indices = torch.full((num_segments, k), -1, dtype=torch.int64, device=scores.device)
    lengths = offsets[1:] - offsets[:-1]
    ordered = sortable(scores)
    for segments, width in _blocks(lengths):
        starts = offsets[segments]
        _fill(indices, ordered, segments, starts, lengths[segments], width, k)
    values = torch.full((num_segments, k), float("-inf"), dtype=scores.dtype, device=scores.device)
    if scores.numel():
        taken = indices >= 0
        values[taken] = scores[indices[taken]]
    return values, indices


def sortable(scores: Tensor) -> Tensor:
    """Integers of at most 32 bits in the order of the scores; equal scores give equal integers, -0.0 equals 0.0."""
    if scores.dtype == torch.float64:  # 64 bits do not fit beside a position: use the rank
        distinct, ranks = torch.unique(scores + 0.0, return_inverse=True)
        return ranks - distinct.numel()
    bits = (scores.float() + 0.0).contiguous().view(torch.int32)
    return torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


def _blocks(lengths: Tensor) -> list[tuple[Tensor, int]]:
    """Rows of like length (within a factor of two) and the width to pad them to, at most BLOCK_CELLS cells each."""
    classes = torch.frexp((lengths - 1).clamp(min=0).double()).exponent  # length 1 -> 0, 2 -> 1, 3..4 -> 2, ...
    classes = torch.where(lengths > 0, classes, -1)
    blocks = []
    for exponent in torch.unique(classes).tolist():
        if exponent < 0:
            continue
        members = torch.nonzero(classes == exponent).flatten()
        width = int(lengths[members].max())
        for part in torch.split(members, max(1, BLOCK_CELLS // width)):
            blocks.append((part, width))
    return blocks


def _fill(indices: Tensor, ordered: Tensor, segments: Tensor, starts: Tensor, lengths: Tensor, width: int, k: int):
    """Write the best positions of one padded block of segments into ``indices``."""
    places = torch.arange(width, device=starts.device)
    inside = places < lengths[:, None]  # [segments, width]
    items = (starts[:, None] + places).clamp_(max=ordered.numel() - 1)
    keys = ordered[items].long()
    del items
    keys <<= 32
    keys += _LOW - places  # the lower place is the larger key
    keys.masked_fill_(~inside, _LEAST)
    best = torch.topk(keys, min(k, width), dim=1, sorted=True).values
    found = _LOW - (best & _LOW) + starts[:, None]
    indices[segments, : best.shape[1]] = torch.where(best == _LEAST, -1, found)
