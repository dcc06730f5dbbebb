"""Runs one OpenAI-compatible server for many clients, and hands its address over in a file.

    python -m pipelines.serve --address runs/server.url --model Qwen/Qwen2.5-7B-Instruct-AWQ [-- options of vLLM]
    python -m pipelines.serve --wait runs/server.url          # prints the address once the server answers

The file holds the address while the server answers its health check, and is gone when it does not: it is written after
the first good answer, and taken away when the server ends or this command is stopped (exit code 4, as every command
that may be started again). Several GPUs: `-- --tensor-parallel-size 2 --data-parallel-size 2`.
"""

import argparse
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from kgrag_gpu.llm.models import resolve_model
from kgrag_gpu.runner import StopSignal
from kgrag_gpu.types import UserError
from pipelines.command_line import EXIT_DONE, EXIT_INTERRUPTED, EXIT_SOME_FAILED, HelpFormatter, run_command, say

POLL_S = 1.0
STOP_S = 30.0
MAX_SILENT_CHECKS = 60
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # nodes are not reached through a proxy


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser("python -m pipelines.serve", description=__doc__, formatter_class=HelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--address", type=Path, metavar="FILE", help="start a server and keep its address in FILE")
    what.add_argument("--wait", type=Path, metavar="FILE", help="wait for the server of FILE and print its address")
    parser.add_argument("--model", help="a name that fetch_models or the hub's cache knows, or a folder")
    parser.add_argument("--command", help="the server's command, in which {port} is replaced (default: vLLM's)")
    parser.add_argument("--host", default=socket.gethostname(), help="name under which clients reach this machine")
    parser.add_argument("--port", type=int, help="(default: a free one)")
    parser.add_argument("--seconds", type=float, default=1800.0, help="how long the start of the server may take")
    parser.add_argument("options", nargs="*", help="after --: options of vLLM's server")
    args = parser.parse_args(argv)
    if args.wait is not None:
        print(wait_for_address(args.wait, args.seconds))
        return EXIT_DONE
    port = args.port or _free_port()
    address = f"http://{args.host}:{port}/v1"
    return serve(_command(args, port), args.address, address, args.seconds)


def serve(command: Sequence[str], file: Path, address: str, start_s: float) -> int:
    """Runs a server until it ends or a signal comes; `file` holds `address` while it answers.

    Args:
        command: The server's command line.
        file: Where clients look for the address.
        address: The base of its API, which ends in /v1; the health check is asked beside it.
        start_s: Seconds until the first good answer.

    Returns:
        EXIT_INTERRUPTED after a signal, EXIT_SOME_FAILED where the server ended, fell silent or did not start.
    """
    stop = StopSignal()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    process = subprocess.Popen(command, start_new_session=True)
    started, silent = time.monotonic(), 0
    is_up = False
    try:
        while not stop.received:
            if process.poll() is not None:
                say(f"the server ended with exit code {process.returncode}")
                return EXIT_SOME_FAILED
            if answers(address):
                silent = 0
                if not is_up:
                    say(f"the server answers at {address} after {time.monotonic() - started:.0f} s")
                    _write(file, address)
                    is_up = True
            elif is_up and (silent := silent + 1) >= MAX_SILENT_CHECKS:
                say(f"the server fell silent: {MAX_SILENT_CHECKS} health checks without an answer")
                return EXIT_SOME_FAILED
            elif not is_up and time.monotonic() - started > start_s:
                say(f"the server did not answer within {start_s:.0f} s; raise --seconds, or read its output above")
                return EXIT_SOME_FAILED
            time.sleep(POLL_S)
        return EXIT_INTERRUPTED
    finally:
        file.unlink(missing_ok=True)
        _end(process)


def wait_for_address(file: Path, wait_s: float) -> str:
    """The address in `file`, once the server there answers.

    Raises:
        UserError: It does not within `wait_s` seconds.
    """
    deadline = time.monotonic() + wait_s
    while True:
        try:
            address = file.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            address = ""
        if address and answers(address):
            return address
        if time.monotonic() >= deadline:
            state = f"{address} does not answer" if address else f"no address in {file}"
            raise UserError(f"no server after {wait_s:.0f} s: {state}; look at the server job, or raise --seconds")
        time.sleep(POLL_S)


def answers(address: str) -> bool:
    """Whether a server's health check is good."""
    try:
        with _DIRECT.open(address.removesuffix("/v1") + "/health", timeout=10) as reply:
            return reply.status == 200
    except OSError:
        return False


def _command(args: argparse.Namespace, port: int) -> list[str]:
    if args.command:
        return [part.replace("{port}", str(port)) for part in shlex.split(args.command)]
    if not args.model:
        raise UserError("--address needs --model, or the --command of another server")
    model = resolve_model(args.model)
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--host", "0.0.0.0", "--port", str(port)]
    return [*command, "--model", str(model.path), "--served-model-name", args.model, *args.options]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def _write(file: Path, address: str) -> None:
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    temporary.write_text(address + "\n", encoding="utf-8")
    temporary.replace(file)


def _end(process: subprocess.Popen) -> None:
    """Ends the server and what it started."""
    for number, wait_s in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, STOP_S)):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(wait_s)
            except subprocess.TimeoutExpired:
                continue


if __name__ == "__main__":
    run_command(main)
