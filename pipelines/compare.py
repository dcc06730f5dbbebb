"""Compares finished runs over the same questions: every metric, cost, and the paired bootstrap difference.

The first run is the baseline unless --baseline names another one.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from kgrag_gpu.report.comparison import compare_runs, load_run
from kgrag_gpu.report.comparison_page import print_comparison, write_comparison
from kgrag_gpu.report.tables import make_console
from kgrag_gpu.types import UserError
from pipelines.command_line import EXIT_DONE, HelpFormatter, run_command, say


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser("python -m pipelines.compare", description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directory of a finished run")
    parser.add_argument("--baseline", type=Path, metavar="RUN", help="the run to compare with (default: the first)")
    parser.add_argument(
        "--out", type=Path, help="folder for compare.json, .csv, .html and .png (default: none written)"
    )
    parser.add_argument("--intersect", action="store_true", help="compare only the questions that all runs have")
    parser.add_argument(
        "--compat-empty-hits", action="store_true", help="let empty predictions hit leniently, as published scripts do"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the bootstrap")
    args = parser.parse_args(argv)
    runs = [load_run(path) for path in _in_order(args.runs, args.baseline)]
    comparison = compare_runs(runs, args.intersect, args.compat_empty_hits, args.seed)
    print_comparison(comparison, make_console())
    if args.out is not None:
        for path in write_comparison(comparison, args.out):
            say(f"wrote {path}")
    return EXIT_DONE


def _in_order(runs: Sequence[Path], baseline: Path | None) -> list[Path]:
    """The runs, each once, the baseline first."""
    ordered = [*([] if baseline is None else [baseline]), *runs]
    by_place: dict[Path, Path] = {}
    for path in ordered:
        by_place.setdefault(path.resolve(), path)
    unique = list(by_place.values())
    if len(unique) < 2:
        raise UserError(f"one run ({unique[0]}) cannot be compared; give two or more different run directories")
    return unique


if __name__ == "__main__":
    run_command(main)
