"""Joins the shards of a run: predictions, metrics worked out from the rows, report.

What it writes equals the run of one process byte for byte, but for `cost` in metrics.json: seconds differ between any
two runs. Exit code 2 and one line name the shards that are missing. A finished run prints its result and is left as it
is; of two processes that join at once, one is refused.
The last line of standard output is the path of the run directory.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from kgrag_gpu.config.load import read_run_config
from kgrag_gpu.data.registry import load_questions
from kgrag_gpu.report import print_metrics
from kgrag_gpu.run_dir import RunDir
from kgrag_gpu.types import UserError
from pipelines.command_line import EXIT_DONE, EXIT_SOME_FAILED, HelpFormatter, run_command
from pipelines.job import Job, finish_run


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser("python -m pipelines.merge", description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN", help="run directory whose shards are done")
    args = parser.parse_args(argv)
    run = open_run(args.run)
    if not run.is_finished:
        _merge(run)
    metrics = run.metrics()
    print_metrics(metrics, run.manifest())
    print(run.path)
    return EXIT_SOME_FAILED if metrics["num_errors"] else EXIT_DONE


def open_run(path: Path) -> RunDir:
    """A run directory that exists.

    Raises:
        UserError: The folder is none.
    """
    run = RunDir(path)
    if not run.manifest_file.is_file():
        raise UserError(f"{path} is not a run directory (no manifest.json); give the path that batch_eval printed")
    return run


def _merge(run: RunDir) -> None:
    manifest = run.manifest()
    num_shards = manifest["num_shards"]
    missing = [shard for shard in range(num_shards) if not run.is_done(shard)]
    if missing:
        raise UserError(
            f"{run.path}: {len(missing)} of {num_shards} shards are not done: {', '.join(map(str, missing))}; "
            f"run them with --num-shards {num_shards} --shard I"
        )
    config = read_run_config(run.config_file)
    questions = load_questions(config.dataset)
    job = Job(config, questions, run.path.parent, num_shards)
    found = {"questions": questions.content_hash, "kg": job.prepare_kg().content_hash}
    for name, content_hash in found.items():
        if content_hash != manifest["contents"][name]:
            raise UserError(f"the {name} of {run.path} changed since its shards were computed; run it anew")
    with run.lock_join():
        if not run.is_finished:
            finish_run(run, job.kg, job.sentences())


if __name__ == "__main__":
    run_command(main)
