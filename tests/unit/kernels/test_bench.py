"""The benchmark: seeded graphs, no time where results differ, JSON rows with the promised fields."""

import json

import pytest
import torch

from kgrag_gpu.types import UserError
from pipelines import bench
from pipelines.bench_graphs import fb15k237, power_law
from pipelines.bench_timing import Comparison, compare, table


def test_power_law_is_seeded_symmetric_and_without_loops():
    graph, again = power_law(2_000, seed=3), power_law(2_000, seed=3)
    assert torch.equal(graph.neighbours, again.neighbours) and graph.num_nodes == 200
    pairs = set(zip(graph.sources.tolist(), graph.neighbours.tolist(), strict=True))
    assert len(pairs) == graph.neighbours.numel() == 2 * graph.num_edges
    assert all(source != target and (target, source) in pairs for source, target in pairs)


def test_power_law_copies_keep_the_greatest_degree():
    one, many = power_law(10_000, seed=1), power_law(200_000, seed=1, copies=20)
    assert many.num_nodes == 20 * one.num_nodes
    assert many.offsets.diff().max() < 2 * one.offsets.diff().max()


def test_fb15k237_without_data_is_none(monkeypatch):
    monkeypatch.delenv("KGRAG_DATA", raising=False)
    assert fb15k237() is None


def case(ours, peer):
    return Comparison("op", 4, lambda: ours, "peer", lambda: peer, lambda left, right: left == right)


def test_compare_results_that_differ_have_no_time():
    row = compare(case(1, 2), "graph", 10, repeats=2, copy_rate=None)
    assert not row.equal and row.ours_s is None and row.ratio is None and "NO" in table([row])


def test_compare_equal_results_are_timed_per_question():
    row = compare(case(1, 1), "graph", 10, repeats=2, copy_rate=None)
    assert row.equal and row.ratio == pytest.approx(row.peer_s / row.ours_s)


def test_bench_kernels_writes_a_row_for_each_line(tmp_path, monkeypatch, capsys):
    for package in ("igraph", "scipy", "torch_geometric"):
        pytest.importorskip(package, reason=f"the peer {package} is not installed")
    monkeypatch.delenv("KGRAG_DATA", raising=False)
    threads, file = torch.get_num_threads(), tmp_path / "rows.json"
    try:
        arguments = ["kernels", "--edges", "2000", "--ops", "ppr", "k_hop", "csr_expand", "--repeats", "1"]
        assert bench.main([*arguments, "--json", str(file)]) == 0
    finally:
        torch.set_num_threads(threads)
    rows = json.loads(file.read_text())
    assert {"op", "graph", "num_edges", "batch", "ours_s", "peer", "peer_s", "ratio", "equal"} <= set(rows[0])
    assert all(row["equal"] for row in rows) and len(rows) == 6
    assert "igraph prpack" in capsys.readouterr().out


def test_bench_absent_peer_is_one_clear_error(monkeypatch):
    monkeypatch.setattr(bench, "PEERS", {"no_such_peer": "no-such-peer"})
    with pytest.raises(UserError, match=r"no-such-peer are not installed; pip install"):
        bench.main(["kernels"])
