"""The definition of segment_topk: sort each segment by (score falling, position rising) and cut."""

import torch
from torch import Tensor


def topk(scores: Tensor, offsets: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and positions of the k best of each segment."""
    numbers, bounds = scores.tolist(), offsets.tolist()
    num_segments = len(bounds) - 1
    values = torch.full((num_segments, k), float("-inf"), dtype=scores.dtype, device=scores.device)
    indices = torch.full((num_segments, k), -1, dtype=torch.int64, device=scores.device)
    for segment in range(num_segments):
        positions = sorted(range(bounds[segment], bounds[segment + 1]), key=lambda item: (-numbers[item], item))[:k]
        for column, position in enumerate(positions):
            values[segment, column] = scores[position]
            indices[segment, column] = position
    return values, indices
