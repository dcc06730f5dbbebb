"""A scripted backend and a scripted faulty server for the tests of the engine."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kgrag_gpu.llm.records import Completion, Message, Prompt, Request, Sampling

sys.path.insert(0, str(Path(__file__).parent))
from faulty_server import FaultyServer


@dataclass
class ScriptedBackend:
    """Replies by the last message's text: a list is used up one by one, its last item stays."""

    replies: dict[str, list[str | Completion]]
    name: str = "scripted"
    model_id: str = "tiny"
    revision: str = "r1"
    max_context_tokens: int = 1000
    detail: str = ""
    asked: list[str] = field(default_factory=list)
    batches: list[list[str]] = field(default_factory=list)
    choice_scores: dict[str, list[float]] = field(default_factory=dict)

    def render(self, messages: Sequence[Message]) -> str:
        return "\n".join(message.content for message in messages)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(text.split()) for text in texts]

    def complete(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        self.batches.append([prompt.text for prompt in prompts])
        for row in reversed(range(len(prompts))):  # any order is allowed
            key = prompts[row].messages[0].content
            script = self.replies[key]
            reply = script.pop(0) if len(script) > 1 else script[0]
            self.asked.append(key)
            if isinstance(reply, str):
                reply = Completion(reply, len(prompts[row].text.split()), len(reply.split()), "stop")
            yield row, reply

    def choice_logprobs(
        self, prompts: Sequence[Prompt], choices: Sequence[Sequence[str]]
    ) -> Iterator[tuple[int, list[float], int]]:
        for row, prompt in enumerate(prompts):
            self.asked.append(prompt.text)
            yield row, self.choice_scores[prompt.text], 7

    def close(self) -> None:
        self.asked.append("closed")


@pytest.fixture
def ask() -> Callable[..., Request]:
    """A request of one user message."""

    def make(text: str, schema: Any = None, num_options: int = 0, question_id: str = "", kind: str = "test") -> Request:
        return Request(kind, (Message("user", text),), schema, num_options, question_id)

    return make


@pytest.fixture
def scripted() -> type[ScriptedBackend]:
    return ScriptedBackend


@pytest.fixture
def faulty_server() -> Iterator[Callable[..., FaultyServer]]:
    """Starts servers and stops them at the end of the test."""
    servers: list[FaultyServer] = []

    def start(script: dict[str, list[Any]], default: str = "fine") -> FaultyServer:
        servers.append(FaultyServer(script, default))
        return servers[-1]

    yield start
    for server in servers:
        server.close()
