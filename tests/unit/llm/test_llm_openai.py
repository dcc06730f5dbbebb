"""The OpenAI-compatible engine against a server that fails in every way that servers do."""

import json

import pytest

from kgrag_gpu.config.schema import LlmConfig
from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.llm.factory import open_engine
from kgrag_gpu.llm.openai_engine import OpenAiBackend
from kgrag_gpu.llm.records import Sampling
from kgrag_gpu.prompts.schemas import Entities
from kgrag_gpu.types import UserError

SAMPLING = Sampling(max_tokens=16)


def _engine(server, **changes) -> Engine:
    values = {"engine": "openai", "model": "tiny", "base_url": server.url, "request_timeout_s": 1.0, "max_retries": 1}
    engine, line = open_engine(LlmConfig.model_validate({**values, **changes}))
    assert engine is not None
    assert server.url in line
    return engine


def test_openai_every_fault_stays_with_its_own_request(faulty_server, ask):
    good = '{"entities": ["x"]}'
    server = faulty_server(
        {
            "sleeper": [("sleep", 3.0)],
            "limited": [429],
            "broken": [500],
            "refused": [400],
            "cut": ['{"entities": ['],
            "blank": ['{"entities": [' + " \n" * 50],
            "keys": ['{"a": 1, "b": 2}'],
            "empty": [""],
            "junk": [("body", "<html>proxy error</html>")],
            "hollow": [("body", '{"object": "chat.completion", "choices": []}')],
        },
        default=good,
    )
    words = ["sleeper", "limited", "broken", "refused", "cut", "blank", "keys", "empty", "junk", "hollow", "ok1", "ok2"]
    with _engine(server) as engine:
        replies = engine.generate([ask(word, Entities, question_id=word) for word in words], SAMPLING)
        failures = {failure.question_id: failure.reason for failure in engine.take_failures()}
    assert [reply.ok for reply in replies] == [False] * 4 + [False, False, False, False, False, False, True, True]
    assert replies[-1].parsed == Entities(entities=["x"])
    assert sorted(failures) == sorted(words[:-2])
    expected = {
        "sleeper": "no reply within 1 s after 2 tries",
        "limited": "server said 429 after 2 tries",
        "broken": "server said 500 after 2 tries",
        "refused": "server said 400:",
        "keys": "entities: Field required",
        "empty": "empty reply",
        "junk": "unreadable response of the server",
        "hollow": "unreadable response of the server",
    }
    for word, reason in expected.items():
        assert reason in failures[word], word


def test_openai_passing_faults_are_retried_and_counted(faulty_server, ask):
    server = faulty_server({"limited": [429, "fine"], "fenced": ['```json\n{"entities": ["x"]}\n```']})
    with _engine(server) as engine:
        plain = engine.generate([ask("limited")], SAMPLING)[0]
        fenced = engine.generate([ask("fenced", Entities)], SAMPLING)[0]
        usage = engine.usage.total
    assert plain.text == "fine"
    assert fenced.parsed == Entities(entities=["x"])
    assert (usage.retries, usage.mended, usage.failures) == (1, 1, 0)
    assert (usage.prompt_tokens, usage.completion_tokens) == (22, 6)


def test_openai_schema_goes_as_response_format(faulty_server, ask):
    server = faulty_server({}, default='{"entities": []}')
    with _engine(server) as engine:
        engine.generate([ask("a", Entities)], SAMPLING)
    form = server.requests[0]["response_format"]
    assert form["type"] == "json_schema"
    assert form["json_schema"]["schema"]["required"] == ["entities"]


def test_openai_choices_without_prompt_logprobs_fail_with_a_reason(faulty_server, ask):
    server = faulty_server({})
    with _engine(server) as engine:
        assert engine.score_choices([ask("a", question_id="q1")], [["Yes", "No"]]) == [[float("-inf")] * 2]
        assert "could not score" in engine.take_failures()[0].reason


def test_openai_choices_take_the_mean_of_the_last_tokens(faulty_server, ask):
    def body(prompt_tokens: int, logprobs=None) -> tuple[str, str]:
        reply = {
            "object": "chat.completion",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "length"}],
            "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": 1, "total_tokens": prompt_tokens + 1},
        }
        return "body", json.dumps({**reply, **({"prompt_logprobs": logprobs} if logprobs else {})})

    rows = [None, {"5": {"logprob": -9.0}}, {"6": {"logprob": -1.0}}, {"7": {"logprob": -2.0}}]
    server = faulty_server({"two words": [body(4, rows)], "ask me": [body(2)]})
    with _engine(server) as engine:
        assert engine.score_choices([ask("ask me")], [["two words"]]) == [[-1.5]]


def test_openai_nobody_at_the_address_is_the_users_error():
    config = LlmConfig(engine="openai", base_url="http://127.0.0.1:9/v1", max_retries=0, request_timeout_s=2)
    with pytest.raises(UserError, match="no OpenAI-compatible server at"):
        OpenAiBackend(config)


def test_openai_without_address_is_the_users_error():
    with pytest.raises(UserError, match=r"needs llm\.base_url"):
        OpenAiBackend(LlmConfig(engine="openai"))


def test_openai_unknown_model_names_the_served_one(faulty_server):
    server = faulty_server({})
    with pytest.raises(UserError, match="the server serves tiny, not other"):
        OpenAiBackend(LlmConfig(engine="openai", model="other", base_url=server.url))


def test_openai_default_model_takes_the_only_one_served(faulty_server):
    server = faulty_server({})
    backend = OpenAiBackend(LlmConfig(engine="openai", base_url=server.url))
    assert backend.model_id == "tiny"
    backend.close()
