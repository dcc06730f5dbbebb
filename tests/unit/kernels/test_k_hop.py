"""k_hop on a path of five nodes, 0 - 1 - 2 - 3 - 4, and an isolated node 5."""

import pytest
import torch

from kernels import k_hop

OFFSETS = torch.tensor([0, 1, 3, 5, 7, 8, 8])
NEIGHBOURS = torch.tensor([1, 0, 2, 1, 3, 2, 4, 3])


@pytest.fixture(params=["reference", "lists", "bits", "auto"])
def walk(request, device):
    """The op in each form, on each device."""
    if request.param == "bits" and device != "cpu":
        pytest.skip("the bits form runs on the CPU alone")
    how = {"backend": "reference"} if request.param == "reference" else {"form": request.param}

    def run(seeds, sets, num_sets, num_hops, neighbours=NEIGHBOURS):
        ids = (torch.tensor(numbers, dtype=torch.int64, device=device) for numbers in (seeds, sets))
        return k_hop(OFFSETS.to(device), neighbours.to(device), *ids, num_sets, num_hops, **how)

    return run


def test_k_hop_two_hops_of_two_sets(walk):
    out = walk([0, 4, 4], [0, 2, 2], 3, 2)
    assert out.offsets.tolist() == [0, 3, 3, 6] and out.node_ids.tolist() == [0, 1, 2, 2, 3, 4]


def test_k_hop_set_is_the_union_of_its_seeds(walk):
    assert walk([0, 4], [0, 0], 1, 1).node_ids.tolist() == [0, 1, 3, 4]


def test_k_hop_zero_hops_gives_the_seeds(walk):
    assert walk([3, 5, 3], [0, 0, 0], 1, 0).node_ids.tolist() == [3, 5]


def test_k_hop_isolated_node_reaches_itself(walk):
    assert walk([5], [0], 1, 4).node_ids.tolist() == [5]


def test_k_hop_no_seeds_gives_empty_sets(walk):
    out = walk([], [], 2, 3)
    assert out.offsets.tolist() == [0, 0, 0] and out.node_ids.numel() == 0


def test_k_hop_int32_neighbours_give_the_same(walk):
    assert walk([2], [0], 1, 1, NEIGHBOURS.int()).node_ids.tolist() == [1, 2, 3]


def test_k_hop_past_64_sets_fills_a_second_word(walk):
    sets = list(range(130))
    out = walk([number % 6 for number in sets], sets, 130, 5)
    assert out.offsets.diff().tolist() == [1 if number % 6 == 5 else 5 for number in sets]


def test_k_hop_small_blocks_give_the_same(monkeypatch):
    from kernels.k_hop import torch_impl

    monkeypatch.setattr(torch_impl, "BLOCK_SLOTS", 2)
    out = k_hop(OFFSETS, NEIGHBOURS, torch.tensor([0, 5]), torch.tensor([0, 1]), 2, 3, form="bits")
    assert out.node_ids.tolist() == [0, 1, 2, 3, 5]


@pytest.mark.parametrize(("hops", "form", "message"), [(-1, "auto", "num_hops"), (1, "tree", "form must be one of")])
def test_k_hop_option_out_of_range_raises_value_error(hops, form, message):
    with pytest.raises(ValueError, match=message):
        k_hop(OFFSETS, NEIGHBOURS, torch.tensor([0]), torch.tensor([0]), 1, hops, form=form)


def test_k_hop_seed_outside_raises_index_error():
    with pytest.raises(IndexError, match="seed_ids must lie in"):
        k_hop(OFFSETS, NEIGHBOURS, torch.tensor([6]), torch.tensor([0]), 1, 1)
