"""Ragged neighbour gather: the CSR slots of many rows in one call."""

from typing import NamedTuple

from jaxtyping import Int
from torch import Tensor

from kernels import backend as backends
from kernels import checks


class CsrSlots(NamedTuple):
    """Slots of the rows, in order; ``owners[i]`` is the position in ``rows`` that slot i came from."""

    slots: Int[Tensor, " slots"]
    owners: Int[Tensor, " slots"]


def csr_expand(
    offsets: Int[Tensor, " nodes_plus_one"], rows: Int[Tensor, " rows"], *, backend: str = "auto"
) -> CsrSlots:
    """List every CSR slot of each row.

    The caller gathers ``neighbours[slots]`` and ``edge_ids[slots]``. Rows may repeat and come in any order; the
    output keeps that order, and slots rise within a row. A row without neighbours gives nothing.

    Args:
        offsets: int64 pointers, one more than there are nodes. Only the entries of ``rows`` are read.
        rows: rows to expand.
        backend: ``auto``, ``reference``, ``torch`` or ``triton``.

    Returns:
        ``CsrSlots(slots, owners)``, both int64.

    Raises:
        IndexError: a row outside the graph. ValueError: falling offsets.
        OverflowError: more than 2^31 - 1 slots; split ``rows``.

    Working set: see ``csr_expand_bytes``; 24 bytes a slot and 40 a row at the peak, output included.
    """
    offsets, rows = checks.integers("offsets", offsets), checks.integers("rows", rows)
    checks.same_device(offsets=offsets, rows=rows)
    if offsets.numel() == 0:
        raise ValueError("offsets must hold one entry more than there are nodes (got an empty tensor)")
    checks.items_fit("nodes", offsets.numel() - 1, "split the graph")
    checks.ids_below("rows", rows, offsets.numel() - 1, "the graph")
    chosen = backends.choose(backend, "csr_expand")
    if rows.numel() == 0:
        return CsrSlots(rows.new_empty(0), rows.new_empty(0))
    if chosen == "reference":
        from kernels.csr_expand.reference import expand
    elif chosen == "triton":
        from kernels.csr_expand.triton_impl import expand
    else:
        from kernels.csr_expand.torch_impl import expand
    return CsrSlots(*expand(offsets, rows))


def csr_expand_bytes(num_rows: int, num_slots: int) -> int:
    """Peak bytes of the torch form above its inputs: slots, owners and one temporary of the same size."""
    return 24 * num_slots + 40 * num_rows


def row_degrees(offsets: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, int]:
    """First slot and degree of each row, and the number of slots in all, checked against the limits."""
    starts = offsets.index_select(0, rows)
    degrees = offsets.index_select(0, rows + 1) - starts
    num_slots = int(degrees.sum())
    if rows.device.type == "cpu" and int(degrees.min()) < 0:
        raise ValueError("offsets must never fall; a row has a negative number of slots")
    checks.items_fit("slots", num_slots, "split the rows over several calls")
    return starts, degrees, num_slots


__all__ = ["CsrSlots", "csr_expand", "csr_expand_bytes", "row_degrees"]
