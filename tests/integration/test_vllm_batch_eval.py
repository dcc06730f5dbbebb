"""The main job with real vLLM from a shell: answered, killed in the middle, continued, and again in other batches."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kgrag_gpu.llm.models import FetchError, fetch_model

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed in this environment"),
]
MODEL = "qwen2.5-coder-0.5b"
NUM_QUESTIONS = 20


def _start(run_root: Path, batch_size: int) -> subprocess.Popen:
    # float32: near ties between two tokens do not depend on the batch then (a GPU has batch-invariant kernels instead).
    values = ["llm.dtype=float32", "llm.max_context_tokens=2048", f"execution.batch_size={batch_size}"]
    values += [f"llm.max_num_seqs={batch_size}", "llm.request_timeout_s=1500", "reader.context_tokens=500"]
    command = [sys.executable, "-m", "pipelines.batch_eval", "--dataset", "musique", "--method", "bm25"]
    command += ["--llm", "vllm", "--limit", str(NUM_QUESTIONS), "--run-root", str(run_root)]
    command += ["--set", f"llm.model={MODEL}"] + [part for value in values for part in ("--set", value)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "KGRAG_DATA": str(run_root / "no-data")}
    log = (run_root / f"log-{time.monotonic_ns()}.txt").open("wb")
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=environment, start_new_session=True)


def _finish(run_root: Path, batch_size: int) -> tuple[dict, list[str]]:
    """(metrics, answers) of a whole run."""
    process = _start(run_root, batch_size)
    out, _ = process.communicate(timeout=3000)
    logs = "\n".join(path.read_text(errors="replace")[-1500:] for path in sorted(run_root.glob("log-*.txt")))
    assert process.returncode in (0, 3), logs
    run = Path(out.decode().strip().splitlines()[-1])
    rows = [json.loads(line) for line in (run / "predictions.jsonl").read_text().splitlines()]
    return json.loads((run / "metrics.json").read_text()), [json.dumps(row, sort_keys=True) for row in rows]


def test_vllm_batch_eval_killed_and_continued_replays_and_batches_do_not_matter(tmp_path):
    try:
        fetch_model(MODEL)
    except FetchError as error:
        pytest.skip(f"no weights: {error}")
    first_root, second_root = tmp_path / "first", tmp_path / "second"
    first_root.mkdir()
    second_root.mkdir()
    process = _start(first_root, NUM_QUESTIONS)
    num_cached = 0
    while num_cached < 5 and process.poll() is None:
        segments = list(first_root.glob("*/llm_cache/*.jsonl"))
        num_cached = sum(len(path.read_bytes().splitlines()) for path in segments)
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert num_cached >= 5, "\n".join(path.read_text()[-1500:] for path in first_root.glob("log-*.txt"))

    metrics, predictions = _finish(first_root, NUM_QUESTIONS)
    print(json.dumps(metrics["cost"], indent=1)[:1500])
    assert metrics["num_questions"] == NUM_QUESTIONS
    assert len(predictions) == NUM_QUESTIONS
    assert metrics["cost"]["cached_calls"] >= 5
    assert metrics["cost"]["prompt_tokens"] > 0 or metrics["cost"]["cached_calls"] >= NUM_QUESTIONS

    _, others = _finish(second_root, 7)
    assert sorted(others) == sorted(predictions)
