"""The reader: what it shows the model, what it takes out of the reply, and what becomes of failures."""

from collections.abc import Iterator, Sequence

import pytest

from kgrag_gpu.answer.generate import extract_span, read_answers
from kgrag_gpu.config.schema import ReaderConfig
from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.llm.records import Completion, Message, Prompt, Sampling
from kgrag_gpu.types import Answer, EvidencePath, EvidenceStep, Passage, Question, Retrieval

PASSAGES = [
    Passage("Ada", "Ada was born in London. She wrote notes."),
    Passage("Basil", "Basil lived in Paris. " + "He walked far. " * 30),
    Passage("", "No title here."),
]


class Reader:
    """A backend that answers every prompt alike and keeps what it was shown."""

    name, model_id, revision, detail = "reader", "tiny", "r", ""

    def __init__(self, reply: str | Completion = "London", max_context_tokens: int = 2000):
        self._reply = reply
        self.max_context_tokens = max_context_tokens
        self.shown: list[str] = []

    def render(self, messages: Sequence[Message]) -> str:
        return "\n".join(message.content for message in messages)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def complete(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        for row, prompt in enumerate(prompts):
            self.shown.append(prompt.messages[-1].content)
            text = self._reply
            yield row, text if isinstance(text, Completion) else Completion(text, 5, 2, "stop")

    def close(self) -> None:
        pass


def _read(reader: Reader, retrieval: Retrieval, config: ReaderConfig | None = None) -> tuple[Answer, Engine]:
    engine = Engine(reader)
    question = Question("q1", "Where was Ada born?")
    return read_answers([question], [retrieval], PASSAGES, engine, config or ReaderConfig())[0], engine


def test_read_answers_shows_passages_in_rank_order_and_the_question_last():
    reader = Reader()
    answer, _ = _read(reader, Retrieval((2, 0)))
    assert reader.shown == [
        "[1] No title here.\n[2] Ada: Ada was born in London. She wrote notes.\n\nQuestion: Where was Ada born?"
    ]
    assert answer == Answer("London", "passages", ("London",), "London")


def test_read_answers_takes_only_the_configured_number_of_passages():
    reader = Reader()
    _read(reader, Retrieval((0, 1, 2)), ReaderConfig(num_passages=1))
    assert "Basil" not in reader.shown[0]


def test_read_answers_cuts_at_passage_borders_and_counts_the_cut():
    reader = Reader()
    _, engine = _read(reader, Retrieval((0, 1, 2)), ReaderConfig(context_tokens=64))
    assert "[1] Ada" in reader.shown[0]
    assert "Basil" not in reader.shown[0]
    assert "No title" not in reader.shown[0]
    assert engine.usage.total.cut_contexts == 1


def test_read_answers_first_passage_too_long_is_cut_between_sentences():
    reader = Reader()
    _, engine = _read(reader, Retrieval((1, 0)), ReaderConfig(context_tokens=64))
    shown = reader.shown[0].split("\n\nQuestion")[0]
    assert shown.startswith("[1] Basil: Basil lived in Paris.")
    assert shown.endswith("He walked far.")
    assert len(shown.split()) <= 64
    assert engine.usage.total.cut_contexts == 1


def test_read_answers_small_model_context_bounds_the_budget():
    reader = Reader(max_context_tokens=170)
    answer, engine = _read(reader, Retrieval((1, 0)))
    assert answer.text == "London"
    assert engine.usage.total.cut_contexts == 1


def test_read_answers_evidence_without_passages_is_read_as_facts():
    step = EvidenceStep("Ada", "born in", "London", "Ada was born in London")
    reader = Reader("London | Westminster")
    answer, engine = _read(reader, Retrieval(evidence=(EvidencePath((step, step), 1.0),)))
    assert reader.shown == ["- Ada was born in London\n\nQuestion: Where was Ada born?"]
    assert answer == Answer("London", "graph", ("London", "Westminster"), "London | Westminster")
    assert list(engine.usage.as_dict()["by_kind"]) == ["answer_facts"]


def test_read_answers_nothing_retrieved_is_marked_as_thought_up():
    answer, _ = _read(Reader("Ada was English.\nAnswer: London"), Retrieval())
    assert (answer.text, answer.source) == ("London", "cot")


def test_read_answers_failure_is_an_empty_answer_and_is_kept_with_its_reason():
    answer, engine = _read(Reader(Completion("", 0, 0, "timeout", error="no reply within 2 s")), Retrieval((0,)))
    assert answer == Answer("", "none")
    (failure,) = engine.take_failures()
    assert (failure.question_id, failure.reason) == ("q1", "no reply within 2 s")


def test_read_answers_method_that_answered_is_not_asked_again():
    reader = Reader()
    given = Answer("Rome", "graph")
    answer, _ = _read(reader, Retrieval((0,), answer=given))
    assert answer is given
    assert reader.shown == []


@pytest.mark.parametrize(
    ("reply", "span"),
    [
        ("London", "London"),
        ("London.", "London"),
        ("The answer is London.", "London"),
        ("Answer: **London**", "London"),
        ("First A, then B.\nSo the answer is: 12 May 1900.", "12 May 1900"),
        ('"Moon River"', "Moon River"),
        ("U.S.", "U.S."),
        ("Martin Luther King Jr.", "Martin Luther King Jr."),
        ("London\nbecause she was born there", "London"),
        ("答案是:伦敦。", "伦敦"),
        ("答案:伦敦", "伦敦"),
        ("Réponse : Orléans.", "Orléans"),
        ("الإجابة: القاهرة", "القاهرة"),
        ("I don't know", ""),
        ("Not mentioned in the passages.", ""),
        ("Unknown", ""),
        ("Unknown Pleasures", "Unknown Pleasures"),
        ("Nottingham", "Nottingham"),
        ("", ""),
    ],
)
def test_extract_span_takes_the_answer_out_of_the_reply(reply, span):
    assert extract_span(reply) == span
