"""The definition of csr_expand: two plain loops."""

from torch import Tensor


def expand(offsets: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Slots and owners of ``rows``, one after the other."""
    pointers = offsets.tolist()
    slots, owners = [], []
    for position, row in enumerate(rows.tolist()):
        for slot in range(pointers[row], pointers[row + 1]):
            slots.append(slot)
            owners.append(position)
    return rows.new_tensor(slots), rows.new_tensor(owners)
