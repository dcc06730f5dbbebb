"""`bench scale` at a small size: the generated graph is what it says, and its questions are answered."""

import gzip
from pathlib import Path

import pytest

from kgrag_gpu.kg.store import save_kg
from kgrag_gpu.kg.triples_kg import import_triples
from kgrag_gpu.types import UserError
from pipelines import bench, bench_scale


def test_generated_graph_is_typed_and_its_questions_are_answered(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(bench_scale, "_BLOCK", 700)
    monkeypatch.setattr(bench_scale, "NUM_QUESTIONS", 4)
    bench_scale.write_graph(tmp_path / "g.tsv.gz", 3_000)
    rows = [line.split("\t") for line in gzip.decompress((tmp_path / "g.tsv.gz").read_bytes()).decode().splitlines()]
    assert len(rows) == 3_000 and {len(row) for row in rows} == {3}
    names = bench_scale.entity_names(300).to_pylist()
    assert len(set(names)) == 300 and {row[0] for row in rows} | {row[2] for row in rows} <= set(names)
    type_of = {name: row % 50 for row, name in enumerate(names)}
    ends = {}
    for head, relation, tail in rows:  # a relation ties one type to one type
        assert ends.setdefault(relation, (type_of[head], type_of[tail])) == (type_of[head], type_of[tail])
    save_kg(import_triples(tmp_path / "g.tsv.gz"), tmp_path / "kg")
    figures = bench_scale.measure(tmp_path / "kg", 1)
    assert figures["right answers, share"] >= 0.75
    assert figures["num_triples"] == len({tuple(row) for row in rows})
    assert figures["graph's tensors, bytes a triple"] < 20


def test_graph_smaller_than_its_peer_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="at least 1,000,000"):
        bench.main(["scale", "--triples", "1000", "--work-dir", str(tmp_path / "w")])
