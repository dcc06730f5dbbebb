"""Times our form and a peer's in turn, after checking that they agree, and keeps the figures of one line."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class BenchRow:
    """One comparison; seconds are medians for each question (or call, where batch is 1), None where not equal."""

    op: str
    graph: str
    num_edges: int
    batch: int
    ours_s: float | None
    peer: str
    peer_s: float | None
    ratio: float | None
    equal: bool
    ours_cpu_s: float | None = None
    peer_cpu_s: float | None = None
    copy_share: float | None = None  # CUDA: bytes moved a second, as a share of a device copy's
    note: str = ""

    def as_record(self) -> dict:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Comparison:
    """What to run: ``ours`` answers ``batch`` questions, ``peer`` answers ``peer_batch``; ``agree`` compares them."""

    op: str
    batch: int
    ours: Callable[[], Any]
    peer_name: str
    peer: Callable[[], Any]
    agree: Callable[[Any, Any], bool]
    peer_batch: int = 1
    bytes_moved: int = 0
    note: str = ""


def compare(case: Comparison, graph: str, num_edges: int, repeats: int, copy_rate: float | None) -> BenchRow:
    """Check, then time both in turn ``repeats`` times, so that a busy machine slows both alike."""
    if not case.agree(case.ours(), case.peer()):
        return BenchRow(
            case.op, graph, num_edges, case.batch, None, case.peer_name, None, None, False, note="results differ"
        )
    ours, theirs = [], []
    for _ in range(repeats):
        ours.append(clock(case.ours))
        theirs.append(clock(case.peer))
    ours_s, ours_cpu_s = (statistics.median(column) / case.batch for column in zip(*ours, strict=True))
    peer_s, peer_cpu_s = (statistics.median(column) / case.peer_batch for column in zip(*theirs, strict=True))
    share = case.bytes_moved / (ours_s * case.batch) / copy_rate if copy_rate and case.bytes_moved else None
    return BenchRow(
        op=case.op,
        graph=graph,
        num_edges=num_edges,
        batch=case.batch,
        ours_s=ours_s,
        peer=case.peer_name,
        peer_s=peer_s,
        ratio=peer_s / ours_s,
        equal=True,
        ours_cpu_s=ours_cpu_s,
        peer_cpu_s=peer_cpu_s,
        copy_share=share,
        note=case.note,
    )


def clock(run: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor seconds of one call, the device's work included."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else (lambda: None)
    wait()
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    wait()
    return time.perf_counter() - wall, time.process_time() - cpu


def device_copy_rate(device: str) -> float | None:
    """Bytes a second (read and written) of a large copy on a CUDA device; None on the CPU."""
    if not device.startswith("cuda"):
        return None
    source = torch.empty(1 << 28, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    seconds = statistics.median(clock(lambda: target.copy_(source))[0] for _ in range(9))
    return 2 * source.numel() / seconds


def table(rows: list[BenchRow]) -> str:
    """The rows as text, one line each, columns aligned."""
    head = ["op", "graph", "edges", "batch", "ours ms", "peer", "peer ms", "ratio", "cpu ratio", "equal", "note"]
    lines = [head, *([*_cells(row)] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _cells(row: BenchRow) -> list[str]:
    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    milliseconds = [None if value is None else 1000 * value for value in (row.ours_s, row.peer_s)]
    cpu_ratio = row.peer_cpu_s / row.ours_cpu_s if row.ours_cpu_s and row.peer_cpu_s else None
    note = row.note if row.copy_share is None else f"{row.note} {row.copy_share:.0%} of a device copy".strip()
    return [
        row.op,
        row.graph,
        f"{row.num_edges:,}",
        str(row.batch),
        number(milliseconds[0], ".3f"),
        row.peer,
        number(milliseconds[1], ".3f"),
        number(row.ratio, ".1f"),
        number(cpu_ratio, ".1f"),
        "yes" if row.equal else "NO",
        note,
    ]
