"""Plots of a run as PNG bytes: recall over depth, metrics by hop count, seconds by stage, differences to a baseline.

Every plot is drawn for a light or a dark page. A plot whose data does not exist is left out (None).
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from kgrag_gpu.metrics.bootstrap import Interval, bootstrap_intervals
from kgrag_gpu.metrics.retrieval import gold_passages
from kgrag_gpu.report.wording import METRIC_LABELS, seconds_text
from kgrag_gpu.types import Result

CURVE_DEPTHS = tuple(range(1, 21))  # from 1 on, without gaps
_BAR_METRICS = (
    ("answer", "em"),
    ("answer", "f1"),
    ("retrieval", "recall@5"),
    ("retrieval", "all_recall@5"),
    ("retrieval", "answer_coverage"),
)
_MAX_GROUPS = 8
_MAX_STAGES = 14


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of a plot; series colours keep apart for colour-blind readers."""

    background: str
    text: str
    grid: str
    series: tuple[str, ...]


LIGHT = Theme("#ffffff", "#334155", "#e2e8f0", ("#0f766e", "#4f46e5", "#d97706", "#be185d", "#64748b"))
DARK = Theme("#151c28", "#cbd5e1", "#2b3648", ("#2dd4bf", "#818cf8", "#fbbf24", "#f472b6", "#94a3b8"))


def recall_curves(results: Sequence[Result]) -> tuple[list[Interval], list[Interval]]:
    """Recall@k, and the share of questions with all gold in the top k, for every k of `CURVE_DEPTHS`."""
    ordered = sorted(results, key=lambda result: result.question.id)
    recall = np.full((len(ordered), len(CURVE_DEPTHS)), np.nan)
    for i, result in enumerate(ordered):
        held, num_lacking = gold_passages(result)
        if held or num_lacking:
            ranked = () if result.error else result.retrieval.passage_ids[: CURVE_DEPTHS[-1]]
            found = np.cumsum([rank < len(ranked) and ranked[rank] in held for rank in range(CURVE_DEPTHS[-1])])
            recall[i] = found / (len(held) + num_lacking)
    complete = np.where(np.isnan(recall), np.nan, recall == 1.0)
    return bootstrap_intervals(recall), bootstrap_intervals(complete)


def recall_curve_plot(curves: tuple[list[Interval], list[Interval]], theme: Theme) -> bytes | None:
    """The curves of `recall_curves` with their 95 % bands."""
    if not curves[0][0].n:
        return None
    figure, axes = _canvas(theme, 6.4, 3.6)
    for label, curve, colour in zip(("recall@k", "all gold in top k"), curves, theme.series, strict=False):
        low, mean, high = np.array([(c.low, c.mean, c.high) for c in curve], dtype=np.float64).T
        axes.fill_between(CURVE_DEPTHS, low, high, color=colour, alpha=0.15, lw=0)
        axes.plot(CURVE_DEPTHS, mean, color=colour, lw=2.2, marker="o", ms=3.5, label=label)
    axes.set(xlim=(0.5, CURVE_DEPTHS[-1] + 0.5), ylim=(0, 1.02), xlabel="k, ranked passages")
    axes.set_xticks([1, 2, 5, 10, 15, 20])
    axes.set_title(f"Retrieval (n={curves[0][0].n})", loc="left", fontsize=11, fontweight="bold")
    axes.legend(loc="lower right", frameon=False, labelcolor=theme.text, fontsize=9)
    return _png(figure)


def groups_plot(metrics: Mapping[str, Any], theme: Theme) -> bytes | None:
    """Main metrics by hop count, or by type where the set has no hop counts, with 95 % error bars."""
    by, word = ("by_hop", " hops") if metrics["by_hop"] else ("by_type", "")
    keys = list(metrics[by])[:_MAX_GROUPS]
    intervals = metrics["intervals"][by]
    shown = [(s, m) for s, m in _BAR_METRICS if any(intervals[k].get(s, {}).get(m, {}).get("n") for k in keys)]
    if not keys or not shown:
        return None
    figure, axes = _canvas(theme, 6.4, 3.6)
    width = 0.8 / len(shown)
    for i, (section, name) in enumerate(shown):
        x, heights, errors = [], [], []
        for j, key in enumerate(keys):
            value, interval = metrics[by][key][section][name], intervals[key][section][name]
            if value is not None:
                x.append(j + (i - (len(shown) - 1) / 2) * width)
                heights.append(value)
                errors.append((max(0.0, value - interval["low"]), max(0.0, interval["high"] - value)))
        label = METRIC_LABELS.get(name, name.replace("all_recall@", "all gold in top "))
        axes.bar(x, heights, width * 0.88, color=theme.series[i], label=label)
        axes.errorbar(x, heights, np.array(errors).T, fmt="none", ecolor=theme.text, elinewidth=1, capsize=2.5)
    axes.set_xticks(range(len(keys)), [f"{key}{word}\nn={metrics[by][key]['num_questions']}" for key in keys])
    axes.set(ylim=(0, 1.05), xlim=(-0.6, len(keys) - 0.4))
    title = "By number of hops" if word else "By type of question"
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(shown), frameon=False,
        labelcolor=theme.text, fontsize=9,
    )  # fmt: skip
    return _png(figure)


def stages_plot(stages: Mapping[str, float], theme: Theme) -> bytes | None:
    """Seconds by stage, longest first; many short stages are joined into one bar."""
    ordered = sorted(stages.items(), key=lambda item: (-item[1], item[0]))
    if not ordered or ordered[0][1] <= 0:
        return None
    if len(ordered) > _MAX_STAGES:
        rest = ordered[_MAX_STAGES - 1 :]
        ordered = [*ordered[: _MAX_STAGES - 1], (f"{len(rest)} others", sum(seconds for _, seconds in rest))]
    figure, axes = _canvas(theme, 6.4, 0.9 + 0.32 * len(ordered))
    names = [_plain_text(name) for name, _ in ordered]
    bars = axes.barh(range(len(ordered)), [seconds for _, seconds in ordered], 0.66, color=theme.series[0])
    axes.bar_label(bars, [f" {seconds_text(s)}" for _, s in ordered], color=theme.text, fontsize=9)
    axes.set_yticks(range(len(ordered)), names)
    axes.invert_yaxis()
    axes.margins(x=0.18)
    axes.grid(False)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    axes.set_title("Time by stage", loc="left", fontsize=11, fontweight="bold")
    return _png(figure)


def differences_plot(rows: Sequence[Mapping[str, Any]], baseline: str, theme: Theme) -> bytes | None:
    """Differences to the baseline with their intervals, one line per metric and run.

    Args:
        rows: dicts with `label`, `run`, `difference`, `low`, `high`, `significant`, in the order to draw.
        baseline: the baseline's name.
        theme: light or dark.
    """
    if not rows:
        return None
    runs = list(dict.fromkeys(row["run"] for row in rows))
    figure, axes = _canvas(theme, 7.4, 1.3 + 0.27 * len(rows))
    for y, row in enumerate(rows):
        colour = theme.series[runs.index(row["run"]) % len(theme.series)]
        alpha = 1.0 if row["significant"] else 0.45
        axes.plot([row["low"], row["high"]], [y, y], color=colour, lw=2.4, alpha=alpha, solid_capstyle="round")
        axes.plot([row["difference"]], [y], "o", color=colour, ms=6, alpha=alpha)
    for i, run in enumerate(runs):
        axes.plot([], [], "o-", color=theme.series[i % len(theme.series)], label=_plain_text(run))
    axes.axvline(0, color=theme.text, lw=1)
    labels = [row["label"] for row in rows]
    firsts = [y for y in range(len(rows)) if y == 0 or labels[y] != labels[y - 1]]  # a label stands once per metric
    axes.set_yticks(firsts, [labels[y] for y in firsts])
    axes.grid(False)
    for y in firsts[1:]:
        axes.axhline(y - 0.5, color=theme.grid, lw=0.8, zorder=0)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_title(
        f"Difference to {_plain_text(baseline)}, 95 % interval (faint: includes 0)", loc="left", fontsize=10.5
    )
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside lower left", ncols=2, frameon=False, labelcolor=theme.text,
        fontsize=9,
    )  # fmt: skip
    return _png(figure)


def _plain_text(text: str) -> str:
    """A name as matplotlib must not read it: `$` starts a formula there."""
    short = text if len(text) <= 48 else text[:47] + "…"
    return short.replace("$", r"\$")


def _canvas(theme: Theme, width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), dpi=144, layout="constrained", facecolor=theme.background)
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(facecolor=theme.background)
    axes.tick_params(colors=theme.text, labelsize=9, length=0)
    axes.xaxis.label.set_color(theme.text)
    axes.title.set_color(theme.text)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(theme.grid)
    axes.grid(axis="y", color=theme.grid, lw=0.8)
    axes.set_axisbelow(True)
    return figure, axes


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
