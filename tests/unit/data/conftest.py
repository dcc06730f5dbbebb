"""Files of records, in a place of their own."""

import json
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_outside(monkeypatch):
    """No test finds data of the machine it runs on, or asks a hub."""
    monkeypatch.delenv("KGRAG_DATA", raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def write(tmp_path):
    """Write records (JSON lines) or text to a file of that name."""

    def _write(name: str, content, suffix: str = "\n") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else "\n".join(json.dumps(r) for r in content) + suffix
        path.write_text(text, encoding="utf-8")
        return path

    return _write
