"""Freebase-sized graphs: building, memory, loading, tensors and answering, each step in a process of its own.

``python -m pipelines.bench scale --triples 1e8`` writes a graph of that size as gzip TSV (typed entities with twenty
edge ends each, five hundred relations, two-word names), builds its KG with `pipelines.build_kg`, and answers two-step
questions over it with `anchorrag-lr`. A second graph of a million triples and equal degree is the peer: a question
over the large graph should cost about the same. Peaks are the kernel's count of resident pages of a process (Linux);
pages of mapped files count as long as they are in memory.
"""

import argparse
import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from kgrag_gpu.config.load import load_run_config
from kgrag_gpu.kg.store import Kg, load_kg
from kgrag_gpu.methods.registry import method_class
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.types import Question, UserError
from pipelines.command_line import say

PEER_TRIPLES = 1_000_000
NUM_QUESTIONS = 64
_EDGES_PER_HEAD = 10
_NUM_TYPES, _NUM_RELATIONS = 50, 500
_NUM_WORDS = 4_096
_BLOCK = 4_000_000


def _words(*lines: str) -> list[str]:
    return [word for line in lines for word in line.split()]


_SYLLABLES = [onset + vowel for onset in _words("b d f g h k l m n p r s t v z br") for vowel in "aeiou"]
_QUALITIES = _words(
    "first second main former early late chief royal local foreign public private northern southern eastern western",
    "native final major minor",
)
_NOUNS = _words(
    "owner editor author teacher capital river founder engine bridge harbour museum station church castle award",
    "partner rival student leader school company district market captain painter",
)


def run_bench(num_triples: int, work_dir: Path, repeats: int) -> dict[str, object]:
    """The figures by name; files stay in `work_dir`, and are used again."""
    if num_triples < PEER_TRIPLES:
        raise UserError(f"--triples must be at least {PEER_TRIPLES:,}, the peer's size (got {num_triples:,})")
    work_dir.mkdir(parents=True, exist_ok=True)
    figures: dict[str, object] = {}
    seconds = {}
    for name, size in {"peer": PEER_TRIPLES, "graph": num_triples}.items():
        file, folder = work_dir / f"{size}.tsv.gz", work_dir / f"{size}.kg"
        if not file.is_file():
            say(f"writing {file}")
            write_graph(file, size)
        build = _built(file, folder, size)
        answered = _step([sys.executable, "-m", "pipelines.bench_scale", str(folder), str(repeats)], folder)
        seconds[name] = answered["ms a question, batch of 64"]
        figures |= {f"{name}: {key}": value for key, value in (build | answered).items()}
    figures["graph / peer, time a question"] = round(seconds["graph"] / seconds["peer"], 2)
    return figures


def _built(file: Path, folder: Path, size: int) -> dict:
    """Build the KG, unless an earlier run did: what it noted then counts."""
    notes = folder.with_suffix(".json")
    if not (folder.is_dir() and notes.is_file()):
        command = [sys.executable, "-m", "pipelines.build_kg", "--from-triples", str(file), "--out", str(folder)]
        measured = _measured(command)
        figures = {
            "triples written": size,
            "file, MB": round(file.stat().st_size / 1e6),
            "build, s": round(measured["seconds"], 1),
            "build, triples a second": round(size / measured["seconds"]),
            "build, peak GB": measured["peak GB"],
        }
        notes.write_text(json.dumps(figures), "utf-8")
    return json.loads(notes.read_text("utf-8"))


def _step(command: list[str], folder: Path) -> dict:
    output = folder.with_suffix(".out.json")
    measured = _measured([*command, str(output)])
    return json.loads(output.read_text("utf-8")) | {"answering, peak GB": measured["peak GB"]}


def _measured(command: list[str]) -> dict[str, float]:
    """Run a command and wait: its seconds and its peak of resident memory."""
    say(" ".join(command[2:]))
    started = time.perf_counter()
    process = subprocess.Popen(command, env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"})
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise UserError(f"{' '.join(command[2:])} ended with exit code {process.returncode}; see its words above")
    return {"seconds": time.perf_counter() - started, "peak GB": round(usage.ru_maxrss * 1024 / 1e9, 2)}


def write_graph(path: Path, num_triples: int, seed: int = 0) -> None:
    """A gzip TSV of triples between typed entities, a block at a time."""
    temporary = path.with_name(path.name + ".tmp")
    with gzip.open(temporary, "wb", compresslevel=1) as stream:
        for block in _blocks(num_triples, seed):
            stream.write(block)
    temporary.replace(path)


def _blocks(num_triples: int, seed: int) -> Iterator[memoryview]:
    rng = np.random.default_rng(seed)
    num_entities = num_triples // _EDGES_PER_HEAD
    per_type = num_entities // _NUM_TYPES
    names = entity_names(num_entities)
    relations = pa.array([f"{quality}_{noun}" for quality in _QUALITIES for noun in _NOUNS], pa.large_string())
    ends = pc.call_function("binary_join_element_wise", [names, pa.scalar("\n", pa.large_string()), _blank()])
    for start in range(0, num_triples, _BLOCK):
        count = min(_BLOCK, num_triples - start)
        heads = rng.integers(0, per_type * _NUM_TYPES, count)
        kinds = heads % _NUM_TYPES + _NUM_TYPES * rng.integers(0, _NUM_RELATIONS // _NUM_TYPES, count)
        tails = (7 * kinds + 3) % _NUM_TYPES + _NUM_TYPES * rng.integers(0, per_type, count)
        columns = [names.take(pa.array(heads)), relations.take(pa.array(kinds)), ends.take(pa.array(tails))]
        lines = pc.call_function("binary_join_element_wise", [*columns, pa.scalar("\t", pa.large_string())])
        yield memoryview(lines.buffers()[2])


def _blank() -> pa.Scalar:
    return pa.scalar("", pa.large_string())


def entity_names(count: int) -> "pa.LargeStringArray":
    """Distinct names of two made words, such as "Tamiko Brelo"."""
    words = [(a + b).capitalize() for a in _SYLLABLES for b in _SYLLABLES][:_NUM_WORDS]
    rows = (np.arange(count, dtype=np.int64) * 2_654_435_761) % (_NUM_WORDS * _NUM_WORDS)  # odd: no name twice
    column = pa.array(words, pa.large_string())
    parts = [column.take(pa.array(rows // _NUM_WORDS)), column.take(pa.array(rows % _NUM_WORDS))]
    return pc.call_function("binary_join_element_wise", [*parts, pa.scalar(" ", pa.large_string())])


def two_step_questions(kg: Kg, count: int, seed: int) -> tuple[list[Question], list[set[str]]]:
    """Questions that a walk over two triples answers, and the names at the ends of all such walks."""
    rng = random.Random(seed)
    questions, golds = [], []
    while len(questions) < count:
        first = rng.randrange(kg.num_triples)
        onward = np.flatnonzero(kg.heads == kg.tails[first])
        if not len(onward):
            continue
        second = int(rng.choice(onward.tolist()))
        anchor, near, far = int(kg.heads[first]), int(kg.relations[first]), int(kg.relations[second])
        middles = kg.tails[np.flatnonzero((kg.heads == anchor) & (kg.relations == near))]
        ends = kg.tails[np.flatnonzero((kg.relations == far) & np.isin(kg.heads, middles))]
        texts = kg.relation_texts
        text = f"who is the {texts[far]} of the {texts[near]} of {kg.entity_names[anchor].lower()}?"
        questions.append(Question(f"q{seed}-{len(questions)}", text))
        golds.append({kg.entity_names[int(end)] for end in ends})
    return questions, golds


def measure(folder: Path, repeats: int) -> dict[str, object]:
    """Load a KG, prepare `anchorrag-lr` and answer batches of 64, each of new questions."""
    started = time.perf_counter()
    kg = load_kg(folder)
    figures: dict[str, object] = {"load, s": round(time.perf_counter() - started, 2), **kg.counts}
    config = load_run_config("jsonl", "anchorrag-lr", (), (), {"llm.engine": "none", "kg.path": str(folder)})
    resources = Resources(config, kg, folder.with_suffix(".cache"))
    started = time.perf_counter()
    graph = resources.graph
    figures["graph's tensors, s"] = round(time.perf_counter() - started, 1)
    figures["graph's tensors, bytes a triple"] = round(graph.num_bytes / kg.num_triples, 2)
    started = time.perf_counter()
    method = method_class("anchorrag")(config.method, resources)
    method.retrieve(two_step_questions(kg, 4, 99)[0])  # everything is made on first use
    figures["names, steps and wording, s"] = round(time.perf_counter() - started, 1)
    seconds, num_right = [], 0
    for repeat in range(repeats):
        questions, golds = two_step_questions(kg, NUM_QUESTIONS, repeat)
        started = time.perf_counter()
        found = method.retrieve(questions)
        seconds.append(time.perf_counter() - started)
        num_right += sum(r.answer is not None and r.answer.text in gold for r, gold in zip(found, golds, strict=True))
    figures["ms a question, batch of 64"] = round(1000 * statistics.median(seconds) / NUM_QUESTIONS, 2)
    figures["right answers, share"] = round(num_right / (repeats * NUM_QUESTIONS), 3)
    stages = resources.clock.take()
    figures["stages, s"] = {name: round(value, 2) for name, value in sorted(stages.items(), key=lambda row: -row[1])}
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    """The child process: measure one KG folder and write what was found."""
    parser = argparse.ArgumentParser("python -m pipelines.bench_scale", description=measure.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("repeats", type=int)
    parser.add_argument("output", type=Path)
    args = parser.parse_args(argv)
    torch.set_num_threads(2)
    args.output.write_text(json.dumps(measure(args.folder, args.repeats)), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
