"""The real Qwen through transformers on the same prompts as vLLM: structured replies, choices and short answers."""

import json

import pytest

from kgrag_gpu.config.schema import LlmConfig
from kgrag_gpu.llm.factory import open_engine
from kgrag_gpu.llm.models import find_model
from kgrag_gpu.prompts.registry import make_request, sampling_for

MODEL = "qwen2.5-coder-0.5b"
pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(find_model(MODEL) is None, reason=f"{MODEL} is not fetched (python -m pipelines.fetch_models)"),
]
FACTS = [
    "Skien is a town in Norway.",
    "Henrik Ibsen was born in Skien.",
    "The river Rhine flows through Basel.",
]


def test_hf_real_qwen_holds_to_schemas_counts_tokens_and_prefers_the_right_choice():
    engine, line = open_engine(LlmConfig(engine="hf", model=MODEL))
    print(line)
    assert engine is not None
    question = "In which country was Henrik Ibsen born?"
    values = {"question": question, "options": FACTS, "facts": FACTS, "path": "", "title": "Skien", "text": FACTS[0]}
    kinds = ["keywords", "verify_evidence", "enough", "openie_entities"]
    with engine:
        for kind in kinds:
            (reply,) = engine.generate([make_request(kind, "q", 3, **values)], sampling_for(kind))
            print(kind, reply.text, reply.reason)
            if reply.finish_reason == "stop":
                json.loads(reply.text)
            assert reply.prompt_tokens > 30
            assert reply.completion_tokens > 0
        request = make_request("answer", question="Where is it?", passages=["It is in the old town of Basel."])
        right, wrong = engine.score_choices([request], [["in the old town", "in the old harbour"]])[0]
        assert 0 > right > wrong
        (answer,) = engine.generate(
            [make_request("answer", question="Where was Ibsen born?", passages=FACTS[1:2])], sampling_for("answer")
        )
        assert "Skien" in answer.text
    assert engine.usage.total.prompt_tokens > 0
