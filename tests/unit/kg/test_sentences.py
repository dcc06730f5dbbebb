"""Sentence cuts."""

import pytest

from kgrag_gpu.kg.sentences import split_sentences


def cut(text: str) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text)]


@pytest.mark.parametrize(
    "sentences",
    [
        ["Dr. Smith met Mrs. Jones at St. Paul's.", "They left."],
        ["He moved to the U.S. in 1990.", "He met J. R. R. Tolkien there."],
        ["He lived in the U.S.", "The rest is known."],
        ["It begins at 9 a.m. on Jan. 3.", "Vol. 2 (e.g. p. 7) follows!"],
        ['"Really?" asked Sam.', "Yes."],
        ["Martin Luther King Jr. Day is a holiday.", "It honours Martin Luther King Jr.", "The day is in Jan."],
        ["Volt Inc. makes lamps.", "Version 2.5 costs $3.50."],
        ["他来了。", "他走了！", "好"],
        ["هل جاء؟", "نعم."],
        ["One (it said so.)", "Two [1]."],
    ],
)
def test_sentences_are_cut_where_they_end(sentences):
    joiner = "" if sentences[0].endswith("。") else " "
    assert cut(joiner.join(sentences)) == sentences


def test_blank_line_always_cuts_and_white_space_has_no_sentence():
    assert cut("Head\n\nfirst line\n  second line") == ["Head", "first line\n  second line"]
    assert cut(" \n ") == [] == cut("")


def test_lower_case_after_a_full_stop_does_not_cut():
    assert cut("He paid 3 approx. dollars. and left.") == ["He paid 3 approx. dollars. and left."]
