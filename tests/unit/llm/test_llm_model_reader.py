"""The extractor "llm" from the outside: replies recorded once build the KG through build_kg and through a run's KG."""

import json
from pathlib import Path

import pytest
from openie_case import PASSAGES, OpenIe

from kgrag_gpu.config.schema import KgConfig, LlmConfig
from kgrag_gpu.kg.build import kg_for_run
from kgrag_gpu.kg.extract import extract_kg
from kgrag_gpu.kg.model_reader import ModelReader
from kgrag_gpu.kg.store import load_kg
from kgrag_gpu.llm.choice import choose_engine
from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.llm.recorder import Recorder
from kgrag_gpu.types import QuestionSet, UserError
from pipelines.build_kg import main


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """What the scripted model says about PASSAGES."""
    path = tmp_path / "recorded.jsonl"
    extract_kg(PASSAGES, Engine(OpenIe(), recorder=Recorder(path)))
    return path


def _questions() -> QuestionSet:
    return QuestionSet("jsonl", (), tuple(PASSAGES), "a test", "hash")


def _reader(recording: Path, tmp_path: Path) -> ModelReader:
    config = LlmConfig(engine="replay", replay_path=str(recording))
    return ModelReader(config, choose_engine(config), tmp_path / "llm")


def test_build_kg_with_the_model_writes_the_kg_and_what_was_read(recording, tmp_path, capsys):
    source = tmp_path / "passages.json"
    source.write_text(json.dumps([{"title": p.title, "text": p.text} for p in PASSAGES]))
    out = tmp_path / "kg"
    options = ["--extractor", "llm", "--llm", "replay", "--set", f"llm.replay_path={recording}"]
    assert main(["--from-passages", str(source), "--out", str(out), *options]) == 0
    kg = load_kg(out)
    assert (kg.kind, kg.num_triples, kg.num_passages) == ("llm", 4, 3)
    notes = kg.manifest["notes"]
    assert (notes["llm_calls"], notes["prompt_tokens"], notes["completion_tokens"]) == (6, 60, 30)
    assert [doc["title"] for doc in json.loads((tmp_path / "kg.openie.json").read_text())["docs"]] == [
        "Ada",
        "Basil",
        "Dull",
    ]
    assert capsys.readouterr().out.splitlines()[-1] == str(out)


def test_build_kg_again_asks_nothing_again(recording, tmp_path):
    reader = _reader(recording, tmp_path)
    first = reader.read(PASSAGES, "a test")
    again = reader.read(PASSAGES, "a test")
    assert again.content_hash == first.content_hash
    assert (again.manifest["notes"]["llm_calls"], again.manifest["notes"]["cached_calls"]) == (0, 6)


def test_kg_for_run_reads_once_for_a_model_and_again_for_another(recording, tmp_path):
    config = KgConfig(extractor="llm")
    kg = kg_for_run(config, _questions(), tmp_path, reader=_reader(recording, tmp_path))
    assert kg.kind == "llm"
    recording_2 = tmp_path / "other.jsonl"
    recording_2.write_text(recording.read_text() + "\n")
    assert _reader(recording_2, tmp_path).identity != _reader(recording, tmp_path).identity
    recording.write_text("")  # the KG is cached: the model is not opened
    moved = ModelReader(LlmConfig(engine="replay", replay_path="gone"), _reader(recording_2, tmp_path).choice, tmp_path)
    with pytest.raises(UserError, match="gone"):
        kg_for_run(config, _questions(), tmp_path, reader=moved)


def test_extractor_llm_without_a_model_says_what_to_do(tmp_path):
    config = LlmConfig(engine="none")
    reader = ModelReader(config, choose_engine(config), tmp_path)
    with pytest.raises(UserError, match="fetch_models"):
        kg_for_run(KgConfig(extractor="llm"), _questions(), tmp_path, reader=reader)
    with pytest.raises(UserError, match="opens no language model"):
        kg_for_run(KgConfig(extractor="llm"), _questions(), tmp_path)


def test_build_kg_option_outside_of_llm_is_refused(recording, tmp_path):
    source = tmp_path / "passages.json"
    source.write_text(json.dumps([{"title": "Ada", "text": "Ada was born in London."}]))
    with pytest.raises(UserError, match="only keys below llm"):
        main(["--from-passages", str(source), "--out", str(tmp_path / "kg"), "--extractor", "llm", "--set", "seed=1"])
