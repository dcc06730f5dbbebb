"""segment_topk in Triton: a program owns a segment and takes its largest key k times, each below the last one.

The keys are those of the torch form, unique within a segment. Reads a segment k times: meant for small k.
"""

# Triton turns plain values into constexpr at the call, which its annotations do not say.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.segment_topk.torch_impl import sortable

BLOCK = 256


@triton.jit
def _topk_kernel(ordered, offsets, indices, k, BLOCK: tl.constexpr):
    segment = tl.program_id(0).to(tl.int64)
    begin = tl.load(offsets + segment)
    length = tl.load(offsets + segment + 1) - begin
    least: tl.constexpr = -9223372036854775807
    last = tl.full([], 9223372036854775807, tl.int64)
    for column in range(k):
        best = tl.full([], least, tl.int64)
        for start in range(0, length, BLOCK):
            place = start + tl.arange(0, BLOCK).to(tl.int64)
            inside = place < length
            score = tl.load(ordered + begin + place, mask=inside, other=0).to(tl.int64)
            key = score * 4294967296 + (4294967295 - place)
            key = tl.where(inside & (key < last), key, least)
            best = tl.maximum(best, tl.max(key, axis=0))
        found = begin + 4294967295 - (best & 4294967295)
        tl.store(indices + segment * k + column, tl.where(best == least, -1, found))
        last = best


def topk(scores: Tensor, offsets: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and positions of the k best of each segment (float32 and shorter)."""
    num_segments = offsets.numel() - 1
    indices = torch.empty((num_segments, k), dtype=torch.int64, device=scores.device)
    if num_segments:
        _topk_kernel[(num_segments,)](sortable(scores), offsets.contiguous(), indices, k, BLOCK=BLOCK)
    if not scores.numel():
        return torch.full(indices.shape, float("-inf"), dtype=scores.dtype, device=scores.device), indices
    values = scores[indices.clamp(min=0)]
    return values.masked_fill_(indices < 0, float("-inf")), indices
