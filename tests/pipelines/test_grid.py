"""The grid command on the embedded sample, and what it refuses."""

import json

import pytest

from kgrag_gpu.types import UserError
from pipelines.grid import in_first_half, main


@pytest.fixture(autouse=True)
def _sample(monkeypatch):
    monkeypatch.delenv("KGRAG_DATA", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def run(tmp_path, *args) -> int:
    return main(["--dataset", "musique", "--method", "bm25", "--run-root", str(tmp_path), *args])


def test_grid_scores_defaults_and_every_combination(tmp_path, capsys):
    file = tmp_path / "cells.json"
    grid = ["--grid", "index.bm25_k1=0.5,1.5", "--grid", "index.bm25_b=0.0,0.75"]
    fixed = ["--set", "index.bm25_k1=1.5", "--set", "index.bm25_b=0.75"]
    assert run(tmp_path, *fixed, *grid, "--json", str(file)) == 0
    cells = json.loads(file.read_text())
    assert [cell["values"] for cell in cells] == [
        {},
        {"index.bm25_k1": "0.5", "index.bm25_b": "0.0"},
        {"index.bm25_k1": "0.5", "index.bm25_b": "0.75"},
        {"index.bm25_k1": "1.5", "index.bm25_b": "0.0"},
        {"index.bm25_k1": "1.5", "index.bm25_b": "0.75"},
    ]
    # The last combination is the fixed one again; other values must reach the index.
    assert cells[0]["first_half"] == cells[4]["first_half"]
    assert cells[0]["second_half"] == cells[4]["second_half"]
    assert cells[1]["first_half"] != cells[4]["first_half"] or cells[1]["second_half"] != cells[4]["second_half"]
    best = max(cells, key=lambda cell: cell["first_half"]["recall@5"])
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert f"recall@5 {best['second_half']['recall@5']:.3f}" in last


def test_grid_two_halves_share_out_all_questions():
    ids = [f"q{i}" for i in range(2000)]
    share = sum(map(in_first_half, ids)) / len(ids)
    assert 0.45 < share < 0.55
    assert [in_first_half(i) for i in ids[:8]] == [in_first_half(i) for i in ids[:8]]


@pytest.mark.parametrize("text", ["index.bm25_k1", "=1", "index.bm25_k1=", "index.bm25_k1=1,,2"])
def test_grid_malformed_axis_is_a_user_error(tmp_path, text):
    with pytest.raises(UserError, match="expected KEY=V,W"):
        run(tmp_path, "--grid", text)


def test_grid_unknown_key_names_the_nearest(tmp_path):
    with pytest.raises(UserError, match="did you mean bm25_k1"):
        run(tmp_path, "--grid", "index.bm25_k=1")


def test_grid_too_many_combinations_is_a_user_error(tmp_path):
    axis = "index.bm25_k1=" + ",".join(str(i) for i in range(1001))
    with pytest.raises(UserError, match="1001 combinations"):
        run(tmp_path, "--grid", axis)


def test_grid_without_gold_passages_is_a_user_error(tmp_path):
    file = tmp_path / "q.jsonl"
    file.write_text('{"id": "a", "question": "Who?"}\n')
    with pytest.raises(UserError, match="no question has gold passages"):
        main(["--dataset", "jsonl", "--data", str(file), "--method", "bm25", "--run-root", str(tmp_path)])
