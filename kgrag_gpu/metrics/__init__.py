"""All metrics of a run as one block, the content of `metrics.json`. Definitions stand with each metric's function."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kgrag_gpu.metrics.bootstrap import CONFIDENCE, NUM_RESAMPLES, bootstrap_intervals
from kgrag_gpu.metrics.cost import cost_block
from kgrag_gpu.metrics.groups import group_sufficiency
from kgrag_gpu.metrics.scores import score_questions
from kgrag_gpu.types import Result

__all__ = ["compute_metrics"]

_Scores = dict[str, dict[str, np.ndarray]]


def compute_metrics(
    results: Sequence[Result],
    cost: Mapping[str, Any],
    source: str,
    dataset: str = "",
    compat_empty_hits: bool = False,
    passage_sentences: Mapping[int, Sequence[str]] | None = None,
    seed: int = 0,
    num_resamples: int = NUM_RESAMPLES,
) -> dict[str, Any]:
    """The content of `metrics.json`; the order of the results makes no difference.

    Every question with the gold that a metric needs counts in its denominator, failed ones with 0. A mean over no
    question is None. Beside the means, `intervals` holds low, high and n in the same nesting; `supplementary` holds
    what only some data sets have (`support_f1`, `group_sufficiency`, EM and F1 over answerable questions alone).

    Args:
        results: one per question.
        cost: what the run cost, from `cost.sum_costs`; missing keys become 0.
        source: one line that says where the questions come from.
        dataset: the data set's name; HotpotQA and 2Wiki have a rule of their own for yes and no.
        compat_empty_hits: score an empty prediction 1 in lenient metrics, as published scripts do.
        passage_sentences: for rows of the KG's passages their sentences, for `support_f1` over sentences.
        seed: of the bootstrap.
        num_resamples: of the bootstrap.
    """
    results = sorted(results, key=lambda result: result.question.id)
    scores = score_questions(results, dataset, compat_empty_hits, passage_sentences)
    supplementary_scores = scores.pop("supplementary")
    every = np.arange(len(results))
    overall, intervals = _group(results, scores, every, seed, num_resamples)
    metrics: dict[str, Any] = {
        "num_questions": overall.pop("num_questions"),
        "num_errors": overall.pop("num_errors"),
        "source": source,
        **overall,
    }
    for name, keys in (
        ("by_hop", [None if r.question.num_hops is None else str(r.question.num_hops) for r in results]),
        ("by_type", [r.question.type or None for r in results]),
    ):
        metrics[name], intervals[name] = {}, {}
        for key in sorted({key for key in keys if key is not None}, key=_natural):
            rows = np.array([i for i, own in enumerate(keys) if own == key])
            metrics[name][key], intervals[name][key] = _group(results, scores, rows, seed, num_resamples)
    metrics["cost"] = cost_block(cost, len(results))
    metrics["intervals"] = {"confidence": CONFIDENCE, "num_resamples": num_resamples, "seed": seed, **intervals}
    metrics["supplementary"], intervals = _supplementary(results, scores, supplementary_scores, seed, num_resamples)
    metrics["intervals"]["supplementary"] = intervals
    return metrics


def _group(
    results: Sequence[Result], scores: _Scores, rows: np.ndarray, seed: int, num_resamples: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Means and intervals of some questions."""
    members = [results[i] for i in rows]
    group: dict[str, Any] = {"num_questions": len(members), "num_errors": sum(bool(r.error) for r in members)}
    columns = [(section, name) for section, names in scores.items() for name in names]
    values = np.stack([scores[section][name][rows] for section, name in columns], axis=1)
    intervals: dict[str, Any] = {}
    for section in scores:
        group[section], intervals[section] = {}, {}
    for (section, name), interval in zip(columns, bootstrap_intervals(values, seed, num_resamples), strict=True):
        group[section][name] = interval.mean
        intervals[section][name] = {"low": interval.low, "high": interval.high, "n": interval.n}
    sources = Counter(_outcome(result) for result in members)
    group["answer"] |= {
        "num_from_graph": sources["graph"],
        "num_from_cot": sources["cot"],
        "num_unanswered": sources["none"],
    }
    return group, intervals


def _supplementary(
    results: Sequence[Result], scores: _Scores, columns: dict[str, np.ndarray], seed: int, num_resamples: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    answerable = np.array([result.question.answerable for result in results], dtype=bool)
    if not answerable.all():
        for name in ("em", "f1"):
            columns[f"answerable_{name}"] = np.where(answerable, scores["answer"][name], np.nan)
    values = np.stack(list(columns.values()), axis=1) if columns else np.empty((len(results), 0))
    block: dict[str, Any] = {"num_from_passages": sum(_outcome(result) == "passages" for result in results)}
    intervals = {}
    for name, interval in zip(columns, bootstrap_intervals(values, seed, num_resamples), strict=True):
        if interval.n:
            block[name] = interval.mean
            intervals[name] = {"low": interval.low, "high": interval.high, "n": interval.n}
    groups = group_sufficiency(results)
    if groups is not None:
        block["group_sufficiency"] = groups
    return block, intervals


def _outcome(result: Result) -> str:
    """Where the answer came from; an empty one, whatever its source, is no answer."""
    return result.answer.source if result.answer.text.strip() and not result.error else "none"


def _natural(key: str) -> tuple[int, int, str]:
    return (0, int(key), "") if key.isdecimal() else (1, 0, key)
