"""The state of a run as its directory tells it: exact counts over hand-made shards, parts, locks and log lines."""

import json
import os

import pytest

from kgrag_gpu.run_dir import RunDir
from kgrag_gpu.types import Answer, Question, Result, Retrieval
from pipelines.status import main, run_status, status_lines

NOW = 1_700_000_000.0


def _results(*ids, error=""):
    return [Result(Question(i, "who?"), Retrieval(), Answer("", "none"), error=error) for i in ids]


@pytest.fixture
def run(tmp_path) -> RunDir:
    """Five shards: done, running, silent, left with a part and no lock, waiting."""
    run = RunDir.create(tmp_path, "r", {}, {"num_shards": 5, "num_questions": 10})
    run.finish_shard(0, 5, _results("a", "b"))
    run.write_part(1, _results("c"))
    run.write_part(3, _results("d", error="ValueError: bad"))
    (run.path / "locks").mkdir()
    for shard, age_s in ((1, 10.0), (2, 500.0)):
        lock = run.path / "locks" / f"{shard:05d}"
        lock.write_text("{}")
        os.utime(lock, (NOW - age_s, NOW - age_s))
    rows = [{"time": f"2026-01-01T00:00:{s:02d}+0000", "event": "batch", "num_questions": 1} for s in (0, 1, 2, 4)]
    run.log_file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


def test_status_counts_shards_questions_errors_and_time_left(run):
    status = run_status(run, NOW)
    assert status["shards"] == {"done": [0], "running": [1], "stopped": [2, 3], "waiting": [4]}
    assert (status["num_finished"], status["num_questions"], status["num_errors"]) == (4, 10, 1)
    assert status["questions_per_second"] == 0.75  # 3 questions after the first mark, in 4 s
    assert status["seconds_left"] == 8.0
    assert "stopped: 2 shards (2, 3)" in status_lines(status)


def test_status_with_nothing_running_gives_no_time_left(run):
    assert run_status(run, NOW + 1000)["seconds_left"] is None


def test_status_prints_and_leaves_the_run_as_it_was(run, capsys):
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    assert main([str(run.path)]) == 0
    assert "questions: 4 of 10, 1 failed" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before
