"""The HTML report: one file with everything in it, no script or image from elsewhere, readable on light and dark."""

import base64
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from kgrag_gpu.report import wording
from kgrag_gpu.report.cards import OUTCOMES, Lookups, card, choose_results, outcome_of
from kgrag_gpu.report.plots import DARK, LIGHT, Theme, groups_plot, recall_curve_plot, recall_curves, stages_plot
from kgrag_gpu.report.tables import is_sample
from kgrag_gpu.report.wording import MetricRow, method_words, metric_rows, source_counts
from kgrag_gpu.types import Passage, Result

MAX_CARDS = 200
MAX_ERRORS = 50
HEADLINES = (
    ("answer", "hit@1"),
    ("answer", "f1"),
    ("retrieval", "recall@5"),
    ("retrieval", "all_recall@5"),
    ("retrieval", "answer_coverage"),
)
GROUP_COLUMNS = (*HEADLINES[:2], ("answer", "acc"), ("retrieval", "recall@2"), *HEADLINES[2:])


def write_report(
    run_directory_path: Path,
    results: Sequence[Result],
    metrics: Mapping[str, Any],
    manifest: Mapping[str, Any],
    passages: Sequence[Passage],
) -> None:
    """Writes `report.html` and `plots/*.png` into a run directory.

    Args:
        run_directory_path: where to write; `config.yaml` there is shown when it exists.
        results: all questions' outcomes. At most `MAX_CARDS` get a card of their own, failed ones first.
        metrics: the content of `metrics.json`.
        manifest: the content of `manifest.json`; a missing entry is left out.
        passages: the KG's passages.
    """
    run_path = Path(run_directory_path)
    curves = recall_curves(results)
    plots = render_plots(
        {
            "retrieval": lambda theme: recall_curve_plot(curves, theme),
            "groups": lambda theme: groups_plot(metrics, theme),
            "stages": lambda theme: stages_plot(metrics["cost"]["stages"], theme),
        },
        run_path / "plots",
    )
    config_file = run_path / "config.yaml"
    config = config_file.read_text(encoding="utf-8") if config_file.exists() else ""
    html = render("report.html.jinja", report_context(results, metrics, manifest, passages) | {
        "plots": plots, "config": config,
    })  # fmt: skip
    write_whole(run_path / "report.html", html.encode("utf-8", "replace"))


def render_plots(makers: Mapping[str, Callable[[Theme], bytes | None]], folder: Path) -> list[dict[str, str]]:
    """Draws every plot for light and dark; the light ones are also written to the folder as PNG files."""
    plots = []
    for name, make in makers.items():
        light, dark = make(LIGHT), make(DARK)
        if light is None or dark is None:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"{name}.png", light)
        plots.append({"name": name, "light": _data_url(light), "dark": _data_url(dark)})
    return plots


def render(template: str, context: Mapping[str, Any]) -> str:
    """Renders one of the package's templates; every value is escaped, an unknown one is an error."""
    environment = Environment(
        loader=PackageLoader("kgrag_gpu.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "score": wording.score_text,
        "signed": wording.signed_text,
        "count": wording.count_text,
        "seconds": wording.seconds_text,
        "bytes": wording.bytes_text,
        "rate": wording.rate_text,
        "pvalue": wording.p_text,
        "percent": lambda share: f"{100 * min(1.0, max(0.0, share)):.2f}%",
    }
    return environment.get_template(template).render(context)


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file under a temporary name and renames it, so that nobody sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(content)
    temporary.replace(path)


def report_context(
    results: Sequence[Result],
    metrics: Mapping[str, Any],
    manifest: Mapping[str, Any],
    passages: Sequence[Passage],
) -> dict[str, Any]:
    """What the report's template shows, without plots and config."""
    dataset = str(manifest.get("dataset", ""))
    rows = list(metric_rows(metrics, metrics["intervals"]))
    failed = sorted((r for r in results if r.error), key=lambda result: result.question.id)
    lookups = Lookups(passages, dataset)
    chosen = choose_results(results, MAX_CARDS)
    by_key = {(row.section, row.name): row for row in rows}
    return {
        "title": f"{dataset or 'questions'} · {manifest.get('method', 'run')}",
        "dataset": dataset,
        "method": str(manifest.get("method", "")),
        "sample": is_sample(manifest, metrics["source"]),
        "metrics": metrics,
        "facts": _facts(metrics, manifest),
        "details": _details(manifest),
        "headlines": [by_key[key] for key in HEADLINES if key in by_key and by_key[key].n][:4],
        "rows": [row for row in rows if row.n],
        "groups": [
            _group_table(metrics, "by_hop", "Hops", "By number of hops"),
            _group_table(metrics, "by_type", "Type", "By type of question"),
        ],
        "sources": _sources(metrics),
        "outcomes": _outcome_counts(results, dataset),
        "stages": _stages(metrics["cost"]["stages"]),
        "errors": [{"id": r.question.id, "question": r.question.text, "reason": r.error} for r in failed[:MAX_ERRORS]],
        "num_errors": len(failed),
        "cards": [card(result, lookups) for result in chosen],
        "num_results": len(results),
        "outcome_labels": OUTCOMES,
        "hop_choices": sorted({r.question.num_hops for r in chosen if r.question.num_hops is not None}),
        "group_sufficiency": metrics["supplementary"].get("group_sufficiency"),
    }


def _data_url(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _facts(metrics: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The header's lines: what was asked, over what, with what."""
    kg, engine = manifest.get("kg") or {}, manifest.get("engine") or {}
    graph = ", ".join(f"{kg[k]:,} {k}" for k in ("entities", "triples", "passages") if isinstance(kg.get(k), int))
    model = " · ".join(str(engine[k]) for k in ("name", "model") if engine.get(k))
    seeds = manifest.get("seeds", manifest.get("seed"))
    facts = [
        ("Source", str(metrics["source"])),
        ("Method", method_words(manifest)),
        ("Anchors", str(manifest.get("anchors") or "")),
        ("Graph", " · ".join(part for part in (str(kg.get("kind", "")), graph) if part)),
        ("Model", model),
        ("Encoder", str(manifest.get("encoder", ""))),
        ("Device", str(manifest.get("device", ""))),
        ("Seed", "" if seeds is None else str(seeds)),
        ("Config", str(manifest.get("fingerprint", ""))),
        ("Code", str(manifest.get("code_revision", ""))),
    ]
    return [(name, value) for name, value in facts if value]


def _details(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Everything else the manifest says, flattened to lines."""
    lines: list[tuple[str, str]] = []

    def flatten(prefix: str, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                flatten(f"{prefix}.{key}" if prefix else str(key), item)
        else:
            lines.append((prefix, str(value)))

    flatten("", manifest)
    return lines


def _group_table(metrics: Mapping[str, Any], by: str, word: str, title: str) -> dict[str, Any]:
    """A table with a row per hop count or type; columns that no row has a value for are left out."""
    rows = []
    for key, group in metrics[by].items():
        found = {(row.section, row.name): row for row in metric_rows(group, metrics["intervals"][by][key])}
        rows.append({"key": key, "n": group["num_questions"], "num_errors": group["num_errors"], "found": found})
    columns = [c for c in GROUP_COLUMNS if any(c in row["found"] and row["found"][c].n for row in rows)]
    empty = MetricRow("", "", None, None, None, 0)
    return {
        "word": word,
        "title": title,
        "labels": [MetricRow(section, name, None, None, None, 0).label for section, name in columns],
        "rows": [row | {"cells": [row["found"].get(column, empty) for column in columns]} for row in rows],
    }


def _sources(metrics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Where the answers came from, for the stacked bar."""
    total = max(1, metrics["num_questions"])
    return [
        {"key": key, "label": label, "count": n, "share": n / total} for key, label, n in source_counts(metrics) if n
    ]


def _outcome_counts(results: Sequence[Result], dataset: str) -> list[dict[str, Any]]:
    counts = Counter(outcome_of(result, dataset) for result in results)
    total = max(1, len(results))
    order = ("right", "partly", "wrong", "unanswered", "failed", "unjudged")
    return [
        {"key": key, "label": OUTCOMES[key], "count": counts[key], "share": counts[key] / total}
        for key in order
        if counts[key]
    ]


def _stages(stages: Mapping[str, float]) -> list[dict[str, Any]]:
    total = sum(stages.values()) or 1.0
    ordered = sorted(stages.items(), key=lambda item: (-item[1], item[0]))
    return [{"name": name, "seconds": seconds, "share": seconds / total} for name, seconds in ordered]
