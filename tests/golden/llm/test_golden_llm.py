"""Recorded replies of a real Qwen give exactly these answers, keywords, choices and triples."""

import json
import sys
from pathlib import Path

from kgrag_gpu.config.schema import LlmConfig
from kgrag_gpu.llm.factory import open_engine

sys.path.insert(0, str(Path(__file__).parent))
from golden_llm_case import EXPECTED, REPLIES, run_case


def test_golden_recorded_replies_give_the_recorded_results():
    engine, _ = open_engine(LlmConfig(engine="replay", replay_path=str(REPLIES)))
    assert engine is not None
    with engine:
        result = json.loads(json.dumps(run_case(engine)))
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    # Choices are read without sampling, so a replay counts no prompt tokens for them.
    assert result.pop("tokens")[1] == expected.pop("tokens")[1]
    assert result == expected


def test_golden_replay_does_not_depend_on_what_else_is_asked():
    engine, _ = open_engine(LlmConfig(engine="replay", replay_path=str(REPLIES)))
    assert engine is not None
    with engine:
        first, second = run_case(engine), run_case(engine)
    first.pop("tokens"), second.pop("tokens")
    assert first == second
