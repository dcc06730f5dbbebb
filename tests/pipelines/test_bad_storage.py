"""Storage that fails: full disk, read-only run root, missing scratch. One clear line, and nothing is corrupted."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ARGUMENTS = ["--dataset", "musique", "--method", "bm25", "--llm", "none"]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"} | {"KGRAG_DATA": ""}
    command = [sys.executable, "-m", "pipelines.batch_eval", *ARGUMENTS, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A file system of one megabyte in memory; only root may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def _last_line_is_an_error(done: subprocess.CompletedProcess[str], words: str) -> None:
    assert done.returncode == 2, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1 and words in lines[0], done.stderr
    assert "Traceback" not in done.stderr


def test_full_disk_is_one_line_and_the_run_goes_on_when_there_is_room(small_disk, tmp_path):
    cache = ["--set", f"execution.cache_dir={tmp_path / 'cache'}"]
    whole = _run(*cache, "--run-root", str(tmp_path / "whole"))
    assert whole.returncode == 0, whole.stderr
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 940_000)
    done = _run(*cache, "--run-root", str(small_disk / "runs"), "--batch-size", "4")
    _last_line_is_an_error(done, "No space left on device")
    (run,) = (small_disk / "runs").glob("musique-*")
    assert not (run / "metrics.json").exists() and not list(run.rglob("*.tmp"))
    # There is room again, as on a larger disk: the same command goes on.
    shutil.copytree(small_disk / "runs", tmp_path / "larger")
    again = _run(*cache, "--run-root", str(tmp_path / "larger"), "--batch-size", "4")
    assert again.returncode == 0, again.stderr
    for name in ("predictions.jsonl", "retrieval.jsonl"):
        assert (tmp_path / "larger" / run.name / name).read_bytes() == (
            tmp_path / "whole" / run.name / name
        ).read_bytes()


def test_read_only_run_root_is_one_line(small_disk):
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    done = _run("--run-root", str(small_disk / "runs"))
    _last_line_is_an_error(done, "give a writable folder with --run-root")
    assert list(small_disk.iterdir()) == []


def test_missing_scratch_is_one_line(tmp_path):
    done = _run("--run-root", str(tmp_path), "--scratch", str(tmp_path / "gone"))
    _last_line_is_an_error(done, "no such folder on")


def test_scratch_gives_the_run_that_the_shared_cache_gives(tmp_path):
    (tmp_path / "scratch").mkdir()
    runs = [
        _run("--limit", "20", "--run-root", str(tmp_path / name), *more)
        for name, more in (("near", ["--scratch", str(tmp_path / "scratch")]), ("far", []))
    ]
    near, far = (Path(done.stdout.splitlines()[-1]) for done in runs)
    assert (near / "predictions.jsonl").read_bytes() == (far / "predictions.jsonl").read_bytes()
    assert list((tmp_path / "scratch").iterdir()) == []
    built = [sorted(p.name for p in (tmp_path / name / "cache" / "kg").iterdir()) for name in ("near", "far")]
    assert built[0] == built[1] and len(built[0]) == 1
