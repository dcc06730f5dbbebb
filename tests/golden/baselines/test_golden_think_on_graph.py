"""Whole runs of Think-on-Graph with scripted replies: early stop, dead end, depth spent, hubs, gold anchors."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "methods"))
from anchor_rag_case import (
    NOT_ENOUGH,
    PASSAGES,
    TRIPLES,
    ScriptedModel,
    choose_with,
    enough_when,
    passage_kg,
    question,
    resources_of,
    triple_kg,
)

from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.methods.think_on_graph import ThinkOnGraph, ThinkOnGraphConfig
from kgrag_gpu.types import EntityRef, UserError

BORN = "Where was the director of Silver Harbour born?"
OTHER = "Where was the director of Copper Gate born?"


def model(**script) -> ScriptedModel:
    known = {
        "keywords": lambda user: '{"mentions":[]}',
        "rank_relations": choose_with("best", "directed by", "born in"),
        "rank_entities": choose_with("best", "Ada", "Ystad", "Otto", "Aarhus"),
        "enough": lambda user: NOT_ENOUGH,
        "cot": lambda user: "Answer: nowhere",
    }
    return ScriptedModel({**known, **script})


def run(tmp_path, scripted, *questions, kg=None, **config):
    engine = Engine(scripted) if scripted else None
    method = ThinkOnGraph(ThinkOnGraphConfig.model_validate(config), resources_of(kg or triple_kg(), tmp_path, engine))
    asked = [question(q, number) if isinstance(q, str) else q for number, q in enumerate(questions)]
    return method.retrieve(asked)


def test_tog_enough_facts_stop_early_and_answer_from_the_graph(tmp_path):
    scripted = model(enough=enough_when("Ada Lindqvist born in Ystad", "Ystad"))
    (found,) = run(tmp_path, scripted, BORN, width=2)
    assert (found.answer.text, found.answer.source) == ("Ystad", "graph")
    assert [r["expanded"] for r in found.trace["rounds"]] == [1, 1]
    assert found.trace["anchors"] == "linked"
    assert "cot" not in scripted.kinds()
    first = found.evidence[0].steps
    assert (first[0].head, first[0].relation, first[0].tail) == ("Silver Harbour", "directed by", "Ada Lindqvist")


def test_tog_dead_end_stops_and_thinks_aloud_over_what_was_found(tmp_path):
    seen = []

    def cot(user: str) -> str:
        seen.append(user)
        return "Oslo it is.\nAnswer: Oslo"

    # Both relations lead to ends without further relations: the year has none, and Nils Berg's only one is walked.
    triples = [t for t in TRIPLES if t[0] != "Nils Berg"]
    scripted = model(rank_relations=choose_with("best", "release year", "starring"), cot=cot)
    (found,) = run(tmp_path, scripted, BORN, kg=triple_kg(triples), width=2, depth=3)
    assert (found.answer.text, found.answer.source) == ("Oslo", "cot")
    assert len(found.trace["rounds"]) == 2
    assert found.trace["rounds"][1]["kept"] == 0
    assert "release year 1994" in seen[0]


def test_tog_depth_spent_thinks_aloud_and_is_marked(tmp_path):
    scripted = model(cot=lambda user: "Answer: Ystad")
    (found,) = run(tmp_path, scripted, BORN, width=2, depth=2)
    assert (found.answer.text, found.answer.source) == ("Ystad", "cot")
    assert len(found.trace["rounds"]) == 2
    assert scripted.kinds().count("enough") == 2


def test_tog_no_topic_entity_thinks_aloud_without_facts(tmp_path):
    seen = []

    def cot(user: str) -> str:
        seen.append(user)
        return "Answer: blue"

    (found,) = run(tmp_path, model(cot=cot), "Which colour has the sky?")
    assert (found.answer.text, found.answer.source, found.evidence) == ("blue", "cot", ())
    assert seen == ["Question: Which colour has the sky?"]


def test_tog_unreadable_replies_fall_back_to_cosine_ranks(tmp_path):
    (found,) = run(tmp_path, ScriptedModel({}), BORN)
    assert found.evidence
    assert found.answer.source in ("cot", "none")


def test_tog_width_bounds_the_paths_of_a_question_not_of_an_agent(tmp_path):
    both = "Who is married to the director of Silver Harbour, and who directed Copper Gate?"
    (found,) = run(tmp_path, None, both, width=2, depth=1)
    assert len(found.anchors) == 2
    assert found.trace["rounds"][0]["kept"] == 2


def test_tog_hub_beyond_the_limit_is_sampled_and_counted(tmp_path):
    triples = [*TRIPLES, *(("Silver Harbour", "directed by", f"Helper {n}") for n in range(30))]
    (found,) = run(tmp_path, None, "directed by Silver Harbour", kg=triple_kg(triples), depth=1)
    assert found.trace["rounds"][0]["hub_dropped"] == 31 - 5
    (small,) = run(tmp_path, None, "directed by Silver Harbour", depth=1)
    assert small.trace["rounds"][0]["hub_dropped"] == 0


def test_tog_gold_anchors_start_where_the_question_says_and_the_trace_says_so(tmp_path):
    given = replace(question("Where was the director born?"), topic_entities=(EntityRef("Copper Gate"),))
    lost = replace(question("Where was the director born?", 1), topic_entities=(EntityRef("No Such Film"),))
    found, missing = run(tmp_path, None, given, lost, anchors="gold", depth=2)
    assert [a.name for a in found.anchors] == ["Copper Gate"]
    assert found.trace["anchors"] == "gold"
    assert (missing.anchors, missing.answer.source) == ((), "none")


def test_tog_batch_answers_as_each_question_alone_and_asks_each_kind_once_a_round(tmp_path):
    def enough(user: str) -> str:
        answers = {"Ada Lindqvist born in Ystad": "Ystad", "Otto Falk born in Aarhus": "Aarhus"}
        named = "Ystad" if "Silver" in user.splitlines()[-1] else "Aarhus"
        fact = next(fact for fact, answer in answers.items() if answer == named)
        return enough_when(fact, named)(user)

    both = run(tmp_path, model(enough=enough), BORN, OTHER, width=2)
    alone = [run(tmp_path, model(enough=enough), question(text, n), width=2)[0] for n, text in enumerate((BORN, OTHER))]
    assert [r.answer.text for r in both] == ["Ystad", "Aarhus"]
    assert [(r.answer, r.evidence, r.trace) for r in both] == [(r.answer, r.evidence, r.trace) for r in alone]


def test_tog_without_a_model_answers_with_the_end_of_the_best_path(tmp_path):
    (found,) = run(tmp_path, None, "Who is the director of Silver Harbour, directed by whom?", depth=1)
    assert (found.answer.text, found.answer.source) == ("Ada Lindqvist", "graph")


def test_tog_over_mentions_or_without_gold_topics_is_refused():
    config = ThinkOnGraphConfig(anchors="gold")
    with pytest.raises(UserError, match="mentions"):
        ThinkOnGraph.check(config, passage_kg(PASSAGES), [question(BORN)], "none")
    with pytest.raises(UserError, match="anchors=linked"):
        ThinkOnGraph.check(config, triple_kg(), [question(BORN)], "none")
