"""Finding questions: search order, bad input, ids, hashes."""

import json

import pytest
from raw_records import hotpot_record, musique_record

from kgrag_gpu.config.schema import DatasetConfig, HubConfig
from kgrag_gpu.data import registry
from kgrag_gpu.data.hub import HubUnavailable
from kgrag_gpu.data.registry import load_questions
from kgrag_gpu.types import UserError


def load(name="musique", path=None, **more):
    return load_questions(DatasetConfig(name=name, data=str(path) if path else None, **more))


def message(**arguments) -> str:
    with pytest.raises(UserError) as caught:
        load(**arguments)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_questions_from_file_are_read_with_their_source(write):
    path = write("dev.jsonl", [musique_record(1), musique_record(2)])
    found = load(path=path)
    assert found.source == f"file {path}"
    assert [q.id for q in found.questions] == ["2hop__1_9", "2hop__2_9"]
    assert not found.is_sample


def test_passages_equal_in_title_and_text_are_stored_once_in_first_seen_order(write):
    other = musique_record(2)
    other["paragraphs"][1]["paragraph_text"] = "Graz is a city."
    found = load(path=write("dev.jsonl", [musique_record(1), other, musique_record(3)]))
    assert [p.title for p in found.passages] == ["Person 1", "Graz", "Person 2", "Graz", "Person 3"]
    assert [q.context_passage_ids for q in found.questions] == [(0, 1), (2, 3), (4, 1)]


def test_data_env_folder_is_found_before_the_sample(write, tmp_path, monkeypatch):
    path = write("musique/musique_ans_v1.0_dev.jsonl", [musique_record(1)])
    monkeypatch.setenv("KGRAG_DATA", str(tmp_path))
    assert load().source == f"file {path}"


def test_data_option_goes_before_the_data_env_folder(write, tmp_path, monkeypatch):
    write("musique/musique_ans_v1.0_dev.jsonl", [musique_record(1)])
    path = write("mine.jsonl", [musique_record(7)])
    monkeypatch.setenv("KGRAG_DATA", str(tmp_path))
    assert load(path=path).questions[0].id == "2hop__7_9"


def test_hub_is_asked_before_the_sample(monkeypatch):
    monkeypatch.setattr(registry, "hub_records", lambda hub: registry.RecordFile([("x[0]", musique_record(3))]))
    found = load(hub=HubConfig(path="someone/set", split="dev"))
    assert found.source == "hub someone/set, split dev"
    assert found.questions[0].id == "2hop__3_9"


def test_sample_is_marked_and_named_when_nothing_else_is_there(monkeypatch):
    def closed(hub):
        raise HubUnavailable("offline")

    monkeypatch.setattr(registry, "hub_records", closed)
    found = load()
    assert found.is_sample
    assert found.source == f"embedded sample, {len(found.questions)} questions, not MuSiQue"


def test_sample_is_refused_when_the_full_set_is_required(monkeypatch):
    def closed(hub):
        raise HubUnavailable("someone/set (offline)")

    monkeypatch.setattr(registry, "hub_records", closed)
    with pytest.raises(UserError, match=r"hub: someone/set \(offline\).*--require-full"):
        load_questions(DatasetConfig(name="musique"), require_full=True)


def test_other_set_than_musique_has_no_sample(monkeypatch):
    def closed(hub):
        raise HubUnavailable("offline")

    monkeypatch.setattr(registry, "hub_records", closed)
    assert "--data" in message(name="hotpotqa")


def test_unknown_name_names_the_nearest_known():
    text = message(name="musiqe")
    assert "'musiqe'" in text and "did you mean 'musique'" in text and "hotpotqa" in text


def test_missing_file_says_which():
    assert "/nowhere/dev.jsonl: no such file" in message(path="/nowhere/dev.jsonl")


def test_empty_file_is_refused(write):
    assert "is empty" in message(path=write("dev.jsonl", "\n \n"))


def test_truncated_last_line_is_refused_with_its_number(write):
    whole = json.dumps(musique_record(1)) + "\n"
    text = message(path=write("dev.jsonl", whole + whole[:200]))
    assert "dev.jsonl:2:" in text and "cut off" in text


def test_bad_line_in_mid_file_is_rejected_and_the_rest_loads(write):
    lines = [json.dumps(musique_record(1)), "{not json", json.dumps(musique_record(2))]
    found = load(path=write("dev.jsonl", "\n".join(lines)))
    assert len(found.questions) == 2
    assert [(r.where, r.reason) for r in found.rejected] == [("dev.jsonl:2", "the line is not JSON")]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"paragraphs": ...}, "no `paragraphs`"),
        ({"paragraphs": []}, "`paragraphs` is not a filled list"),
        ({"paragraphs": [{"title": "x"}]}, "a paragraph has no `paragraph_text`"),
        ({"question": ...}, "no `question`"),
        ({"question": " "}, "`question` holds no text"),
        ({"id": ...}, "no `id`"),
        ({"answer": ""}, "`answer` holds no text"),
    ],
)
def test_bad_record_in_mid_file_is_rejected_and_leaves_no_passage(write, changes, reason):
    bad = musique_record(2, **changes)
    found = load(path=write("dev.jsonl", [musique_record(1), bad, musique_record(3)]))
    assert [r.reason for r in found.rejected] == [reason]
    assert [q.id for q in found.questions] == ["2hop__1_9", "2hop__3_9"]
    assert "Person 2" not in [p.title for p in found.passages]


def test_first_record_without_paragraphs_is_no_file_of_this_set(write):
    text = message(path=write("dev.jsonl", [musique_record(1, paragraphs=...), musique_record(2)]))
    assert "not a musique file" in text and "no `paragraphs`" in text


def test_only_bad_records_refuse_the_file(write):
    text = message(path=write("dev.jsonl", [musique_record(1, question=...), musique_record(2, question=...)]))
    assert "none of the 2 records" in text and "no `question`" in text


def test_file_of_another_known_set_is_named(write):
    text = message(path=write("dev.jsonl", [hotpot_record()]))
    assert "use --dataset hotpotqa" in text


def test_limit_cuts_questions_and_keeps_the_corpus(write):
    path = write("dev.jsonl", [musique_record(i) for i in range(5)])
    cut, whole = load(path=path, limit=2), load(path=path)
    assert len(cut.questions) == 2
    assert cut.passages == whole.passages
    assert cut.content_hash != whole.content_hash


def test_content_hash_is_of_the_records_not_of_the_file(write):
    records = [musique_record(1), musique_record(2)]
    lines = load(path=write("a.jsonl", records))
    array = load(path=write("b.json", json.dumps(records, indent=1)))
    other = load(path=write("c.jsonl", [musique_record(1), musique_record(3)]))
    assert lines.content_hash == array.content_hash != other.content_hash


def test_repeated_id_gets_a_suffix_that_no_other_question_has(write):
    ids = ["a", "a", "a#2", "a"]
    records = [musique_record(i, id=identity) for i, identity in enumerate(ids)]
    found = load(path=write("dev.jsonl", records))
    assert [q.id for q in found.questions] == ["a", "a#3", "a#2", "a#4"]
    assert found.questions[1].extra["original_id"] == "a"


def test_question_field_is_read_instead_of_the_question(write):
    found = load(path=write("dev.jsonl", [musique_record(1, Noisy="Whihc river?")]), question_field="Noisy")
    assert found.questions[0].text == "Whihc river?"


def test_question_field_that_no_record_has_names_the_nearest(write):
    path = write("dev.jsonl", [musique_record(1, Noisy_Question="x")])
    text = message(path=path, question_field="NoisyQuestion")
    assert "--question-field" in text and "did you mean 'Noisy_Question'" in text


def test_question_field_missing_in_one_record_rejects_that_record(write):
    path = write("dev.jsonl", [musique_record(1, noisy="x y"), musique_record(2)])
    found = load(path=path, question_field="noisy")
    assert len(found.questions) == 1
    assert [r.reason for r in found.rejected] == ["no `noisy`"]


def test_every_registered_name_has_a_loader_with_its_parts():
    for name in registry.DATASETS:
        loader = registry._loader(name)
        assert loader.EXPECTED and isinstance(loader.FILE_PATTERNS, tuple)
        assert callable(loader.matches) and callable(loader.parse)
