"""csr_expand in torch: owners by repeat_interleave, slots as a running number shifted for each row."""

import torch
from torch import Tensor

from kernels.csr_expand import row_degrees


def expand(offsets: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Slots and owners of ``rows``."""
    starts, degrees, num_slots = row_degrees(offsets, rows)
    positions = torch.arange(rows.numel(), device=rows.device)
    owners = torch.repeat_interleave(positions, degrees, output_size=num_slots)  # [slots]
    # slot = running number + (first slot of the row - running number at which the row starts)
    shift = starts - (degrees.cumsum(0) - degrees)
    slots = shift.index_select(0, owners)
    slots += torch.arange(num_slots, device=rows.device)
    return slots, owners
