"""The table at the end of a run: every metric overall and by hop count, with interval and n, and what it cost."""

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kgrag_gpu.report.wording import (
    MetricRow,
    bytes_text,
    count_text,
    interval_text,
    method_words,
    metric_rows,
    rate_text,
    score_text,
    seconds_text,
    source_counts,
)

PIPED_WIDTH = 160  # columns to write where the output is no terminal and has no width


def print_metrics(metrics: Mapping[str, Any], manifest: Mapping[str, Any], console: Console | None = None) -> None:
    """Prints the result of a run.

    Args:
        metrics: the content of `metrics.json`.
        manifest: the content of the run's `manifest.json`; says what ran and whether on the embedded sample.
        console: where to print; standard output by default.
    """
    console = console or make_console()
    if is_sample(manifest, metrics["source"]):
        console.print(f"[bold yellow]embedded sample, no benchmark result:[/] {escape(metrics['source'])}")
    console.print(metrics_table(metrics, manifest))
    console.print(cost_line(metrics["cost"]), highlight=False)
    if metrics["cost"].get("by_kind"):
        console.print(model_table(metrics["cost"]))
    console.print(outcome_line(metrics), highlight=False)
    floor = metrics["supplementary"].get("random_path_floor")
    if floor is not None:
        console.print(floor_line(floor), highlight=False)


def make_console(**options: Any) -> Console:
    """A console that keeps tables whole when the output goes into a file or a pipe."""
    console = Console(**options)
    return console if console.is_terminal else Console(width=PIPED_WIDTH, **options)


def is_sample(manifest: Mapping[str, Any], source: str) -> bool:
    """Whether the questions are the package's own sample."""
    return bool(manifest.get("is_sample", "embedded sample" in source))


def metrics_table(metrics: Mapping[str, Any], manifest: Mapping[str, Any]) -> Table:
    """Metrics as rows; overall and every hop count (types where there is no hop count) as columns."""
    intervals = metrics["intervals"]
    by, word = ("by_hop", " hops") if metrics["by_hop"] else ("by_type", "")
    keys = list(metrics[by])[:6]
    title = f"{manifest.get('dataset', '')} · {method_words(manifest)}"
    table = Table(title=escape(title), box=box.SIMPLE_HEAD, title_style="bold", title_justify="left")
    table.add_column("metric")
    table.add_column(f"all (n={metrics['num_questions']})", justify="right", no_wrap=True)
    for key in keys:
        n = metrics[by][key]["num_questions"]
        table.add_column(f"{escape(key)}{word} (n={n})", justify="right", no_wrap=True)
    overall = list(metric_rows(metrics, intervals))
    groups = [
        (metrics[by][key], {(r.section, r.name): r for r in metric_rows(metrics[by][key], intervals[by][key])})
        for key in keys
    ]
    section = overall[0].section if overall else ""
    for row in overall:
        if row.n == 0:
            continue
        if row.section != section:
            table.add_section()
            section = row.section
        cells = [_cell(rows.get((row.section, row.name)), group["num_questions"]) for group, rows in groups]
        table.add_row(row.label, _cell(row, metrics["num_questions"]), *cells)
    if metrics["supplementary"].get("group_sufficiency"):
        scores = metrics["supplementary"]["group_sufficiency"]
        for name in ("em", "f1", "sufficiency"):
            table.add_row(f"Group {name} (n={scores['num_groups']} groups)", score_text(scores[name]))
    return table


def _cell(row: MetricRow | None, num_questions: int) -> str:
    if row is None or row.value is None:
        return "–"
    n = "" if row.n == num_questions else f" n={row.n}"
    return f"[bold]{score_text(row.value)}[/] [dim]{escape(interval_text(row.low, row.high))}{n}[/]"


def cost_line(cost: Mapping[str, Any]) -> str:
    """The cost of a run in one line."""
    parts = [
        f"{seconds_text(cost['seconds'])}",
        f"{rate_text(cost['questions_per_second'])} questions/s",
        f"{count_text(cost['llm_calls'])} model calls ({count_text(cost['cached_calls'])} more from the cache)",
        f"{count_text(cost['prompt_tokens'])} + {count_text(cost['completion_tokens'])} tokens",
    ]
    if cost["peak_device_bytes"]:
        parts.append(f"peak {bytes_text(cost['peak_device_bytes'])} on the device")
    return "[bold]cost[/]  " + ", ".join(parts)


def model_table(cost: Mapping[str, Any]) -> Table:
    """What the model was asked: a row per kind of prompt, then one per stage."""
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("model", "calls", "cached", "prompt tokens", "completion tokens", "retries", "failed", "seconds"):
        table.add_column(name, justify="left" if name == "model" else "right", no_wrap=True)
    for word, key in (("prompt", "by_kind"), ("stage", "by_stage")):
        for name, spent in cost[key].items():
            cells = [count_text(spent[k]) for k in ("llm_calls", "cached_calls", "prompt_tokens", "completion_tokens")]
            failed = [count_text(spent[k]) for k in ("retries", "failures")]
            table.add_row(f"{word} [bold]{escape(name)}[/]", *cells, *failed, seconds_text(spent["seconds"]))
        table.add_section()
    return table


def floor_line(floor: Mapping[str, Any]) -> str:
    """What luck alone reaches on this set, in one line."""
    return (
        f"[bold]floor[/]  {score_text(floor['hit@1'])} strict Hit@1 of a random relation path of the right length from "
        f"the gold topic entity (n={floor['n']})"
    )


def outcome_line(metrics: Mapping[str, Any]) -> str:
    """Where the answers came from, in one line."""
    parts = [f"{count} {words}" for _, words, count in source_counts(metrics)]
    failed = f", {metrics['num_errors']} failed (see errors.jsonl)" if metrics["num_errors"] else ""
    return "[bold]answers[/]  " + ", ".join(parts) + failed
