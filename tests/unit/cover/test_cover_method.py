"""The method around connected coverage: rankings with their tail, evidence paths, and KGs of bare triples."""

import dataclasses

import numpy as np
import pytest
from cover_case import WordEncoder

from kgrag_gpu.config.load import load_run_config
from kgrag_gpu.kg.mentions import build_mentions_kg
from kgrag_gpu.kg.store import make_kg
from kgrag_gpu.methods.cover import Cover, CoverConfig
from kgrag_gpu.methods.registry import method_class
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.types import Passage, Question

PASSAGES = [
    Passage("Alda", "Alda was born in Cavel. Alda painted boats."),
    Passage("Cavel", "It lies on the river Dorma. It has a fish market."),
    Passage("Dorma", "The river ends in the Grey Gulf. Otters live there."),
    Passage("Elvan", "A mayor rules."),
    Passage("", "Nobody knows why."),
]
BORN = Question("q1", "Which market has the town where Alda was born?")
OTTERS = Question("q2", "otters")


def resources(kg, cache_dir, **overrides) -> Resources:
    config = load_run_config("musique", "cover")
    made = Resources(config.model_copy(update=overrides), kg, cache_dir)
    made.__dict__["encoder"] = WordEncoder()
    return made


def cover(kg, cache_dir, config=None, **overrides) -> Cover:
    return Cover(CoverConfig.model_validate(config or {}), resources(kg, cache_dir, **overrides))


def test_cover_is_registered():
    assert method_class("cover") is Cover


@pytest.mark.parametrize("preset", ["cover", "cover-exact", "cover-article"])
def test_cover_presets_load(preset):
    assert isinstance(load_run_config("musique", preset).method, CoverConfig)


def test_retrieve_ranks_every_passage_once_with_falling_scores(tmp_path):
    found = cover(build_mentions_kg(PASSAGES), tmp_path, {"num_dense": 1}).retrieve([BORN, OTTERS])
    for retrieval in found:
        assert sorted(retrieval.passage_ids) == [0, 1, 2, 3, 4]
        assert list(retrieval.passage_scores) == sorted(retrieval.passage_scores, reverse=True)
    assert set(found[0].passage_ids[:2]) == {0, 1}
    assert found[1].passage_ids[0] == 2


def test_retrieve_evidence_names_link_sentence_and_words(tmp_path):
    kg = build_mentions_kg(PASSAGES)
    (found,) = cover(kg, tmp_path).retrieve([BORN])
    first, second = found.evidence[0].steps
    assert (first.head, first.relation, first.tail) == ("Alda", "mentions", "Cavel")
    assert (second.head, second.relation, second.tail) == ("Cavel", "is about", "Cavel")
    assert (first.text, second.text) == ("Alda was born in Cavel.", "It has a fish market.")
    assert (first.passage_ids, second.passage_ids) == ((0,), (1,))
    notes = found.evidence[0].notes
    assert {"Alda", "born"} <= set(notes["covered"][0])
    assert {"market", "has"} <= set(notes["covered"][1])
    assert [word for word, _ in notes["words"]] == BORN.text.rstrip("?").split()
    assert [ref.name for ref in found.anchors] == ["Alda"]
    assert {"Alda", "Cavel"} <= {ref.name for ref in found.evidence_entities}


def test_retrieve_keeps_output_passages_and_batches_of_one_agree(tmp_path):
    method = cover(build_mentions_kg(PASSAGES), tmp_path, {"num_dense": 1}, output_passages=2)
    together = method.retrieve([BORN, OTTERS])
    assert [len(r.passage_ids) for r in together] == [2, 2]
    assert [method.retrieve([q])[0] for q in (BORN, OTTERS)] == together
    assert method.retrieve([]) == []


def test_rank_found_puts_connected_finds_first(tmp_path):
    method = cover(build_mentions_kg(PASSAGES), tmp_path)
    ranking, nothing = method.rank_found([BORN, OTTERS], [[3, 1, 3], []])
    assert set(ranking.rows.tolist()[:2]) == {0, 1}  # the question names the first itself
    assert 3 in ranking.rows
    assert nothing.rows.tolist() == []


def test_retrieve_bare_triples_gives_paths_of_triples(tmp_path):
    kg = make_kg(
        entity_names=["alda", "cavel", "dorma"],
        relation_names=["born in", "lies on"],
        heads=np.array([0, 1]),
        relations=np.array([0, 1]),
        tails=np.array([1, 2]),
        triple_texts=["alda born in cavel", "cavel lies on dorma"],
        kind="triples",
    )
    (found,) = cover(kg, tmp_path).retrieve([Question("q", "what does the town that alda was born in lie on")])
    assert found.passage_ids == ()
    steps = found.evidence[0].steps
    assert [(s.head, s.relation, s.tail, s.edge_id) for s in steps] == [
        ("alda", "born in", "cavel", 0),
        ("cavel", "lies on", "dorma", 1),
    ]
    assert {ref.name for ref in found.evidence_entities} >= {"alda", "cavel", "dorma"}


def test_retrieve_same_rows_whatever_the_order_of_the_passages(tmp_path):
    there = cover(build_mentions_kg(PASSAGES), tmp_path / "a").retrieve([BORN])[0]
    back = cover(build_mentions_kg(PASSAGES[::-1]), tmp_path / "b").retrieve([BORN])[0]
    names = [PASSAGES[i] for i in there.passage_ids[:2]]
    assert names == [PASSAGES[::-1][i] for i in back.passage_ids[:2]]
    assert dataclasses.replace(there.evidence[0].steps[0], passage_ids=()) == dataclasses.replace(
        back.evidence[0].steps[0], passage_ids=()
    )
