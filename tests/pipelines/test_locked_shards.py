"""Two processes on one run: a held shard is refused or passed over, a lost one is not written, one process joins."""

import json
from pathlib import Path

import pytest

from kgrag_gpu.run_dir import RunDir
from kgrag_gpu.shard_lock import LockHeld
from kgrag_gpu.types import UserError
from pipelines import batch_eval, job, merge

ARGUMENTS = ["--dataset", "musique", "--method", "bm25", "--llm", "none", "--limit", "24"]


def _run(root: Path, *more: str) -> int:
    return batch_eval.main([*ARGUMENTS, "--run-root", str(root), *more])


def _only_run(root: Path) -> RunDir:
    (path,) = root.glob("musique-*")
    return RunDir(path)


@pytest.fixture(autouse=True)
def _sample_outside_of_arrays(monkeypatch):
    for name in ("KGRAG_DATA", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def started(tmp_path) -> RunDir:
    """A run of three shards, one done."""
    assert _run(tmp_path, "--num-shards", "3", "--shard", "1") == 0
    return _only_run(tmp_path)


def test_shard_by_number_in_other_hands_is_refused(started):
    with started.lock_shard(0), pytest.raises(LockHeld, match=r"shard 0 of .* is in the hands of process"):
        _run(started.path.parent, "--num-shards", "3", "--shard", "0")
    assert not started.is_done(0) and not started.read_parts(0)


def test_held_shards_are_passed_over_and_said_and_the_next_call_ends_the_run(started, capsys):
    with started.lock_shard(0):
        assert _run(started.path.parent, "--num-shards", "3") == 0
    assert "left out: shard 0" in capsys.readouterr().err
    assert [started.is_done(shard) for shard in range(3)] == [False, True, True]
    assert not started.is_finished
    assert _run(started.path.parent, "--num-shards", "3") == 0
    assert started.metrics()["num_questions"] == 24


def test_shard_finished_while_its_lock_was_taken_is_not_computed_again(started, monkeypatch):
    taken = RunDir.lock_shard

    def finished_meanwhile(run, shard):
        run.finish_shard(shard, 3, [])
        return taken(run, shard)

    monkeypatch.setattr(RunDir, "lock_shard", finished_meanwhile)
    assert _run(started.path.parent, "--num-shards", "3", "--shard", "0") == 0
    assert [row["shard"] for row in started.events("batch")] == [1]


def test_process_that_lost_its_lock_writes_nothing(started, monkeypatch, capsys):
    compute = job.run_shard

    def compute_after_takeover(run, shard, *rest):
        (run.path / "locks" / f"{shard:05d}").write_text(json.dumps({"token": "other", "pid": 7, "host": "elsewhere"}))
        compute(run, shard, *rest)

    monkeypatch.setattr(job, "run_shard", compute_after_takeover)
    assert _run(started.path.parent, "--num-shards", "3", "--shard", "2") == 0
    assert "taken over by process 7 on elsewhere" in capsys.readouterr().err
    assert not started.is_done(2)
    assert [path for folder in ("parts", "shards") for path in (started.path / folder).rglob("*00002*.*")] == []
    assert not list(started.path.rglob("*.tmp"))
    owner = json.loads((started.path / "locks" / "00002").read_text())
    assert owner["token"] == "other"


def test_join_in_other_hands_is_left_to_them(started, capsys):
    root = started.path.parent
    with started.lock_join():
        assert _run(root, "--num-shards", "3") == 0
        assert "all shards are done; the joining of" in capsys.readouterr().err
        with pytest.raises(UserError, match=r"the joining of .* is in the hands of"):
            merge.main([str(started.path)])
        assert not started.is_finished
    assert merge.main([str(started.path)]) == 0
    assert started.is_finished


def test_task_of_a_slurm_array_takes_the_shard_of_its_number(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "3")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "2")
    assert _run(tmp_path) == 0
    run = _only_run(tmp_path)
    assert [run.is_done(shard) for shard in range(3)] == [False, False, True]
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    with pytest.raises(UserError, match="shards run from 0 to 2"):
        _run(tmp_path)
