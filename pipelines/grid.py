"""Tries a grid of configuration values on one half of a question set and reports the choice on the other half.

    python -m pipelines.grid --dataset musique --method cover \
        --grid method.coverage.sets.own_share=0.05,0.1,0.2 --grid method.coverage.sets.max_sentences=3,4

Every combination retrieves for all questions; the best by `--metric` on the first half is compared with the defaults on
the second, with a paired bootstrap. Questions are halved by a hash of their id, so the halves never move. Without
`--grid` the method's own configuration is scored alone. Retrieval only: no language model, no reader.
"""

import argparse
import hashlib
import itertools
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

from kgrag_gpu.config.load import load_run_config
from kgrag_gpu.config.schema import RunConfig
from kgrag_gpu.data.registry import DATASETS, load_questions
from kgrag_gpu.index.encoder import Encoder
from kgrag_gpu.kg.build import kg_for_run
from kgrag_gpu.methods.registry import method_class
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.metrics.bootstrap import paired_difference
from kgrag_gpu.metrics.retrieval import all_recall_at, recall_at
from kgrag_gpu.types import Answer, QuestionSet, Result, UserError
from pipelines.command_line import EXIT_DONE, HelpFormatter, grid_axis, run_command, say

METRICS = ("recall@2", "recall@5", "recall@10", "all_recall@5", "all_recall@10")
_MAX_COMBINATIONS = 1000


@dataclass(frozen=True)
class Cell:
    """One combination: its values, its means on both halves, and what a question cost."""

    values: dict[str, str]
    first_half: dict[str, float]
    second_half: dict[str, float]
    ms_per_question: float


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser("python -m pipelines.grid", description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--dataset", required=True, help=", ".join(DATASETS))
    parser.add_argument("--data", help="file or folder (default: $KGRAG_DATA, the hub, the embedded sample)")
    parser.add_argument("--kg", help="KG directory or triples file (default: built from the passages)")
    parser.add_argument("--method", default="cover", help="registered method or preset in configs/methods")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=VALUE", help="a value for every combination")
    parser.add_argument("--grid", action="append", default=[], metavar="A.B=V,W", help="values to try, repeatable")
    parser.add_argument("--metric", default="recall@5", choices=METRICS, help="what the choice is made by")
    parser.add_argument("--limit", type=int, help="only the first N questions (default: all)")
    parser.add_argument("--batch-size", type=int, default=64, help="questions that advance together")
    parser.add_argument("--run-root", type=Path, default=Path("runs"), help="its cache/ holds KGs and embeddings")
    parser.add_argument("--threads", type=int, help="processor threads (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the cells as JSON")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads or len(os.sched_getaffinity(0)))
    combinations = _combinations(args.grid)
    grid = Grid(args)
    scored = [grid.score(values) for values in combinations]
    cells = [cell for cell, _ in scored]
    print(_table(cells, args.metric))
    print(_verdict(scored, args.metric, grid.is_first))
    if args.json:
        args.json.write_text(json.dumps([asdict(cell) for cell in cells], indent=1) + "\n", encoding="utf-8")
    return EXIT_DONE


class Grid:
    """A question set and its KG, against which combinations are scored one after the other."""

    def __init__(self, args: argparse.Namespace):
        self._args = args
        config = self._config({})
        self._questions: QuestionSet = load_questions(config.dataset)
        if not any(question.gold_passage_ids for question in self._questions.questions):
            raise UserError(f"{args.dataset}: no question has gold passages; a grid needs recall to choose by")
        self.is_first = np.array([in_first_half(question.id) for question in self._questions.questions])
        self._cache_dir = args.run_root / "cache"
        # In a run's order of rows, since ties are broken by row.
        passages = tuple(sorted(self._questions.passages, key=lambda p: (p.title, p.text)))
        self._kg = kg_for_run(config.kg, replace(self._questions, passages=passages), self._cache_dir)
        self._encoders: dict[str, Encoder] = {}
        row_of = {(p.title, p.text): row for row, p in enumerate(self._kg.passages)}
        mapped = [row_of.get((p.title, p.text), -1) for p in self._questions.passages]
        self._gold = [tuple(mapped[i] for i in q.gold_passage_ids) for q in self._questions.questions]

    def score(self, values: dict[str, str]) -> tuple[Cell, dict[str, np.ndarray]]:
        """One combination's cell, and each metric's score of every question (NaN without gold)."""
        config = self._config(values)
        method = method_class(config.method_name)(config.method, self._resources(config))
        questions = self._questions.questions
        started = time.perf_counter()
        found = []
        for start in range(0, len(questions), self._args.batch_size):
            found += method.retrieve(questions[start : start + self._args.batch_size])
        seconds = time.perf_counter() - started
        results = [Result(q, r, Answer("", "none"), g) for q, r, g in zip(questions, found, self._gold, strict=True)]
        scores = {name: np.array([_metric(name, r) for r in results], dtype=np.float64) for name in METRICS}
        halves = [
            {name: round(float(np.nanmean(column[rows])), 4) if rows.any() else float("nan")
             for name, column in scores.items()}
            for rows in (self.is_first, ~self.is_first)
        ]  # fmt: skip
        say(f"{_words(values)}: {self._args.metric} {halves[0][self._args.metric]:.3f} on the first half")
        cost = round(1e3 * seconds / max(1, len(questions)), 2)
        return Cell(values, halves[0], halves[1], cost), scores

    def _resources(self, config: RunConfig) -> Resources:
        """Fresh ones, since any index may depend on the values; only a loaded encoder is kept."""
        resources = Resources(config, self._kg, self._cache_dir)
        key = config.encoder.model_dump_json()
        if key in self._encoders:
            resources.__dict__["encoder"] = self._encoders[key]
        elif method_needs_encoder(config.method_name):
            self._encoders[key] = resources.encoder
        return resources

    def _config(self, values: dict[str, str]) -> RunConfig:
        overrides = [*self._args.set, *(f"{key}={value}" for key, value in values.items())]
        options = {"dataset.data": self._args.data, "dataset.limit": self._args.limit, "kg.path": self._args.kg}
        return load_run_config(self._args.dataset, self._args.method, (), overrides, options)


def method_needs_encoder(name: str) -> bool:
    """Whether a method ever looks at vectors; loading the encoder takes seconds that BM25 need not spend."""
    return name != "bm25"


def in_first_half(question_id: str) -> bool:
    """Whether a question helps to choose; the others only report. Decided by its id alone."""
    return hashlib.sha256(question_id.encode("utf-8", "surrogatepass")).digest()[-1] % 2 == 0


def _metric(name: str, result: Result) -> float:
    kind, _, k = name.partition("@")
    value = (all_recall_at if kind == "all_recall" else recall_at)(result, int(k))
    return float("nan") if value is None else value


def _combinations(grids: Sequence[str]) -> list[dict[str, str]]:
    """The defaults first, then every combination of the given values."""
    axes = [grid_axis(text) for text in grids]
    combinations = [dict(row) for row in itertools.product(*axes)] if axes else []
    if len(combinations) > _MAX_COMBINATIONS:
        raise UserError(f"--grid: {len(combinations)} combinations; at most {_MAX_COMBINATIONS}, leave some values out")
    return [{}, *combinations]


def _words(values: dict[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items()) or "defaults"


def _table(cells: list[Cell], metric: str) -> str:
    ordered = sorted(cells, key=lambda cell: -cell.first_half[metric])
    head = "| values | " + " | ".join(METRICS) + " | second half | ms |"
    lines = [head, "|" + "---|" * (len(METRICS) + 3)]
    for cell in ordered:
        means = " | ".join(f"{cell.first_half[name]:.3f}" for name in METRICS)
        lines.append(
            f"| {_words(cell.values)} | {means} | {cell.second_half[metric]:.3f} | {cell.ms_per_question:.1f} |"
        )
    return "\n".join(lines)


def _verdict(scored: list[tuple[Cell, dict[str, np.ndarray]]], metric: str, is_first: np.ndarray) -> str:
    """The choice of the first half beside the defaults on the second; ties keep the earlier combination."""
    best, best_scores = max(scored, key=lambda row: row[0].first_half[metric])
    difference = paired_difference(best_scores[metric][~is_first], scored[0][1][metric][~is_first])
    line = f"chosen on {int(is_first.sum())} questions: {_words(best.values)}"
    if difference is None:
        return f"{line}; the second half has no questions to report on"
    return (
        f"{line}; on the other {difference.n}: {metric} {best.second_half[metric]:.3f}, defaults "
        f"{scored[0][0].second_half[metric]:.3f}, difference {difference.difference:+.3f} "
        f"[{difference.low:+.3f}, {difference.high:+.3f}]"
    )


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    run_command(main)
