"""csr_expand on a graph of four nodes: 0 -> 1, 2; 1 -> none; 2 -> 0, 1, 3; 3 -> 3."""

import pytest
import torch

from kernels import csr_expand, csr_expand_bytes

OFFSETS = torch.tensor([0, 2, 2, 5, 6])


def test_csr_expand_repeated_rows_keeps_their_order(backend, device):
    slots, owners = csr_expand(OFFSETS.to(device), torch.tensor([2, 0, 1, 2], device=device), backend=backend)
    assert slots.tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
    assert owners.tolist() == [0, 0, 0, 1, 1, 3, 3, 3]
    assert slots.dtype == owners.dtype == torch.int64


def test_csr_expand_empty_frontier_gives_nothing(backend, device):
    slots, owners = csr_expand(OFFSETS.to(device), torch.empty(0, dtype=torch.int64, device=device), backend=backend)
    assert slots.tolist() == owners.tolist() == []


def test_csr_expand_isolated_nodes_only_gives_nothing(backend, device):
    slots, owners = csr_expand(OFFSETS.to(device), torch.tensor([1, 1], device=device), backend=backend)
    assert slots.tolist() == owners.tolist() == []


def test_csr_expand_self_loop_is_listed_once(backend, device):
    slots, owners = csr_expand(OFFSETS.to(device), torch.tensor([3], device=device), backend=backend)
    assert (slots.tolist(), owners.tolist()) == ([5], [0])


def test_csr_expand_hub_of_100000_lists_every_slot(device):
    offsets = torch.tensor([0, 100_000, 100_001], device=device)
    slots, owners = csr_expand(offsets, torch.tensor([1, 0], device=device))
    assert slots[0] == 100_000 and torch.equal(slots[1:], torch.arange(100_000, device=device))
    assert owners.sum() == 100_000


def test_csr_expand_int32_input_gives_int64():
    slots, _ = csr_expand(OFFSETS.int(), torch.tensor([0], dtype=torch.int32))
    assert slots.dtype == torch.int64


def test_csr_expand_row_outside_raises_index_error():
    with pytest.raises(IndexError, match=r"rows must lie in 0\.\.3.*got 0\.\.4"):
        csr_expand(OFFSETS, torch.tensor([0, 4]))


def test_csr_expand_float_rows_raises_type_error():
    with pytest.raises(TypeError, match="rows must hold integers"):
        csr_expand(OFFSETS, torch.tensor([0.0]))


def test_csr_expand_falling_offsets_raises_value_error():
    with pytest.raises(ValueError, match="must never fall"):
        csr_expand(torch.tensor([0, 3, 2]), torch.tensor([1]))


def test_csr_expand_past_2_to_31_slots_raises_overflow_error():
    with pytest.raises(OverflowError, match=r"2\^31 - 1.*split the rows"):
        csr_expand(torch.tensor([0, 2**31]), torch.tensor([0]))


def test_csr_expand_unknown_backend_raises_value_error():
    with pytest.raises(ValueError, match="must be one of auto"):
        csr_expand(OFFSETS, torch.tensor([0]), backend="numba")


def test_csr_expand_bytes_grows_with_slots():
    assert csr_expand_bytes(10, 1000) - csr_expand_bytes(10, 0) == 24_000
