"""A comparison for people: the table in the terminal, and the HTML page with its plot."""

import csv
import io
import json
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kgrag_gpu.metrics.bootstrap import PairedDifference
from kgrag_gpu.report import wording
from kgrag_gpu.report.comparison import (
    COST_KEYS,
    ComparedRun,
    Comparison,
    MetricKey,
    comparison_as_json,
    comparison_rows,
)
from kgrag_gpu.report.page import render, render_plots, write_whole
from kgrag_gpu.report.plots import differences_plot
from kgrag_gpu.report.wording import MetricRow, method_words, source_counts
from kgrag_gpu.types import UserError

MAX_FLIPS = 40
_CSV_COLUMNS: tuple[str, ...] = (
    "run", "method", "section", "metric", "value", "low", "high", "n",
    "difference", "difference_low", "difference_high", "p", "significant",
)  # fmt: skip
_COST_WORDS = {
    "seconds": "Work",
    "questions_per_second": "Questions per second",
    "llm_calls": "Model calls",
    "cached_calls": "Calls from the cache",
    "prompt_tokens": "Prompt tokens",
    "completion_tokens": "Completion tokens",
    "peak_device_bytes": "Device memory, peak",
}


def run_labels(comparison: Comparison) -> list[str]:
    """A short name for every run: its method where no two share it, else its directory's name, numbered if need be."""
    methods = [method_words(compared.run.manifest) for compared in comparison.runs]
    names = [compared.run.name for compared in comparison.runs]
    if all(methods) and len(set(methods)) == len(methods):
        return methods
    return names if len(set(names)) == len(names) else [f"{i}. {name}" for i, name in enumerate(names, start=1)]


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Prints every metric and cost of every run; a star marks differences whose interval leaves out 0."""
    labels = run_labels(comparison)
    for note in comparison.notes:
        console.print(f"[bold yellow]note:[/] {escape(note)}")
    table = Table(title=f"{comparison.num_questions} questions", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("metric")
    for i, label in enumerate(labels):
        table.add_column(
            f"{escape(label)}\n[dim]{'baseline' if i == 0 else 'difference to the baseline'}[/]", min_width=22
        )
    section = ""
    for key in comparison.keys:
        if key[0] != section:
            table.add_section()
            section = key[0]
        label = next(c.rows[key].label for c in comparison.runs if key in c.rows)
        table.add_row(label, *(_cell(compared, key, comparison.num_questions) for compared in comparison.runs))
    table.add_section()
    for key in COST_KEYS:
        table.add_row(_COST_WORDS[key], *(cost_text(compared, key) for compared in comparison.runs))
    table.add_section()
    for words, counts in source_rows(comparison):
        table.add_row(words, *counts)
    console.print(table)
    for label, compared in zip(labels[1:], comparison.runs[1:], strict=True):
        won, lost = len(compared.gained), len(compared.lost)
        console.print(f"{escape(label)}: {won} questions gained, {lost} lost (strict Hit@1)", highlight=False)
    console.print(
        "[dim]\\[low, high]: 95 % bootstrap interval; * interval of the paired difference leaves out 0; "
        "many metrics are compared at once, so expect a star by chance in about one of twenty[/]",
        highlight=False,
    )


def source_rows(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Where the answers of each run came from: a row a source, a count a run."""
    columns = [source_counts(compared.metrics) for compared in comparison.runs]
    return [
        (
            f"Answers {row[0][1]}" if row[0][1].startswith("from") else "Unanswered",
            [f"{count:,}" for _, _, count in row],
        )
        for row in zip(*columns, strict=True)
    ]


def write_comparison(comparison: Comparison, out: Path) -> list[Path]:
    """Writes `compare.json`, `compare.csv`, `compare.html` and `compare.png` into a folder, and returns their paths.

    Raises:
        UserError: the folder cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        text = json.dumps(comparison_as_json(comparison), indent=2, ensure_ascii=False) + "\n"
        write_whole(out / "compare.json", text.encode("utf-8", "replace"))
        write_whole(out / "compare.csv", _csv(comparison).encode("utf-8", "replace"))
        baseline = run_labels(comparison)[0]
        points = _difference_points(comparison)
        plots = render_plots({"compare": lambda theme: differences_plot(points, baseline, theme)}, out)
        html = render("compare.html.jinja", comparison_context(comparison) | {"plots": plots})
        write_whole(out / "compare.html", html.encode("utf-8", "replace"))
    except OSError as error:
        raise UserError(f"{out} cannot be written ({error.strerror}); give a writable folder with --out") from error
    return [out / "compare.json", out / "compare.csv", out / "compare.html", *(out / f"{p['name']}.png" for p in plots)]


def comparison_context(comparison: Comparison) -> dict[str, Any]:
    """What the page's template shows, without the plot."""
    labels = run_labels(comparison)
    empty = MetricRow("", "", None, None, None, 0)
    rows = [
        {
            "section": key[0],
            "label": next(c.rows[key].label for c in comparison.runs if key in c.rows),
            "cells": [{"row": c.rows.get(key, empty), "difference": c.differences.get(key)} for c in comparison.runs],
        }
        for key in comparison.keys
    ]
    questions = {result.question.id: result for result in comparison.baseline.run.results}
    flips = []
    for label, compared in zip(labels[1:], comparison.runs[1:], strict=True):
        own = {result.question.id: result for result in compared.run.results}
        listed = [(i, "gained") for i in compared.gained[: MAX_FLIPS // 2]]
        listed += [(i, "lost") for i in compared.lost[: MAX_FLIPS // 2]]
        flips.append({
            "label": label,
            "num_gained": len(compared.gained),
            "num_lost": len(compared.lost),
            "rows": [{"id": i, "change": change, "question": own[i].question.text, "own": own[i].answer.text,
                      "baseline": questions[i].answer.text,
                      "gold": [gold.name for gold in own[i].question.golden_answers]} for i, change in listed],
        })  # fmt: skip
    return {
        "title": f"{' · '.join(labels)}",
        "labels": labels,
        "runs": [compared.run for compared in comparison.runs],
        "notes": comparison.notes,
        "num_questions": comparison.num_questions,
        "rows": rows,
        "costs": [(_COST_WORDS[key], [cost_text(c, key) for c in comparison.runs]) for key in COST_KEYS]
        + source_rows(comparison),
        "flips": flips,
    }


def cost_text(compared: ComparedRun, key: str) -> str:
    """A cost figure of a run in words."""
    value = compared.run.metrics["cost"].get(key)
    writer = {
        "seconds": wording.seconds_text,
        "questions_per_second": wording.rate_text,
        "peak_device_bytes": wording.bytes_text,
    }.get(key, wording.count_text)
    return writer(value)


def _cell(compared: ComparedRun, key: MetricKey, num_questions: int) -> str:
    row = compared.rows.get(key)
    if row is None or row.value is None:
        return wording.NO_VALUE
    n = "" if row.n == num_questions else f" n={row.n}"
    own = f"[bold]{wording.score_text(row.value)}[/] [dim]{escape(wording.interval_text(row.low, row.high))}{n}[/]"
    difference = compared.differences.get(key)
    return own if difference is None else f"{own}\n{_difference_text(difference)}"


def _difference_text(difference: PairedDifference) -> str:
    colour = "" if not difference.is_significant else "green" if difference.difference > 0 else "red"
    star = " *" if difference.is_significant else ""
    interval = f"[{wording.signed_text(difference.low)}, {wording.signed_text(difference.high)}]"
    text = escape(f"{wording.signed_text(difference.difference)} {interval} p={wording.p_text(difference.p)}{star}")
    return f"[{colour}]{text}[/]" if colour else text


def _difference_points(comparison: Comparison) -> list[dict[str, Any]]:
    """One point per metric and run for the plot, metrics together."""
    labels = run_labels(comparison)
    points = []
    for key in comparison.keys:
        for label, compared in zip(labels[1:], comparison.runs[1:], strict=True):
            difference = compared.differences.get(key)
            if difference is not None:
                points.append({
                    "label": compared.rows[key].label,
                    "run": label,
                    "difference": difference.difference,
                    "low": difference.low,
                    "high": difference.high,
                    "significant": difference.is_significant,
                })  # fmt: skip
    return points


def _csv(comparison: Comparison) -> str:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, _CSV_COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(comparison_rows(comparison))
    return buffer.getvalue()
