"""A real OpenAI-compatible server (vLLM over HTTP, real Qwen) behind the `openai` engine."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kgrag_gpu.config.schema import LlmConfig
from kgrag_gpu.data.sample import sample_records
from kgrag_gpu.kg.extract import extract_kg
from kgrag_gpu.llm.factory import open_engine
from kgrag_gpu.llm.models import FetchError, fetch_model
from kgrag_gpu.prompts.registry import make_request, sampling_for
from kgrag_gpu.types import Passage

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed in this environment"),
]
MODEL = "qwen2.5-coder-0.5b"
START_S = 1500  # a loaded machine of two cores takes long


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[str]:
    """A server on a free port, ended with its whole process group."""
    try:
        folder = fetch_model(MODEL).path
    except FetchError as error:
        pytest.skip(f"no weights: {error}")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "server.log"
    options = ["--model", str(folder), "--served-model-name", "qwen", "--host", "127.0.0.1", "--port", str(port)]
    limits = ["--max-model-len", "2048", "--max-num-batched-tokens", "512", "--max-num-seqs", "16"]
    environment = {**os.environ, "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    environment["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
    openmp = Path(sys.prefix) / "lib" / "libiomp5.so"
    if openmp.is_file():
        environment["LD_PRELOAD"] = str(openmp)
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *options, *limits]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
    try:
        _wait(port, process, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def _wait(port: int, process: subprocess.Popen, log: Path) -> None:
    for _ in range(START_S):
        if process.poll() is not None:
            pytest.fail(f"the server ended with {process.returncode}: {log.read_text(errors='replace')[-2000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except OSError:
            time.sleep(1)
    pytest.fail(f"the server did not start in {START_S} s: {log.read_text(errors='replace')[-2000:]}")


def test_server_answers_choices_and_extracts(server, tmp_path):
    config = LlmConfig(engine="openai", base_url=server, request_timeout_s=900, max_concurrency=8)
    engine, line = open_engine(config, tmp_path / "cache")
    print(line)
    assert engine is not None
    assert engine.max_context_tokens == 2048
    record = sample_records()[0]
    gold = [p["paragraph_text"] for p in record["paragraphs"] if p["is_supporting"]]
    with engine:
        (answer,) = engine.generate(
            [make_request("answer", question=record["question"], passages=gold)], sampling_for("answer")
        )
        print(record["question"], "->", answer.text)
        assert answer.ok
        assert answer.prompt_tokens > 50
        (keywords,) = engine.generate([make_request("keywords", question=record["question"])], sampling_for("keywords"))
        assert keywords.parsed is not None
        request = make_request("answer", question="Where is it?", passages=["It is in the old town of Basel."])
        good, bad = engine.score_choices([request], [["in the old town", "in the old harbour"]])[0]
        assert 0 > good > bad
        passages = [Passage(p["title"], p["paragraph_text"]) for p in record["paragraphs"][:2]]
        kg = extract_kg(passages, engine)
        print(kg.manifest["notes"])
        assert kg.num_triples > 0
        assert engine.take_failures() == []
