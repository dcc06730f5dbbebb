"""IO, CoT and SC with scripted replies: what is asked, what is drawn, who chooses."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "methods"))
from anchor_rag_case import ScriptedModel, question, resources_of, triple_kg

from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.methods.model_alone import Cot, Io, ScConfig, SelfConsistency
from kgrag_gpu.types import UserError

BORN = "Where was the director of Silver Harbour born?"


class Drawing(ScriptedModel):
    """Replies to a prompt kind one after the other, a list per question: each draw gets the next."""

    def __init__(self, script):
        super().__init__({kind: self._drawn(replies) for kind, replies in script.items()})
        self.temperatures = []

    def complete(self, prompts, sampling):
        self.temperatures.append((sampling.temperature, sampling.seed))
        return super().complete(prompts, sampling)

    @staticmethod
    def _drawn(replies):
        left = {text: list(row) for text, row in replies.items()}
        return lambda user: next(row for text, row in left.items() if text in user).pop(0)


def run(method_class, tmp_path, scripted, *texts, config=None):
    method = method_class(
        config or method_class.Config(), resources_of(triple_kg(), tmp_path, engine := Engine(scripted))
    )
    found = method.retrieve([question(text, number) for number, text in enumerate(texts)])
    return [retrieval.answer for retrieval in found], engine


def chains(*answers):
    return [f"Some thought about {answer}.\nAnswer: {answer}" for answer in answers]


def test_io_takes_the_reply_as_the_answer_and_marks_it_as_the_models_own(tmp_path):
    (answer,), _ = run(Io, tmp_path, Drawing({"io": {BORN: ["Ystad"]}}), BORN)
    assert (answer.text, answer.source, answer.names) == ("Ystad", "cot", ("Ystad",))


def test_io_reply_that_knows_no_answer_is_unanswered(tmp_path):
    (answer,), _ = run(Io, tmp_path, Drawing({"io": {BORN: ["I don't know."]}}), BORN)
    assert (answer.text, answer.source) == ("", "none")


def test_cot_answer_is_what_follows_the_last_mark(tmp_path):
    (answer,), _ = run(Cot, tmp_path, Drawing({"cot_examples": {BORN: chains("Ystad")}}), BORN)
    assert (answer.text, answer.source) == ("Ystad", "cot")
    assert answer.reply.startswith("Some thought")


def test_sc_samples_that_agree_are_not_put_to_the_model(tmp_path):
    scripted = Drawing({"cot_examples": {BORN: chains("Ystad", "ystad", "the Ystad", "Ystad.", "Ystad")}})
    (answer,), _ = run(SelfConsistency, tmp_path, scripted, BORN)
    assert answer.text == "Ystad"
    assert "pick_answer" not in scripted.kinds()
    assert {temperature for temperature, _ in scripted.temperatures} == {0.7}
    assert len({seed for _, seed in scripted.temperatures}) == 5


def test_sc_samples_that_differ_are_put_to_the_model_which_may_overrule_the_majority(tmp_path):
    drawn = {"cot_examples": {BORN: chains("Bergen", "Bergen", "Ystad", "Bergen", "Oslo")}}
    scripted = Drawing({**drawn, "pick_answer": {BORN: ['{"best":[3]}']}})
    (answer,), _ = run(SelfConsistency, tmp_path, scripted, BORN)
    assert answer.text == "Ystad"
    options = next(user for kind, user in scripted.asked if kind == "pick_answer")
    assert "3. Some thought about Ystad. Answer: Ystad" in options


def test_sc_vote_takes_the_most_frequent_answer_and_the_earliest_among_equals(tmp_path):
    other = "Who directed Copper Gate?"
    scripted = Drawing(
        {
            "cot_examples": {
                BORN: chains("Oslo", "Ystad", "Bergen", "Ystad", "Bergen"),
                other: chains("Otto Falk", "Ada", "Ada", "Ada", "Otto Falk"),
            }
        }
    )
    answers, _ = run(SelfConsistency, tmp_path, scripted, BORN, other, config=ScConfig(choice="vote"))
    assert [answer.text for answer in answers] == ["Ystad", "Ada"]


def test_sc_pick_that_cannot_be_read_falls_back_to_the_vote_and_is_recorded(tmp_path):
    drawn = {"cot_examples": {BORN: chains("Bergen", "Ystad", "Ystad", "Oslo", "Rome")}}
    scripted = Drawing({**drawn, "pick_answer": {BORN: ["no idea", "still none"]}})
    (answer,), engine = run(SelfConsistency, tmp_path, scripted, BORN)
    assert answer.text == "Ystad"
    assert [failure.kind for failure in engine.take_failures()] == ["pick_answer"]


@pytest.mark.parametrize("method_class", [Io, Cot, SelfConsistency])
def test_model_alone_without_a_model_is_refused(method_class, tmp_path):
    with pytest.raises(UserError, match="needs a language model"):
        method_class(method_class.Config(), resources_of(triple_kg(), tmp_path))
    with pytest.raises(UserError, match="--llm"):
        method_class.check(None, triple_kg(), [], "none")
