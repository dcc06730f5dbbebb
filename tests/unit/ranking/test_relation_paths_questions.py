"""A question's words around an anchor."""

import pytest

from kgrag_gpu.ranking.paths_lexical import RelationSpelling, letters_alike
from kgrag_gpu.ranking.paths_question import PathQuestion, read_question, segments


def read(text: str, anchor: str = "X", phrases=frozenset()) -> PathQuestion:
    words = text.split()
    start = words.index(anchor)
    return read_question(words, start, start + 1, phrases, lambda word: word in {"son", "child"})


def ordered(question: PathQuestion) -> list[list[str]]:
    return [[question.words[i] for i in reading.order] for reading in question.readings]


def test_possessive_takes_the_right_side_first():
    question = read("what is the nationality of X s mother s kid")
    assert ordered(question) == [["mother", "kid", "nationality"]]
    assert (question.readings[0].min_segments, question.readings[0].max_segments) == (3, 3)


def test_without_possessive_both_orders_are_tried():
    question = read("the films directed by X were written by who")
    assert ordered(question) == [["written", "directed", "films"], ["directed", "films", "written"]]


def test_apposition_before_the_anchor_is_left_out():
    assert ordered(read("who wrote the film X")) == [["wrote"]]
    assert ordered(read("who wrote film X")) == [["film", "wrote"]]


def test_which_noun_is_a_kind_in_one_reading_and_a_relation_in_the_other():
    question = read("which films did X direct")
    assert ordered(question) == [["direct", "films"], ["films", "direct"], ["direct"], ["direct"]]
    assert [r.typed for r in question.readings] == [None, None, "films", "films"]
    assert [r.min_segments for r in question.readings] == [2, 2, 1, 1]
    assert (question.asked, question.noun) == ("which", "films")


@pytest.mark.parametrize(
    ("text", "asked", "noun"),
    [
        ("who are the actors in films by X", "who", "actors"),
        ("who starred films for X", "who", "starred"),
        ("what is the X s son s gender", "what", "gender"),
        ("the gender of X s son", "", "gender"),
        ("where was X s son born", "where", ""),
        ("what were the release dates of X written films", "what", "release dates"),
    ],
)
def test_noun_is_what_the_end_should_be(text, asked, noun):
    question = read(text)
    assert (question.asked, question.noun) == (asked, noun)


def test_where_and_when_may_ask_one_step_more():
    reading = read("where was X s son born").readings[0]
    assert (reading.min_segments, reading.max_segments) == (1, 2)


def test_relation_phrase_is_one_chunk_and_never_cut():
    question = read("the place of birth of X s son", phrases={"place of birth"})
    reading = question.readings[0]
    assert ordered(question) == [["son", "birth", "of", "place"]]
    assert reading.min_segments == 2
    assert {text for text, _ in segments(question, reading).values()} == {"place of birth", "son", "place of birth son"}


def test_segments_count_the_possessives_that_they_run_across():
    question = read("X s father s heir")
    assert segments(question, question.readings[0]) == {
        (0, 1): ("father", 0),
        (1, 2): ("heir", 0),
        (0, 2): ("father s heir", 1),
    }
    across = read("heir of X s father")
    assert segments(across, across.readings[0])[0, 2] == ("heir of father".replace("of ", ""), 1)


def test_segment_text_keeps_the_grammar_words_inside_it():
    question = read("the languages spoken in the films of X")
    assert segments(question, question.readings[0])[0, 3] == ("languages spoken in the films", 0)


def test_type_of_only_announces_its_noun():
    assert ordered(read("what type of religion is X s son")) == [["son", "religion"]]


def test_grandson_is_the_sons_son_and_other_words_with_grand_are_not():
    question = read("who is the grandson of X")
    assert ordered(question) == [["son", "son"]]
    assert question.readings[0].min_segments == 2
    assert ordered(read("who is the grandiose of X")) == [["grandiose"]]


@pytest.mark.parametrize("text", ["who starred together with X", "films with the same director of X"])
def test_words_of_sharing_are_marked_and_carry_no_content(text):
    question = read(text)
    assert question.is_shared
    assert not {"together", "same"} & set(ordered(question)[0])


def test_question_that_is_nothing_but_its_anchor_has_an_empty_reading():
    question = read("X")
    assert ordered(question) == [[]]
    assert segments(question, question.readings[0]) == {}


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [("director", "directed", 0.75), ("screenwriter", "written", 4 / 7), ("son", "son", 1.0), ("son", "sons", 0.0),
     ("parent", "parents", 1.0), ("heir", "their", 1.0), ("stare", "starring", 0.8), ("cast", "castle", 1.0)],
)  # fmt: skip
def test_letters_alike_is_the_longest_common_run_over_the_shorter_word(one, other, share):
    assert letters_alike(one, other) == pytest.approx(share)
    assert letters_alike(other, one) == pytest.approx(share)


def test_likeness_is_the_mean_over_content_words_of_the_best_word():
    spelling = RelationSpelling(["directed by", "has genre"])
    found = spelling.likeness(["director", "the director of films", "genres", "of the"])
    assert found.tolist() == [[0.75, 0.0], [0.375, 0.0], [0.0, 1.0], [0.0, 0.0]]
    assert spelling.likeness([]).shape == (0, 2)
