"""Names in texts."""

import pytest

from kgrag_gpu.kg import mention_index
from kgrag_gpu.kg.mention_index import find_mentions, fold


def found(text: str | list[str], names: list[str], case="capitalised") -> list[tuple]:
    texts = [text] if isinstance(text, str) else text
    mentions = find_mentions(texts, names, case)
    return [
        (texts[t][a:b], names[n])
        for t, n, a, b in zip(mentions.text_ids, mentions.name_ids, mentions.starts, mentions.ends, strict=True)
    ]


def test_longest_name_wins_and_names_inside_it_are_not_found():
    assert found("The New York Times is sold in New York.", ["New York", "New York Times"]) == [
        ("New York Times", "New York Times"),
        ("New York", "New York"),
    ]


def test_overlapping_names_are_both_kept():
    names = ["New York Times", "Times Square"]
    assert [name for _, name in found("In New York Times Square", names)] == names


def test_name_inside_a_word_is_not_found():
    assert found("Londoners love Greater London, not Londonderry.", ["London"]) == [("London", "London")]


def test_lower_case_is_found_only_in_any_case_or_as_written():
    assert found("new york and iPhone", ["New York", "iPhone"]) == [("iPhone", "iPhone")]
    assert len(found("new york and iphone", ["New York", "iPhone"], case="any")) == 2


def test_homonyms_each_give_a_row_and_exact_spelling_leaves_the_others_out():
    assert found("Mercury shines", ["Mercury", "Mercury"]) == [("Mercury", "Mercury")] * 2
    assert [n for _, n in found("Rush plays", ["RUSH", "Rush"])] == ["Rush"]
    assert [n for _, n in found("rush plays", ["RUSH", "Rush"], case="any")] == ["RUSH", "Rush"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("他在北京大学学习", "北京大学"),  # no spaces between words
        ("부산은 항구 도시이다", "부산"),  # a particle follows
        ("زار القاهرة أمس", "القاهرة"),
        ("Sie wohnt in Zürich-West", "Zürich"),
        ("O'Brien’s pub", "O’Brien"),  # either apostrophe
        ("born in İzmir today", "İzmir"),  # lower-casing changes its length
        ("the ΟΔΥΣΣΕΑΣ epic", "Οδυσσεας"),  # final sigma
        ("John\nSmith came", "John Smith"),  # a line break
        ("in (Graz), 1990", "Graz"),
    ],
)
def test_name_of_any_script_is_found(text, name):
    assert [n for _, n in found(text, [name])] == [name]


def test_accents_tell_names_apart():
    assert found("in Peru", ["Perú"]) == []


@pytest.mark.parametrize("text", ["", "İSTANBUL ẞ", "ΣΑΣ ﬁ Ǆ", "a\u0301\x00b", "Straße"])
def test_folded_text_is_as_long_as_the_text(text):
    assert len(fold(text)) == len(text)


def test_no_names_no_texts_and_empty_names_give_nothing():
    assert found("Graz", []) == found([], ["Graz"]) == found("Graz", ["", " "]) == []


def test_chunks_do_not_change_what_is_found(monkeypatch):
    texts = ["Graz and Linz", "", "Linz", "Ada of Graz"] * 3
    whole = found(texts, ["Graz", "Linz"])
    monkeypatch.setattr(mention_index, "CHUNK_CHARS", 5)
    assert found(texts, ["Graz", "Linz"]) == whole
    assert len(whole) == 12


def test_name_never_spans_two_texts():
    assert found(["The New", "York end"], ["New York", "New\nYork"]) == []
