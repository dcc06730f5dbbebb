"""Answers a question set over a KG in batches, scores it, and writes a run directory.

The same command again continues an interrupted run; a finished run prints its result and does nothing.
The last line of standard output is the path of the run directory.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from kgrag_gpu.config.load import load_run_config
from kgrag_gpu.data.registry import DATASETS, load_questions
from kgrag_gpu.node_scratch import local_cache
from pipelines.command_line import HelpFormatter, add_run_options, run_command, run_options, say
from pipelines.job import Job


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = job_parser("python -m pipelines.batch_eval", __doc__)
    parser.add_argument(
        "--scratch",
        type=Path,
        help="fast folder of this node for the caches; what is new is copied back (default: none)",
    )
    args = parser.parse_args(argv)
    job = job_of(args)
    if args.scratch is None:
        return job.run()
    with local_cache(job.cache_dir, args.scratch, say) as job.cache_dir:
        return job.run()


def job_parser(command: str, description: str | None) -> argparse.ArgumentParser:
    """The options that make a `Job`, for the commands that run one or prepare it."""
    parser = argparse.ArgumentParser(command, description=description, formatter_class=HelpFormatter)
    parser.add_argument("--dataset", required=True, help=", ".join(DATASETS))
    parser.add_argument("--data", help="file or folder (default: $KGRAG_DATA, the hub, the embedded sample)")
    parser.add_argument("--question-field", help="field of the records that holds the question (default: the format's)")
    parser.add_argument("--require-full", action="store_true", help="refuse the embedded sample")
    add_run_options(parser)
    return parser


def job_of(args: argparse.Namespace) -> Job:
    """The job that the options of `job_parser` describe, its questions loaded.

    Raises:
        UserError: The configuration or the question set is wrong.
    """
    options = {"dataset.data": args.data, "dataset.question_field": args.question_field, **run_options(args)}
    config = load_run_config(args.dataset, args.method, args.config, args.set, options)
    questions = load_questions(config.dataset, args.require_full)
    say(f"questions: {len(questions.questions)} from {questions.source}")
    if questions.rejected:
        say(f"rejected records: {len(questions.rejected)}, listed with their reasons in rejected.jsonl")
    return Job(config, questions, args.run_root, args.num_shards, args.shard)


if __name__ == "__main__":
    run_command(main)
