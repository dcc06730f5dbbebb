"""Joining shards: refuses while some are missing, and equals the run of one process byte for byte."""

import json

import pytest
import yaml

from kgrag_gpu.config.load import load_run_config, read_run_config
from kgrag_gpu.types import UserError
from pipelines import batch_eval, merge


def _run(root, *more, method="bm25"):
    return batch_eval.main(
        ["--dataset", "musique", "--method", method, "--llm", "none", "--limit", "24", "--run-root", str(root), *more]
    )


def _only_run(root):
    (path,) = root.glob("musique-*")
    return path


@pytest.fixture(autouse=True)
def _sample_only(monkeypatch):
    monkeypatch.delenv("KGRAG_DATA", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_merge_of_shards_equals_the_single_run(tmp_path):
    single, sharded = tmp_path / "one", tmp_path / "many"
    assert _run(single) == 0
    for shard in "201":
        assert _run(sharded, "--num-shards", "3", "--shard", shard) == 0
    one, many = _only_run(single), _only_run(sharded)
    # The last shard already joined; take the joined files away so that merge has to make them.
    for name in ("metrics.json", "predictions.jsonl", "retrieval.jsonl"):
        (many / name).unlink()
    assert merge.main([str(many)]) == 0
    for name in ("predictions.jsonl", "retrieval.jsonl", "errors.jsonl"):
        assert (many / name).read_bytes() == (one / name).read_bytes()
    metrics = [
        {k: v for k, v in json.loads((p / "metrics.json").read_text()).items() if k != "cost"} for p in (one, many)
    ]
    assert metrics[0] == metrics[1] and metrics[0]["num_questions"] == 24


def test_merge_reads_the_configuration_of_a_method_with_values_of_its_own(tmp_path):
    # No encoder is had in this test: the shards are made by a method without values, then ascribed to one with some.
    assert _run(tmp_path, "--num-shards", "2", "--shard", "0") == 0
    path = _only_run(tmp_path)
    config = load_run_config("musique", "anchorrag-single-path", [], ["llm.engine=none"])
    stored = yaml.safe_dump(config.model_dump(mode="json"))
    (path / "config.yaml").write_text(stored)
    assert read_run_config(path / "config.yaml") == config
    (path / "config.yaml").write_text(stored.replace("hub_limit", "hub_limits"))
    with pytest.raises(UserError, match=r"config.yaml cannot be read.*hub_limits .did you mean hub_limit"):
        read_run_config(path / "config.yaml")


def test_merge_with_missing_shards_names_them(tmp_path):
    assert _run(tmp_path, "--num-shards", "3", "--shard", "1") == 0
    with pytest.raises(UserError, match="2 of 3 shards are not done: 0, 2"):
        merge.main([str(_only_run(tmp_path))])
    assert not (_only_run(tmp_path) / "metrics.json").exists()


def test_merge_of_another_folder_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="not a run directory"):
        merge.main([str(tmp_path)])
