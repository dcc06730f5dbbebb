"""Runs several methods, presets and values over one question set and writes one table.

    python -m pipelines.sweep --dataset pathquestion --data PQ-3H.txt --kg 3H-kb.txt --llm none \\
        --methods anchorrag-lr anchorrag-single-path --grid method.depth=1,2,3 --out tables/pq3h

A method may bring values of its own: `--methods bm25 gear:base=bm25 gear:base=bm25,fusion=calibrated`.
Every method is run with every combination of the grid. Each is an ordinary run directory below --run-root: a sweep that
was stopped goes on where it was, and combinations that were run before are not run again. The table goes to standard
output and, with --out, to DIR/sweep.md beside compare.json, .csv and .html; differences are those to the first line.
A file with the same keys (--file sweep.yaml) saves typing: methods: [...], grid: {key: [values]}, set: {key: value}.
"""

import argparse
import contextlib
import dataclasses
import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kgrag_gpu.config.load import load_run_config
from kgrag_gpu.data.records import read_text
from kgrag_gpu.data.registry import DATASETS, load_questions
from kgrag_gpu.report.comparison import compare_runs, load_run
from kgrag_gpu.report.comparison_page import write_comparison
from kgrag_gpu.report.wide_table import wide_table
from kgrag_gpu.types import UserError
from pipelines.command_line import (
    EXIT_INTERRUPTED,
    HelpFormatter,
    add_run_options,
    grid_axis,
    run_command,
    run_options,
    say,
)
from pipelines.job import Job

_MAX_CELLS = 200


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of the sweep."""

    method: str
    values: tuple[tuple[str, str], ...]

    @property
    def label(self) -> str:
        """What sets it apart, for the table's first column."""
        return " ".join([self.method, *(f"{key.removeprefix('method.')}={value}" for key, value in self.values)])


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the worst exit code of the runs."""
    parser = argparse.ArgumentParser("python -m pipelines.sweep", description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--dataset", required=True, help=", ".join(DATASETS))
    parser.add_argument("--data", help="file or folder (default: $KGRAG_DATA, the hub, the embedded sample)")
    parser.add_argument("--question-field", help="field of the records that holds the question (default: the format's)")
    parser.add_argument(
        "--methods",
        nargs="+",
        default=[],
        metavar="METHOD",
        help="methods or presets, with values after a colon (default: --method)",
    )
    parser.add_argument("--grid", action="append", default=[], metavar="A.B=V,W", help="values to try, repeatable")
    parser.add_argument("--file", type=Path, help="YAML with methods, grid and set (default: none)")
    parser.add_argument("--metrics", nargs="+", default=[], metavar="SECTION.NAME", help="columns (default: what fits)")
    parser.add_argument("--out", type=Path, help="folder for the table and the comparison (default: none written)")
    add_run_options(parser)
    args = parser.parse_args(argv)
    cells, overrides = _plan(args)
    say(f"{len(cells)} runs")
    options = {"dataset.data": args.data, "dataset.question_field": args.question_field, **run_options(args)}
    configs = [
        load_run_config(
            args.dataset, cell.method, args.config, [*overrides, *(f"{k}={v}" for k, v in cell.values)], options
        )
        for cell in cells
    ]
    questions = load_questions(configs[0].dataset)
    codes, runs = [], []
    for number, (cell, config) in enumerate(zip(cells, configs, strict=True), start=1):
        say(f"[{number}/{len(cells)}] {cell.label}")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            codes.append(Job(config, questions, args.run_root).run())
        if codes[-1] == EXIT_INTERRUPTED:
            return EXIT_INTERRUPTED
        run = load_run(Path(printed.getvalue().splitlines()[-1]))
        runs.append(dataclasses.replace(run, name=cell.label))
    comparison = compare_runs(runs)
    table = wide_table(comparison, [cell.label for cell in cells], args.metrics)
    print(table)
    if args.out is not None:
        written = write_comparison(comparison, args.out)
        (args.out / "sweep.md").write_text(table + "\n", encoding="utf-8")
        for path in [*written, args.out / "sweep.md"]:
            say(f"wrote {path}")
    return max(codes)


def _plan(args: argparse.Namespace) -> tuple[list[Cell], list[str]]:
    """The cells in order, and the overrides that all of them share; two or more cells, each once."""
    asked = _read(args.file) if args.file else {}
    methods = [*args.methods, *asked.get("methods", [])] or [args.method]
    axes = [grid_axis(text) for text in args.grid]
    axes += [[(key, str(value)) for value in values] for key, values in asked.get("grid", {}).items()]
    cells = [
        Cell(method, (*own, *values))
        for method, own in dict.fromkeys(_with_values(text) for text in methods)
        for values in itertools.product(*axes)
    ]
    if not 2 <= len(cells) <= _MAX_CELLS:
        raise UserError(
            f"a sweep of {len(cells)} runs; give 2 to {_MAX_CELLS}, by several --methods or by --grid KEY=V,W"
        )
    shared = [f"{key}={yaml.safe_dump(value, default_flow_style=True)}" for key, value in asked.get("set", {}).items()]
    return cells, [*shared, *args.set]


def _with_values(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """A method and its own values, from METHOD or METHOD:FIELD=VALUE,FIELD=VALUE (fields below `method`)."""
    method, separator, rest = str(text).partition(":")
    pairs = [part.partition("=") for part in rest.split(",")] if separator else []
    if not method or any(not key or not value for key, _, value in pairs):
        raise UserError(f"--methods {text}: expected METHOD or METHOD:FIELD=VALUE,FIELD=VALUE, as in gear:base=bm25")
    return method, tuple((f"method.{key}", value) for key, _, value in pairs)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        asked = yaml.safe_load(read_text(path)) or {}
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML ({str(error).splitlines()[0]})") from error
    forms = {"methods": list, "grid": dict, "set": dict}
    if not isinstance(asked, dict) or any(not isinstance(asked[key], forms.get(key, ())) for key in asked):
        raise UserError(
            f"{path}: expected methods: [...], grid: {{key: [values]}}, set: {{key: value}}, and nothing else"
        )
    for key, values in asked.get("grid", {}).items():
        if not isinstance(values, list) or not values:
            raise UserError(f"{path}: grid.{key}: expected a list of values to try")
    return asked


if __name__ == "__main__":
    run_command(main)
