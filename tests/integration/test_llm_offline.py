"""With HF_HUB_OFFLINE=1 nothing of the model opens a connection: shown by a socket that refuses every address."""

import subprocess
import sys
import textwrap

import pytest

from kgrag_gpu.llm.models import find_model

MODEL = "qwen2.5-coder-0.5b"
GUARD = """
import os, socket, sys
os.environ["HF_HUB_OFFLINE"] = "1"
attempts = []
def refuse(self, address, *rest):
    if self.family == getattr(socket, "AF_UNIX", None) or str(address[0]) in ("127.0.0.1", "::1", "localhost"):
        return original(self, address, *rest)
    attempts.append(address)
    raise OSError(f"the network is cut: {address}")
original, socket.socket.connect = socket.socket.connect, refuse
socket.socket.connect_ex = refuse
look_up = socket.getaddrinfo
def no_names(host, *rest, **options):
    if host in (None, "127.0.0.1", "::1", "localhost", socket.gethostname()):
        return look_up(host, *rest, **options)
    attempts.append((host,))
    raise OSError(f"the network is cut: {host}")
socket.getaddrinfo = no_names
"""


def _run(body: str) -> subprocess.CompletedProcess:
    script = GUARD + textwrap.dedent(body) + "\nassert attempts == [], attempts\nprint('no connection attempted')\n"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=1200, check=False)


def test_offline_looking_for_models_makes_no_connection():
    done = _run(
        """
        from kgrag_gpu.config.schema import LlmConfig
        from kgrag_gpu.llm.factory import open_engine
        from kgrag_gpu.llm.models import resolve_model
        from kgrag_gpu.types import UserError
        try:
            resolve_model("Someone/Not-Here-7B")
        except UserError as error:
            assert "no weights for Someone/Not-Here-7B" in str(error), error
        else:
            raise AssertionError("found a model that does not exist")
        engine, line = open_engine(LlmConfig(model="Someone/Not-Here-7B"))
        assert engine is None and "no weights" in line, line
        """
    )
    assert done.stdout.strip().endswith("no connection attempted"), done.stderr[-3000:]


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(1300)
@pytest.mark.skipif(find_model(MODEL) is None, reason=f"{MODEL} is not fetched (python -m pipelines.fetch_models)")
def test_offline_real_qwen_answers_without_a_connection():
    done = _run(
        f"""
        from kgrag_gpu.config.schema import LlmConfig
        from kgrag_gpu.llm.factory import open_engine
        from kgrag_gpu.prompts.registry import make_request, sampling_for
        engine, line = open_engine(LlmConfig(engine="hf", model="{MODEL}"))
        with engine:
            request = make_request("answer", question="Where was Ada born?", passages=["Ada was born in London."])
            (reply,) = engine.generate([request], sampling_for("answer"))
            assert reply.ok and reply.completion_tokens > 0, reply
            (keywords,) = engine.generate([make_request("keywords", question="Where was Ada born?")],
                                          sampling_for("keywords"))
            assert keywords.parsed is not None, keywords
        """
    )
    assert done.stdout.strip().endswith("no connection attempted"), done.stderr[-3000:]
