"""IRCoT and Iter-RetGen over recorded replies: what is asked next, when they stop, and what they rank."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "gear"))
sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "methods"))
from anchor_rag_case import passage_kg, question, resources_of, triple_kg
from gear_replies import RecordedModel

from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.methods.iterative import IrCot, IterRetGen, first_sentence
from kgrag_gpu.types import UserError

BORN = "Where was the director of Silver Harbour born?"
GATE = "Who directed Copper Gate?"
STEP = "Silver Harbour was directed by Ada Lindqvist."
LAST = "So the answer is: Ystad."


def run(method_class, folder, replies, *texts, **config):
    model = RecordedModel(replies)
    resources = resources_of(passage_kg(), folder, Engine(model))
    method = method_class(method_class.Config.model_validate({"base": "dense", "num_base": 2, **config}), resources)
    return method.retrieve([question(text, number) for number, text in enumerate(texts)]), model


def test_ircot_sentence_is_the_next_query_and_the_answer_ends_the_chain(tmp_path):
    (found,), model = run(IrCot, tmp_path, {"ircot_step": {BORN: [STEP + " She is Swedish.", LAST]}}, BORN)
    assert found.trace == {"steps": [STEP, LAST], "num_retrievals": 2, "stopped": "answer found"}
    assert found.answer is None
    assert found.passage_ids[:2] == (0, 1)  # the film; its director, whom the first sentence names
    first, second = model.texts("ircot_step")
    assert first.endswith("Steps so far: none")
    assert second.endswith(f"Steps so far:\n- {STEP}")
    assert "Ada Lindqvist: Ada Lindqvist is a Swedish director." in second


def test_ircot_steps_spent_after_four_sentences(tmp_path):
    replies = {"ircot_step": {BORN: [f"Nothing is known of town {number}." for number in range(6)]}}
    (found,), model = run(IrCot, tmp_path, replies, BORN)
    assert (len(found.trace["steps"]), found.trace["num_retrievals"]) == (4, 5)
    assert found.trace["stopped"] == "steps spent"
    assert len(model.texts("ircot_step")) == 4


@pytest.mark.parametrize("replies", [{}, {"ircot_step": {BORN: ["...", "--"]}}])
def test_ircot_reply_without_use_ranks_as_the_base_does(tmp_path, replies):
    (found,), _ = run(IrCot, tmp_path, replies or {"ircot_step": {BORN: [""]}}, BORN, max_steps=1)
    resources = resources_of(passage_kg(), tmp_path)
    base = resources.base_retriever("dense").retrieve([question(BORN)])[0]
    assert set(found.passage_ids) == set(base.passage_ids)


def test_ircot_batch_asks_once_a_step_and_finds_what_each_alone_does(tmp_path):
    replies = {"ircot_step": {BORN: [STEP, LAST], GATE: ["So the answer is: Otto Falk."]}}
    together, model = run(IrCot, tmp_path, replies, BORN, GATE)
    assert model.batches == [{"ircot_step"}] * 2
    assert [kind for kind, _ in model.asked] == ["ircot_step"] * 3
    assert together == [run(IrCot, tmp_path, replies, text)[0][0] for text in (BORN, GATE)]


def test_iter_retgen_next_query_is_the_question_with_the_last_answer(tmp_path):
    replies = {"answer": {BORN: ["Ada Lindqvist", "Ystad"]}}
    (found,), model = run(IterRetGen, tmp_path, replies, BORN)
    assert found.trace == {"queries": [BORN, f"{BORN} Ada Lindqvist", f"{BORN} Ystad"]}
    assert len(model.texts("answer")) == 2  # the third answer is the reader's
    base = resources_of(passage_kg(), tmp_path).base_retriever("dense")
    assert found.passage_ids == base.retrieve([question(f"{BORN} Ystad")])[0].passage_ids


def test_iter_retgen_reply_without_use_asks_the_question_again(tmp_path):
    (found,), _ = run(IterRetGen, tmp_path, {"answer": {BORN: ["I don't know."] * 2}}, BORN, num_rounds=2)
    assert found.trace == {"queries": [BORN, BORN]}


def test_iter_retgen_batch_finds_what_each_alone_does(tmp_path):
    replies = {"answer": {BORN: ["Ada Lindqvist", "Ystad"], GATE: ["Otto Falk", "Aarhus"]}}
    together, model = run(IterRetGen, tmp_path, replies, BORN, GATE)
    assert len(model.batches) == 2
    assert together == [run(IterRetGen, tmp_path, replies, text)[0][0] for text in (BORN, GATE)]


@pytest.mark.parametrize("method_class", [IrCot, IterRetGen])
def test_iterative_without_a_model_or_passages_is_refused(method_class, tmp_path):
    with pytest.raises(UserError, match="needs a language model"):
        method_class(method_class.Config(), resources_of(passage_kg(), tmp_path))
    with pytest.raises(UserError, match="--llm"):
        method_class.check(None, passage_kg(), [], "none")
    with pytest.raises(UserError, match="reads passages"):
        method_class.check(None, triple_kg(), [], "hf")


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        ("He was born in 1870. Then he died.", "He was born in 1870."),
        ("- J. S. Bach was born in Eisenach. So what?", "J. S. Bach was born in Eisenach."),
        ("St. Ives lies in Cornwall. It is a town.", "St. Ives lies in Cornwall."),
        ("\n* no stop at the end", "no stop at the end"),
        ("Version 2.5 came out. Next", "Version 2.5 came out."),
        ("...", ""),
    ],
)
def test_first_sentence(reply, sentence):
    assert first_sentence(reply) == sentence
