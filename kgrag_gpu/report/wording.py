"""Numbers and metric names as people read them. The only place where a mean is rounded."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

METRIC_LABELS = {
    "em": "Exact match",
    "f1": "Token F1",
    "hit@1": "Hit@1 (strict)",
    "hit@1_lenient": "Hit@1 (lenient)",
    "acc": "Gold answers found (acc)",
    "answer_coverage": "Answer in the evidence",
    "top1": "Anchor in top 1",
    "top3": "Anchor in top 3",
    "recall": "Anchor recall",
    "support_f1": "Support F1",
    "answerable_em": "Exact match, answerable only",
    "answerable_f1": "Token F1, answerable only",
}
NO_VALUE = "–"


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One mean with its interval, as stored in `metrics.json`."""

    section: str
    name: str
    value: float | None
    low: float | None
    high: float | None
    n: int

    @property
    def label(self) -> str:
        """The metric's name for people."""
        name = self.name
        if name.startswith("recall@"):
            return f"Recall@{name.removeprefix('recall@')}"
        if name.startswith("all_recall@"):
            return f"All gold in top {name.removeprefix('all_recall@')}"
        return METRIC_LABELS.get(name, name)


def metric_rows(group: Mapping[str, Any], intervals: Mapping[str, Any]) -> Iterator[MetricRow]:
    """The means of a block of `metrics.json` (the whole, or one hop count or type), in the stored order.

    Counts such as `num_unanswered` have no interval and are passed over.
    """
    for section in ("answer", "retrieval", "anchors", "supplementary"):
        for name, interval in intervals.get(section, {}).items():
            value = group.get(section, {}).get(name)
            yield MetricRow(section, name, value, interval["low"], interval["high"], interval["n"])


def score_text(value: float | None) -> str:
    """A score in [0, 1] with three digits."""
    return NO_VALUE if value is None else f"{value:.3f}"


def signed_text(value: float | None) -> str:
    """A difference of scores with its sign and three digits."""
    return NO_VALUE if value is None else f"{value:+.3f}"


def interval_text(low: float | None, high: float | None) -> str:
    """An interval of scores in brackets."""
    return "" if low is None or high is None else f"[{low:.3f}, {high:.3f}]"


def count_text(value: float | None) -> str:
    """A whole number with separators between thousands."""
    return NO_VALUE if value is None else f"{value:,.0f}"


def seconds_text(seconds: float | None) -> str:
    """A duration in the unit that suits it."""
    if seconds is None or not math.isfinite(seconds):
        return NO_VALUE
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def bytes_text(num_bytes: float | None) -> str:
    """A number of bytes in binary units."""
    if not num_bytes:
        return NO_VALUE
    for unit in ("B", "KiB", "MiB", "GiB"):
        if num_bytes < 1024 or unit == "GiB":
            break
        num_bytes /= 1024
    return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.1f} {unit}"


def rate_text(rate: float | None) -> str:
    """Questions per second."""
    return NO_VALUE if rate is None else f"{rate:,.1f}" if rate >= 10 else f"{rate:.2f}"


def p_text(p: float) -> str:
    """A p-value; the bootstrap cannot show one below its own resolution."""
    return f"{p:.3f}"


def method_words(manifest: Mapping[str, Any]) -> str:
    """The method's name with what its name does not say: given anchors, and model steps that were left out."""
    notes = ["gold anchors"] if manifest.get("anchors") == "gold" else []
    notes += ["use_model off"] if manifest.get("use_model") is False else []
    return " ".join([str(manifest.get("method", "")), *([f"({', '.join(notes)})"] if notes else [])])


def source_counts(metrics: Mapping[str, Any]) -> list[tuple[str, str, int]]:
    """Where the answers came from: (key, words, number of questions)."""
    answer = metrics["answer"]
    return [
        ("graph", "from the graph", answer["num_from_graph"]),
        ("passages", "from passages", metrics["supplementary"]["num_from_passages"]),
        ("cot", "from the model alone", answer["num_from_cot"]),
        ("none", "unanswered", answer["num_unanswered"]),
    ]
