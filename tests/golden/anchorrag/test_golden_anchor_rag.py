"""Whole runs of AnchorRAG with scripted replies: what is asked, when it stops, and how the answer is marked."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "methods"))
from anchor_rag_case import ScriptedModel, anchor_rag, choose_with, enough_when, passage_kg, question, triple_kg

from kgrag_gpu.llm.engine import Engine

BORN = "Where was the director of Silver Harbour born?"
NO_KEYWORDS = '{"mentions":[]}'


def model(**script) -> ScriptedModel:
    known = {
        "keywords": lambda user: NO_KEYWORDS,
        "rank_relations": choose_with("best", "directed by", "born in"),
        "rank_entities": choose_with("best", "Ada", "Ystad"),
        "verify_evidence": choose_with("keep", "directed by", "born in"),
        "rank_agents": choose_with("keep", "Silver", "Ada", "Otto", "Copper"),
    }
    return ScriptedModel({**known, **script})


def run(tmp_path, scripted, *texts, kg=None, **config):
    engine = Engine(scripted)
    method = anchor_rag(kg or triple_kg(), tmp_path, engine, **config)
    return method.retrieve([question(text, number) for number, text in enumerate(texts)]), engine


def test_anchor_rag_enough_evidence_stops_early_and_answers_from_the_graph(tmp_path):
    scripted = model(enough=enough_when("Ada Lindqvist born in Ystad", "Ystad"))
    (found,), _ = run(tmp_path, scripted, BORN)
    assert (found.answer.text, found.answer.source) == ("Ystad", "graph")
    assert len(found.trace["rounds"]) == 2
    assert "cot" not in scripted.kinds()
    walked = [[(s.head, s.relation, s.tail) for s in path.steps] for path in found.evidence]
    first = ("Silver Harbour", "directed by", "Ada Lindqvist")
    assert [first, ("Ada Lindqvist", "born in", "Ystad")] in walked
    assert [a.name for a in found.anchors] == ["Silver Harbour"]


def test_anchor_rag_no_fact_verified_stops_at_once_and_thinks_aloud(tmp_path):
    scripted = model(
        verify_evidence=lambda user: '{"keep":[]}',
        enough=lambda user: pytest.fail("there was nothing to judge"),
        cot=lambda user: "Nothing is known of it.\nAnswer: Malmö",
    )
    (found,), _ = run(tmp_path, scripted, BORN)
    assert (found.answer.text, found.answer.source) == ("Malmö", "cot")
    assert found.evidence == ()
    assert len(found.trace["rounds"]) == 1
    assert scripted.kinds().count("verify_evidence") == 1


def test_anchor_rag_depth_spent_thinks_aloud_over_what_was_found(tmp_path):
    seen = []

    def cot(user: str) -> str:
        seen.append(user)
        return "She was born there.\nAnswer: Ystad"

    scripted = model(enough=lambda user: '{"enough":false,"answers":[]}', cot=cot)
    (found,), _ = run(tmp_path, scripted, BORN, depth=2)
    assert (found.answer.text, found.answer.source) == ("Ystad", "cot")
    assert len(found.trace["rounds"]) == 2
    assert "Ada Lindqvist born in Ystad" in seen[0]


def test_anchor_rag_cot_without_evidence_shows_no_fact(tmp_path):
    seen = []

    def cot(user: str) -> str:
        seen.append(user)
        return "Answer: Ystad"

    scripted = model(enough=lambda user: '{"enough":false,"answers":[]}', cot=cot)
    run(tmp_path, scripted, BORN, depth=1, cot_with_evidence=False)
    assert "directed by" not in seen[0]


def test_anchor_rag_unreadable_replies_fall_back_to_scores_and_are_kept_as_failures(tmp_path):
    scripted = ScriptedModel({})
    (found,), engine = run(tmp_path, scripted, BORN)
    assert found.evidence and found.answer.source in ("cot", "none")
    kinds = {failure.kind for failure in engine.take_failures()}
    assert {"keywords", "verify_evidence", "enough"} <= kinds


def test_anchor_rag_supervisor_drops_an_agent_that_the_model_does_not_name(tmp_path):
    two = "Who is married to the director of Silver Harbour, and who directed Copper Gate?"
    both = model(enough=lambda user: '{"enough":false,"answers":[]}', cot=lambda user: "Answer: Otto Falk")
    one = model(
        enough=lambda user: '{"enough":false,"answers":[]}',
        rank_agents=choose_with("keep", "Copper Gate"),
        cot=lambda user: "Answer: Otto Falk",
    )
    (wide,), _ = run(tmp_path, both, two)
    (narrow,), _ = run(tmp_path, one, two)
    assert {a.name for a in wide.anchors} == {"Silver Harbour", "Copper Gate"}
    assert narrow.trace["rounds"][1]["expanded"] < wide.trace["rounds"][1]["expanded"]


def test_anchor_rag_batch_asks_each_kind_once_a_round_and_answers_as_alone(tmp_path):
    other = "Where was the director of Copper Gate born?"

    def enough(user: str) -> str:
        if "Silver" in user.splitlines()[-1]:
            return enough_when("Ada Lindqvist born in Ystad", "Ystad")(user)
        return enough_when("Otto Falk born in Aarhus", "Aarhus")(user)

    script = {
        "enough": enough,
        "rank_entities": choose_with("best", "Ada", "Ystad", "Otto", "Aarhus"),
        "cot": lambda user: "Answer: nowhere",
    }
    both, _ = run(tmp_path, model(**script), BORN, other)
    alone = [run(tmp_path, model(**script), text)[0][0] for text in (BORN, other)]
    assert [r.answer.text for r in both] == ["Ystad", "Aarhus"]
    assert [r.answer for r in both] == [r.answer for r in alone]
    assert [r.evidence for r in both] == [r.evidence for r in alone]
    assert [r.trace for r in both] == [r.trace for r in alone]


def test_anchor_rag_keywords_find_an_anchor_that_the_question_misspells_beyond_recognition(tmp_path):
    text = "Where was the maker of Slvr Hrbr born?"
    keywords = '{"mentions":[{"mention":"Slvr Hrbr","corrected":"Silver Harbour"}]}'
    scripted = model(keywords=lambda user: keywords, enough=enough_when("born in Ystad", "Ystad"))
    (found,), _ = run(tmp_path, scripted, text)
    assert found.anchors[0].name == "Silver Harbour"
    assert found.answer.text == "Ystad"


def test_anchor_rag_over_passages_with_a_model_leaves_the_answer_to_the_reader(tmp_path):
    scripted = model(
        rank_relations=choose_with("best", "Ada Lindqvist", "Otto Falk"),
        verify_evidence=choose_with("keep", "Ada Lindqvist"),
        rank_agents=choose_with("keep", "Silver Harbour", "Ada Lindqvist"),
    )
    (found,), _ = run(tmp_path, scripted, BORN, kg=passage_kg())
    assert found.answer is None
    assert found.passage_ids[:2] in ((0, 1), (1, 0))
    assert "enough" not in scripted.kinds()
