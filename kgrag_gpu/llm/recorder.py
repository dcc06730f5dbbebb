"""Writes replies down for `replay_engine`: one JSON line each, found again by the chat and the reply's schema alone.

Unlike the cache it keeps bad replies too, and its keys know no model and no tokenizer, so a recording replays anywhere.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from kgrag_gpu.llm.records import Completion, Prompt
from kgrag_gpu.types import UserError


class NamedModel(Protocol):
    """What a recording says about the model that made it."""

    model_id: str
    revision: str


def recording_key(prompt: Prompt, choices: Sequence[str] | None = None) -> str:
    """Key of a recorded reply (hex SHA-256 over turns, schema and choices)."""
    parts = [[asdict(message) for message in prompt.messages], prompt.json_schema, choices and list(choices)]
    return hashlib.sha256(json.dumps(parts, ensure_ascii=False, sort_keys=True).encode()).hexdigest()


class Recorder:
    """Appends to one file; a prompt already in it is not written twice."""

    def __init__(self, path: Path):
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._keys = {json.loads(line)["key"] for line in path.read_text().splitlines()} if path.exists() else set()
            self._file = path.open("a", encoding="utf-8")
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"cannot record to {path}: {error}; give llm.record_path another file") from None

    def add(self, model: NamedModel, prompt: Prompt, kind: str, completion: Completion) -> None:
        """Record a reply as the model sent it. Failed requests are not replies."""
        if completion.error:
            return
        counts = {"prompt_tokens": completion.prompt_tokens, "completion_tokens": completion.completion_tokens}
        row = {"text": completion.text, "finish_reason": completion.finish_reason, **counts}
        self._write(model, recording_key(prompt), kind, row)

    def add_scores(
        self, model: NamedModel, prompt: Prompt, kind: str, choices: Sequence[str], scores: Sequence[float]
    ) -> None:
        """Record the scores of choices."""
        self._write(model, recording_key(prompt, choices), kind, {"scores": list(scores)})

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, model: NamedModel, key: str, kind: str, row: dict[str, Any]) -> None:
        if key in self._keys:
            return
        self._keys.add(key)
        full = {"key": key, "kind": kind, "model_id": model.model_id, "revision": model.revision, **row}
        self._file.write(json.dumps(full, ensure_ascii=False, sort_keys=True) + "\n")
        self._file.flush()
