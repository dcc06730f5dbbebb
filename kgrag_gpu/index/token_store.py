"""Token states on disk: shards that workers write on their own, joined into one memory-mapped index.

Layout below the index's folder (its name is the hash of what was asked for):

    basis.npy            int16 [directions, dim], int8 form only; written first, by whichever worker comes first
    shards/2048-00003/*.npy   one run of 2,048 texts; written under a temporary name, then renamed
    index/*.npy          all shards one after the other, and manifest.json; renamed into place, then shards/ goes

A killed worker leaves at most a temporary folder that nobody reads.
"""

import json
import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kgrag_gpu.types import UserError

SCHEMA_VERSION = 1
# Arrays with a row for each token, and those with a row for each text.
TOKEN_ARRAYS = ("states", "scales", "starts", "piece_ids")
TEXT_ARRAYS = ("counts", "vectors")


class TokenStore:
    """The files of one token index."""

    def __init__(self, directory: Path, num_shards: int, shard_texts: int):
        self.directory = Path(directory)
        self._num_shards = num_shards
        self._shard_texts = shard_texts
        try:
            (self.directory / "shards").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"{self.directory}: cannot be written ({error.strerror}); set execution.cache_dir"
            raise UserError(message) from None

    @property
    def is_joined(self) -> bool:
        """Whether the whole index is there."""
        return (self.directory / "index" / "manifest.json").is_file()

    def has_shard(self, shard: int) -> bool:
        """Whether a shard has been written."""
        return self._shard(shard).is_dir()

    def missing_shards(self) -> list[int]:
        """Shards that nobody has written yet."""
        return [shard for shard in range(self._num_shards) if not self.has_shard(shard)]

    def basis(self) -> np.ndarray | None:
        """The stored basis, if there is one."""
        path = self.directory / "basis.npy"
        return np.load(path) if path.is_file() else None

    def put_basis(self, basis: np.ndarray) -> np.ndarray:
        """Stores the basis unless another worker has; returns the one that all will use."""
        temporary = self.directory / f".basis.{uuid.uuid4().hex}.npy"
        np.save(temporary, basis)
        try:
            os.link(temporary, self.directory / "basis.npy")  # fails where the file is there, unlike a rename
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
        return np.load(self.directory / "basis.npy")

    def write_shard(self, shard: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Writes one shard, whole or not at all."""
        temporary = self.directory / "shards" / f".{uuid.uuid4().hex}"
        temporary.mkdir(parents=True)  # another worker may have joined the index and removed shards/
        for name, array in arrays.items():
            np.save(temporary / f"{name}.npy", array)
        self._put(temporary, self._shard(shard))

    def shard_arrays(self, name: str) -> list[np.ndarray]:
        """One array of every shard, memory-mapped, in order."""
        return [np.load(self._shard(shard) / f"{name}.npy", mmap_mode="r") for shard in range(self._num_shards)]

    def join(self, manifest: Mapping[str, Any], extra: Mapping[str, np.ndarray]) -> None:
        """Puts all shards one after the other, with `extra` arrays and the manifest beside them."""
        temporary = self.directory / f".index.{uuid.uuid4().hex}"
        temporary.mkdir()
        folders = [self._shard(shard) for shard in range(self._num_shards)]
        for name in (*TOKEN_ARRAYS, *TEXT_ARRAYS):
            parts = [folder / f"{name}.npy" for folder in folders]
            if parts[0].is_file():
                _concatenate(parts, temporary / f"{name}.npy")
        for name, array in extra.items():
            np.save(temporary / f"{name}.npy", array)
        text = json.dumps({"schema_version": SCHEMA_VERSION, **manifest}, indent=2, ensure_ascii=False)
        (temporary / "manifest.json").write_text(text + "\n", encoding="utf-8")
        self._put(temporary, self.directory / "index")
        shutil.rmtree(self.directory / "shards", ignore_errors=True)

    def load(self) -> dict[str, np.ndarray]:
        """The joined arrays, memory-mapped.

        Raises:
            UserError: an index of another version, or a damaged one.
        """
        folder = self.directory / "index"
        try:
            manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
            # Copy-on-write, so that torch takes the arrays without a warning; nothing is ever written.
            arrays = {path.stem: np.load(path, mmap_mode="c") for path in sorted(folder.glob("*.npy"))}
        except (OSError, ValueError) as error:
            raise UserError(f"{folder}: damaged token index ({error}); delete the folder and run again") from None
        if manifest.get("schema_version") != SCHEMA_VERSION:
            raise UserError(f"{folder}: token index of another version; delete the folder and run again")
        if len(arrays["states"]) != manifest["num_tokens"] or len(arrays["vectors"]) != manifest["num_texts"]:
            raise UserError(f"{folder}: token index is incomplete; delete the folder and run again")
        return arrays

    def _shard(self, shard: int) -> Path:
        return self.directory / "shards" / f"{self._shard_texts}-{shard:05d}"

    @staticmethod
    def _put(temporary: Path, target: Path) -> None:
        """Renames a folder into place; where another worker was first, its folder stays."""
        try:
            temporary.rename(target)
        except OSError:
            if not target.is_dir():
                raise
            shutil.rmtree(temporary, ignore_errors=True)


def _concatenate(parts: list[Path], out: Path) -> None:
    """Copies arrays one after the other into a new file, one part in memory at a time."""
    maps = [np.load(part, mmap_mode="r") for part in parts]
    rows = sum(len(part) for part in maps)
    if rows == 0:
        np.save(out, np.zeros((0, *maps[0].shape[1:]), dtype=maps[0].dtype))
        return
    joined = np.lib.format.open_memmap(out, mode="w+", dtype=maps[0].dtype, shape=(rows, *maps[0].shape[1:]))
    first = 0
    for part in maps:
        joined[first : first + len(part)] = part
        first += len(part)
    joined.flush()
