"""Prints one question of a run: answer, evidence paths, ranked passages and trace, as a tree."""

import argparse
import difflib
import json
from collections.abc import Sequence
from pathlib import Path

from kgrag_gpu.report.question_tree import question_tree
from kgrag_gpu.report.tables import make_console
from kgrag_gpu.results import find_result, question_ids
from kgrag_gpu.run_dir import RunDir
from kgrag_gpu.types import Result, UserError
from pipelines.command_line import EXIT_DONE, HelpFormatter, run_command


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser("python -m pipelines.show", description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN", help="run directory; unfinished ones show what they have")
    parser.add_argument("question_id", metavar="QUESTION_ID", help="id as in predictions.jsonl")
    parser.add_argument("--passages", type=int, default=10, help="ranked passages shown")
    parser.add_argument("--paths", type=int, default=10, help="evidence paths shown")
    args = parser.parse_args(argv)
    run = RunDir(args.run)
    if not run.manifest_file.exists():
        raise UserError(
            f"{args.run} is not a run directory (no manifest.json); give the folder that batch_eval printed"
        )
    result = _find(run, args.question_id)
    dataset = str(run.manifest().get("dataset", ""))
    titles = _titles(run, args.question_id)
    make_console().print(question_tree(result, titles, dataset, args.passages, args.paths))
    return EXIT_DONE


def _find(run: RunDir, question_id: str) -> Result:
    shards = sorted((run.path / "shards").glob("*.parquet"))
    if not shards:
        raise UserError(f"{run.path} has no finished shard yet; wait for one, or run batch_eval again")
    result = find_result(shards, question_id)
    if result is None:
        close = difflib.get_close_matches(question_id, question_ids(shards), n=3, cutoff=0.5)
        hint = f"; near: {', '.join(close)}" if close else ""
        raise UserError(f"no question {question_id!r} in {run.path}{hint}; ids are in predictions.jsonl")
    return result


def _titles(run: RunDir, question_id: str) -> dict[int, str]:
    """Titles of the question's ranked and gold passages; none before the run has joined its shards."""
    if not run.retrieval_file.exists():
        return {}
    marker = json.dumps(question_id, ensure_ascii=False)
    with run.retrieval_file.open(encoding="utf-8") as lines:
        for line in lines:
            if marker in line:
                row = json.loads(line)
                if row["id"] == question_id:
                    return {p["id"]: p["title"] for p in (*row["passages"], *row["gold"]) if p["title"]}
    return {}


if __name__ == "__main__":
    run_command(main)
