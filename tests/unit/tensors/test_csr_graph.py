"""The CSR table on a four-node graph, exactly."""

import numpy as np
import pytest
import torch

from kgrag_gpu.tensors.csr_graph import CsrGraph, _slot_order, check_counts, check_slots, entity_runs
from kgrag_gpu.tensors.packed_bits import bits_at, pack_bits
from kgrag_gpu.types import UserError

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def graph(*triples: tuple[int, int, int], num_entities: int = 4, device: str = "cpu") -> CsrGraph:
    heads, relations, tails = torch.tensor(triples, dtype=torch.int32).reshape(-1, 3).T
    return CsrGraph.from_triples(heads.to(device), relations.to(device), tails.to(device), num_entities)


@pytest.fixture(autouse=True)
def _needs_its_device(request):
    device = getattr(request.node, "callspec", None) and request.node.callspec.params.get("device")
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")


@pytest.mark.parametrize("device", DEVICES)
def test_csr_both_directions_are_ordered_by_relation_neighbour_and_edge(device):
    g = graph((0, 1, 2), (0, 0, 3), (0, 1, 1), (2, 0, 0), (0, 1, 2), device=device)
    assert g.offsets.tolist() == [0, 5, 6, 9, 10]
    assert g.neighbours.tolist() == [3, 2, 1, 2, 2, 0, 0, 0, 0, 0]
    assert g.edge_ids.tolist() == [1, 3, 2, 0, 4, 2, 3, 0, 4, 1]
    assert g.is_inverse.tolist() == [False, True, False, False, False, True, False, True, True, True]
    assert g.directed_relations().tolist() == [0, 1, 2, 2, 2, 3, 0, 3, 3, 1]
    assert g.edge_relation.tolist() == [1, 0, 1, 0, 1]
    assert g.degrees().tolist() == [5, 1, 3, 1]


def test_csr_self_loop_has_one_slot():
    g = graph((1, 0, 1), (1, 0, 2))
    assert g.offsets.tolist() == [0, 0, 2, 3, 3]
    assert g.neighbours.tolist() == [1, 2, 1]
    assert g.is_inverse.tolist() == [False, False, True]
    assert (g.num_edges, g.num_slots) == (2, 3)


def test_csr_without_edges_or_entities_is_empty():
    assert graph().offsets.tolist() == [0, 0, 0, 0, 0]
    empty = graph(num_entities=0)
    assert empty.offsets.tolist() == [0] and empty.num_slots == 0


def test_csr_dtypes_and_size_are_as_stated():
    g = graph((0, 0, 1))
    assert (g.offsets.dtype, g.neighbours.dtype, g.edge_ids.dtype) == (torch.int64, torch.int32, torch.int32)
    assert (g.is_inverse.dtype, g.edge_relation.dtype) == (torch.bool, torch.int16)
    assert g.num_bytes == 5 * 8 + 2 * 4 + 2 * 4 + 1 + 2
    assert graph((0, 2**15, 1)).edge_relation.dtype == torch.int32


def test_csr_built_by_runs_of_entities_is_the_same():
    generator = torch.Generator().manual_seed(1)
    heads, tails = (torch.randint(0, 40, (600,), generator=generator, dtype=torch.int32) for _ in range(2))
    heads[:200] = 7  # a hub with more slots than a run
    relations = torch.randint(0, 9, (600,), generator=generator, dtype=torch.int32)
    whole = CsrGraph.from_triples(heads, relations, tails, 45)
    for block_slots in (1, 50, 333):
        runs = list(entity_runs(whole.offsets, block_slots))
        assert len(runs) > 3 and [a for a, _ in runs] == [0, *(b for _, b in runs[:-1])] and runs[-1][1] == 45
        parts = CsrGraph.from_triples(heads, relations, tails, 45, block_slots)
        for name in ("offsets", "neighbours", "edge_ids", "inverse_bits", "edge_relation"):
            assert torch.equal(getattr(parts, name), getattr(whole, name))
    assert torch.equal(whole.directed_relations(100, 300), whole.directed_relations()[100:300])


@pytest.mark.parametrize("size", [0, 1, 8, 77])
def test_packed_bits_read_as_they_were(size):
    mask = torch.rand(size, generator=torch.Generator().manual_seed(size)) < 0.5
    packed = pack_bits(mask)
    assert len(packed) == -(-size // 8)
    assert torch.equal(bits_at(packed, torch.arange(size)), mask)


def test_csr_takes_numpy_and_moves_between_devices():
    g = CsrGraph.from_triples(np.array([0], np.int32), np.array([0], np.int32), np.array([1], np.int32), 2)
    moved = g.to("cpu")
    assert moved.neighbours.tolist() == [1, 0] and moved.device == torch.device("cpu")


def test_csr_order_by_parts_equals_the_packed_order():
    generator = torch.Generator().manual_seed(0)
    owner, directed, neighbour = (torch.randint(0, n, (500,), generator=generator) for n in (7, 5, 11))
    packed = _slot_order(owner, directed, neighbour, 11)
    by_parts = _slot_order(owner, directed, neighbour, 2**31 - 1)  # the packed key would outgrow int64 with more bits
    far = _slot_order(owner, directed + 2**32, neighbour, 2**31 - 1)
    assert packed.tolist() == by_parts.tolist() == far.tolist()


def test_csr_counts_past_int32_are_refused():
    check_counts(2**31 - 1, 2**31 - 1)
    with pytest.raises(UserError, match="2,147,483,648 entities"):
        check_counts(2**31, 0)
    with pytest.raises(UserError, match="2,147,483,648 edges"):
        check_counts(0, 2**31)
    with pytest.raises(UserError, match="edge ends"):
        check_slots(2**31)


@pytest.mark.parametrize("triple", [(0, 0, 4), (-1, 0, 0), (0, -1, 0)])
def test_csr_row_numbers_out_of_range_are_refused(triple):
    with pytest.raises(ValueError, match="row numbers"):
        graph(triple)


def test_csr_columns_of_different_length_are_refused():
    with pytest.raises(ValueError, match="differ in length"):
        CsrGraph.from_triples(np.zeros(2, np.int32), np.zeros(1, np.int32), np.zeros(2, np.int32), 1)
