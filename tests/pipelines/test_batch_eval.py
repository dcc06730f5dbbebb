"""The main job from a shell: results, resuming after a kill, order and sharding, bad input."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from kgrag_gpu.data.sample import sample_records
from pipelines.batch_eval import main
from pipelines.command_line import run_command

ROOT = Path(__file__).resolve().parents[2]


def _environment() -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if k != "KGRAG_DATA"}
    return {**environment, "HF_HUB_OFFLINE": "1"}


class _Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def _run(*args: str, run_root: Path) -> _Done:
    """The command as a shell would run it, in this process: importing torch anew each time would take minutes."""
    argv = ["batch_eval", "--llm", "none", "--run-root", str(run_root), *args]
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", argv)
        patch.delenv("KGRAG_DATA", raising=False)
        patch.setenv("HF_HUB_OFFLINE", "1")
        with pytest.raises(SystemExit) as stopped:
            run_command(main)
    return _Done(int(stopped.value.code or 0), out.getvalue(), err.getvalue())


def _run_dir(done: _Done) -> Path:
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip().splitlines()[-1])


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A finished run of BM25 over the embedded sample."""
    return _run_dir(_run("--dataset", "musique", "--method", "bm25", run_root=tmp_path_factory.mktemp("runs")))


def test_batch_eval_sample_writes_the_whole_run_directory(finished):
    names = {path.name for path in finished.iterdir()}
    assert {
        "config.yaml",
        "manifest.json",
        "metrics.json",
        "predictions.jsonl",
        "retrieval.jsonl",
        "report.html",
    } <= names
    metrics = json.loads((finished / "metrics.json").read_text())
    assert metrics["num_questions"] == len(sample_records())
    assert metrics["num_errors"] == 0
    assert "embedded sample" in metrics["source"] and "not MuSiQue" in metrics["source"]
    assert 0.5 < metrics["retrieval"]["recall@5"] < 1
    assert {"2", "3", "4"} <= set(metrics["by_hop"])
    assert set(metrics["answer"]) >= {"em", "f1", "hit@1", "hit@1_lenient", "acc", "num_from_graph", "num_unanswered"}
    assert metrics["cost"]["llm_calls"] == 0
    assert len((finished / "predictions.jsonl").read_text().splitlines()) == metrics["num_questions"]


def test_batch_eval_finished_run_does_nothing(finished):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    again = _run("--dataset", "musique", "--method", "bm25", run_root=finished.parent)
    assert _run_dir(again) == finished
    assert "nothing to do" in again.stderr
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


def test_batch_eval_other_config_goes_to_another_directory(finished):
    other = _run("--dataset", "musique", "--method", "bm25", "--set", "index.bm25_b=0.4", run_root=finished.parent)
    assert _run_dir(other) != finished


def test_batch_eval_batches_shards_and_order_leave_predictions_identical(finished, tmp_path):
    records = sample_records()[::-1]
    file = tmp_path / "musique_dev.jsonl"
    file.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    run = _run_dir(
        _run(
            "--dataset", "musique", "--method", "bm25", "--data", str(file), "--batch-size", "7", "--num-shards", "3",
            run_root=tmp_path / "runs",
        )
    )  # fmt: skip
    assert len(list((run / "shards").iterdir())) == 3
    for name in ("predictions.jsonl", "retrieval.jsonl"):
        assert (run / name).read_bytes() == (finished / name).read_bytes()


def test_batch_eval_shards_one_by_one_are_joined_by_the_last(finished, tmp_path):
    for shard in ("1", "0"):
        done = _run(
            "--dataset", "musique", "--method", "bm25", "--num-shards", "2", "--shard", shard, run_root=tmp_path
        )
    run = _run_dir(done)
    assert (run / "predictions.jsonl").read_bytes() == (finished / "predictions.jsonl").read_bytes()


@pytest.mark.slow
def test_batch_eval_killed_at_any_moment_resumes_to_the_same_bytes(tmp_path):
    cache = f"execution.cache_dir={tmp_path / 'cache'}"
    args = ("--dataset", "musique", "--method", "ppr", "--batch-size", "4", "--set", cache)
    whole = _run_dir(_run(*args, run_root=tmp_path / "whole"))
    root = tmp_path / "killed"
    kills = 0
    for wanted_parts in (1, 5, 12):
        process = subprocess.Popen(
            [sys.executable, "-m", "pipelines.batch_eval", "--llm", "none", "--run-root", str(root), *args],
            cwd=ROOT, env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while process.poll() is None and len(list(root.glob("*/parts/*/*.parquet"))) < wanted_parts:
            time.sleep(0.005)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills >= 1
    resumed = _run_dir(_run(*args, run_root=root))
    assert resumed.name == whole.name
    for name in ("predictions.jsonl", "retrieval.jsonl"):
        assert (resumed / name).read_bytes() == (whole / name).read_bytes()
    answered = [json.loads(line) for line in (resumed / "log.jsonl").read_text().splitlines() if '"batch"' in line]
    num_questions = len(sample_records())
    assert sum(row["num_questions"] for row in answered) <= num_questions + kills * 4


def test_batch_eval_term_signal_keeps_the_batch_and_exits_4(tmp_path):
    args = [
        "--dataset",
        "musique",
        "--method",
        "bm25",
        "--batch-size",
        "1",
        "--llm",
        "none",
        "--run-root",
        str(tmp_path),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines.batch_eval", *args],
        cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while process.poll() is None and not list(tmp_path.glob("*/parts/*/*.parquet")):
        time.sleep(0.002)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 4, errors
    assert "the same command continues" in errors


GOOD = json.dumps(sample_records()[0], ensure_ascii=False)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "no such file"),
        ("", "empty"),
        (GOOD + "\n" + GOOD[: len(GOOD) // 2], "the last line is not complete JSON"),
        (json.dumps({"id": "x", "question": "Who?"}) + "\n", "paragraphs"),
    ],
    ids=["missing", "empty", "truncated", "no-paragraphs"],
)
def test_batch_eval_bad_file_is_one_line_and_exit_2(tmp_path, content, expected):
    file = tmp_path / "dev.jsonl"
    if content is not None:
        file.write_text(content)
    done = _run("--dataset", "musique", "--method", "bm25", "--data", str(file), run_root=tmp_path / "runs")
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert expected in done.stderr


def test_batch_eval_wrong_dataset_name_suggests_the_right_one(tmp_path):
    done = _run("--dataset", "musiqe", "--method", "bm25", run_root=tmp_path)
    assert done.returncode == 2
    assert "musique" in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_batch_eval_unwritable_run_root_is_exit_2(tmp_path):
    (tmp_path / "file").write_text("")
    done = _run("--dataset", "musique", "--method", "bm25", run_root=tmp_path / "file" / "runs")
    assert done.returncode == 2
    assert "--run-root" in done.stderr.strip().splitlines()[-1]


def test_batch_eval_require_full_refuses_the_sample(tmp_path):
    done = _run("--dataset", "musique", "--method", "bm25", "--require-full", run_root=tmp_path)
    assert done.returncode == 2
    assert "sample" in done.stderr


def test_batch_eval_bad_record_in_mid_file_is_counted_and_the_rest_runs(tmp_path):
    records = [json.dumps(record, ensure_ascii=False) for record in sample_records()[:6]]
    records[2] = json.dumps({"id": "broken", "question": "Who?"})
    file = tmp_path / "dev.jsonl"
    file.write_text("\n".join(records) + "\n")
    run = _run_dir(_run("--dataset", "musique", "--method", "bm25", "--data", str(file), run_root=tmp_path / "runs"))
    assert json.loads((run / "metrics.json").read_text())["num_questions"] == 5
    rejected = [json.loads(line) for line in (run / "rejected.jsonl").read_text().splitlines()]
    assert len(rejected) == 1 and "paragraphs" in rejected[0]["reason"]


def test_batch_eval_help_states_the_defaults():
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.batch_eval", "--help"],
        cwd=ROOT,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    for word in ("--dataset", "anchorrag-lr", "runs", "default"):
        assert word in done.stdout
