"""Extraction by the model, over scripted replies: what becomes a triple, what is rejected and why, and resuming."""

import json
from collections.abc import Iterator, Sequence

import pytest

from kgrag_gpu.kg.extract import export_openie, extract_kg, extract_triples
from kgrag_gpu.kg.openie_import import import_openie
from kgrag_gpu.llm.cache import ReplyCache
from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.llm.records import Completion, Message, Prompt, Sampling
from kgrag_gpu.types import Passage

PASSAGES = [
    Passage("Ada", "Ada was born in London. She married Basil in 1981."),
    Passage("Basil", "Basil wrote books. He lived in Paris."),
    Passage("Dull", "Nothing is said here."),
]
ENTITIES = {
    "Ada": ["Ada", "London", "Basil", "Atlantis", "1981"],
    "Basil": ["Basil", "Paris"],
    "Dull": [],
}
TRIPLES = {
    "Ada": [
        ["Ada", "was born in", "London", 1],
        ["Ada", "married", "Basil", 2],
        ["Ada", "married", "Basil", 2],
        ["Ada", "knows", "", 1],
        ["Ada", "is", "ada", 1],
        ["Zeus", "rules", "Olympus", 1],
        ["Ada", "lives"],
        ["Ada", "married in", "1981", 9],
    ],
    "Basil": [["Basil", "lived in", "Paris", 2]],
    "Dull": [],
}


class OpenIe:
    """Answers both prompts of a passage from the tables above; `dies_on` raises for that title's triples."""

    name, model_id, revision, max_context_tokens, detail = "scripted", "tiny", "r", 4096, ""

    def __init__(self, dies_on: str = "", broken: str = "", max_context_tokens: int = 4096):
        self.dies_on, self.broken, self.max_context_tokens = dies_on, broken, max_context_tokens
        self.asked: list[tuple[str, str]] = []

    def render(self, messages: Sequence[Message]) -> str:
        return "\n".join(message.content for message in messages)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def complete(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        for row, prompt in enumerate(prompts):
            user = prompt.messages[1].content
            title = user.split("\n")[0].removeprefix("Title: ")
            step = "entities" if "\nPassage: " in user else "triples"
            if step == "triples" and title == self.dies_on:
                raise RuntimeError("killed")
            self.asked.append((title, step))
            table = ENTITIES if step == "entities" else TRIPLES
            text = "no JSON" if title == self.broken else json.dumps({step: table[title]})
            yield row, Completion(text, 10, 5, "stop")

    def close(self) -> None:
        pass


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
