"""Benchmarks: ``python -m pipelines.bench kernels`` times the graph ops against named peers.

Every line is checked before it is timed: where our result and the peer's differ, the line says so and has no time.
Both sides run in turn, in one process, on the same number of threads. ``bench memory`` sets peaks of memory beside
their formulas, ``bench gear`` times GeAR's beam search against the encoder alone, ``bench scale`` builds and asks a
graph of 10^8 triples.
"""

import argparse
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import torch

from kgrag_gpu.types import UserError
from pipelines.command_line import EXIT_DONE, run_command

PEERS = {"igraph": "igraph", "scipy": "scipy", "torch_geometric": "torch-geometric"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark named on the command line; exit code 0 where every line agreed, 3 where one did not."""
    options = _parser().parse_args(argv)
    if options.threads < 1 or options.repeats < 1:
        raise UserError(f"--threads and --repeats must be at least 1 (got {options.threads}, {options.repeats})")
    torch.set_num_threads(options.threads)
    if options.suite == "memory":
        from pipelines.bench_memory import print_table

        return print_table(options.json)
    if options.suite in ("gear", "scale"):
        figures, code = _gear(options) if options.suite == "gear" else _scale(options)
        print("\n".join(f"{name}: {value}" for name, value in figures.items()))
        if options.json:
            options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        return code
    absent = [package for module, package in PEERS.items() if find_spec(module) is None]
    if absent:
        raise UserError(f"the peers {', '.join(absent)} are not installed; pip install 'kgrag-gpu[bench]'")
    from pipelines.bench_kernels import run
    from pipelines.bench_timing import table

    rows = run(options)
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps([row.as_record() for row in rows], indent=1) + "\n", encoding="utf-8")
    return EXIT_DONE if all(row.equal for row in rows) else 3


def _gear(options: argparse.Namespace) -> tuple[dict, int]:
    from pipelines.bench_gear import run_bench

    return run_bench(options.dataset, options.data, options.kg, options.limit, options.base)


def _scale(options: argparse.Namespace) -> tuple[dict, int]:
    from pipelines.bench_scale import run_bench

    return run_bench(int(options.triples), options.work_dir, options.repeats), EXIT_DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pipelines.bench", description=str(__doc__).splitlines()[0])
    parser.add_argument(
        "suite",
        choices=("kernels", "memory", "gear", "scale"),
        help="kernels: speed; memory: predicted and measured peaks; gear: its beam search against the encoder alone; "
        "scale: building, loading and asking a graph of any size",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the lines as JSON")
    parser.add_argument("--large", action="store_true", help="add a graph of 10^8 edges, ten million nodes (20 GB)")
    parser.add_argument(
        "--edges", type=float, nargs="*", default=[1e5, 1e6, 1e7], help="random graphs (default: %(default)s)"
    )
    parser.add_argument("--ops", nargs="*", metavar="OP", help="only these: see the names in the table (default: all)")
    parser.add_argument("--threads", type=int, default=2, help="processor threads (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each side (default: %(default)s)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")
    gear = parser.add_argument_group("gear")
    gear.add_argument("--dataset", default="musique", help="question set (default: %(default)s)")
    gear.add_argument("--data", help="file or folder (default: $KGRAG_DATA, the hub, the embedded sample)")
    gear.add_argument("--kg", help="a KG as in batch_eval (default: made of the passages)")
    gear.add_argument("--limit", type=int, help="questions (default: all)")
    gear.add_argument("--base", default="bm25", help="retriever that the beams start from (default: %(default)s)")
    scale = parser.add_argument_group("scale")
    scale.add_argument("--triples", type=float, default=1e7, help="of the generated graph (default: %(default)s)")
    scale.add_argument(
        "--work-dir", type=Path, default=Path("runs/bench_scale"), help="its files, kept (default: %(default)s)"
    )
    return parser


if __name__ == "__main__":
    run_command(main)
