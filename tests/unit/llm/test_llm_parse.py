"""What models send, and what becomes of it."""

import pytest

from kgrag_gpu.llm.parse import parse_reply, strip_thoughts
from kgrag_gpu.prompts.schemas import Enough, Entities, Keep, Keywords, SentenceTriples, Triples


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>hm, Paris?</think>Rome", "Rome"),
        ("the template opened the thought</think>\n\nRome", "Rome"),
        ("<think>never closed, Rome", ""),
        ("Rome<|im_end|>", "Rome"),
        ("<thinking>a</thinking>x<think>b</think>y", "xy"),
    ],
)
def test_strip_thoughts_removes_them_and_nothing_else(text, expected):
    assert strip_thoughts(text) == expected


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ('{"entities":["a","b"]}', ""),
        ('```json\n{"entities": ["a", "b"]}\n```', "code fence removed"),
        ('["a", "b"]', "bare value wrapped"),
        ('{"ENTITIES": ["a", "b"]}', "keys renamed"),
        ('{"names": ["a", "b"]}', "key renamed"),
        ('{"result": {"entities": ["a", "b"]}}', "outer object removed"),
        ('[{"entities": ["a", "b"]}]', "outer array removed"),
        ('[{"entities": ["a"]}, {"entities": ["b"]}]', "arrays joined"),
        ('Here you are: {"entities": ["a", "b", "a"]} Hope it helps.', ""),
        ("{'entities': ['a', 'b',]}", "JSON repaired"),
    ],
)
def test_parse_reply_mends_what_models_send(text, note):
    parsed = parse_reply(text, Entities)
    assert parsed.value == Entities(entities=["a", "b"])
    assert parsed.note == note


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty reply"),
        ("   \n", "empty reply"),
        ("I cannot do that.", "no JSON in the reply"),
        ('{"enough": "perhaps", "answers": []}', "enough"),
        ('{"answers": ["x"]}', "enough: Field required"),
    ],
)
def test_parse_reply_unusable_text_gives_the_reason(text, reason):
    parsed = parse_reply(text, Enough)
    assert parsed.value is None
    assert reason in parsed.note


def test_parse_reply_cut_off_drops_the_half_value():
    assert parse_reply('{"entities":["Paris","Ber', Entities, is_cut_off=True).value == Entities(entities=["Paris"])
    assert parse_reply('{"keep":[1, 2, 3', Keep, is_cut_off=True).value == Keep(keep=[1, 2])
    escaped = parse_reply('{"entities":["a\\"b","c', Entities, is_cut_off=True)
    assert escaped.value == Entities(entities=['a"b'])


@pytest.mark.parametrize("text", ['{"entities":[', '{"entities": [      \n\n      ', '{"enti', '{"entities":["Par'])
def test_parse_reply_cut_off_before_any_value_is_unusable(text):
    assert parse_reply(text, Entities, is_cut_off=True).value is None


def test_parse_reply_whole_empty_list_is_a_reply():
    assert parse_reply('{"keep": []}', Keep, num_options=3).value == Keep(keep=[])


def test_parse_reply_option_numbers_drop_repeats_and_unknown_ones():
    assert parse_reply('{"keep": [3, 1, 3, 9, 0, -2]}', Keep, num_options=3).value == Keep(keep=[3, 1])
    assert parse_reply('{"keep": 2}', Keep, num_options=3).value == Keep(keep=[2])
    parsed = parse_reply('{"keep": [7, 8]}', Keep, num_options=3)
    assert parsed.value is None
    assert "no number of an option" in parsed.note


def test_parse_reply_triples_take_lists_and_objects_and_drop_broken_rows():
    text = '{"triples": [["a","r","b"], {"subject":"c","predicate":"r","object":"d"}, ["x","y"], ["","r","b"], 5]}'
    assert parse_reply(text, Triples).value == Triples(triples=[("a", "r", "b"), ("c", "r", "d")])


def test_parse_reply_sentence_triples_keep_broken_rows_for_the_reject_list():
    parsed = parse_reply('{"triples": [["a","r","b",1], ["x","y"]]}', SentenceTriples)
    assert list(parsed.value.triples) == [("a", "r", "b", 1), ("x", "y")]


def test_parse_reply_keywords_take_plain_names_in_any_script():
    parsed = parse_reply('{"mentions": ["北京", {"mention": "القاهرة", "corrected": "القاهرة"}]}', Keywords)
    assert [item.mention for item in parsed.value.mentions] == ["北京", "القاهرة"]
