"""Own questions without gold, from every kind of file, over a KG of a few triples."""

import csv
import gzip
import io
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.batch_answer import main
from pipelines.command_line import run_command

TRIPLES = "ann lee\tparents\tbob lee\nbob lee\tprofession\tpainter\ncid lee\tparents\tann lee\n王明\tparents\t王刚\n"
QUESTIONS = [
    {"id": "a", "question": "who are the parents of ann lee?", "asked_by": {"team": 3}},
    {"id": "b", "question": "   "},
    {"id": "c", "question": "王明 的父母是谁?"},
    {"id": "d", "question": "😀🎉"},
]
LONG = {"id": "e", "question": ("parents of cid lee " * 2000)[:20_000]}


def _run(tmp_path: Path, file: Path, *more: str) -> tuple[int, str, str]:
    kg = tmp_path / "kg.tsv"
    kg.write_text(TRIPLES, encoding="utf-8")
    argv = ["batch_answer", "--questions", str(file), "--kg", str(kg), "--llm", "none"]
    argv += ["--run-root", str(tmp_path / "runs"), *more]
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", argv)
        patch.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises(SystemExit) as stopped:
            run_command(main)
    return int(stopped.value.code or 0), out.getvalue(), err.getvalue()


def _answers(out: str) -> list[dict[str, Any]]:
    lines = (Path(out.splitlines()[-1]) / "answers.jsonl").read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines if line]


def _jsonl(path: Path) -> Path:
    path = path.with_suffix(".jsonl")
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in QUESTIONS), encoding="utf-8")
    return path


def _csv(path: Path) -> Path:
    path = path.with_suffix(".csv")
    with path.open("w", encoding="utf-8-sig", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "question"])
        writer.writerows([row["id"], row["question"]] for row in QUESTIONS)
    return path


def _parquet(path: Path) -> Path:
    path = path.with_suffix(".parquet")
    pq.write_table(pa.table({key: [row[key] for row in QUESTIONS] for key in ("id", "question")}), path)
    return path


def _text(path: Path) -> Path:
    path = path.with_name(path.name + ".txt.gz")
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        stream.writelines(str(row["question"]) + "\r\n" for row in QUESTIONS)
    return path


@pytest.mark.parametrize("write", [_jsonl, _csv, _parquet, _text])
def test_batch_answer_each_file_kind_answers_what_can_be_asked(tmp_path: Path, write: Callable[[Path], Path]):
    code, out, err = _run(tmp_path, write(tmp_path / "q"))
    assert code == 0, err
    rows = _answers(out)
    assert [row["question"][:6] for row in rows] == ["who ar", "王明 的父母", "😀🎉", ""]
    assert (rows[0]["answer"], rows[0]["source"]) == ("bob lee", "graph")
    assert rows[0]["evidence"][0]["text"] == "ann lee -parents-> bob lee"
    assert (rows[2]["answer"], rows[2]["source"]) == ("", "none")
    assert rows[3]["error"].startswith("rejected: ") and rows[3]["source"] == "none"


def test_batch_answer_question_of_20000_characters_leaves_the_others_as_they_are(tmp_path: Path):
    file = tmp_path / "q.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in (LONG, QUESTIONS[0])), encoding="utf-8")
    code, out, err = _run(tmp_path, file)
    assert code == 0, err
    long, short = _answers(out)
    assert long["question"] == LONG["question"].strip() and not long["error"]
    assert short["answer"] == "bob lee"


def test_batch_answer_unknown_fields_come_back_and_both_files_agree(tmp_path: Path):
    code, out, err = _run(tmp_path, _jsonl(tmp_path / "q"))
    assert code == 0, err
    rows = _answers(out)
    assert rows[0]["fields"] == {"asked_by": {"team": 3}}
    table = pq.read_table(Path(out.splitlines()[-1]) / "answers.parquet").to_pylist()
    assert [{**row, "fields": json.loads(row["fields"])} for row in table] == rows


def test_batch_answer_again_writes_the_same_and_restores_a_lost_file(tmp_path: Path):
    file = _jsonl(tmp_path / "q")
    _, out, _ = _run(tmp_path, file)
    answers = Path(out.splitlines()[-1]) / "answers.jsonl"
    before = answers.read_bytes()
    answers.unlink()
    code, again, err = _run(tmp_path, file)
    assert code == 0 and "nothing to do" in err
    assert again.splitlines()[-1] == out.splitlines()[-1]
    assert answers.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("q.csv", "id,text\n1,who?\n", "no record has the field 'question'"),
        ("q.txt", "\n \n", "the file is empty"),
        ("q.jsonl", '{"question": ""}\n', "no record holds a question"),
        ("q.docx", "who?", "questions are read from"),
    ],
)
def test_batch_answer_useless_file_is_refused_in_one_line(tmp_path: Path, name: str, text: str, reason: str):
    (tmp_path / name).write_text(text, encoding="utf-8")
    code, _, err = _run(tmp_path, tmp_path / name)
    assert code == 2 and reason in err and "Traceback" not in err


def test_batch_answer_outputs_open_as_a_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    _, out, _ = _run(tmp_path, _jsonl(tmp_path / "q"))
    run = Path(out.splitlines()[-1])
    for kind, file in (("json", "answers.jsonl"), ("parquet", "answers.parquet"), ("json", "predictions.jsonl")):
        opened = datasets.load_dataset(kind, data_files=str(run / file), split="train", cache_dir=str(tmp_path / "c"))
        assert "who are the parents of ann lee?" in opened["question"]
