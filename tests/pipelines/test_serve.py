"""A server's address is in its file while it answers, and only then; clients wait for it."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kgrag_gpu.types import UserError
from pipelines.serve import main, wait_for_address

ROOT = Path(__file__).resolve().parents[2]
SCRIPTED = ROOT / "tests" / "integration" / "scripted_server.py"


def _start(file: Path, command: str) -> subprocess.Popen:
    arguments = ["--address", str(file), "--host", "127.0.0.1", "--seconds", "20", "--command", command]
    return subprocess.Popen([sys.executable, "-m", "pipelines.serve", *arguments], cwd=ROOT, stderr=subprocess.PIPE)


def test_serve_hands_over_the_address_and_takes_it_away_at_the_end(tmp_path, capsys):
    file = tmp_path / "new" / "server.url"
    process = _start(file, f"{sys.executable} {SCRIPTED} {{port}} 0")
    assert main(["--wait", str(file), "--seconds", "50"]) == 0
    address = capsys.readouterr().out.strip()
    assert address == file.read_text().strip() and address.startswith("http://127.0.0.1:")
    process.send_signal(signal.SIGUSR1)
    assert process.wait(40) == 4
    assert not file.exists()
    with pytest.raises(UserError, match="no address in"):
        wait_for_address(file, 0.0)


def test_serve_ends_with_a_server_that_ends_and_leaves_no_address(tmp_path):
    process = _start(tmp_path / "server.url", f"{sys.executable} -c exit(7)")
    _, errors = process.communicate(timeout=50)
    assert process.returncode == 3 and b"the server ended with exit code 7" in errors
    assert not list(tmp_path.iterdir())


def test_serve_old_address_without_a_server_is_not_given_out(tmp_path):
    file = tmp_path / "server.url"
    file.write_text("http://127.0.0.1:9/v1\n")
    started = time.monotonic()
    with pytest.raises(UserError, match=r"127\.0\.0\.1:9/v1 does not answer"):
        wait_for_address(file, 0.5)
    assert time.monotonic() - started < 20


def test_serve_without_a_model_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="--address needs --model"):
        main(["--address", str(tmp_path / "server.url")])
