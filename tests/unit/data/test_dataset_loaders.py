"""One raw record of each passage set to one question."""

import json

import pytest
from raw_records import hotpot_record, musique_record

from kgrag_gpu.data import hotpotqa, ircot, musique, own_jsonl, twowiki
from kgrag_gpu.data.pool import PassagePool, join_sentences
from kgrag_gpu.data.records import ParseOptions, RecordError
from kgrag_gpu.types import EntityRef, GoldAnswer

OPTIONS = ParseOptions()


def test_join_sentences_puts_a_space_only_where_none_is():
    assert join_sentences(["A b.", " C.", "D. ", "E."]) == "A b. C. D. E."
    assert join_sentences(["", "A.", ""]) == "A."


def test_pool_normalises_to_nfc_and_keeps_case():
    pool = PassagePool()
    assert pool.add("Café", "Text") == pool.add("Cafe\u0301", " Text ")
    assert pool.add("café", "Text") == 1
    assert pool.passages[0].title == "Café"


def test_musique_shape_and_hops_come_from_the_id():
    question = musique.parse(musique_record(1, id="3hop1__2__3"), PassagePool(), OPTIONS)
    assert (question.type, question.num_hops) == ("3hop1", 3)
    question = musique.parse(musique_record(1, id="own-1"), PassagePool(), OPTIONS)
    assert (question.type, question.num_hops) == ("", 1)  # as many as the decomposition has steps


def test_musique_answer_keeps_aliases_other_than_itself():
    question = musique.parse(musique_record(1), PassagePool(), OPTIONS)
    assert question.golden_answers == (GoldAnswer("Mur", ("the Mur",)),)
    assert question.gold_passage_ids == (0, 1)


def test_musique_full_twin_is_kept_and_marked():
    question = musique.parse(musique_record(1, answerable=False), PassagePool(), OPTIONS)
    assert not question.answerable
    assert question.id == "2hop__1_9#unanswerable"
    assert question.extra["original_id"] == "2hop__1_9"


def test_musique_test_split_without_answer_is_read():
    assert musique.parse(musique_record(1, answer=...), PassagePool(), OPTIONS).golden_answers == ()


def test_hotpotqa_record_has_sentences_facts_and_two_hops():
    pool = PassagePool()
    question = hotpotqa.parse(hotpot_record(), pool, OPTIONS)
    assert pool.passages[0].text == "The Arc lamp is made by Volt. It is bright."
    assert pool.sentences[1] == ("Volt is a firm.", "It was founded by Ada.")
    assert question.supporting_facts == ((1, 1), (0, 0))
    assert question.gold_passage_ids == (1, 0)
    assert (question.type, question.num_hops, question.extra["level"]) == ("bridge", 2, "hard")


def test_hotpotqa_fullwiki_context_without_a_gold_title_says_so():
    record = hotpot_record(context=[["Volt", ["Volt is a firm.", " It was founded by Ada."]]])
    question = hotpotqa.parse(record, PassagePool(), OPTIONS)
    assert question.gold_passage_ids == (0,)
    assert question.extra["missing_gold_titles"] == ["Arc lamp"]


def test_hotpotqa_fact_beyond_the_last_sentence_keeps_the_passage_only():
    question = hotpotqa.parse(hotpot_record(supporting_facts=[["Volt", 7]]), PassagePool(), OPTIONS)
    assert question.supporting_facts == ()
    assert question.gold_passage_ids == (1,)


def test_hotpotqa_hub_form_reads_like_the_official_one():
    official = hotpot_record()
    hub = hotpot_record(
        context={"title": [t for t, _ in official["context"]], "sentences": [s for _, s in official["context"]]},
        supporting_facts={"title": ["Volt", "Arc lamp"], "sent_id": [1, 0]},
        id="h1",
    )
    del hub["_id"]
    as_text = hotpot_record(context=json.dumps(official["context"]))
    expected = hotpotqa.parse(official, PassagePool(), OPTIONS)
    assert hotpotqa.parse(hub, PassagePool(), OPTIONS) == expected
    assert hotpotqa.parse(as_text, PassagePool(), OPTIONS) == expected


@pytest.mark.parametrize(
    "context", [None, [], "not json", [["title only"]], [["t", [1]]], {"title": ["a"]}, [["t", None]]]
)
def test_hotpotqa_broken_context_is_a_record_error(context):
    with pytest.raises(RecordError, match="context"):
        hotpotqa.parse(hotpot_record(context=context), PassagePool(), OPTIONS)


def test_twowiki_keeps_evidences_type_and_hops():
    record = hotpot_record(type="bridge_comparison", evidences=[["Volt", "founded by", "Ada"]], answer_id="Q7")
    question = twowiki.parse(record | {"answer_aliases": ["Ada L."]}, PassagePool(), OPTIONS)
    assert (question.type, question.num_hops) == ("bridge_comparison", 4)
    assert question.extra["evidences"] == [["Volt", "founded by", "Ada"]]
    assert question.golden_answers == (GoldAnswer("Ada", ("Ada L.",), "Q7"),)


def test_formats_tell_each_other_apart():
    records = {
        musique: musique_record(1),
        hotpotqa: hotpot_record(),
        twowiki: hotpot_record(evidences=[]),
        ircot: {"question_id": "1", "question_text": "x", "contexts": []},
    }
    for loader, own in records.items():
        assert [module for module in records if module.matches(own)] == [loader]


def test_ircot_answers_are_spans_numbers_and_dates():
    record = {
        "question_id": "i1",
        "question_text": "When?",
        "answers_objects": [
            {"number": "", "date": {"day": "", "month": "", "year": ""}, "spans": ["Ada", "Volt"]},
            {"number": 3, "date": {"day": "1", "month": "May", "year": "1900"}, "spans": []},
        ],
        "contexts": [
            {"id": "0", "title": "Volt", "paragraph_text": "A  firm.", "is_supporting": True},
            {"id": "1", "title": "Arc", "paragraph_text": "A lamp.", "is_supporting": False},
        ],
    }
    question = ircot.parse(record, PassagePool(), OPTIONS)
    assert [a.name for a in question.golden_answers] == ["Ada", "Volt", "3", "1 May 1900"]
    assert (question.gold_passage_ids, question.context_passage_ids) == ((0,), (0, 1))


def test_own_record_reads_answers_entities_and_carries_the_rest():
    record = {
        "id": 12,
        "question": "谁写了《红楼梦》？",
        "golden_answers": ["曹雪芹", ["Cao Xueqin", "Tsao Hsueh-chin"]],
        "topic_entities": ["红楼梦", {"name": "Dream of the Red Chamber", "id": "Q8265"}],
        "note": {"a": 1},
    }
    question = own_jsonl.parse(record, PassagePool(), OPTIONS)
    assert question.id == "12"
    assert question.golden_answers == (GoldAnswer("曹雪芹"), GoldAnswer("Cao Xueqin", ("Tsao Hsueh-chin",)))
    assert question.topic_entities == (EntityRef("红楼梦"), EntityRef("Dream of the Red Chamber", "Q8265"))
    assert question.extra == {"note": {"a": 1}}


def test_own_record_without_id_is_called_by_its_question():
    first = own_jsonl.parse({"question": "Who?"}, PassagePool(), OPTIONS)
    again = own_jsonl.parse({"question": "Who?", "x": 1}, PassagePool(), OPTIONS)
    other = own_jsonl.parse({"question": "Where?"}, PassagePool(), OPTIONS)
    assert first.id == again.id != other.id


@pytest.mark.parametrize("field", [{"golden_answers": [1]}, {"golden_answers": {"a": 1}}, {"topic_entities": [3]}])
def test_own_record_with_fields_of_another_form_is_a_record_error(field):
    with pytest.raises(RecordError, match=next(iter(field))):
        own_jsonl.parse({"id": "1", "question": "Who?"} | field, PassagePool(), OPTIONS)
