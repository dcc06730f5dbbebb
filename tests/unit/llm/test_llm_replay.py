"""Recording with one engine and replaying without it."""

import pytest

from kgrag_gpu.config.schema import LlmConfig
from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.llm.factory import open_engine
from kgrag_gpu.llm.recorder import Recorder
from kgrag_gpu.llm.records import Sampling
from kgrag_gpu.prompts.schemas import Entities
from kgrag_gpu.types import UserError

SAMPLING = Sampling(max_tokens=16)


def test_replay_gives_what_was_recorded_retries_included(scripted, ask, tmp_path):
    path = tmp_path / "replies.jsonl"
    backend = scripted({"a": ["no", '["x"]'], "b": ["plain"]}, choice_scores={"c": [-1.0, -2.0]})
    requests = [ask("a", Entities), ask("b")]
    with Engine(backend, recorder=Recorder(path)) as engine:
        first = engine.generate(requests, SAMPLING)
        scores = engine.score_choices([ask("c")], [["Yes", "No"]])
    replay, line = open_engine(LlmConfig(engine="replay", replay_path=str(path)))
    assert replay is not None
    assert "4 recorded replies" in line
    assert replay.generate(requests, SAMPLING) == first
    assert replay.score_choices([ask("c")], [["Yes", "No"]]) == scores
    assert (replay.model_id, replay.revision) == ("tiny", "r1")


def test_replay_unrecorded_prompt_fails_with_the_reason(ask, tmp_path):
    path = tmp_path / "replies.jsonl"
    path.write_text("")
    replay, _ = open_engine(LlmConfig(engine="replay", replay_path=str(path)))
    assert replay is not None
    reply = replay.generate([ask("a")], SAMPLING)[0]
    assert not reply.ok
    assert reply.reason == "no recorded reply for this prompt"


def test_recorder_cached_replies_are_recorded_too(scripted, ask, tmp_path):
    engine = Engine(scripted({"a": ["one"]}))
    engine.generate([ask("a")], SAMPLING)
    path = tmp_path / "replies.jsonl"
    again = Engine(scripted({}), engine.cache, recorder=Recorder(path))
    again.generate([ask("a")], SAMPLING)
    again.close()
    assert len(path.read_text().splitlines()) == 1


@pytest.mark.parametrize("text", ["nonsense\n", '{"kind": "a"}\n', "[1]\n"])
def test_replay_broken_file_names_the_line(tmp_path, text):
    path = tmp_path / "replies.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match=r"replies\.jsonl:1: not a recorded reply"):
        open_engine(LlmConfig(engine="replay", replay_path=str(path)))


def test_replay_missing_file_is_the_users_error(tmp_path):
    with pytest.raises(UserError, match="cannot read recorded replies"):
        open_engine(LlmConfig(engine="replay", replay_path=str(tmp_path / "none.jsonl")))
    with pytest.raises(UserError, match=r"needs llm\.replay_path"):
        open_engine(LlmConfig(engine="replay"))
