"""Shows what a KG folder holds: counts, degrees, hubs, components, missing names, sample triples.

With --out the same figures go to FOLDER/summary.json, and a picture of the degree distribution to FOLDER/degrees.png.
Exit codes: 0 done, 2 wrong input.
"""

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from kgrag_gpu.kg.store import load_kg
from kgrag_gpu.kg.summary import KgSummary, degree_plot, summarise
from kgrag_gpu.types import UserError
from pipelines.command_line import HelpFormatter, run_command, say


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(
        "python -m pipelines.kg_summary", description=__doc__, formatter_class=HelpFormatter
    )
    parser.add_argument("kg", metavar="DIR", type=Path, help="KG folder, as build_kg writes it")
    parser.add_argument("--out", metavar="FOLDER", type=Path, help="write summary.json and degrees.png here")
    parser.add_argument("--show", type=int, default=10, metavar="N", help="hubs, relations and triples to list")
    args = parser.parse_args(argv)
    if args.show < 0:
        raise UserError(f"--show {args.show}: expected 0 or more")
    kg = load_kg(args.kg)
    summary = summarise(kg, args.show)
    print(_text(summary))
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        values = json.dumps(dataclasses.asdict(summary), indent=2, ensure_ascii=False)
        (args.out / "summary.json").write_text(values + "\n", encoding="utf-8")
        (args.out / "degrees.png").write_bytes(degree_plot(kg))
        say(f"written: {args.out / 'summary.json'} and {args.out / 'degrees.png'}")
    return 0


def _text(summary: KgSummary) -> str:
    rows = [(name.removeprefix("num_"), f"{count:,}") for name, count in summary.counts.items()]
    rows += [
        ("self-loops", f"{summary.num_self_loops:,}"),
        ("entities without a triple", f"{summary.num_isolated:,}"),
        ("entities without a name", f"{summary.num_unnamed:,}"),
        ("components", f"{summary.num_components:,}; the largest has {summary.largest_component:,} entities"),
        ("mean degree", f"{summary.degree_mean:.2f}"),
        ("degree quantiles", ", ".join(f"{name}: {value:,}" for name, value in summary.degree_quantiles.items())),
    ]
    bins = [(f"{low:,}" if low == high else f"{low:,}-{high:,}", n) for low, high, n in summary.degree_histogram]
    parts = [_table(rows)]
    for title, pairs in (
        ("entities by degree", bins),
        ("hubs (entity, triples)", summary.hubs),
        ("relations (name, triples)", summary.top_relations),
    ):
        if pairs:
            parts.append(f"{title}\n" + _table([(f"  {name}", f"{count:,}") for name, count in pairs]))
    if summary.samples:
        parts.append("triples\n" + "\n".join(f"  {text}" for text in summary.samples))
    return "\n\n".join(parts)


def _table(rows: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


if __name__ == "__main__":
    run_command(main)
