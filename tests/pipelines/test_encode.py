"""Encoding spread over processes: the same vectors as by one process, every text once, nothing twice."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kgrag_gpu.methods.resources import Resources
from pipelines.batch_eval import job_of, job_parser
from pipelines.encode import encode_share, main
from pipelines.job import Job

ROOT = Path(__file__).resolve().parents[2]
ARGUMENTS = ["--dataset", "musique", "--method", "bm25", "--llm", "none", "--limit", "6", "--device", "cpu"]


@pytest.fixture(autouse=True)
def _sample_only(monkeypatch):
    for name in ("KGRAG_DATA", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def _job(root: Path) -> Job:
    return job_of(job_parser("test", None).parse_args([*ARGUMENTS, "--run-root", str(root)]))


def _vectors(job: Job) -> tuple[list[np.ndarray], int]:
    """Vectors of passages, names and relations from the cache, and how many of them had to be encoded for it."""
    resources = Resources(job.config, job.prepare_kg(), job.cache_dir)
    vectors = [np.array(v) for v in (resources.unit_vectors, resources.entity_vectors, resources.relation_vectors)]
    return vectors, resources.embeddings.num_encoded


def test_encode_shares_are_disjoint_complete_and_equal_to_one_process(tmp_path):
    kinds = ["passages", "entities", "relations"]
    done = [encode_share(_job(tmp_path / "three"), kinds, rank, 3) for rank in (2, 0, 1)]
    assert all(num_encoded == num_texts for num_encoded, num_texts in done)  # no text in two shares
    shared, num_missing = _vectors(_job(tmp_path / "three"))
    assert num_missing == 0
    alone, num_alone = _vectors(_job(tmp_path / "one"))
    assert num_alone == sum(num_texts for _, num_texts in done)
    for one, other in zip(shared, alone, strict=True):
        assert np.array_equal(one, other)


def test_encode_again_encodes_nothing(tmp_path, capsys):
    arguments = [*ARGUMENTS, "--run-root", str(tmp_path), "--texts", "relations"]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[-1] == str(tmp_path / "cache") and "process 1 of 1: 1 of its 1 texts encoded" in err
    assert main(arguments) == 0
    assert "0 of its 1 texts encoded" in capsys.readouterr().err


@pytest.mark.integration
@pytest.mark.slow
def test_encode_by_accelerate_with_two_processes_equals_one(tmp_path):
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]
    command = [*launch, "-m", "pipelines.encode", *ARGUMENTS, "--run-root", str(tmp_path / "two")]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "process 1 of 2" in done.stderr and "process 2 of 2" in done.stderr
    shared, num_missing = _vectors(_job(tmp_path / "two"))
    assert num_missing == 0
    for one, other in zip(shared, _vectors(_job(tmp_path / "one"))[0], strict=True):
        assert np.array_equal(one, other)
