"""The summary of a KG of six triples, counted by hand."""

import json
from pathlib import Path

import pytest

from kgrag_gpu.kg.store import save_kg
from kgrag_gpu.kg.summary import degrees, summarise
from kgrag_gpu.kg.triples_kg import import_triples
from kgrag_gpu.types import UserError
from pipelines.kg_summary import main

TRIPLES = "hub\tr\ta\nhub\tr\tb\nc\tr\thub\na\ts\tb\nloop\ts\tloop\nx\ts\ty\n"


def _kg(tmp_path: Path):
    file = tmp_path / "kb.tsv"
    file.write_text(TRIPLES, encoding="utf-8")
    return import_triples(file)


def test_summary_small_graph_counts_as_by_hand(tmp_path: Path):
    kg = _kg(tmp_path)
    summary = summarise(kg, 3)
    assert dict(zip(kg.entity_names, degrees(kg).tolist(), strict=True)) == {
        "hub": 3, "a": 2, "b": 2, "c": 1, "loop": 1, "x": 1, "y": 1,
    }  # fmt: skip
    assert (summary.num_components, summary.largest_component, summary.num_self_loops) == (3, 4, 1)
    assert summary.hubs[0] == ("hub", 3) and len(summary.hubs) == 3
    assert sorted(summary.top_relations) == [("r", 3), ("s", 3)]
    assert summary.degree_histogram == [(0, 0, 0), (1, 1, 4), (2, 3, 3)]
    assert summary.degree_quantiles["100 %"] == 3 and summary.num_isolated == 0
    assert len(summary.samples) == 3


def test_kg_summary_out_writes_figures_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = save_kg(_kg(tmp_path), tmp_path / "kg")
    assert main([str(folder), "--out", str(tmp_path / "out")]) == 0
    assert "components" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))["num_components"] == 3
    assert (tmp_path / "out" / "degrees.png").read_bytes().startswith(b"\x89PNG")


def test_kg_summary_folder_without_kg_is_refused(tmp_path: Path):
    with pytest.raises(UserError):
        main([str(tmp_path)])
