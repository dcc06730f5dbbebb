"""The GeAR benchmark on the embedded sample: its figures hang together, and a known chain is not encoded again."""

import json

import pytest

from pipelines import bench


@pytest.fixture(autouse=True)
def _sample(monkeypatch):
    monkeypatch.delenv("KGRAG_DATA", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_bench_gear_counts_texts_and_sets_the_stage_beside_the_encoder(tmp_path, capsys):
    out = tmp_path / "gear.json"
    assert bench.main(["gear", "--limit", "3", "--json", str(out)]) == 0
    figures = json.loads(out.read_text())
    assert figures["questions"] == 3 and figures["equal"]
    assert 0 < figures["chain texts encoded"] <= figures["candidate chains scored"]
    assert figures["encoder alone, same texts, s"] > 0
    assert f"chain texts encoded: {figures['chain texts encoded']}" in capsys.readouterr().out
