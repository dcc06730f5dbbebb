"""Sentences and their neighbours, and the names in questions, on corpora small enough to list."""

import numpy as np
from cover_case import Corpus

from kgrag_gpu.index.sentence_graph import SentenceGraphConfig, build_sentence_graph
from kgrag_gpu.kg.mentions import build_mentions_kg
from kgrag_gpu.kg.store import make_kg
from kgrag_gpu.types import Passage

PASSAGES = [
    Passage("Alda", "She sails to Cavel. Her boat is red."),
    Passage("Cavel", "It is a port."),
    Passage("Borin", "He lives in Cavel."),
    Passage("", ""),
]


def edges(graph, names):
    """(sentence, neighbour, entity name, is title edge), every slot."""
    sources = np.repeat(np.arange(graph.num_sentences), np.diff(graph.offsets)).tolist()
    columns = (graph.neighbours.tolist(), graph.entity_ids.tolist(), graph.is_title_edge.tolist())
    return [(s, n, names[e], t) for s, n, e, t in zip(sources, *columns, strict=True)]


def test_build_sentence_graph_lists_mention_and_title_edges_both_ways():
    kg = build_mentions_kg(PASSAGES)
    graph = build_sentence_graph(kg)
    assert graph.texts == ["She sails to Cavel.", "Her boat is red.", "It is a port.", "He lives in Cavel."]
    assert graph.unit_ids.tolist() == [0, 0, 1, 2]
    assert graph.unit_offsets.tolist() == [0, 2, 3, 4, 4]
    assert edges(graph, kg.entity_names) == [
        (0, 3, "Cavel", False),
        (0, 2, "Cavel", True),
        (2, 0, "Cavel", True),
        (2, 3, "Cavel", True),
        (3, 0, "Cavel", False),
        (3, 2, "Cavel", True),
    ]
    assert graph.num_mentions[kg.entity_names.index("Cavel")] == 2


def test_build_sentence_graph_hub_connects_nothing():
    kg = build_mentions_kg(PASSAGES)
    graph = build_sentence_graph(kg, SentenceGraphConfig(min_hub_units=1, max_hub_share=0.0))
    assert len(graph.neighbours) == 0
    assert graph.offsets.tolist() == [0] * 5


def test_build_sentence_graph_blocks_equal_one_pass(monkeypatch):
    kg = build_mentions_kg(PASSAGES)
    whole = build_sentence_graph(kg)
    monkeypatch.setattr("kgrag_gpu.index.sentence_graph._BLOCK_SLOTS", 1)
    assert edges(build_sentence_graph(kg), kg.entity_names) == edges(whole, kg.entity_names)


def test_build_sentence_graph_two_passages_of_one_title_list_each_edge_once():
    passages = [
        Passage("Cavel", "Cavel is old."),
        Passage("Cavel", "Cavel is a port."),
        Passage("Alda", "Born in Cavel."),
    ]
    kg = build_mentions_kg(passages)
    found = edges(build_sentence_graph(kg), kg.entity_names)
    assert len(found) == len(set(found)) == 12


def test_build_sentence_graph_bare_triples_share_their_ends():
    kg = make_kg(
        entity_names=["a", "b", "c"],
        relation_names=["knows"],
        heads=np.array([0, 1, 2]),
        relations=np.array([0, 0, 0]),
        tails=np.array([1, 2, 2]),
        triple_texts=["a knows b", "b knows c", "c knows c"],
        kind="triples",
    )
    graph = build_sentence_graph(kg)
    assert graph.texts == ["a knows b", "b knows c", "c knows c"]
    assert edges(graph, kg.entity_names) == [
        (0, 1, "b", False),
        (1, 0, "b", False),
        (1, 2, "c", False),
        (2, 1, "c", False),
    ]


def test_build_sentence_graph_empty_kg_has_no_rows():
    graph = build_sentence_graph(build_mentions_kg([]))
    assert graph.num_sentences == graph.num_units == 0
    assert graph.names.find(["Who?"]).unit_ids.tolist() == []


def test_names_find_weighs_case_and_shared_titles():
    passages = [
        Passage("Mercury (planet)", "A world."),
        Passage("Mercury (element)", "A metal."),
        Passage("Vesta", "A rock."),
    ]
    named = build_sentence_graph(build_mentions_kg(passages)).names.find(["vesta and Mercury", "nothing"])
    assert named.unit_questions.tolist() == [0, 0, 0]
    assert named.unit_ids.tolist() == [0, 1, 2]
    assert np.allclose(named.unit_weights, [1 / np.sqrt(2), 1 / np.sqrt(2), 0.4])
    assert named.unit_spellings[0] == named.unit_spellings[1] != named.unit_spellings[2]


def test_names_find_keeps_the_surest_and_counts_the_rest():
    passages = [Passage("Vesta", f"Rock {i}.") for i in range(5)] + [Passage("Alda", "She.")]
    config = SentenceGraphConfig(max_named_units=3)
    named = build_sentence_graph(build_mentions_kg(passages), config).names.find(["Alda on Vesta", "Alda"])
    assert named.unit_ids.tolist() == [5, 0, 1, 5]
    assert named.num_dropped.tolist() == [3, 0]


def test_corpus_of_the_tests_cuts_as_the_oracle_does(tmp_path):
    corpus = Corpus(PASSAGES, tmp_path)
    assert all("." not in text[:-1] for text in corpus.graph.texts)


def test_names_find_without_titles_still_names_entities():
    passages = [Passage("", "It saw Alda, Borin."), Passage("", "It saw Alda, Borin.")]
    kg = build_mentions_kg(passages)
    named = build_sentence_graph(kg).names.find(["alda"])
    assert named.entity_ids.tolist() == [kg.entity_names.index("Alda")]
    assert named.unit_ids.tolist() == []
