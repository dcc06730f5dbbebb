"""The run directory: the only place that builds paths below a run, and the only one that writes there.

Every file appears whole or not at all (temporary name, then rename). Within a shard, each finished batch is a part;
a killed process therefore loses only the batch in hand. A shard's `done` mark is written last.
"""

import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from kgrag_gpu.results import json_line, prediction_row, read_results, results_to_table, retrieval_row
from kgrag_gpu.shard_lock import LockLost, ShardLock
from kgrag_gpu.types import Passage, Rejected, Result, UserError


class RunDir:
    """One run's directory, `<root>/<dataset>-<method>-<hash8>/`."""

    def __init__(self, path: Path):
        self.path = Path(path)
        self.config_file = self.path / "config.yaml"
        self.manifest_file = self.path / "manifest.json"
        self.metrics_file = self.path / "metrics.json"
        self.report_file = self.path / "report.html"
        self.predictions_file = self.path / "predictions.jsonl"
        self.retrieval_file = self.path / "retrieval.jsonl"
        self.errors_file = self.path / "errors.jsonl"
        self.rejected_file = self.path / "rejected.jsonl"
        self.log_file = self.path / "log.jsonl"
        self.llm_cache_dir = self.path / "llm_cache"
        self.plots_dir = self.path / "plots"
        self.traces_dir = self.path / "traces"
        self._held: dict[int, ShardLock] = {}

    @classmethod
    def create(cls, root: Path, name: str, config: Mapping[str, Any], manifest: Mapping[str, Any]) -> "RunDir":
        """Makes the directory, or opens it where the same run was started before.

        Raises:
            UserError: The root cannot be written, or the run was started with another number of shards.
        """
        run = cls(Path(root) / name)
        try:
            for folder in (run.path / "shards", run.path / "parts", run.path / "done", run.traces_dir):
                folder.mkdir(parents=True, exist_ok=True)
            if run.manifest_file.exists():
                before = run.manifest()
                if before["num_shards"] != manifest["num_shards"]:
                    raise UserError(
                        f"{run.path} was started with {before['num_shards']} shards, not {manifest['num_shards']}; "
                        f"give --num-shards {before['num_shards']}, or another --run-root"
                    )
            else:
                _write_text(run.config_file, yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True))
                _write_text(run.manifest_file, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
        except OSError as error:
            raise UserError(
                f"run root {root} cannot be written ({error.strerror}); give a writable folder with --run-root"
            ) from error
        return run

    @property
    def is_finished(self) -> bool:
        """Whether metrics and predictions were written; they are written last."""
        return self.metrics_file.exists()

    def manifest(self) -> dict[str, Any]:
        """What the run is made of."""
        return json.loads(self.manifest_file.read_text(encoding="utf-8"))

    def metrics(self) -> dict[str, Any]:
        """The metrics of a finished run."""
        return json.loads(self.metrics_file.read_text(encoding="utf-8"))

    def shard_file(self, shard: int, num_shards: int) -> Path:
        """Where a finished shard lies."""
        return self.path / "shards" / f"{shard:05d}-of-{num_shards:05d}.parquet"

    def done_file(self, shard: int) -> Path:
        """The mark of a finished shard."""
        return self.path / "done" / f"{shard:05d}"

    def is_done(self, shard: int) -> bool:
        """Whether a shard was finished."""
        return self.done_file(shard).exists()

    def read_parts(self, shard: int) -> list[Result]:
        """Results of a shard that was interrupted."""
        return read_results(sorted(self._parts_dir(shard).glob("*.parquet")))

    def write_part(self, shard: int, results: Sequence[Result]) -> None:
        """Keeps a finished batch of a shard. Raises LockLost where a locked shard was taken over by another owner."""
        folder = self._parts_dir(shard)
        folder.mkdir(parents=True, exist_ok=True)
        number = sum(1 for _ in folder.glob("*.parquet"))
        _write_parquet(folder / f"{number:05d}.parquet", results, lambda: self._check_held(shard))

    def finish_shard(self, shard: int, num_shards: int, results: Sequence[Result]) -> None:
        """Writes a shard, marks it done, and only then removes its parts. Raises LockLost as `write_part` does."""
        _write_parquet(self.shard_file(shard, num_shards), results, lambda: self._check_held(shard))
        _write_text(self.done_file(shard), "")
        folder = self._parts_dir(shard)
        if folder.exists():
            for part in folder.iterdir():
                part.unlink()
            folder.rmdir()

    def read_shards(self, num_shards: int) -> list[Result]:
        """Results of all shards, in shard order.

        Raises:
            UserError: Some shard is not done.
        """
        missing = [shard for shard in range(num_shards) if not self.is_done(shard)]
        if missing:
            raise UserError(f"{self.path}: shards {missing} of {num_shards} are not done; run them first")
        return read_results([self.shard_file(shard, num_shards) for shard in range(num_shards)])

    def write_rows(self, results: Sequence[Result], passages: Sequence[Passage]) -> None:
        """Writes predictions, retrieval and errors as JSONL, sorted by question id."""
        ordered = sorted(results, key=lambda result: result.question.id)
        _write_lines(self.predictions_file, (json_line(prediction_row(r)) for r in ordered))
        _write_lines(self.retrieval_file, (json_line(retrieval_row(r, passages)) for r in ordered))
        errors = ({"id": r.question.id, "question": r.question.text, "reason": r.error} for r in ordered if r.error)
        _write_lines(self.errors_file, (json_line(row) for row in errors))

    def write_rejected(self, rejected: Iterable[Rejected]) -> None:
        """Lists the input records that could not be used."""
        rows = ({"where": r.where, "reason": r.reason, "excerpt": r.excerpt} for r in rejected)
        _write_lines(self.rejected_file, (json_line(row) for row in rows))

    def write_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Writes `metrics.json`: from then on the run counts as finished."""
        _write_text(self.metrics_file, json.dumps(metrics, indent=2, ensure_ascii=False) + "\n")

    def log(self, event: str, **values: Any) -> None:
        """Appends an event to `log.jsonl`."""
        row = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "event": event, **values}
        line = json.dumps(row, ensure_ascii=False).encode() + b"\n"
        with self.log_file.open("ab+", buffering=0) as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a process was killed within its line; ours is not lost with it
                    line = b"\n" + line
            file.write(line)  # in one piece, at the end: several tasks share this file

    def events(self, event: str) -> list[dict[str, Any]]:
        """The logged events of one kind; a line that a killed process left half written is passed over."""
        if not self.log_file.exists():
            return []
        rows = []
        for line in self.log_file.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue
            if row.get("event") == event:
                rows.append(row)
        return rows

    @contextmanager
    def lock_shard(self, shard: int) -> Iterator[ShardLock]:
        """Holds a shard while it is computed; writing it is refused (LockLost) once another owner has taken it over.

        Raises:
            LockHeld: Another living process computes it.
        """
        with ShardLock(self._locks_dir() / f"{shard:05d}", f"shard {shard} of {self.path}") as lock:
            self._held[shard] = lock
            try:
                yield lock
            finally:
                del self._held[shard]

    def lock_join(self) -> ShardLock:
        """The lock to hold (`with`) while the shards are joined; LockHeld is raised where another process has it."""
        return ShardLock(self._locks_dir() / "join", f"the joining of {self.path}")

    def _locks_dir(self) -> Path:
        folder = self.path / "locks"
        folder.mkdir(exist_ok=True)
        return folder

    def _check_held(self, shard: int) -> None:
        lock = self._held.get(shard)
        if lock is not None and not lock.is_mine():
            raise LockLost(f"{lock.what} was taken over by {lock.holder_words()}")

    def _parts_dir(self, shard: int) -> Path:
        return self.path / "parts" / f"{shard:05d}"


def _write_parquet(path: Path, results: Sequence[Result], check: Callable[[], None]) -> None:
    """Writes results; `check` may refuse at the last moment, by raising."""
    temporary = _temporary(path)
    try:
        pq.write_table(results_to_table(results), temporary)
        check()
        _commit(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    _write_text(path, "".join(line.rstrip("\n") + "\n" for line in lines))


def _write_text(path: Path, text: str) -> None:
    temporary = _temporary(path)
    try:
        temporary.write_text(text, encoding="utf-8")
        _commit(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    """A name that no other process takes: process numbers repeat on the nodes of a cluster."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")


def _commit(temporary: Path, path: Path) -> None:
    """Renames a finished file into place after its bytes are on disk."""
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(path)
