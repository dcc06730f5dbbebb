"""The graph that PageRank walks, on four passages: what is joined, and how much each edge weighs."""

import numpy as np
import pytest

from kgrag_gpu.expansion.pagerank import passage_entity_graph
from kgrag_gpu.kg.mentions import build_mentions_kg
from kgrag_gpu.types import Passage

PASSAGES = [
    Passage("Alda", "Alda was born in Brunn. She met Gregor Mayer and Gregor Mayer again."),
    Passage("Brunn", "Brunn is a town. Gregor Mayer lived there, near Lake Orta."),
    Passage("Cedric", "Cedric sailed on Lake Orta with Gregor Mayer."),
    Passage("Dora", "Nothing is known."),
]


def _dense(mention_weight: float):
    kg = build_mentions_kg(PASSAGES)
    graph = passage_entity_graph(kg, mention_weight)
    matrix = np.zeros((graph.num_nodes, graph.num_nodes))
    for row in range(graph.num_nodes):
        span = slice(int(graph.offsets[row]), int(graph.offsets[row + 1]))
        matrix[row, graph.neighbours[span].numpy()] = graph.weights[span].numpy()
    rows = {name: len(PASSAGES) + kg.entity_names.index(name) for name in ("Gregor Mayer", "Lake Orta")}
    return matrix, rows


def test_graph_title_mentions_join_passages_with_weight_one():
    matrix, _ = _dense(0.3)
    assert matrix[0, 1] == matrix[1, 0] == 1.0
    assert matrix[:4, :4].sum() == 2.0


def test_graph_a_mention_weighs_less_the_more_passages_share_it():
    matrix, rows = _dense(0.3)
    assert matrix[:4, rows["Lake Orta"]] == pytest.approx([0, 0.3, 0.3, 0])
    assert matrix[:4, rows["Gregor Mayer"]] == pytest.approx([0.2, 0.2, 0.2, 0])  # named twice in Alda, counted once
    assert (matrix == matrix.T).all()
