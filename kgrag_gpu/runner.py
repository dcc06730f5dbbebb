"""Runs a method over a question set, batch by batch, into a run directory.

Knows how to split work, isolate a question that fails, stop on a signal and go on later. It knows no method by name
and no data set.
"""

import dataclasses
import hashlib
import signal
from collections.abc import Callable, Sequence
from types import FrameType

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from kgrag_gpu.llm.usage import Usage
from kgrag_gpu.methods.registry import Method
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.run_dir import RunDir
from kgrag_gpu.types import Answer, Question, Result, Retrieval, UserError

Reader = Callable[[Sequence[Question], Sequence[Retrieval]], list[Answer]]


class Interrupted(Exception):
    """A signal asked the run to stop; everything finished is on disk."""


class StopSignal:
    """Notes SIGINT, SIGTERM and SIGUSR1, so that the batch in hand can be finished and kept."""

    def __init__(self):
        self.received = False
        for name in ("SIGINT", "SIGTERM", "SIGUSR1"):
            signal.signal(getattr(signal, name), self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received and number == signal.SIGINT:
            raise KeyboardInterrupt  # a second Ctrl-C does not wait for the batch
        self.received = True


def shard_of(question_id: str, num_shards: int) -> int:
    """The shard of a question: decided by its id alone, so that it never moves."""
    digest = hashlib.sha256(question_id.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % num_shards


def run_shard(
    run: RunDir,
    shard: int,
    num_shards: int,
    questions: Sequence[Question],
    gold_passage_ids: Sequence[tuple[int, ...]],
    method: Method,
    reader: Reader,
    resources: Resources,
    stop: StopSignal | None = None,
) -> None:
    """Answers the questions of one shard, keeping every finished batch.

    Args:
        run: Where results go.
        shard: Which shard, of `num_shards`.
        questions: The whole question set; the shard's own are picked by id.
        gold_passage_ids: For each question, the rows of the KG's passages that are gold (-1 where the KG lacks one).
        method: What retrieves.
        reader: What answers where the method did not.
        resources: For stage times and engine usage.
        stop: Checked after every batch.

    Raises:
        Interrupted: `stop` was set; the batches finished so far are kept.
    """
    mine = [
        (q, gold) for q, gold in zip(questions, gold_passage_ids, strict=True) if shard_of(q.id, num_shards) == shard
    ]
    finished = {result.question.id: result for result in run.read_parts(shard)}
    todo = [(q, gold) for q, gold in mine if q.id not in finished]
    size = resources.config.execution.batch_size
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, transient=True) as progress:
        label = "questions" if num_shards == 1 else f"questions of shard {shard + 1}/{num_shards}"
        task = progress.add_task(label, total=len(mine), completed=len(finished))
        for start in range(0, len(todo), size):
            batch = todo[start : start + size]
            results = with_failures(answer_batch([q for q, _ in batch], method, reader), resources)
            results = [
                dataclasses.replace(r, gold_passage_ids=gold) for r, (_, gold) in zip(results, batch, strict=True)
            ]
            run.write_part(shard, results)
            run.log("batch", shard=shard, num_questions=len(batch), **take_cost(resources))
            finished.update({result.question.id: result for result in results})
            progress.advance(task, len(batch))
            if stop is not None and stop.received:
                raise Interrupted
    run.finish_shard(shard, num_shards, [finished[q.id] for q, _ in mine])


def answer_batch(questions: Sequence[Question], method: Method, reader: Reader) -> list[Result]:
    """Retrieves and answers one batch. Where something fails, the batch is halved until the question at fault is alone.

    That question gets a result with its error; running out of memory heals on the way where smaller batches fit.
    """
    try:
        retrievals = method.retrieve(questions)
        answers = reader(questions, retrievals)
    except (UserError, KeyboardInterrupt, Interrupted):
        raise
    except Exception as error:  # any fault of a method: recorded, never the end of the run
        if len(questions) > 1:
            middle = len(questions) // 2
            return [r for half in (questions[:middle], questions[middle:]) for r in answer_batch(half, method, reader)]
        return [Result(questions[0], Retrieval(), Answer("", "none"), error=f"{type(error).__name__}: {error}")]
    return [Result(q, r, a) for q, r, a in zip(questions, retrievals, answers, strict=True)]


def with_failures(results: Sequence[Result], resources: Resources) -> list[Result]:
    """Results with the language model's failures: a question left without an answer by one becomes an error."""
    if resources.engine is None:
        return list(results)
    reasons: dict[str, list[str]] = {}
    for failure in resources.engine.take_failures():
        reasons.setdefault(failure.question_id, []).append(f"{failure.kind}: {failure.reason}")
    return [
        dataclasses.replace(r, error="; ".join(reasons[r.question.id]))
        if r.question.id in reasons and not r.error and not r.answer.text
        else r
        for r in results
    ]


def take_cost(resources: Resources) -> dict:
    """What was spent since the last call: seconds by stage, engine usage, the device's peak memory."""
    cost: dict = {"stages": resources.clock.take()}
    if resources.engine is not None:
        cost["usage"] = resources.engine.usage.rows()
        resources.engine.usage = Usage()
    if resources.device.type == "cuda":
        cost["peak_device_bytes"] = torch.cuda.max_memory_allocated(resources.device)
    return cost
