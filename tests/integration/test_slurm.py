"""The job scripts on a real SLURM: chains equal one process, whatever stops a task; one server serves several tasks."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_server import ANSWER
from slurm_cluster import ROOT, Cluster, NoSlurm, require_slurm

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "llm"))
from faulty_server import FaultyServer

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]
SCRIPTS = sorted(path.name for path in (ROOT / "slurm").iterdir())
REAL_FILE = Path(os.environ.get("KGRAG_DATA", "none")) / "musique"
SITE = """
SITE_OPTIONS=(--cpus-per-task=1 --mem=100M)
BUILD_RESOURCES=() ENCODE_RESOURCES=(--cpus-per-task=2) EVAL_RESOURCES=() SERVER_RESOURCES=() MERGE_RESOURCES=()
ENCODE_PROCESSES=2 MAX_RESTARTS=3 LAUNCH=() NODE_SCRATCH={scratch}
SERVER_OPTIONS=(--host 127.0.0.1 --command "{python} {server} {{port}} 0.4")
site_setup() {{ PATH="{bin}:$PATH"; }}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    try:
        require_slurm()
        running = Cluster(tmp_path_factory.mktemp("slurm"))
    except NoSlurm as reason:
        pytest.skip(str(reason))
    server = Path(__file__).with_name("scripted_server.py")
    site = running.folder / "site.env"
    site.write_text(
        SITE.format(
            python=sys.executable,
            server=server,
            bin=Path(sys.executable).parent,
            scratch=tmp_path_factory.mktemp("scratch"),
        )
    )
    running.environment |= {"KGRAG_SITE": str(site), "LOGS": str(running.folder / "logs")}
    yield running
    running.close()


def _run_all(cluster: Cluster, arguments: list[str], **environment: str) -> dict[str, str]:
    """Submits the chain; the jobs' numbers by their part."""
    lines = cluster.run("slurm/run_all.sh", *arguments, **environment).splitlines()
    return dict(line.split() for line in lines)


def _single_run(cluster: Cluster, arguments: list[str], **environment: str) -> Path:
    command = [sys.executable, "-m", "pipelines.batch_eval", *arguments]
    return Path(cluster.run(*command, **environment).splitlines()[-1])


def _merged_run(cluster: Cluster, jobs: dict[str, str]) -> Path:
    return Path((cluster.folder / "logs" / f"merge-{jobs['merge']}.out").read_text().splitlines()[-1])


def _assert_equal(many: Path, one: Path) -> int:
    """Two runs are equal byte for byte, but for what they cost; gives the number of questions."""
    assert many != one and many.name == one.name
    for name in ("predictions.jsonl", "retrieval.jsonl", "errors.jsonl"):
        assert (many / name).read_bytes() == (one / name).read_bytes(), name
    values = [json.loads((path / "metrics.json").read_text()) for path in (many, one)]
    texts = [json.dumps({key: value for key, value in each.items() if key != "cost"}) for each in values]
    assert texts[0] == texts[1]
    return values[0]["num_questions"]


def _events(run: Path, name: str) -> list[dict]:
    return [row for row in map(json.loads, (run / "log.jsonl").read_text().splitlines()) if row["event"] == name]


@pytest.mark.parametrize("name", SCRIPTS)
def test_slurm_script_is_valid_bash(name):
    subprocess.run(["bash", "-n", str(ROOT / "slurm" / name)], check=True)
    if shutil.which("shellcheck"):
        done = subprocess.run(
            ["shellcheck", "-x", f"slurm/{name}"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name.endswith(".sbatch")])
def test_slurm_script_would_be_accepted_by_sbatch(cluster, name):
    cluster.run("sbatch", "--test-only", "--cpus-per-task=1", "--mem=1G", f"slurm/{name}", "argument")


def test_slurm_array_of_four_and_merge_equal_the_single_run(cluster, tmp_path):
    real = REAL_FILE.is_dir()
    arguments = ["--dataset", "musique", "--method", "hybrid", "--llm", "none"]
    arguments += ["--set", f"execution.cache_dir={tmp_path / 'cache'}"]
    environment = {"SHARDS": "4"} if real else {"SHARDS": "4", "SAMPLE": "1"}
    jobs = _run_all(cluster, [*arguments, "--run-root", str(tmp_path / "many")], **environment)
    assert cluster.wait(jobs["merge"], 400) == "COMPLETED", cluster.logs()
    many = _merged_run(cluster, jobs)
    one = _single_run(cluster, [*arguments, "--run-root", str(tmp_path / "one")])
    num_questions = _assert_equal(many, one)
    assert {row["shard"] for row in _events(many, "batch")} == {0, 1, 2, 3}
    assert sum(row["num_questions"] for row in _events(many, "batch")) == num_questions


def test_slurm_requeued_warned_and_killed_tasks_of_one_server_lose_nothing(cluster, tmp_path):
    arguments = ["--dataset", "musique", "--method", "bm25", "--limit", "60", "--batch-size", "2"]
    arguments += ["--set", "llm.max_retries=1"]
    many_root = tmp_path / "many"
    jobs = _run_all(
        cluster, [*arguments, "--run-root", str(many_root)], SAMPLE="1", SHARDS="3", SERVER_MODEL="tiny", KGRAG_DATA=""
    )
    _stop_three_tasks(cluster, jobs["eval"], many_root)
    assert cluster.wait(jobs["merge"], 300) == "COMPLETED", cluster.logs()
    many = _merged_run(cluster, jobs)
    server = FaultyServer({}, ANSWER)
    options = ["--set", "llm.model=tiny", "--llm", "openai", "--set", f"llm.base_url={server.url}"]
    one = _single_run(cluster, [*arguments, *options, "--run-root", str(tmp_path / "one")], KGRAG_DATA="")
    server.close()
    num_questions = _assert_equal(many, one)
    assert num_questions == 60
    assert len(_events(many, "setup")) == 6  # three tasks, each started twice
    answered = sum(row["num_questions"] for row in _events(many, "batch"))
    # A stop by signal loses nothing; kill -9 at most the batch in hand, or its line in the log.
    assert num_questions - 2 <= answered <= num_questions + 2
    assert not list((many / "locks").iterdir())
    assert cluster.wait(jobs["server"], 60) in ("CANCELLED", "COMPLETED", "FAILED")
    assert not list((cluster.folder / "logs").glob("*.url"))


def _stop_three_tasks(cluster: Cluster, array: str, root: Path) -> None:
    """In mid-run: shard 0 is requeued from outside, 1 is warned of its time limit, 2 is killed."""
    waiting = {0, 1, 2}
    deadline = time.monotonic() + 200
    while waiting and time.monotonic() < deadline:
        for shard in sorted(waiting):
            parts, locks = list(root.glob(f"*/parts/{shard:05d}/*.parquet")), list(root.glob(f"*/locks/{shard:05d}"))
            if len(parts) < 2 or not locks:
                continue
            waiting.remove(shard)
            if shard == 0:
                cluster.run("scontrol", "requeue", f"{array}_0")
            elif shard == 1:
                cluster.run("scancel", "--batch", "--signal=USR1", f"{array}_1")
            else:
                os.kill(json.loads(locks[0].read_text())["pid"], signal.SIGKILL)
        cluster.start_requeued()
    assert not waiting, f"no parts of shards {waiting}\n{cluster.logs()}"
