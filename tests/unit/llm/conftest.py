"""A scripted backend and a scripted faulty server for the tests of the engine."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kgrag_gpu.llm.records import Completion, Message, Prompt, Request, Sampling


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


class FaultyServer:
    """An OpenAI-compatible server that fails as scripted: `script` maps a word of the prompt to a list of faults.

    A fault: an int (HTTP status), ("sleep", seconds), ("body", raw text of the whole response), or a str (the reply's
    text). The list is used up one by one, its last item stays. Prompts without a scripted word get `default`.
    """

    def __init__(self, script: dict[str, list[Any]], default: str = "fine"):
        self.script, self.default = {key: list(faults) for key, faults in script.items()}, default
        self.requests: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments: Any) -> None:
                pass

            def do_GET(self) -> None:
                outer._send(self, 200, json.dumps({"object": "list", "data": [{"id": "tiny", "object": "model"}]}))

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer._answer(self, body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def _answer(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        text = json.dumps(body["messages"], ensure_ascii=False)
        with self._lock:
            self.requests.append(body)
            script = next((faults for word, faults in self.script.items() if word in text), [self.default])
            fault = script.pop(0) if len(script) > 1 else script[0]
        if isinstance(fault, int):
            self._send(handler, fault, json.dumps({"error": {"message": f"scripted {fault}"}}))
        elif isinstance(fault, tuple) and fault[0] == "sleep":
            time.sleep(fault[1])
            self._send(handler, 200, self._reply(self.default))
        elif isinstance(fault, tuple):
            self._send(handler, 200, fault[1])
        else:
            self._send(handler, 200, self._reply(fault))

    def _reply(self, text: str) -> str:
        usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return json.dumps(
            {"id": "x", "object": "chat.completion", "created": 0, "model": "tiny", "choices": [choice], "usage": usage}
        )

    def _send(self, handler: BaseHTTPRequestHandler, status: int, body: str) -> None:
        data = body.encode()
        try:
            handler.send_response(status)
            handler.send_header("Content-Type", "application/json")
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data)
        except OSError:
            pass  # the client gave up, as it should on a time-out

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


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
