"""Locks on shards: refused while the owner lives, taken over once it is dead or silent."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from kgrag_gpu.shard_lock import ShardLock, read_owner
from kgrag_gpu.types import UserError


def test_shard_lock_held_by_a_living_owner_is_refused_with_its_name(tmp_path):
    path = tmp_path / "00003"
    with ShardLock(path), pytest.raises(UserError, match=f"process {os.getpid()}"), ShardLock(path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_shard_lock_of_a_killed_process_is_taken_over_at_once(tmp_path):
    path = tmp_path / "00003"
    code = "import os, sys; from pathlib import Path; from kgrag_gpu.shard_lock import ShardLock\n"
    code += "ShardLock(Path(sys.argv[1])).__enter__(); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 9
    assert path.exists()
    with ShardLock(path) as lock:
        assert lock.is_mine()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("age_s", "taken"), [(60.0, False), (121.0, True)])
def test_shard_lock_of_another_host_is_taken_over_once_silent(tmp_path, age_s, taken):
    path = tmp_path / "00003"
    path.write_text(json.dumps({"token": "x", "host": "elsewhere", "pid": 1}))
    os.utime(path, (time.time() - age_s,) * 2)
    if taken:
        with ShardLock(path) as lock:
            assert lock.is_mine()
    else:
        with pytest.raises(UserError, match="elsewhere"), ShardLock(path):
            pass
        assert (read_owner(path) or {}).get("token") == "x"


def test_shard_lock_heartbeat_renews_the_file(tmp_path):
    path = tmp_path / "00003"
    with ShardLock(path, heartbeat_s=0.02):
        os.utime(path, (0, 0))
        deadline = time.monotonic() + 5
        while path.stat().st_mtime == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert path.stat().st_mtime > 0


def test_shard_lock_lost_to_another_owner_is_left_alone(tmp_path):
    path = tmp_path / "00003"
    with ShardLock(path) as lock:
        path.write_text(json.dumps({"token": "other"}))
        assert not lock.is_mine()
    assert (read_owner(path) or {}).get("token") == "other"


def test_shard_lock_left_behind_is_taken_over_by_exactly_one_of_many(tmp_path):
    path = tmp_path / "00003"
    for _ in range(20):
        path.write_text(json.dumps({"token": "x", "host": "elsewhere", "pid": 1}))
        os.utime(path, (0, 0))
        barrier, winners = threading.Barrier(8), []

        def contend(barrier=barrier, winners=winners):
            lock = ShardLock(path)
            barrier.wait()
            try:
                winners.append(lock.__enter__())
            except UserError:
                return

        threads = [threading.Thread(target=contend) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(winners) == 1 and winners[0].is_mine()
        winners[0].__exit__(None, None, None)
    assert list(tmp_path.iterdir()) == []


def test_shard_lock_claim_left_by_a_dead_process_holds_up_one_attempt_only(tmp_path):
    path, claim = tmp_path / "00003", tmp_path / ".00003.after-x"
    for file in (path, claim):
        file.write_text(json.dumps({"token": "x", "host": "elsewhere", "pid": 1}))
        os.utime(file, (0, 0))
    with pytest.raises(UserError, match="elsewhere"), ShardLock(path):
        pass
    with ShardLock(path) as lock:
        assert lock.is_mine()


@pytest.mark.parametrize(("restarts", "taken"), [("0", True), ("1", False), ("2", False)])
def test_shard_lock_of_an_earlier_start_of_the_same_slurm_job_is_taken_over(tmp_path, monkeypatch, restarts, taken):
    path = tmp_path / "00003"
    monkeypatch.setenv("SLURM_JOB_ID", "71")
    monkeypatch.setenv("SLURM_RESTART_COUNT", restarts)
    owner = ShardLock(path).owner
    path.write_text(json.dumps({**owner, "token": "x", "host": "elsewhere"}))
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    if taken:
        with ShardLock(path) as lock:
            assert lock.is_mine()
    else:
        with pytest.raises(UserError, match="elsewhere, SLURM job 71"), ShardLock(path):
            pass
