"""Answers a file of questions over a KG: no gold answers are needed. The same command again continues.

Questions: .jsonl or .json (`question`, and where there are any `id`, `topic_entities`, `golden_answers`), .csv and .tsv
with a header, .parquet, or .txt with one question a line; also gzipped. Unknown fields are carried through.
The run directory holds answers.jsonl and answers.parquet, one row a question in the order asked: answer, source
(graph, passages, cot, none), confidence, evidence paths with their passages, and the mean cost of a question.

A question without text is rejected: listed in rejected.jsonl, and at the end of the answers with its reason.
Exit codes: 0 done, 2 wrong input, 3 finished but some questions failed, 4 interrupted.
The last line of standard output is the path of the run directory.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from kgrag_gpu.answer_rows import answer_row, cost_share, rejected_row, write_answers
from kgrag_gpu.config.load import load_run_config
from kgrag_gpu.data.asked import load_asked
from kgrag_gpu.run_dir import RunDir
from pipelines.command_line import HelpFormatter, add_run_options, run_command, run_options, say
from pipelines.job import Job


class _AnswerJob(Job):
    """A job that remembers its run directory."""

    run_dir: RunDir

    def _open_run(self) -> RunDir:
        self.run_dir = super()._open_run()
        return self.run_dir


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(
        "python -m pipelines.batch_answer", description=__doc__, formatter_class=HelpFormatter
    )
    parser.add_argument("--questions", type=Path, required=True, help="file of questions")
    parser.add_argument("--question-field", help="field or column that holds the question (default: question)")
    add_run_options(parser)
    args = parser.parse_args(argv)
    questions = load_asked(args.questions.expanduser(), args.question_field, args.limit)
    options = {**run_options(args), "dataset.question_field": args.question_field}
    config = load_run_config("jsonl", args.method, args.config, args.set, options)
    say(f"questions: {len(questions.questions)} from {questions.source}")
    if questions.rejected:
        first = questions.rejected[0]
        say(f"rejected records: {len(questions.rejected)}; the first: {first.where}: {first.reason}")
    job = _AnswerJob(config, questions, args.run_root, args.num_shards, args.shard)
    code = job.run()
    if job.run_dir.is_finished:
        _write(job)
    return code


def _write(job: _AnswerJob) -> None:
    """Writes the answers of a finished run, anew each time: a process may have been killed before it came to it."""
    run = job.run_dir
    results = {result.question.id: result for result in run.read_shards(job.num_shards)}
    share = cost_share(run.metrics()["cost"], len(results))
    rows = [answer_row(results[question.id], job.kg.passages, share) for question in job.questions.questions]
    rows += [rejected_row(rejected) for rejected in job.questions.rejected]
    say(f"answers: {' and '.join(str(path) for path in write_answers(run.path, rows))}")


if __name__ == "__main__":
    run_command(main)
