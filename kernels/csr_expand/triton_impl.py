"""csr_expand in Triton: each output slot finds its row by binary search in the running degrees."""

# Triton turns plain values into constexpr at the call, which its annotations do not say.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.csr_expand import row_degrees

BLOCK = 1024


@triton.jit
def _expand_kernel(starts, ends, slots, owners, num_rows, num_slots, num_steps, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < num_slots
    low = tl.zeros([BLOCK], tl.int64)
    high = low + num_rows - 1
    for _ in range(num_steps):  # the least row whose end lies past the place
        middle = (low + high) // 2
        past = tl.load(ends + middle, mask=inside, other=0) > place
        high = tl.where(past, middle, high)
        low = tl.where(past | (inside == 0), low, middle + 1)
    begin = tl.load(ends + low - 1, mask=inside & (low > 0), other=0)
    first = tl.load(starts + low, mask=inside, other=0)
    tl.store(slots + place, first + place - begin, mask=inside)
    tl.store(owners + place, low, mask=inside)


def expand(offsets: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Slots and owners of ``rows``."""
    starts, degrees, num_slots = row_degrees(offsets, rows)
    slots = torch.empty(num_slots, dtype=torch.int64, device=rows.device)
    owners = torch.empty_like(slots)
    if num_slots:
        ends = degrees.cumsum(0)
        steps = rows.numel().bit_length()
        grid = (triton.cdiv(num_slots, BLOCK),)
        _expand_kernel[grid](starts, ends, slots, owners, rows.numel(), num_slots, steps, BLOCK=BLOCK)
    return slots, owners
