"""How far a run is: shards done, running and waiting, questions finished, rate, time left, errors.

Reads the run directory only and writes nothing, so it may be called at any time from any machine.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kgrag_gpu.results import read_results
from kgrag_gpu.run_dir import RunDir
from kgrag_gpu.shard_lock import STALE_S
from pipelines.command_line import EXIT_DONE, HelpFormatter, run_command
from pipelines.merge import open_run


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser("python -m pipelines.status", description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN", help="run directory, finished or not")
    args = parser.parse_args(argv)
    for line in status_lines(run_status(open_run(args.run), time.time())):
        print(line)
    return EXIT_DONE


def run_status(run: RunDir, now: float) -> dict[str, Any]:
    """The state of a run.

    A shard is `running` while its lock is renewed, `stopped` where its lock was left behind or where it has parts but
    no lock, else `waiting`. The rate is that of the last ten batches of all tasks together, from the log's times.

    Args:
        run: The run.
        now: Seconds since the epoch, to tell a silent lock from a living one.

    Returns:
        Shard numbers by state, `num_questions`, `num_finished`, `num_errors`, `questions_per_second` (None with fewer
        than two batches) and `seconds_left` (None where the rate is unknown or nothing runs).
    """
    manifest = run.manifest()
    num_shards = manifest["num_shards"]
    shards: dict[str, list[int]] = {"done": [], "running": [], "stopped": [], "waiting": []}
    files: list[Path] = []
    for shard in range(num_shards):
        parts = sorted((run.path / "parts" / f"{shard:05d}").glob("*.parquet"))
        if run.is_done(shard):
            state, parts = "done", [run.shard_file(shard, num_shards)]
        else:
            state = _unfinished_state(run.path / "locks" / f"{shard:05d}", bool(parts), now)
        shards[state].append(shard)
        files.extend(parts)
    results = read_results(files)
    rate = _questions_per_second(run.events("batch")[-10:])
    left = manifest["num_questions"] - len(results)
    return {
        "shards": shards,
        "num_questions": manifest["num_questions"],
        "num_finished": len(results),
        "num_errors": sum(1 for result in results if result.error),
        "questions_per_second": rate,
        "seconds_left": left / rate if rate and shards["running"] else None,
    }


def status_lines(status: dict[str, Any]) -> list[str]:
    """The state as lines for a person."""
    lines = [
        f"{state}: {len(shards)} shards" + (f" ({', '.join(map(str, shards))})" if shards and state != "done" else "")
        for state, shards in status["shards"].items()
    ]
    lines.append(f"questions: {status['num_finished']:,} of {status['num_questions']:,}, {status['num_errors']} failed")
    if status["questions_per_second"]:
        lines.append(f"rate: {status['questions_per_second']:.2f} questions/s over the last batches")
    if status["seconds_left"] is not None:
        lines.append(f"time left: about {status['seconds_left'] / 60:.0f} min at this rate")
    return lines


def _unfinished_state(lock: Path, has_parts: bool, now: float) -> str:
    try:
        return "running" if now - lock.stat().st_mtime <= STALE_S else "stopped"
    except FileNotFoundError:
        return "stopped" if has_parts else "waiting"


def _questions_per_second(batches: Sequence[dict[str, Any]]) -> float | None:
    times = [time.mktime(time.strptime(batch["time"][:19], "%Y-%m-%dT%H:%M:%S")) for batch in batches]
    if len(times) < 2 or max(times) <= min(times):
        return None
    return sum(batch["num_questions"] for batch in batches[1:]) / (max(times) - min(times))


if __name__ == "__main__":
    run_command(main)
