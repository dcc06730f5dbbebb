"""Model replies on disk, found again by what was asked. Also the format of recorded replies (replay_engine.py).

A folder of append-only JSON-lines segments, one per writing process: no locks, so it is safe for several processes and
on network file systems where SQLite is not; a line torn by a kill is skipped. Readers see what other processes have
written since by reading on where they stopped. Only replies that the caller has validated come in here.
"""

import hashlib
import json
import os
import socket
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kgrag_gpu.llm.records import FinishReason, Sampling
from kgrag_gpu.types import UserError

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class CachedReply:
    """A stored reply: `text` as the model sent it, or `scores` where choices were scored."""

    key: str
    kind: str
    text: str = ""
    scores: tuple[float, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    finish_reason: FinishReason = "stop"


def reply_key(text: str, model_id: str, revision: str, sampling: Sampling, json_schema: str | None) -> str:
    """Key of a generated reply: rendered text, model, revision, sampling and schema (hex SHA-256)."""
    return _digest([FORMAT_VERSION, "generate", text, model_id, revision, asdict(sampling), json_schema])


def choices_key(text: str, model_id: str, revision: str, choices: Iterable[str]) -> str:
    """Key of scored choices. Sampling plays no part in them."""
    return _digest([FORMAT_VERSION, "choices", text, model_id, revision, list(choices)])


def _digest(parts: list[Any]) -> str:
    return hashlib.sha256(json.dumps(parts, ensure_ascii=False, sort_keys=True).encode()).hexdigest()


class ReplyCache:
    """The replies under one folder. `directory` None keeps them in memory only.

    Memory: one dict entry per reply (about 0.5 kB each). Not for threads of one process.
    """

    def __init__(self, directory: Path | None, read_only: bool = False):
        self._directory = directory
        self._read_only = read_only
        self._replies: dict[str, CachedReply] = {}
        self._read_up_to: dict[Path, int] = {}
        self._segment = None
        self._segment_path: Path | None = None
        self.num_bad_lines = 0
        if directory is not None and not read_only:
            try:
                directory.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(
                    f"cannot make the reply cache {directory}: {error.strerror}; give a writable place"
                ) from None
        self._refresh()

    def __len__(self) -> int:
        return len(self._replies)

    def get_many(self, keys: Iterable[str]) -> dict[str, CachedReply]:
        """The stored replies among `keys`. Looks at other processes' segments again where some key is missing."""
        wanted = list(keys)
        if any(key not in self._replies for key in wanted):
            self._refresh()
        return {key: self._replies[key] for key in wanted if key in self._replies}

    def put(self, reply: CachedReply) -> None:
        """Store a validated reply; on disk (in the system's hands) when this returns. The first one stored stays."""
        if self._read_only or reply.key in self._replies:
            return
        self._replies[reply.key] = reply
        if self._directory is None:
            return
        if self._segment is None:
            name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}.jsonl"
            self._segment_path = self._directory / name
            self._segment = self._segment_path.open("ab", buffering=0)
        row = {name: value for name, value in asdict(reply).items() if value not in ("", ())}
        self._segment.write((json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n").encode())

    def close(self) -> None:
        """Close this process's segment. Reading stays possible."""
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def _refresh(self) -> None:
        if self._directory is None or not self._directory.is_dir():
            return
        for path in sorted(self._directory.glob("*.jsonl")):
            if path == self._segment_path:
                continue
            start = self._read_up_to.get(path, 0)
            if path.stat().st_size > start:
                self._read_up_to[path] = self._read_segment(path, start)

    def _read_segment(self, path: Path, start: int) -> int:
        """Read whole lines from byte `start`; returns where to go on (before a line that is still being written)."""
        with path.open("rb") as file:
            file.seek(start)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                start += len(line)
                try:
                    reply = _from_row(json.loads(line))
                except (ValueError, TypeError, KeyError):
                    self.num_bad_lines += 1
                    continue
                self._replies.setdefault(reply.key, reply)
        return start


def _from_row(row: Mapping[str, Any]) -> CachedReply:
    fields = dict(row)
    fields["scores"] = tuple(float(score) for score in fields.get("scores", ()))
    return CachedReply(**fields)
