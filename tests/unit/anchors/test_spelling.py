"""Words within one edit, and which correction is taken."""

import numpy as np
import pytest

from kgrag_gpu.anchors.spelling import QuestionWords, Speller, SpellingConfig, WordIndex, WordList, word_list


def near(vocabulary: list[str], word: str) -> list[tuple[str, int]]:
    index = WordIndex(vocabulary)
    return [(index.words[row], edits) for row, edits in index.near(word)]


@pytest.mark.parametrize("written", ["moter", "motther", "mothre", "mothsr", "omther"])
def test_word_index_finds_the_word_behind_each_kind_of_edit(written):
    assert near(["mother", "father"], written) == [("mother", 1)]


def test_word_index_gives_the_word_itself_first_and_others_by_row():
    assert near(["rather", "other", "father"], "father") == [("father", 0), ("rather", 1)]


def test_word_index_two_edits_are_too_many():
    assert near(["mother"], "mthre") == []


def test_word_index_three_letter_words_turn_only_into_longer_ones():
    assert near(["son", "sons", "sun"], "son") == [("son", 0), ("sons", 1)]


def test_word_index_leaves_numbers_and_two_letter_words_as_they_are():
    assert near(["1994", "an", "ann"], "1995") == []
    assert near(["1994", "an", "ann"], "an") == [("an", 0)]


FREQUENCIES = {"what": 1e-2, "the": 5e-2, "other": 1e-3, "mother": 1e-4, "heir": 8e-6, "her": 1e-2, "part": 3e-4}


def speller(meanings: dict[str, float], relation_words=("parent",)) -> Speller:
    words = WordList(FREQUENCIES, WordIndex([*FREQUENCIES, "parent"]))

    def meaning(asked):
        return np.array([meanings.get(word, 0.0) for word in asked])

    return Speller(words, frozenset(relation_words), meaning, SpellingConfig())


def correct(text: str, start=0, end=0, edits=0, **meanings) -> list[str]:
    return speller(meanings).correct([QuestionWords(text.split(), start, end, edits)])[0]


def test_speller_leaves_a_question_without_unknown_words_alone():
    assert correct("what the other part", mother=0.9) == ["what", "the", "other", "part"]


def test_speller_doubts_known_words_where_the_rest_is_misspelt():
    assert correct("waht the other", mother=0.9) == ["what", "the", "mother"]


def test_speller_an_anchor_with_misspellings_is_a_sign_of_noise_too():
    assert correct("xx other", start=0, end=1, edits=1, mother=0.9) == ["xx", "mother"]


def test_speller_relation_words_win_over_commoner_ones():
    assert correct("paret waht") == ["parent", "what"]


def test_speller_does_not_touch_the_anchor():
    assert correct("hir waht", start=0, end=1, heir=0.9) == ["hir", "what"]


def test_speller_unknown_word_without_neighbour_stays():
    assert correct("zyzzyva the") == ["zyzzyva", "the"]


def test_speller_batch_equals_single_questions():
    one = speller({"mother": 0.9, "heir": 0.6})
    questions = [QuestionWords(t.split(), 0, 0, 0) for t in ("waht other", "what other", "hheir waht", "", "her")]
    assert one.correct(questions) == [one.correct([q])[0] for q in questions]


def test_word_list_without_a_language_counts_the_given_texts():
    words = word_list(SpellingConfig(language=None), ["Red Red_car", "red"])
    assert words.frequency("red") == 0.75
    assert words.frequency("blue") == 0.0
    assert words.common.words == ["red", "car"]


def test_word_list_of_english_knows_common_words():
    words = word_list(SpellingConfig())
    assert words.frequency("the") > words.frequency("mother") > words.frequency("heir") > 0
    assert words.cost("qqqqq", 7.5) == 7.5
