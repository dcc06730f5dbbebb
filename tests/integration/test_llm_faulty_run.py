"""A whole run against a server that fails for some questions: exit code 3, each fault listed, all others right."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from kgrag_gpu.data.sample import sample_records

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "llm"))
from faulty_server import FaultyServer

FAULTS = {
    "time-out": [("sleep", 4.0)],
    "429": [429],
    "500": [500],
    "empty": [""],
    "blank": [" \n" * 40],
    "thought": ["<think>I never stop"],
    "junk": [("body", "<html>bad gateway</html>")],
}
REASONS = {
    "time-out": "no reply within 1 s",
    "429": "server said 429",
    "500": "server said 500",
    "empty": "empty reply",
    "blank": "empty reply",
    "thought": "empty reply",
    "junk": "unreadable response",
}
MENDED = {"fenced": ["**Answer:** right"], "passing 429": [429, "right"], "passing 500": [500, "The answer is right."]}


@pytest.mark.timeout(600)
def test_run_with_a_faulty_server_ends_with_3_and_lists_every_fault(tmp_path):
    records = sample_records()[:14]
    names = [*FAULTS, *MENDED]
    script = {record["question"][:60]: {**FAULTS, **MENDED}[name] for name, record in zip(names, records, strict=False)}
    server = FaultyServer(
        {json.dumps(key, ensure_ascii=False)[1:-1]: faults for key, faults in script.items()}, "right"
    )
    (tmp_path / "questions.jsonl").write_text("\n".join(json.dumps(record) for record in records) + "\n")
    values = [f"llm.base_url={server.url}", "llm.request_timeout_s=1", "llm.max_retries=1", "llm.model=tiny"]
    command = [
        sys.executable,
        "-m",
        "pipelines.batch_eval",
        "--dataset",
        "musique",
        "--method",
        "bm25",
        "--llm",
        "openai",
    ]
    command += ["--data", str(tmp_path / "questions.jsonl"), "--run-root", str(tmp_path / "runs")]
    command += [part for value in values for part in ("--set", value)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    server.close()
    assert done.returncode == 3, done.stderr[-3000:]
    run = Path(done.stdout.strip().splitlines()[-1])
    errors = {row["id"]: json.dumps(row) for row in map(json.loads, (run / "errors.jsonl").read_text().splitlines())}
    for name, record in zip(FAULTS, records, strict=False):
        assert REASONS[name] in errors[record["id"]], name
    assert len(errors) == len(FAULTS)
    answers = {row["id"]: row for row in map(json.loads, (run / "predictions.jsonl").read_text().splitlines())}
    for record in records[len(FAULTS) :]:
        assert "right" in json.dumps(answers[record["id"]])
