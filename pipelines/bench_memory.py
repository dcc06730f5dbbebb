"""Measures the peak memory of each graph op on the CPU and sets it beside the op's own formula.

Each op runs in a process of its own, so that nothing freed before is used again unseen: the peak is the kernel's
count of resident pages (Linux). Large blocks go straight to the system and back (MALLOC_MMAP_THRESHOLD_).
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from kernels import (
    RelaxSeeds,
    cosine_rows,
    cosine_rows_bytes,
    csr_expand,
    csr_expand_bytes,
    frontier_relax_bytes,
    k_hop,
    k_hop_bytes,
    maxsim,
    maxsim_bytes,
    ppr,
    ppr_bytes,
    relax_field,
    segment_topk,
    segment_topk_bytes,
    triple_beam,
    triple_beam_bytes,
)
from pipelines.bench_graphs import power_law
from pipelines.bench_ragged_cases import ragged

Case = tuple[Callable[[int], object], int]  # run at a size (0: only to load code), predicted bytes at full size


def _csr_expand() -> Case:
    offsets = torch.arange(0, 20_000_001, 20)
    rows = torch.randint(0, 1_000_000, (400_000,))
    return lambda full: csr_expand(offsets, rows if full else rows[:10]), csr_expand_bytes(400_000, 8_000_000)


def _segment_topk() -> Case:
    offsets = ragged(400_000, 40, 0)
    scores = torch.rand(int(offsets[-1]))

    def run(full: int):
        return segment_topk(scores, offsets, 5) if full else segment_topk(scores[:8], torch.tensor([0, 8]), 5)

    return run, segment_topk_bytes(scores.numel(), 400_000, 5)


def _cosine_rows() -> Case:
    rows, queries = torch.rand(100_000, 384), torch.rand(20_000, 384)
    row_ids, query_ids = torch.randint(0, 100_000, (200_000,)), torch.randint(0, 20_000, (200_000,))

    def run(full: int):
        few = slice(None if full else 10)
        return cosine_rows(queries if full else queries[:1], rows, query_ids[few] * (full > 0), row_ids[few])

    return run, cosine_rows_bytes(200_000, 20_000, 384)


def _maxsim() -> Case:
    bounds, offsets = ragged(20_000, 50, 1), torch.arange(0, 1281, 20)
    ranges = torch.stack([bounds[:-1], bounds[1:]], 1)
    tokens, questions = torch.rand(int(bounds[-1]), 128), torch.rand(1280, 128)
    run = lambda full: maxsim(tokens, ranges if full else ranges[:2], questions, offsets)  # noqa: E731
    return run, maxsim_bytes(20_000, 1280, 128, 1280, int8=False)


def _ppr() -> Case:
    graph = power_law(1_000_000)
    restart = torch.zeros(64, graph.num_nodes)
    restart[:, :3] = 1.0
    graph.walk  # noqa: B018 - made before measuring
    tiny = power_law(1_000)

    def run(full: int):
        return ppr(graph.walk, restart) if full else ppr(tiny.walk, torch.ones(1, tiny.num_nodes))

    return run, ppr_bytes(64, graph.num_nodes, 192)


def _frontier_relax() -> Case:
    graph, tiny = power_law(300_000), power_law(1_000)
    costs, pairs = torch.rand(64, graph.num_nodes), torch.arange(192)
    graph.relax.incoming  # noqa: B018 - made before measuring

    def run(full: int):
        if not full:
            ids = torch.tensor([0])
            return relax_field(tiny.relax, RelaxSeeds(ids, ids, ids), torch.rand(1, tiny.num_nodes), num_hops=2)
        return relax_field(graph.relax, RelaxSeeds(pairs // 3, pairs % 3, pairs * 7), costs, num_hops=3)

    return run, frontier_relax_bytes(graph.num_nodes, 64, 3, 3, graph.neighbours.numel())


def _triple_beam() -> Case:
    parents = torch.arange(64).repeat_interleave(100)
    owners = torch.randint(0, 6_400, (2_000_000,))
    scores = torch.rand(2_000_000)

    def run(full: int):
        few = slice(None if full else 10)
        return triple_beam(scores[few], owners[few], parents, 64)

    return run, triple_beam_bytes(2_000_000, 64, 10)


def _k_hop() -> Case:
    graph = power_law(3_000_000)
    anchors, sets = torch.arange(192) * 17, torch.arange(192) // 3
    graph.short  # noqa: B018 - made before measuring
    listed = k_hop(graph.offsets, graph.short, anchors, sets, 64, 3).node_ids.numel()

    def run(full: int):
        few = slice(None if full else 1)
        return k_hop(graph.offsets, graph.short, anchors[few], sets[few], 64 if full else 1, 3 if full else 1)

    return run, k_hop_bytes(graph.num_nodes, graph.neighbours.numel(), 64, listed)


CASES: dict[str, Callable[[], Case]] = {
    "csr_expand": _csr_expand,
    "segment_topk": _segment_topk,
    "cosine_rows": _cosine_rows,
    "maxsim": _maxsim,
    "ppr": _ppr,
    "frontier_relax": _frontier_relax,
    "triple_beam": _triple_beam,
    "k_hop": _k_hop,
}


def measure(name: str) -> dict:
    """Predicted and measured peak bytes of one op, found in a new process.

    Raises:
        RuntimeError: the process failed; its last words are in the message.
    """
    where = dict(os.environ, MALLOC_MMAP_THRESHOLD_="65536", MALLOC_TRIM_THRESHOLD_="65536")
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.bench_memory", name], env=where, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"measuring {name} failed: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _measure_here(name: str) -> dict:
    torch.set_num_threads(2)
    run, predicted = CASES[name]()
    run(0)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # start counting the peak anew
    kept = run(1)
    peak = _status("VmHWM") - before
    del kept
    return {"op": name, "predicted_bytes": predicted, "measured_bytes": peak, "ratio": predicted / max(peak, 1)}


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def print_table(json_file: Path | None) -> int:
    """Measure every op; exit code 0 where each formula is within 20 %, else 3."""
    rows = []
    for name in CASES:
        rows.append(measure(name))
        row = rows[-1]
        sizes = f"predicted {row['predicted_bytes'] / 1e6:9.1f} MB, measured {row['measured_bytes'] / 1e6:9.1f} MB"
        print(f"{name:15} {sizes}, ratio {row['ratio']:.2f}", flush=True)
    if json_file:
        json_file.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if all(0.8 <= row["ratio"] <= 1.2 for row in rows) else 3


if __name__ == "__main__":
    print(json.dumps(_measure_here(sys.argv[1])))
