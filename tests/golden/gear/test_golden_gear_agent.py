"""GeAR's agent over recorded replies: enough at once, enough after a rewriting, rounds spent, replies without use."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "methods"))
from anchor_rag_case import passage_kg, question, resources_of
from gear_replies import RecordedModel

from kgrag_gpu.config.load import load_run_config
from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.methods.gear_agent import GearAgent, GearAgentConfig

BORN = "Where was the director of Silver Harbour born?"
GATE = "Who directed Copper Gate?"
SHIPS = "What warns ships of rocks?"

DIRECTED = ["Silver Harbour", "directed by", "Ada Lindqvist"]
BORN_IN = ["Ada Lindqvist", "born in", "Ystad"]
GATE_BY = ["Copper Gate", "directed by", "Otto Falk"]
REWRITTEN = "Where was Ada Lindqvist born?"


def triples(*rows) -> str:
    return json.dumps({"triples": rows})


def enough(why="it is all there") -> str:
    return json.dumps({"answerable": True, "why": why})


def missing(why) -> str:
    return json.dumps({"answerable": False, "why": why})


def query(text) -> str:
    return json.dumps({"query": text})


TWO_ROUNDS = {
    "read_triples": {BORN: [triples(DIRECTED), triples(DIRECTED, BORN_IN)], GATE: [triples(GATE_BY)]},
    "reason": {BORN: [missing("her birthplace"), enough()], GATE: [enough()]},
    "rewrite": {BORN: [query(REWRITTEN)]},
}


def agent(folder, model, dataset="musique", **config):
    engine = Engine(model) if model else None
    resources = resources_of(passage_kg(), folder, engine)
    if model:
        model.engine = engine
    resources.config = load_run_config(dataset, "hybrid")
    return GearAgent(GearAgentConfig.model_validate({"base": "dense", "num_base": 2, **config}), resources)


def run(folder, replies, *texts, **config):
    model = RecordedModel(replies)
    method = agent(folder, model, **config)
    return method.retrieve([question(text, number) for number, text in enumerate(texts)]), model, method


def test_gear_agent_memory_enough_in_round_1_asks_two_prompts(tmp_path):
    (found,), model, _ = run(tmp_path, TWO_ROUNDS, GATE)
    assert [kind for kind, _ in model.asked] == ["read_triples", "reason"]
    assert found.trace["stopped"] == "enough"
    assert found.trace["memory"] == ["Copper Gate directed by Otto Falk"]
    (only,) = found.trace["rounds"]
    assert (only["query"], only["enough"], only["why"]) == (GATE, True, "it is all there")
    assert found.answer is None
    assert found.passage_ids[:2] == (4, 5)  # Copper Gate, then Otto Falk through the linked fact


def test_gear_agent_not_enough_rewrites_and_is_enough_in_round_2(tmp_path):
    (found,), model, _ = run(tmp_path, TWO_ROUNDS, BORN)
    kinds = ["read_triples", "reason", "rewrite", "read_triples", "reason"]
    assert [kind for kind, _ in model.asked] == kinds
    assert [round_["query"] for round_ in found.trace["rounds"]] == [BORN, REWRITTEN]
    assert [round_["enough"] for round_ in found.trace["rounds"]] == [False, True]
    assert found.trace["rounds"][0]["why"] == "her birthplace"
    assert found.trace["rounds"][1]["new_triples"] == ["Ada Lindqvist born in Ystad"]  # the other one was known
    assert found.trace["memory"] == ["Silver Harbour directed by Ada Lindqvist", "Ada Lindqvist born in Ystad"]
    assert {0, 1} <= set(found.passage_ids[:3])
    assert {path.notes["round"] for path in found.evidence} == {1, 2}
    # The second reading sees the memory, the rewriting also the reason; both are asked about the question itself.
    first, second = model.texts("read_triples")
    assert "Known already" not in first
    assert "Known already:\n- Silver Harbour directed by Ada Lindqvist" in second
    assert second.endswith(f"Question: {BORN}")
    (rewriting,) = model.texts("rewrite")
    assert "- Silver Harbour directed by Ada Lindqvist" in rewriting and "Missing: her birthplace" in rewriting


@pytest.mark.parametrize(("dataset", "num_rounds"), [("musique", 4), ("hotpotqa", 2), ("2wikimultihopqa", 2)])
def test_gear_agent_never_enough_spends_the_rounds_of_its_data_set(tmp_path, dataset, num_rounds):
    replies = {
        "read_triples": {BORN: [triples([f"Ada Lindqvist {take}", "is", "a director"]) for take in range(4)]},
        "reason": {BORN: [missing("her birthplace")] * 4},
        "rewrite": {BORN: [query(f"Where was she born, take {take}?") for take in range(4)]},
    }
    (found,), model, _ = run(tmp_path, replies, BORN, dataset=dataset)
    assert len(found.trace["rounds"]) == num_rounds
    assert found.trace["stopped"] == "rounds spent"
    assert len(model.texts("rewrite")) == num_rounds - 1
    assert len(found.passage_ids) == len(set(found.passage_ids)) > 2


def test_gear_agent_replies_without_use_fall_back_to_the_form_without_a_model(tmp_path):
    (found,), model, _ = run(tmp_path, {}, BORN)
    plain = agent(tmp_path, None, num_nearest=0).retrieve([question(BORN)])[0]
    assert found.passage_ids == plain.passage_ids
    assert [path.steps for path in found.evidence] == [path.steps for path in plain.evidence]
    assert found.trace["stopped"] == "no new query"
    assert found.trace["rounds"][0]["why"] == "no fact was found yet"
    assert {failure.kind for failure in model.engine.take_failures()} == {"read_triples", "rewrite"}
    assert not model.texts("reason")  # without a fact there is nothing to judge


def test_gear_agent_unreadable_judgement_counts_as_not_enough(tmp_path):
    replies = {**TWO_ROUNDS, "reason": {BORN: ["hm", enough()]}}
    (found,), model, _ = run(tmp_path, replies, BORN)
    assert [round_["enough"] for round_ in found.trace["rounds"]] == [False, True]
    assert "Missing: unknown" in model.texts("rewrite")[0]


def test_gear_agent_query_that_was_asked_before_ends_the_rounds(tmp_path):
    replies = {**TWO_ROUNDS, "rewrite": {BORN: [query(BORN)]}}
    (found,), _, _ = run(tmp_path, replies, BORN)
    assert (len(found.trace["rounds"]), found.trace["stopped"]) == (1, "no new query")


def test_gear_agent_batch_asks_each_step_once_a_round_and_finds_what_each_alone_does(tmp_path):
    together, model, _ = run(tmp_path, TWO_ROUNDS, BORN, GATE, SHIPS)
    # Round 1 for three questions, one of them without a triple; round 2 for the one that is not enough yet.
    assert model.batches == [{"read_triples"}, {"reason"}, {"rewrite"}, {"read_triples"}, {"reason"}]
    assert [len(r.trace["rounds"]) for r in together] == [2, 1, 1]
    alone = [run(tmp_path, TWO_ROUNDS, text)[0][0] for text in (BORN, GATE, SHIPS)]
    assert together == alone


def test_syncge_is_one_round_without_memory_or_judgement(tmp_path):
    config = load_run_config("musique", "syncge").method.model_dump()
    (found,), model, _ = run(tmp_path, TWO_ROUNDS, BORN, **{**config, "base": "dense", "num_base": 2})
    assert [kind for kind, _ in model.asked] == ["read_triples"]
    assert (len(found.trace["rounds"]), found.trace["stopped"]) == (1, "rounds spent")
    assert found.evidence[0].steps[0].head == "Silver Harbour"


def test_gear_agent_without_memory_judges_a_rounds_own_triples(tmp_path):
    (found,), model, _ = run(tmp_path, TWO_ROUNDS, BORN, gist_memory=False)
    assert all("Known already" not in text for text in model.texts("read_triples"))
    assert model.texts("reason")[1].count("Silver Harbour directed by") == 1
    replies = {**TWO_ROUNDS, "read_triples": {BORN: [triples(DIRECTED), triples(BORN_IN)]}}
    (found,), model, _ = run(tmp_path, replies, BORN, gist_memory=False)
    assert "directed by" not in model.texts("reason")[1]
    assert found.trace["memory"] == ["Ada Lindqvist born in Ystad"]


def test_gear_agent_without_rewriting_asks_the_question_with_what_is_missing(tmp_path):
    (found,), model, _ = run(tmp_path, TWO_ROUNDS, BORN, rewrite=False)
    assert not model.texts("rewrite")
    assert found.trace["rounds"][1]["query"] == f"{BORN} her birthplace"


def test_gear_agent_without_expansion_ranks_by_the_base_retriever_and_the_memory(tmp_path):
    (found,), _, method = run(tmp_path, TWO_ROUNDS, SHIPS, expand=False)
    base = method._base.retrieve([question(SHIPS)])[0]
    assert found.passage_ids == base.passage_ids
    assert found.evidence == () and found.trace["rounds"][0]["num_candidates"] == 0


def test_gear_agent_use_model_off_asks_nothing_though_an_engine_is_open(tmp_path):
    found, model, _ = run(tmp_path, TWO_ROUNDS, BORN, use_model=False)
    assert not model.asked
    assert found == agent(tmp_path, None).retrieve([question(BORN)])


@pytest.mark.parametrize("preset", ["gear-no-expansion", "gear-no-memory", "gear-no-rewriting", "gear-no-diversity"])
def test_gear_ablation_presets_switch_off_one_thing(preset):
    default, changed = GearAgentConfig().model_dump(), load_run_config("musique", preset).method.model_dump()
    assert sum(default[key] != changed[key] for key in default) == 1
