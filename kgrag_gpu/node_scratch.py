"""Caches on a node's own fast storage: copied there at the start, what is new copied back at the end.

Everything in a cache is written once under a name of its own, so copying back never replaces anything. A file or a new
folder appears in the shared cache whole or not at all, and files in the order in which they were written: what marks a
pair or a folder as complete comes last, as it did on the node.
"""

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kgrag_gpu.types import UserError

_PASSING = (".tmp", ".old", ".lock")


@contextmanager
def local_cache(shared: Path, scratch: Path, say: Callable[[str], None]) -> Iterator[Path]:
    """A copy of a cache on the node, for the time of the `with`.

    Args:
        shared: The cache that all nodes see; it need not exist yet.
        scratch: A folder on the node's own storage.
        say: Told where the copy lies, or why the shared cache is used instead (no room for it).

    Yields:
        The folder to use. What is new there is copied to `shared` at the end, also after an error.

    Raises:
        UserError: `scratch` is no folder, or cannot be written.
    """
    if not scratch.is_dir():
        raise UserError(f"scratch {scratch}: no such folder on {os.uname().nodename}; give another, or leave it out")
    num_bytes = sum(path.stat().st_size for path in _files(shared))
    free_bytes = shutil.disk_usage(scratch).free
    if 2 * num_bytes > free_bytes:  # room for as much again
        say(f"scratch {scratch} has {free_bytes / 1e9:.1f} GB, the cache {num_bytes / 1e9:.1f} GB: used where it is")
        yield shared
        return
    try:
        folder = Path(tempfile.mkdtemp(prefix="kgrag-cache-", dir=scratch))
    except OSError as error:
        raise UserError(
            f"scratch {scratch} cannot be written ({error.strerror}); give another, or leave it out"
        ) from None
    try:
        _copy_new(shared, folder)
        say(f"cache: {num_bytes / 1e6:.0f} MB copied to {folder}")
        try:
            yield folder
        finally:
            _copy_new(folder, shared)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _files(folder: Path) -> list[Path]:
    """The finished files below a folder, in the order in which they were written."""
    found = [path for path in folder.rglob("*") if path.is_file() and not _is_passing(path.relative_to(folder))]
    # Names break ties of the clock: `.vectors.npy` comes before `.keys.npy`, which makes it count.
    return sorted(sorted(found, reverse=True), key=lambda path: path.stat().st_mtime_ns)


def _is_passing(path: Path) -> bool:
    return any(part.endswith(_PASSING) for part in path.parts)


def _copy_new(source: Path, target: Path) -> None:
    """Copies what `target` lacks: new folders whole where nobody makes them meanwhile, else file by file."""
    for folder in sorted({path.parent for path in _files(source)}):
        place = target / folder.relative_to(source)
        if place.exists() or any(path.is_dir() for path in folder.iterdir()):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = _passing_name(place)
        try:
            temporary.mkdir()
            for path in _files(folder):
                _copy(path, temporary / path.name)
            temporary.rename(place)
        except FileExistsError:
            pass  # another task was faster; its files stay, and ours join them below
        except OSError as error:
            if not place.is_dir():
                raise error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    for path in _files(source):
        place = target / path.relative_to(source)
        if not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            temporary = _passing_name(place)
            try:
                _copy(path, temporary)
                temporary.rename(place)
            finally:
                temporary.unlink(missing_ok=True)


def _passing_name(place: Path) -> Path:
    return place.with_name(f".{place.name}.{uuid.uuid4().hex[:12]}.tmp")


def _copy(source: Path, target: Path) -> None:
    """Copies a file with its time, and waits until its bytes are on disk."""
    shutil.copy2(source, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())
