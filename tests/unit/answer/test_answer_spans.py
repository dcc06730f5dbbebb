"""Reading without a model: kinds of answer, comparisons, and what it does where nothing fits."""

import pytest

from kgrag_gpu.answer.comparisons import compare
from kgrag_gpu.answer.spans import read_spans
from kgrag_gpu.answer.text import date_spans, name_spans, number_spans
from kgrag_gpu.types import Answer, EvidencePath, EvidenceStep, Passage, Question, Retrieval

PASSAGES = [
    Passage(
        "Karen Holt", "Karen Holt (born 4 March 1950) is a Danish painter. She married the poet Nils Berg in 1981."
    ),
    Passage(
        "Nils Berg",
        "Nils Berg (12 June 1944 – 3 May 2001) was a Norwegian poet. He was born in Bergen. He wrote 14 books.",
    ),
    Passage("The Long Tide", "The Long Tide is a 1962 film directed by Karen Holt."),
    Passage("Low Water", "Low Water is a 1988 film directed by Nils Berg."),
]


def _ask(text: str, rows: tuple[int, ...] = (0, 1)) -> str:
    return read_spans([Question("q", text)], [Retrieval(rows)], PASSAGES, 5)[0].text


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Where was the husband of Karen Holt born?", "Bergen"),
        ("Who did the painter Karen Holt marry?", "Nils Berg"),
        ("How many books did the husband of Karen Holt write?", "14"),
        ("When did Karen Holt marry?", "1981"),
        ("Who was born first, Karen Holt or Nils Berg?", "Nils Berg"),
        ("Which is older, Karen Holt or Nils Berg?", "Nils Berg"),
        ("Were Karen Holt and Nils Berg of the same nationality?", "no"),
    ],
)
def test_read_spans_finds_the_kind_of_thing_that_is_asked(question, answer):
    assert _ask(question) == answer


def test_read_spans_compares_films_by_their_directors():
    question = "Which film has the director who was born later, The Long Tide or Low Water?"
    assert _ask(question, (2, 3, 0, 1)) == "The Long Tide"
    assert _ask(question.replace("later", "first"), (2, 3, 0, 1)) == "Low Water"


def test_read_spans_compares_films_by_their_own_year():
    assert _ask("Which film came out first, Low Water or The Long Tide?", (2, 3)) == "The Long Tide"


def test_read_spans_without_passages_takes_the_end_of_the_best_path():
    step = EvidenceStep("Karen Holt", "spouse", "Nils Berg", "")
    retrieval = Retrieval(evidence=(EvidencePath((step,), 0.5),))
    answer = read_spans([Question("q", "Who is the spouse of Karen Holt?")], [retrieval], [], 5)[0]
    assert (answer.text, answer.source, answer.confidence) == ("Nils Berg", "graph", 0.5)


def test_read_spans_nothing_retrieved_is_an_empty_answer():
    assert read_spans([Question("q", "Who?")], [Retrieval()], [], 5) == [Answer("", "none")]
    passages = [Passage("", "nothing of note here.")]
    assert read_spans([Question("q", "When was it?")], [Retrieval((0,))], passages, 5) == [Answer("", "none")]


def test_read_spans_keeps_the_answer_of_a_method():
    given = Answer("x", "graph")
    assert read_spans([Question("q", "Who?")], [Retrieval((0,), answer=given)], PASSAGES, 5) == [given]


def test_read_spans_batch_equals_one_by_one_in_any_order():
    texts = ["Where was the husband of Karen Holt born?", "When did Karen Holt marry?", "Who wrote 14 books?"]
    questions = [Question(str(row), text) for row, text in enumerate(texts)]
    retrieval = Retrieval((0, 1))
    together = read_spans(questions, [retrieval] * 3, PASSAGES, 5)
    alone = [read_spans([question], [retrieval], PASSAGES, 5)[0] for question in reversed(questions)]
    assert together == list(reversed(alone))


def test_compare_other_questions_are_not_comparisons():
    assert compare("Who painted it?", PASSAGES) == ""
    assert compare("Who wrote or edited books?", PASSAGES) == ""


def test_spans_of_a_sentence_by_kind():
    sentence = 'On 12 June 1944 Nils de la Cruz sold 1,200 copies of "Low Water" in New York City for 3 million.'
    assert [span.text for span in date_spans(sentence)] == ["12 June 1944"]
    assert [span.text for span in number_spans(sentence)] == ["1,200", "3 million"]
    assert [span.text for span in name_spans(sentence)] == [
        "Nils de la Cruz",
        "Low Water",
        "New York City",
        "Low Water",
    ]
    for span in name_spans(sentence):
        assert sentence[span.start : span.end] == span.text


def test_read_spans_script_without_capitals_falls_back_to_a_title():
    passages = [Passage("王安石", "王安石是北宋的政治家。"), Passage("临川", "临川是王安石的故乡。")]
    answer = read_spans([Question("q", "王安石的故乡是哪里?")], [Retrieval((0, 1))], passages, 5)[0]
    assert (answer.text, answer.source) == ("临川", "passages")
