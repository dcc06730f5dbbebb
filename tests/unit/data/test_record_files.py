"""Files to raw records: forms, compression, breakage; choosing a file in a folder; the hub; corpora of passages."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from raw_records import musique_record

from kgrag_gpu.config.schema import HubConfig
from kgrag_gpu.data.hub import HubUnavailable, hub_records
from kgrag_gpu.data.locate import choose_file
from kgrag_gpu.data.passages import load_passages
from kgrag_gpu.data.records import read_json_records, read_lines
from kgrag_gpu.types import Passage, UserError

ROWS = [{"id": "1", "question": "a"}, {"id": "2", "question": "b"}]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ROWS),
        json.dumps(ROWS, indent=2),
        "\n".join(map(json.dumps, ROWS)),
        "\r\n".join(map(json.dumps, ROWS)) + "\r\n\r\n",
        "\ufeff" + "\n".join(map(json.dumps, ROWS)),
        json.dumps({"version": 1, "Questions": ROWS}),
        json.dumps({"version": 1, "Questions": ROWS}, indent=2),
    ],
    ids=["array", "indented array", "lines", "windows lines", "byte-order mark", "wrapped", "wrapped indented"],
)
def test_json_of_every_form_gives_the_same_records(write, text):
    assert [value for _, value in read_json_records(write("x.json", text)).records] == ROWS


def test_single_json_line_is_one_record_even_with_a_list_of_objects(write):
    record = {"question": "a", "paragraphs": [{"title": "t"}]}
    assert read_json_records(write("x.jsonl", json.dumps(record))).records == [("x.jsonl:1", record)]


def test_line_separator_inside_a_text_does_not_cut_a_record(write):
    rows = [{"question": "a\u2028b"}, {"question": "c\x85d"}]
    path = write("x.jsonl", "\n".join(json.dumps(r, ensure_ascii=False) for r in rows))
    assert [value for _, value in read_json_records(path).records] == rows


def test_gzipped_and_parquet_files_read_like_plain_ones(tmp_path):
    packed = tmp_path / "x.jsonl.gz"
    packed.write_bytes(gzip.compress("\n".join(map(json.dumps, ROWS)).encode()))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "x.parquet")
    for path in (packed, tmp_path / "x.parquet"):
        assert [value for _, value in read_json_records(path).records] == ROWS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("head\trel\ttail\n", "does not start like JSON"),
        (json.dumps(ROWS)[:-9], "cut off"),
        ('[{"id": 1},, {"id": 2}]', "not valid JSON"),
        ("[]", "empty"),
        ('{"a": [{"x": 1}],\n "b": [{"y": 2}]}', "2 arrays"),
    ],
)
def test_broken_json_is_refused_with_the_reason(write, text, expected):
    with pytest.raises(UserError, match=expected):
        read_json_records(write("x.json", text))


def test_bytes_that_are_no_text_and_broken_gzip_are_refused(tmp_path):
    (tmp_path / "x.json").write_bytes(b'{"a": "\xff"}')
    (tmp_path / "y.json.gz").write_bytes(gzip.compress(b"{}" * 100)[:-12])
    with pytest.raises(UserError, match="not UTF-8"):
        read_json_records(tmp_path / "x.json")
    with pytest.raises(UserError, match="broken gzip"):
        read_json_records(tmp_path / "y.json.gz")
    with pytest.raises(UserError, match="is a folder"):
        read_json_records(tmp_path)


def test_text_lines_keep_their_numbers(write):
    assert read_lines(write("x.tsv", "a\tb\n\nc\td\n")).records == [("x.tsv:1", "a\tb"), ("x.tsv:3", "c\td")]


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["musique_ans_v1.0_train.jsonl", "musique_ans_v1.0_dev.jsonl", "notes.md"], "musique_ans_v1.0_dev.jsonl"),
        (["train.json", "dev.json"], "dev.json"),
        (["questions_train.json", "questions_test.json"], "questions_test.json"),
        (["set_train.json", "set_train_corpus.json", "openie_12.json"], "set_train.json"),
        (["mine.jsonl", ".hidden.jsonl", "kb.txt"], "mine.jsonl"),
    ],
)
def test_folder_gives_the_question_file(tmp_path, names, chosen):
    for name in names:
        (tmp_path / name).write_text("x")
    assert choose_file(tmp_path, ("musique_ans*dev.json*",), "musique").name == chosen


def test_folder_with_nothing_or_too_much_lists_what_it_has(tmp_path):
    with pytest.raises(UserError, match="found nothing"):
        choose_file(tmp_path, (), "musique")
    for name in ("a_dev.json", "b_dev.json"):
        (tmp_path / name).write_text("x")
    with pytest.raises(UserError, match=r"a_dev\.json, b_dev\.json; name one"):
        choose_file(tmp_path, (), "musique")


def test_hub_reads_a_local_folder_without_a_connection(tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "validation.jsonl").write_text(json.dumps(musique_record(1)) + "\n")
    records = hub_records(HubConfig(path=str(folder))).records
    assert records[0][1]["question"] == musique_record(1)["question"]


def test_hub_that_is_closed_says_so():
    with pytest.raises(HubUnavailable, match="kgrag-gpu-tests/no-such-set"):
        hub_records(HubConfig(path="kgrag-gpu-tests/no-such-set"))


def test_passages_of_every_spelling_are_read_and_pooled(write):
    rows = [
        {"title": "A", "text": "x"},
        {"title": "A", "paragraph_text": "x"},
        {"id": 5, "contents": "y"},
        {"title": "B", "sentences": ["One.", "Two."]},
    ]
    passages, rejected = load_passages(write("corpus.jsonl", rows))
    assert passages == [Passage("A", "x"), Passage("", "y", "5"), Passage("B", "One. Two.")]
    assert rejected == []


def test_passages_past_the_rejected_share_are_refused(write):
    path = write("corpus.jsonl", [{"title": "A", "text": "x"}, {"title": "B"}])
    with pytest.raises(UserError, match="1 of 2 records are no passages"):
        load_passages(path)
    passages, rejected = load_passages(path, max_rejected_share=0.5)
    assert len(passages) == 1 and rejected[0].where == "corpus.jsonl:2"


def test_hub_is_not_connected_to_when_offline_is_asked_for(monkeypatch):
    def connect(*arguments, **more):
        raise AssertionError("a connection was made")

    monkeypatch.setattr("socket.socket.connect", connect)
    monkeypatch.setattr("socket.create_connection", connect)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with pytest.raises(HubUnavailable):
        hub_records(HubConfig(path="kgrag-gpu-tests/no-such-set"))


def test_unreachable_hub_is_found_out_by_one_connection(monkeypatch):
    tries = []

    def refuse(address, timeout=None):
        tries.append(address)
        raise OSError("unreachable")

    monkeypatch.setattr("socket.create_connection", refuse)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)
    with pytest.raises(HubUnavailable):
        hub_records(HubConfig(path="kgrag-gpu-tests/no-such-set"))
    assert len(tries) == 1
