"""Recorded replies instead of a model: exact, instant, the same on every machine. Made by `llm.record_path`.

Token counts of replies are those that were recorded; lengths of prompts are estimated, since no tokenizer is here, so
record with contexts well below their limits.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kgrag_gpu.llm.recorder import recording_key
from kgrag_gpu.llm.records import Completion, Message, Prompt, Sampling
from kgrag_gpu.types import UserError

_BYTES_PER_TOKEN = 4


class ReplayBackend:
    """Recorded replies behind the engine's protocol. A prompt that was never recorded fails with that reason."""

    name = "replay"

    def __init__(self, path: str | Path | None, max_context_tokens: int = 8192):
        if path is None:
            raise UserError("--llm replay needs llm.replay_path: a file that llm.record_path wrote")
        self._rows = _read(Path(path))
        models = sorted({(row.get("model_id", ""), row.get("revision", "")) for row in self._rows.values()})
        self.model_id, self.revision = models[0] if models else ("", "")
        self.max_context_tokens = max_context_tokens
        self.detail = f"{len(self._rows)} recorded replies, equal whatever the batch"

    def render(self, messages: Sequence[Message]) -> str:
        """The chat as plain text."""
        return "\n".join(f"<|{message.role}|>\n{message.content}" for message in messages)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """An estimate from the text's bytes."""
        return [len(text.encode()) // _BYTES_PER_TOKEN + 1 for text in texts]

    def complete(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        """The recorded replies, in order."""
        for number, prompt in enumerate(prompts):
            row = self._rows.get(recording_key(prompt))
            if row is None:
                yield number, Completion("", 0, 0, "error", error="no recorded reply for this prompt")
                continue
            counts = row.get("prompt_tokens", 0), row.get("completion_tokens", 0)
            yield number, Completion(row.get("text", ""), *counts, row.get("finish_reason", "stop"))

    def choice_logprobs(
        self, prompts: Sequence[Prompt], choices: Sequence[Sequence[str]]
    ) -> Iterator[tuple[int, list[float], int]]:
        """The recorded scores; -inf where there are none."""
        for number, (prompt, options) in enumerate(zip(prompts, choices, strict=True)):
            row = self._rows.get(recording_key(prompt, options), {})
            yield number, row.get("scores", [float("-inf")] * len(options)), 0

    def close(self) -> None:
        """Nothing to give back."""


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"cannot read recorded replies {path}: {error.strerror}") from None
    rows = {}
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            rows[row["key"]] = row
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{path}:{number}: not a recorded reply (a JSON object with a key)") from None
    return rows
