"""One evaluation from configuration to report: what batch_eval and batch_answer have in common.

Prepare (KG, engine, run directory), run the shards, and finish (metrics, tables, report). Each part leaves its result
on disk, so that a job that was stopped anywhere goes on from there.
"""

import dataclasses
import os
import platform
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from importlib import metadata
from pathlib import Path

import torch

from kgrag_gpu.answer.generate import read_answers
from kgrag_gpu.config.fingerprint import run_fingerprint
from kgrag_gpu.config.schema import RunConfig
from kgrag_gpu.index.encoder import encoder_fingerprint, locate_encoder
from kgrag_gpu.kg.build import kg_for_run
from kgrag_gpu.kg.model_reader import ModelReader
from kgrag_gpu.kg.store import Kg
from kgrag_gpu.llm.choice import EngineChoice, choose_engine
from kgrag_gpu.llm.factory import open_engine
from kgrag_gpu.methods.path_floor import floor_of_questions
from kgrag_gpu.methods.registry import check_method, method_class
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.metrics import compute_metrics
from kgrag_gpu.metrics.cost import sum_costs
from kgrag_gpu.prompts.registry import prompts_hash
from kgrag_gpu.report import print_metrics, write_report
from kgrag_gpu.run_dir import RunDir
from kgrag_gpu.runner import Interrupted, StopSignal, run_shard, take_cost
from kgrag_gpu.shard_lock import LockHeld, LockLost
from kgrag_gpu.types import Answer, Question, QuestionSet, Result, Retrieval, UserError
from pipelines.command_line import EXIT_DONE, EXIT_INTERRUPTED, EXIT_SOME_FAILED, say

QUESTIONS_PER_SHARD = 1000
_PACKAGES = ("torch", "transformers", "sentence-transformers", "bm25s", "pyarrow", "numpy", "vllm", "triton")


class Job:
    """A configured evaluation of a question set."""

    def __init__(
        self,
        config: RunConfig,
        questions: QuestionSet,
        run_root: Path,
        num_shards: int | None = None,
        shard: int | None = None,
    ):
        """Raises UserError for a shard that does not exist."""
        self.config = config
        self.questions = questions
        self.run_root = Path(run_root)
        self.num_shards = num_shards or max(1, -(-len(questions.questions) // QUESTIONS_PER_SHARD))
        if shard is not None and not 0 <= shard < self.num_shards:
            raise UserError(
                f"--shard {shard}: shards run from 0 to {self.num_shards - 1} (--num-shards {self.num_shards})"
            )
        self.is_one_shard = shard is not None
        self.shards = range(self.num_shards) if shard is None else [shard]
        self.cache_dir = Path(config.execution.cache_dir or self.run_root / "cache")
        self.device = _device(config.execution.device)
        torch.set_num_threads(config.execution.num_threads or len(os.sched_getaffinity(0)))

    def run(self) -> int:
        """Does what is not done yet; prints the result and the run directory; returns the exit code."""
        _check_writable(self.run_root)
        started = time.perf_counter()
        self.prepare_kg()
        kg_seconds = time.perf_counter() - started
        say(
            f"KG: {self.kg.num_entities:,} entities, {self.kg.num_triples:,} triples, {self.kg.num_passages:,} passages"
        )
        say(f"model: {self.engine_choice.reason}")
        check_method(
            self.config.method_name, self.config.method, self.kg, self.questions.questions, self.engine_choice.engine
        )
        run = self._open_run()
        if run.is_finished:
            say("this run is finished; nothing to do")
        else:
            stop = StopSignal()
            try:
                self._run_shards(run, stop, kg_seconds)
            except Interrupted:
                say(f"stopped; the same command continues {run.path}")
                return EXIT_INTERRUPTED
            if not self._join(run):
                print(run.path)
                return EXIT_DONE
        metrics = run.metrics()
        print_metrics(metrics, run.manifest())
        print(run.path)
        return EXIT_SOME_FAILED if metrics["num_errors"] else EXIT_DONE

    def prepare_kg(self) -> Kg:
        """Loads or builds the KG that the run asks, as `kg`. Raises UserError where it cannot be had."""
        # Rows of the KG must not depend on the order of the questions, since ties are broken by row.
        passages = tuple(sorted(self.questions.passages, key=lambda p: (p.title, p.text)))
        questions = dataclasses.replace(self.questions, passages=passages)
        reader = ModelReader(self.config.llm, self.engine_choice, self.cache_dir / "llm", str(self.device))
        self.kg = kg_for_run(self.config.kg, questions, self.cache_dir, say, reader)
        return self.kg

    @cached_property
    def engine_choice(self) -> EngineChoice:
        """Which engine and model run, decided before anything is loaded."""
        return choose_engine(self.config.llm)

    @cached_property
    def gold_passage_ids(self) -> list[tuple[int, ...]]:
        """For each question its gold passages as rows of the KG's passages; -1 for one that the KG lacks."""
        row_of = {(p.title, p.text): row for row, p in enumerate(self.kg.passages)}
        mapped = [row_of.get((p.title, p.text), -1) for p in self.questions.passages]
        return [tuple(mapped[i] for i in q.gold_passage_ids) for q in self.questions.questions]

    def sentences(self) -> dict[int, Sequence[str]] | None:
        """The data set's own cut of its passages, by row of the KG's passages; None where it has none."""
        if self.questions.passage_sentences is None:
            return None
        row_of = {(p.title, p.text): row for row, p in enumerate(self.kg.passages)}
        pairs = zip(self.questions.passages, self.questions.passage_sentences, strict=True)
        return {row_of[p.title, p.text]: cut for p, cut in pairs if (p.title, p.text) in row_of}

    def _open_run(self) -> RunDir:
        folder, origin = locate_encoder(self.config.encoder)
        choice = self.engine_choice
        contents = {
            "questions": self.questions.content_hash,
            "kg": self.kg.content_hash,
            "encoder": encoder_fingerprint(self.config.encoder, folder),
            "engine": f"{choice.engine}:{choice.model_id}:{choice.revision}",
            "prompts": prompts_hash() if choice.engine != "none" else "",
        }
        fingerprint = run_fingerprint(self.config, contents)
        manifest = {
            "dataset": self.questions.name,
            "method": self.config.method_name,
            "fingerprint": fingerprint,
            "source": self.questions.source,
            "is_sample": self.questions.is_sample,
            "num_questions": len(self.questions.questions),
            "num_rejected": len(self.questions.rejected),
            "num_shards": self.num_shards,
            "contents": contents,
            "kg": {"kind": self.kg.kind, "entities": self.kg.num_entities, "triples": self.kg.num_triples,
                   "passages": self.kg.num_passages},
            "encoder": f"{self.config.encoder.model} ({origin})",
            "engine": {"name": choice.engine, "model": choice.model_id, "reason": choice.reason},
            "device": _device_words(self.device),
            "num_threads": torch.get_num_threads(),
            "anchors": getattr(self.config.method, "anchors", ""),
            "use_model": getattr(self.config.method, "use_model", None),
            "seed": self.config.seed,
            "code_revision": _code_revision(),
            "packages": {name: _version(name) for name in _PACKAGES if _version(name)},
            "python": platform.python_version(),
        }  # fmt: skip
        name = f"{self.questions.name}-{self.config.method_name}-{fingerprint}"
        run = RunDir.create(self.run_root, name, self.config.model_dump(mode="json"), manifest)
        if self.questions.rejected:
            run.write_rejected(self.questions.rejected)
        return run

    def _run_shards(self, run: RunDir, stop: StopSignal, kg_seconds: float) -> None:
        chosen = self.engine_choice.apply(self.config.llm)
        engine, _ = open_engine(chosen, run.llm_cache_dir, device=str(self.device))
        try:
            resources = Resources(self.config, self.kg, self.cache_dir, self.device, engine)
            resources.clock.seconds["build or load KG"] = kg_seconds
            with resources.stage("set up method"):
                method = method_class(self.config.method_name)(self.config.method, resources)

            def reader(questions: Sequence[Question], retrievals: Sequence[Retrieval]) -> list[Answer]:
                with resources.stage("read answers"):
                    return read_answers(questions, retrievals, self.kg.passages, engine, self.config.reader)

            run.log("setup", **take_cost(resources))
            for shard in self.shards:
                with self._hold(run, shard) as is_mine:
                    if is_mine and not run.is_done(shard):
                        run_shard(
                            run, shard, self.num_shards, self.questions.questions, self.gold_passage_ids, method,
                            reader, resources, stop,
                        )  # fmt: skip
            if self.cache_dir.exists() and "embeddings" in resources.__dict__:
                resources.embeddings.flush()
        finally:
            if engine is not None:
                engine.close()

    @contextmanager
    def _hold(self, run: RunDir, shard: int) -> Iterator[bool]:
        """Holds a shard, so that no two processes compute it; gives False for one to leave alone.

        A shard that was asked for by number and is held by another process is refused (LockHeld, a UserError); of all
        shards, one that is held is passed over. A shard that another process took over in the middle is left to it.
        """
        if run.is_done(shard):
            yield False
            return
        with ExitStack() as stack:
            try:
                stack.enter_context(run.lock_shard(shard))
            except LockHeld as held:
                if self.is_one_shard:
                    raise
                say(f"left out: {held}")
                yield False
                return
            try:
                yield True
            except LockLost as lost:
                say(f"nothing more is written here: {lost}")

    def _join(self, run: RunDir) -> bool:
        """Joins the shards where all are done; False where that is left to another process."""
        if not all(run.is_done(shard) for shard in range(self.num_shards)):
            say("shards left to do: the process that finishes the last one joins them all")
            return False
        try:
            with run.lock_join():
                if not run.is_finished:
                    finish_run(run, self.kg, self.sentences())
        except LockHeld as held:
            say(f"all shards are done; {held}")
            return False
        return True


def finish_run(run: RunDir, kg: Kg, sentences: Mapping[int, Sequence[str]] | None = None) -> None:
    """Joins the shards of a run: predictions, metrics, report. Metrics are written last and mark the run finished.

    Args:
        run: A run whose shards are all done.
        kg: The KG that was asked; over one of bare triples the score of a random path is worked out, too.
        sentences: Where the data set cuts its passages itself: the sentences by row of the KG's passages.
    """
    manifest = run.manifest()
    results: list[Result] = run.read_shards(manifest["num_shards"])
    run.write_rows(results, kg.passages)
    cost = sum_costs([*run.events("setup"), *run.events("batch")], len(results))
    metrics = compute_metrics(results, cost, manifest["source"], manifest["dataset"], passage_sentences=sentences)
    floor = floor_of_questions(kg, [result.question for result in results])
    if floor is not None:
        metrics["supplementary"]["random_path_floor"] = {"hit@1": floor.hit, "n": floor.num_questions}
    write_report(run.path, results, metrics, manifest, kg.passages)
    run.write_metrics(metrics)


def _check_writable(root: Path) -> None:
    try:
        root.mkdir(parents=True, exist_ok=True)
        probe = root / f".write-test-{os.getpid()}"
        probe.write_text("")
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"run root {root} cannot be written ({error.strerror}); give a writable folder with --run-root"
        ) from error


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UserError(f"--device {name}: expected auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"--device {name}: no CUDA device is visible; use --device cpu, or check the driver")
    return device


def _device_words(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu ({platform.machine()})"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _code_revision() -> str:
    """The commit that runs, with a mark where files were changed; the package's version outside a checkout."""
    try:
        folder = Path(__file__).resolve().parent
        command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return _version("kgrag-gpu")
