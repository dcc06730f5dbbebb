"""KGs to torch_geometric and back, evidence to NetworkX."""

import numpy as np
import pytest
import torch

from kgrag_gpu.interop import evidence_graph, from_pyg, to_pyg
from kgrag_gpu.kg.store import make_kg
from kgrag_gpu.types import EvidencePath, EvidenceStep

pyg = pytest.importorskip("torch_geometric.data")


def _kg():
    return make_kg(
        entity_names=["ann", "bob", "alone"],
        entity_external_ids=["Q1", "", ""],
        relation_names=["knows", "likes"],
        heads=np.array([0, 1, 1]),
        relations=np.array([0, 1, 0]),
        tails=np.array([1, 0, 1]),
        triple_texts=["ann knows bob", "bob likes ann", "bob knows bob"],
        kind="triples",
    )


def test_pyg_there_and_back_gives_the_same_kg():
    kg = _kg()
    data = to_pyg(kg, entity_vectors=np.full((3, 2), 16384, np.int16))
    assert data.edge_index is not None and data.x is not None
    assert data.edge_index.tolist() == [[0, 1, 1], [1, 0, 1]] and data.edge_type.tolist() == [0, 1, 0]
    assert data.x.tolist() == [[0.5, 0.5]] * 3 and data.num_nodes == 3
    assert from_pyg(data).content_hash == kg.content_hash


def test_pyg_bare_data_with_repeats_gets_numbers_as_names():
    kg = from_pyg(pyg.Data(edge_index=torch.tensor([[1, 0, 1], [0, 1, 0]]), num_nodes=2))
    assert (kg.entity_names, kg.heads.tolist(), kg.tails.tolist()) == (["0", "1"], [1, 0], [0, 1])


def test_pyg_vectors_of_other_length_are_refused():
    with pytest.raises(ValueError, match="3 expected"):
        to_pyg(_kg(), entity_vectors=np.zeros((2, 2), np.int16))


def test_pyg_data_without_edges_is_refused():
    with pytest.raises(ValueError, match="no edge_index"):
        from_pyg(pyg.Data(num_nodes=2))


def test_evidence_graph_shared_step_is_one_edge_with_the_best_score():
    step = EvidenceStep("ann", "knows", "bob", "ann knows bob", (4,), 0)
    other = EvidenceStep("bob", "likes", "ann", "bob likes ann", (), 1, True)
    sentence = EvidenceStep("", "", "", "a sentence")
    graph = evidence_graph([EvidencePath((step,), 0.3), EvidencePath((step, other, sentence), 0.7)])
    assert sorted(graph.nodes) == ["ann", "bob"] and graph.number_of_edges() == 2
    assert graph.get_edge_data("ann", "bob", ("knows", "ann knows bob"))["score"] == 0.7
