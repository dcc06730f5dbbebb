"""A lock on one shard of a run, so that two tasks never compute it at once.

The lock is a file with its owner's name in it, made by a hard link: that is atomic on NFS too, where O_EXCL was not
always. A thread of the owner renews the file's time; a lock that was not renewed for `STALE_S`, or whose owner is a
dead process in this very process space, is taken over. Ages are taken against a file written just now in the same
folder, so that the clock of the file server counts and not that of the node. A job that SLURM requeued takes over from
its own earlier start, which SLURM ended. It knows nothing of runs or questions.
"""

import json
import os
import socket
import threading
import uuid
from pathlib import Path
from types import TracebackType

from kgrag_gpu.types import UserError

HEARTBEAT_S = 15.0
STALE_S = 120.0


class LockHeld(UserError):
    """Another living process holds the lock."""


class LockLost(Exception):
    """Another owner took the lock over while this process did not renew it; nothing may be written any more."""


class ShardLock:
    """Holds `path` from `with` to its end.

    Args:
        path: The lock file; its folder must exist.
        what: What is locked, for messages; the file's name where it is empty.
        heartbeat_s: Seconds between renewals.
        stale_s: A lock not renewed for this long counts as left behind; several times `heartbeat_s`.
    """

    def __init__(self, path: Path, what: str = "", heartbeat_s: float = HEARTBEAT_S, stale_s: float = STALE_S):
        self.path = Path(path)
        self.what = what or self.path.name
        self.heartbeat_s = heartbeat_s
        self.stale_s = stale_s
        self.owner = {
            "token": uuid.uuid4().hex,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "processes": _process_space(),
            "slurm_job": os.environ.get("SLURM_JOB_ID", ""),
            "slurm_restarts": os.environ.get("SLURM_RESTART_COUNT", "0"),
        }
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "ShardLock":
        """Takes the lock.

        Raises:
            LockHeld: A living owner holds it.
        """
        mine = self.path.with_name(f".{self.path.name}.{self.owner['token']}")
        mine.write_text(json.dumps(self.owner), encoding="utf-8")
        try:
            if not (_link(mine, self.path) or self._take_over(mine)):
                raise LockHeld(f"{self.what} is in the hands of {self.holder_words()}; wait, or stop it first")
        finally:
            mine.unlink(missing_ok=True)
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self.is_mine():
            self.path.unlink(missing_ok=True)

    def is_mine(self) -> bool:
        """Whether this lock still is ours; a process that slept past `stale_s` may have lost it."""
        holder = read_owner(self.path)
        return holder is not None and holder.get("token") == self.owner["token"]

    def _take_over(self, mine: Path) -> bool:
        holder = read_owner(self.path)
        if holder is None:  # released since
            return _link(mine, self.path)
        ended = _is_dead(holder) or _was_requeued(holder, self.owner)
        if not (ended or self._age_s(self.path, mine) > self.stale_s):
            return False
        # Whoever makes this name is the only one that may replace this holder.
        claim = self.path.with_name(f".{self.path.name}.after-{holder.get('token', 'unreadable')}")
        if not _link(mine, claim):
            if self._age_s(claim, mine) > self.stale_s:  # its maker died half-way; the next attempt goes through
                claim.unlink(missing_ok=True)
            return False
        try:
            if read_owner(self.path) != holder:
                return False
            fresh = mine.with_name(mine.name + ".new")
            fresh.write_text(json.dumps(self.owner), encoding="utf-8")
            fresh.replace(self.path)
            return self.is_mine()
        finally:
            claim.unlink(missing_ok=True)

    def _age_s(self, path: Path, now: Path) -> float:
        try:
            return now.stat().st_mtime - path.stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def holder_words(self) -> str:
        """Who holds the lock now, in words."""
        holder = read_owner(self.path) or {}
        job = f", SLURM job {holder['slurm_job']}" if holder.get("slurm_job") else ""
        return f"process {holder.get('pid', '?')} on {holder.get('host', '?')}{job}"

    def _beat(self) -> None:
        while not self._stop.wait(self.heartbeat_s):
            if not self.is_mine():
                return
            try:
                os.utime(self.path)
            except OSError:
                continue  # a hiccup of the file server; the next beat tries again


def read_owner(path: Path) -> dict | None:
    """Who holds a lock; None where nobody does, an empty dict where the file cannot be read as a lock."""
    try:
        owner = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _link(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    return True


def _process_space() -> str:
    """The namespace in which our process numbers count: containers on one host have several."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _is_dead(holder: dict) -> bool:
    here = (socket.gethostname(), _process_space())
    if not here[1] or (holder.get("host"), holder.get("processes")) != here:
        return False
    try:
        os.kill(int(holder["pid"]), 0)
    except ProcessLookupError:
        return True
    except (KeyError, ValueError, OSError):
        return False
    return False


def _was_requeued(holder: dict, owner: dict) -> bool:
    """Whether the holder is an earlier start of the very job that asks: SLURM ends one before it starts the next."""
    if not owner["slurm_job"] or holder.get("slurm_job") != owner["slurm_job"]:
        return False
    starts = [str(each.get("slurm_restarts", "")) for each in (holder, owner)]
    return all(text.isdigit() for text in starts) and int(starts[0]) < int(starts[1])
