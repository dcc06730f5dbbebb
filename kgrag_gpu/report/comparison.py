"""Runs over the same questions side by side: means with intervals, cost, and paired differences to a baseline.

Metrics are worked out anew from the shards, over exactly the questions that are compared, so that two runs are always
scored by the same code.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kgrag_gpu.metrics import compute_metrics
from kgrag_gpu.metrics.bootstrap import PairedDifference, paired_difference
from kgrag_gpu.metrics.scores import score_questions
from kgrag_gpu.report.wording import MetricRow, metric_rows
from kgrag_gpu.results import read_results
from kgrag_gpu.run_dir import RunDir
from kgrag_gpu.types import Result, UserError

MetricKey = tuple[str, str]  # section, metric
COST_KEYS = (
    "seconds",
    "questions_per_second",
    "llm_calls",
    "cached_calls",
    "prompt_tokens",
    "completion_tokens",
    "peak_device_bytes",
)


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run as it lies on disk, and the name it goes by in the comparison."""

    name: str
    path: Path
    manifest: Mapping[str, Any]
    metrics: Mapping[str, Any]
    results: Sequence[Result]


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run scored over the compared questions; no differences for the baseline itself."""

    run: FinishedRun
    metrics: Mapping[str, Any]
    rows: Mapping[MetricKey, MetricRow]
    differences: Mapping[MetricKey, PairedDifference]
    gained: Sequence[str]  # ids of questions that only this run answers exactly right, against the baseline
    lost: Sequence[str]  # and that only the baseline does


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several runs over the same questions; the first is the baseline."""

    runs: Sequence[ComparedRun]
    num_questions: int
    num_left_out: int  # questions that not every run has
    notes: Sequence[str]  # what a reader must know before believing the figures

    @property
    def baseline(self) -> ComparedRun:
        """The run that the others are compared with."""
        return self.runs[0]

    @property
    def keys(self) -> list[MetricKey]:
        """Metrics that some run has a value for, in the order of `metrics.json`."""
        found = {key: None for compared in self.runs for key, row in compared.rows.items() if row.n}
        order = ("answer", "retrieval", "anchors", "supplementary")
        return sorted(found, key=lambda key: order.index(key[0]))


def load_run(path: Path) -> FinishedRun:
    """Reads a finished run directory.

    Raises:
        UserError: there is no run, it is not finished, or one of its files cannot be read.
    """
    run = RunDir(path)
    if not run.manifest_file.exists():
        raise UserError(f"{path} is not a run directory (no manifest.json); give the folder that batch_eval printed")
    if not run.is_finished:
        raise UserError(f"{path} is not finished (no metrics.json); run the same batch_eval command again to finish it")
    try:
        manifest, metrics = run.manifest(), run.metrics()
    except json.JSONDecodeError as error:
        raise UserError(f"{path}: manifest.json or metrics.json is damaged ({error}); run it anew") from error
    results = read_results(sorted((run.path / "shards").glob("*.parquet")))
    if len(results) != metrics["num_questions"]:
        raise UserError(
            f"{path}: its shards hold {len(results)} questions, its metrics {metrics['num_questions']}; run it anew"
        )
    return FinishedRun(run.path.resolve().name, run.path, manifest, metrics, results)


def compare_runs(
    runs: Sequence[FinishedRun], intersect: bool = False, compat_empty_hits: bool = False, seed: int = 0
) -> Comparison:
    """Compares runs with the first of them.

    Args:
        runs: two or more; the first is the baseline.
        intersect: compare the questions that all have, instead of refusing runs over different ones.
        compat_empty_hits: score empty predictions as published scripts do (lenient metrics only).
        seed: of the bootstrap.

    Raises:
        UserError: the runs answered different questions (same id and text), or have none in common.
    """
    by_run = [{(r.question.id, r.question.text): r for r in run.results} for run in runs]
    common = sorted(set(by_run[0]).intersection(*by_run[1:]))
    num_left_out = len(set().union(*by_run)) - len(common)
    if num_left_out and not intersect:
        raise UserError(_different_questions(runs, by_run, len(common)))
    if not common:
        raise UserError("the runs have no question in common (same id and same text); compare runs over one data set")
    results = [[own[key] for key in common] for own in by_run]
    scores = [
        _flat_scores(own, str(run.manifest.get("dataset", "")), compat_empty_hits)
        for run, own in zip(runs, results, strict=True)
    ]
    compared = []
    for run, own, own_scores in zip(runs, results, scores, strict=True):
        dataset = str(run.manifest.get("dataset", ""))
        metrics = compute_metrics(
            own, run.metrics["cost"], run.metrics["source"], dataset, compat_empty_hits=compat_empty_hits, seed=seed
        )
        rows = {(row.section, row.name): row for row in metric_rows(metrics, metrics["intervals"])}
        differences, gained, lost = {}, [], []
        if run is not runs[0]:
            differences = _differences(own_scores, scores[0], seed)
            gained, lost = _flips(common, own_scores, scores[0])
        compared.append(ComparedRun(run, metrics, rows, differences, gained, lost))
    return Comparison(compared, len(common), num_left_out, _notes(runs, results, num_left_out))


def comparison_as_json(comparison: Comparison) -> dict[str, Any]:
    """The content of `compare.json`: every run's metrics with intervals, and the differences to the baseline."""
    return {
        "baseline": comparison.baseline.run.name,
        "num_questions": comparison.num_questions,
        "num_left_out": comparison.num_left_out,
        "notes": list(comparison.notes),
        "runs": [
            {
                "name": compared.run.name,
                "path": str(compared.run.path),
                "dataset": compared.run.manifest.get("dataset"),
                "method": compared.run.manifest.get("method"),
                "fingerprint": compared.run.manifest.get("fingerprint"),
                "metrics": compared.metrics,
                "differences": {
                    f"{section}.{name}": {
                        "difference": d.difference,
                        "low": d.low,
                        "high": d.high,
                        "p": d.p,
                        "n": d.n,
                        "significant": d.is_significant,
                    }
                    for (section, name), d in compared.differences.items()
                },
                "gained": list(compared.gained),
                "lost": list(compared.lost),
            }
            for compared in comparison.runs
        ],
    }


def comparison_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """The comparison as flat rows, one per run and metric or cost: the content of `compare.csv`."""
    rows = []
    for compared in comparison.runs:
        start = {"run": compared.run.name, "method": compared.run.manifest.get("method", "")}
        for key in comparison.keys:
            row, difference = compared.rows.get(key), compared.differences.get(key)
            if row is None or not row.n:
                continue
            values = {"section": key[0], "metric": key[1], "value": row.value, "low": row.low, "high": row.high}
            rows.append(start | values | {"n": row.n} | _difference_columns(difference))
        for key in COST_KEYS:
            values = {"section": "cost", "metric": key, "value": compared.run.metrics["cost"].get(key)}
            rows.append(start | values | {"n": compared.run.metrics["num_questions"]})
    return rows


def _difference_columns(difference: PairedDifference | None) -> dict[str, Any]:
    if difference is None:
        return {}
    return {
        "difference": difference.difference,
        "difference_low": difference.low,
        "difference_high": difference.high,
        "p": difference.p,
        "significant": difference.is_significant,
    }


def _flat_scores(results: Sequence[Result], dataset: str, compat_empty_hits: bool) -> dict[MetricKey, np.ndarray]:
    sections = score_questions(results, dataset, compat_empty_hits)
    return {(section, name): column for section, columns in sections.items() for name, column in columns.items()}


def _differences(
    own: Mapping[MetricKey, np.ndarray], baseline: Mapping[MetricKey, np.ndarray], seed: int
) -> dict[MetricKey, PairedDifference]:
    found = {key: paired_difference(own[key], baseline[key], seed) for key in own if key in baseline}
    return {key: difference for key, difference in found.items() if difference is not None}


def _flips(
    common: Sequence[tuple[str, str]],
    own: Mapping[MetricKey, np.ndarray],
    baseline: Mapping[MetricKey, np.ndarray],
) -> tuple[list[str], list[str]]:
    change = own["answer", "hit@1"] - baseline["answer", "hit@1"]
    ids = [question_id for question_id, _ in common]
    return [ids[i] for i in np.flatnonzero(change > 0)], [ids[i] for i in np.flatnonzero(change < 0)]


def _notes(runs: Sequence[FinishedRun], results: Sequence[Sequence[Result]], num_left_out: int) -> list[str]:
    notes = []
    if any(run.manifest.get("is_sample") for run in runs):
        notes.append("questions of the embedded sample: not a benchmark result")
    if num_left_out:
        notes.append(f"{num_left_out} questions that not every run has are left out; costs are of the whole runs")
    changed = sum(
        any(other.question.golden_answers != first.question.golden_answers for other in others)
        for first, *others in zip(*results, strict=True)
    )
    if changed:
        notes.append(f"{changed} questions have other gold answers in some run: their scores do not compare")
    return notes


def _different_questions(runs: Sequence[FinishedRun], by_run: Sequence[Mapping], num_common: int) -> str:
    for run, own in zip(runs[1:], by_run[1:], strict=True):
        if own.keys() != by_run[0].keys():
            example = min(own.keys() ^ by_run[0].keys())[0]
            return (
                f"{run.path} answered other questions than {runs[0].path} ({len(own)} and {len(by_run[0])}, "
                f"{num_common} in common to all; for one, {example!r}); give runs over the same questions, "
                "or --intersect to compare those in common"
            )
    raise AssertionError("called for runs over the same questions")
