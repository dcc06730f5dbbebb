"""An OpenAI-compatible server that fails as scripted."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FaultyServer:
    """An OpenAI-compatible server that fails as scripted: `script` maps a word of the prompt to a list of faults.

    A fault: an int (HTTP status), ("sleep", seconds), ("body", raw text of the whole response), or a str (the reply's
    text). The list is used up one by one, its last item stays. Prompts without a scripted word get `default`.
    """

    def __init__(self, script: dict[str, list[Any]], default: str = "fine", port: int = 0):
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

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
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
