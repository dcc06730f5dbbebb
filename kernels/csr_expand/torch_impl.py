"""csr_expand in torch: owners by repeat_interleave, slots as a running number shifted for each row."""

import torch
from torch import Tensor

from kernels.csr_expand import row_degrees


def expand(offsets: Tensor, rows: Tensor, dtype: torch.dtype = torch.int64) -> tuple[Tensor, Tensor]:
    """Slots and owners of ``rows``, as int64, or as int32 for callers that read them many times."""
    starts, degrees, num_slots = row_degrees(offsets, rows)
    positions = torch.arange(rows.numel(), dtype=dtype, device=rows.device)
    owners = torch.repeat_interleave(positions, degrees, output_size=num_slots)  # [slots]
    # slot = running number + (first slot of the row - running number at which the row starts)
    shift = (starts - (degrees.cumsum(0) - degrees)).to(dtype)
    slots = shift.index_select(0, owners)
    slots += torch.arange(num_slots, dtype=dtype, device=rows.device)
    return slots, owners
