"""Whole runs of Plan-on-Graph with scripted replies: early stop, dead end and the way back, depth spent, fallback."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "methods"))
from anchor_rag_case import NOT_ENOUGH, ScriptedModel, choose_with, enough_when, question, resources_of, triple_kg

from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.methods.plan_on_graph import PlanOnGraph, PlanOnGraphConfig
from kgrag_gpu.types import UserError

BORN = "Where was the director of Silver Harbour born?"
OTHER = "Where was the director of Copper Gate born?"
NONE = '{"back_to":[]}'


def model(**script) -> ScriptedModel:
    known = {
        "keywords": lambda user: '{"mentions":[]}',
        "sub_questions": lambda user: '{"parts":["Who directed it?","Where was #1 born?"]}',
        "choose_relations": choose_with("keep", "directed by", "born in"),
        "choose_entities": choose_with("keep", "Ada", "Ystad", "Otto", "Aarhus"),
        "note_progress": lambda user: '{"known":["Ada" , ""]}' if "directed by Ada" in user else '{"known":["",""]}',
        "reflect": lambda user: NONE,
        "enough": lambda user: NOT_ENOUGH,
        "cot": lambda user: "Answer: nowhere",
    }
    return ScriptedModel({**known, **script})


def run(tmp_path, scripted, *texts, **config):
    engine = Engine(scripted)
    method = PlanOnGraph(PlanOnGraphConfig.model_validate(config), resources_of(triple_kg(), tmp_path, engine))
    return method.retrieve([question(text, number) for number, text in enumerate(texts)]), engine


def prompts(scripted, kind):
    return [user for asked, user in scripted.asked if asked == kind]


def test_pog_plan_stands_in_every_prompt_and_enough_facts_stop_early(tmp_path):
    scripted = model(enough=enough_when("Ada Lindqvist born in Ystad", "Ystad"))
    (found,), _ = run(tmp_path, scripted, BORN)
    assert (found.answer.text, found.answer.source) == ("Ystad", "graph")
    assert len(found.trace["rounds"]) == 2
    assert found.trace["sub_questions"] == ["Who directed it?", "Where was #1 born?"]
    assert found.trace["known"] == ["Ada", ""]
    assert found.trace["backtracks"] == 0
    first, second = prompts(scripted, "choose_relations")[0], prompts(scripted, "choose_relations")[-1]
    assert "1. Who directed it?\n2. Where was #1 born?" in first
    assert "1. Who directed it? (Ada)" in second
    assert "cot" not in scripted.kinds()


def test_pog_breadth_is_what_the_model_keeps(tmp_path):
    wide = model(choose_relations=choose_with("keep", "directed by", "starring", "release year"),
                 choose_entities=choose_with("keep", "Ada", "Nils", "1994"))  # fmt: skip
    narrow = model()
    (three,), _ = run(tmp_path, wide, BORN, depth=1)
    (one,), _ = run(tmp_path, narrow, BORN, depth=1)
    assert (three.trace["rounds"][0]["kept"], one.trace["rounds"][0]["kept"]) == (3, 1)
    bounded = model(choose_relations=choose_with("keep", "directed by", "starring", "release year"),
                    choose_entities=choose_with("keep", "Ada", "Nils", "1994"))  # fmt: skip
    (two,), _ = run(tmp_path, bounded, BORN, depth=1, max_width=2)
    assert two.trace["rounds"][0]["kept"] == 2


def test_pog_dead_end_goes_back_to_the_start_and_takes_another_relation(tmp_path):
    turns = []

    def relations(user: str) -> str:
        if "Entity: Silver Harbour" in user and not turns:
            return choose_with("keep", "release year")(user)
        return choose_with("keep", "directed by", "born in")(user)

    def reflect(user: str) -> str:
        turns.append(user)
        return choose_with("back_to", "Silver Harbour")(user) if len(turns) == 1 else NONE

    scripted = model(
        choose_relations=relations,
        choose_entities=choose_with("keep", "1994", "Ada", "Ystad"),
        reflect=reflect,
        enough=enough_when("Ada Lindqvist born in Ystad", "Ystad"),
    )
    (found,), _ = run(tmp_path, scripted, BORN)
    assert (found.answer.text, found.answer.source) == ("Ystad", "graph")
    assert found.trace["backtracks"] == 1
    again = [user for user in prompts(scripted, "choose_relations") if "Entity: Silver Harbour" in user]
    assert len(again) == 2
    assert "release year" in again[0] and "release year" not in again[1]


def test_pog_goes_back_to_a_fact_that_it_had_dropped(tmp_path):
    turns = []

    def reflect(user: str) -> str:
        turns.append(user)
        return choose_with("back_to", "Ada Lindqvist (")(user) if len(turns) == 1 else NONE

    scripted = model(
        choose_relations=choose_with("keep", "directed by", "starring", "born in Oslo", "born in"),
        choose_entities=choose_with("keep", "Nils", "Oslo", "Ystad"),
        reflect=reflect,
        enough=enough_when("Ada Lindqvist born in Ystad", "Ystad"),
    )
    (found,), _ = run(tmp_path, scripted, BORN)
    assert found.answer.text == "Ystad"
    walked = [[(s.head, s.tail) for s in path.steps] for path in found.evidence]
    assert [("Silver Harbour", "Ada Lindqvist"), ("Ada Lindqvist", "Ystad")] in walked
    assert "Ada Lindqvist (Silver Harbour directed by Ada Lindqvist)" in turns[0]


def test_pog_backtracks_are_bounded_and_the_rest_is_thought_aloud(tmp_path):
    scripted = model(
        choose_relations=choose_with("keep", "release year", "starring", "directed by"),
        choose_entities=lambda user: '{"keep":[]}',
        reflect=choose_with("back_to", "Silver Harbour", "1994", "Nils", "Ada"),
        cot=lambda user: "Answer: Ystad",
    )
    (found,), _ = run(tmp_path, scripted, BORN, max_backtracks=2, max_width=1)
    assert found.trace["backtracks"] == 2
    assert (found.answer.text, found.answer.source) == ("Ystad", "cot")


def test_pog_depth_spent_thinks_aloud_over_the_facts(tmp_path):
    seen = []

    def cot(user: str) -> str:
        seen.append(user)
        return "Answer: Ystad"

    (found,), _ = run(tmp_path, model(cot=cot), BORN, depth=2)
    assert (found.answer.text, found.answer.source) == ("Ystad", "cot")
    assert len(found.trace["rounds"]) == 2
    assert "Ada Lindqvist born in Ystad" in seen[0]


def test_pog_unreadable_replies_fall_back_to_scores_and_are_recorded(tmp_path):
    (found,), engine = run(tmp_path, ScriptedModel({}), BORN)
    assert found.trace["sub_questions"] == [BORN]
    assert found.evidence
    kinds = {failure.kind for failure in engine.take_failures()}
    assert {"sub_questions", "choose_relations", "reflect", "enough"} <= kinds


def test_pog_batch_answers_as_each_question_alone(tmp_path):
    def enough(user: str) -> str:
        if "Silver Harbour" in user.split("Question: ")[1]:
            return enough_when("Ada Lindqvist born in Ystad", "Ystad")(user)
        return enough_when("Otto Falk born in Aarhus", "Aarhus")(user)

    (both, _) = run(tmp_path, model(enough=enough), BORN, OTHER)
    alone = [run(tmp_path, model(enough=enough), text)[0][0] for text in (BORN, OTHER)]
    assert [r.answer.text for r in both] == ["Ystad", "Aarhus"]
    assert [(r.answer, r.evidence, r.trace) for r in both] == [(r.answer, r.evidence, r.trace) for r in alone]


def test_pog_without_a_model_is_refused(tmp_path):
    with pytest.raises(UserError, match="needs a language model"):
        PlanOnGraph(PlanOnGraphConfig(), resources_of(triple_kg(), tmp_path))
    with pytest.raises(UserError, match="needs a language model"):
        PlanOnGraph.check(PlanOnGraphConfig(), triple_kg(), [], "none")
