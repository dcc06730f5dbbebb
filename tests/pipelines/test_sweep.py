"""The sweep command on the embedded sample: cells, their table, going on, and what it refuses."""

import json

import pytest

from kgrag_gpu.run_dir import RunDir
from kgrag_gpu.types import UserError
from pipelines.sweep import main


@pytest.fixture(autouse=True)
def _sample(monkeypatch):
    monkeypatch.delenv("KGRAG_DATA", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def run(tmp_path, *args) -> int:
    fixed = ["--dataset", "musique", "--method", "bm25", "--llm", "none", "--limit", "20"]
    return main([*fixed, "--run-root", str(tmp_path / "runs"), *args])


def test_sweep_every_cell_is_a_run_and_a_line(tmp_path, capsys):
    out = tmp_path / "table"
    assert run(tmp_path, "--grid", "index.bm25_k1=0.9,5", "--grid", "index.title_repeats=1,2", "--out", str(out)) == 0
    table = capsys.readouterr().out.strip().splitlines()
    runs = sorted((tmp_path / "runs").glob("musique-bm25-*"))
    assert len(runs) == 4
    labels = [line.split("|")[1].strip() for line in table[2:]]
    assert labels == [
        "bm25 index.bm25_k1=0.9 index.title_repeats=1",
        "bm25 index.bm25_k1=0.9 index.title_repeats=2",
        "bm25 index.bm25_k1=5 index.title_repeats=1",
        "bm25 index.bm25_k1=5 index.title_repeats=2",
    ]
    compared = json.loads((out / "compare.json").read_text())
    for line, cell in zip(table[2:], compared["runs"], strict=True):
        metrics = RunDir(next(r for r in runs if str(r) == cell["path"])).metrics()
        recall = metrics["retrieval"]["recall@5"]
        column = table[0].split("|").index(" recall@5 ")
        assert line.split("|")[column].strip().startswith(f"{recall:.3f} [")
    assert (out / "sweep.md").read_text().strip().splitlines() == table


def test_sweep_again_runs_nothing_again(tmp_path, capsys):
    file = tmp_path / "sweep.yaml"
    file.write_text("methods: [bm25]\ngrid: {index.bm25_b: [0.0, 0.75]}\nset: {index.title_repeats: 1}\n")
    assert run(tmp_path, "--file", str(file)) == 0
    first = capsys.readouterr()
    assert "nothing to do" not in first.err
    assert run(tmp_path, "--file", str(file)) == 0
    again = capsys.readouterr()
    assert again.err.count("this run is finished; nothing to do") == 2
    assert again.out == first.out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("methods: bm25\n", "expected methods"),
        ("grids: {}\n", "expected methods"),
        ("grid: {index.bm25_b: 0.5}\n", "a list of values"),
        ("grid: [\n", "not valid YAML"),
        ("methods: [bm25]\n", "a sweep of 1 runs"),
    ],
)
def test_sweep_malformed_file_is_a_user_error(tmp_path, text, message):
    file = tmp_path / "sweep.yaml"
    file.write_text(text)
    with pytest.raises(UserError, match=message):
        run(tmp_path, "--file", str(file))


def test_sweep_method_with_values_of_its_own_is_a_line_beside_one_without(tmp_path, capsys):
    assert run(tmp_path, "--methods", "bm25", "ppr:restart_passages=3,name_weight=2.0") == 0
    table = capsys.readouterr().out.strip().splitlines()
    assert [line.split("|")[1].strip() for line in table[2:]] == ["bm25", "ppr restart_passages=3 name_weight=2.0"]
    (path,) = (tmp_path / "runs").glob("musique-ppr-*")
    assert "restart_passages: 3" in (path / "config.yaml").read_text()


@pytest.mark.parametrize("text", ["ppr:", ":damping=0.5", "ppr:damping", "ppr:damping=", "ppr:=0.5"])
def test_sweep_malformed_values_of_a_method_are_a_user_error(tmp_path, text):
    with pytest.raises(UserError, match="expected METHOD"):
        run(tmp_path, "--methods", "bm25", text)
