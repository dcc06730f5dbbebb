"""Extraction by the model, over scripted replies: what becomes a triple, what is rejected and why, and resuming."""

import json

import pytest
from openie_case import ENTITIES, PASSAGES, TRIPLES, OpenIe

from kgrag_gpu.kg.extract import export_openie, extract_kg, extract_triples
from kgrag_gpu.kg.openie_import import import_openie
from kgrag_gpu.llm.cache import ReplyCache
from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.types import Passage


def test_extract_kg_edges_carry_their_sentence_and_passage():
    kg = extract_kg(PASSAGES, Engine(OpenIe()))
    edges = {
        (kg.entity_names[h], kg.relation_names[r], kg.entity_names[t]): (text, kg.triple_passages[start])
        for h, r, t, text, start in zip(
            kg.heads, kg.relations, kg.tails, kg.triple_texts, kg.triple_passage_offsets[:-1], strict=True
        )
    }
    assert edges == {
        ("Ada", "was born in", "London"): ("Ada was born in London.", 0),
        ("Ada", "married", "Basil"): ("She married Basil in 1981.", 0),
        ("Ada", "married in", "1981"): ("She married Basil in 1981.", 0),  # a wrong number: found by its words
        ("Basil", "lived in", "Paris"): ("He lived in Paris.", 1),
    }
    assert kg.kind == "llm"
    assert [passage.title for passage in kg.passages] == ["Ada", "Basil", "Dull"]


def test_extract_kg_rejects_carry_their_reasons():
    kg = extract_kg(PASSAGES, Engine(OpenIe()))
    assert sorted(item.reason for item in kg.rejected) == [
        "empty tail",
        "head and tail are the same",
        "neither head nor tail stands in the passage",
        "not head, relation, tail and a sentence number",
        "said twice",
    ]
    assert all(item.where == "passage 1 (Ada)" for item in kg.rejected)
    notes = kg.manifest["notes"]
    assert notes["share_with_triples"] == pytest.approx(2 / 3)
    assert notes["triples_per_passage"] == pytest.approx(4 / 3)
    assert notes["rejected_by_reason"]["said twice"] == 1


def test_extract_triples_entities_that_the_passage_lacks_are_dropped():
    found = extract_triples(PASSAGES, Engine(OpenIe()))
    assert found.entities == [["Ada", "London", "Basil", "1981"], ["Basil", "Paris"], []]


def test_extract_kg_unreadable_passage_stays_and_is_listed():
    kg = extract_kg(PASSAGES, Engine(OpenIe(broken="Basil")))
    reasons = [item.reason for item in kg.rejected if "Basil" in item.where]
    assert len(reasons) == 2
    assert all("no usable" in reason and "no JSON in the reply" in reason for reason in reasons)
    assert kg.num_passages == 3


def test_extract_kg_killed_and_run_again_asks_only_for_the_rest(tmp_path):
    with pytest.raises(RuntimeError, match="killed"):
        extract_kg(PASSAGES, Engine(OpenIe(dies_on="Basil"), ReplyCache(tmp_path)))
    backend = OpenIe()
    kg = extract_kg(PASSAGES, Engine(backend, ReplyCache(tmp_path)))
    assert ("Ada", "entities") not in backend.asked
    assert ("Ada", "triples") not in backend.asked
    assert ("Basil", "triples") in backend.asked
    assert kg.content_hash == extract_kg(PASSAGES, Engine(OpenIe())).content_hash


def test_extract_kg_long_passage_is_read_in_windows():
    long = Passage("Long", " ".join(f"Some words stand here {number} times." for number in range(60)))
    backend = OpenIe(max_context_tokens=1524)  # leaves room for about a hundred words of the passage
    ENTITIES["Long"], TRIPLES["Long"] = ["Some"], [["Some", "stand", "here", 1]]
    kg = extract_kg([long], Engine(backend))
    assert backend.asked.count(("Long", "triples")) > 1
    assert kg.num_triples == 1
    assert {item.reason for item in kg.rejected} == {"said twice"}


def test_export_openie_is_read_back_as_the_same_triples(tmp_path):
    found = extract_triples(PASSAGES, Engine(OpenIe()))
    export_openie(found, tmp_path / "openie.json")
    docs = json.loads((tmp_path / "openie.json").read_text())["docs"]
    assert docs[1] == {
        "title": "Basil",
        "text": PASSAGES[1].text,
        "passage": f"Basil\n{PASSAGES[1].text}",
        "extracted_entities": ["Basil", "Paris"],
        "extracted_triples": [["Basil", "lived in", "Paris"]],
    }
    kg = import_openie(tmp_path / "openie.json")
    assert (kg.num_triples, kg.num_passages) == (4, 3)


def test_extract_kg_of_nothing_is_empty():
    kg = extract_kg([], Engine(OpenIe()))
    assert (kg.num_passages, kg.num_triples) == (0, 0)
