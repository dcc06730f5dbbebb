"""Every prompt kind: its file, the form of its reply, how long the reply may be. Requests are made here alone."""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from kgrag_gpu.llm.records import Request
from kgrag_gpu.prompts.templates import prompts_hash, render_messages, schema_text

__all__ = ["PROMPTS", "PromptKind", "make_request", "prompts_hash", "schema_text"]


@dataclass(frozen=True, slots=True)
class PromptKind:
    """A prompt file (named as the kind), its reply's schema (None: free text) and its reply limit in tokens."""

    schema: type[BaseModel] | None
    max_tokens: int


PROMPTS: dict[str, PromptKind] = {
    "answer": PromptKind(None, 32),
    "answer_facts": PromptKind(None, 48),
    "cot": PromptKind(None, 200),
}


def make_request(kind: str, question_id: str = "", num_options: int = 0, **values: Any) -> Request:
    """A request of a registered kind.

    Args:
        kind: a key of `PROMPTS`, which is also the file's name.
        question_id: labels a failure.
        num_options: how many numbered options the prompt shows, where the reply is by number.
        values: what the file fills in.
    """
    return Request(kind, render_messages(kind, **values), PROMPTS[kind].schema, num_options, question_id)
