"""Vectors of texts, encoded once and kept on disk as memory maps.

A store is a folder per encoder revision with append-only segments, each a pair of files: `<id>.keys.npy` (the
128-bit hashes of the texts) and `<id>.vectors.npy` (int16 [texts, dim], fixed point). A segment is written to a
temporary name and renamed, keys last, so a killed process leaves at most a file that nobody reads, and several
processes may write at once: at worst a text is stored twice.
"""

import os
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xxhash

from kgrag_gpu.index.encoder import Encoder

_FLUSH_ROWS = 8192
_KEY = np.dtype("V16")


class EmbeddingCache:
    """Looks vectors up by text and encodes only what is missing."""

    def __init__(self, directory: Path, encoder: Encoder):
        self._directory = Path(directory) / encoder.revision
        self._directory.mkdir(parents=True, exist_ok=True)
        self._encoder = encoder
        self._row_of: dict[bytes, tuple[int, int]] = {}  # key -> (segment, row)
        self._segments: list[np.ndarray] = []
        self._segment_keys: list[np.ndarray] = []
        self._pending: dict[bytes, np.ndarray] = {}
        self.num_encoded = 0
        self.num_requested = 0
        for keys_file in sorted(self._directory.glob("*.keys.npy")):
            self._open_segment(keys_file)

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self._encoder.dim

    def vectors(self, texts: Sequence[str], progress: str | None = None) -> np.ndarray:
        """Vectors of `texts`, int16 [texts, dim], fixed point (kgrag_gpu.tensors.fixed_point).

        A set of texts that was encoded in one go before comes back as a read-only memory map; anything else is
        gathered into memory. `progress` names a progress bar for the encoding.
        """
        keys = [xxhash.xxh3_128_digest(text.encode()) for text in texts]
        self.num_requested += len(keys)
        whole = self._whole_segment(keys)
        if whole is not None:
            return whole
        known = self._row_of
        missing = {k: t for k, t in zip(keys, texts, strict=True) if k not in known and k not in self._pending}
        if missing:
            encoded = self._encoder.encode(list(missing.values()), progress)
            self.num_encoded += len(missing)
            self._pending.update(zip(missing, encoded, strict=True))
            if len(self._pending) >= _FLUSH_ROWS or len(missing) == len(keys):
                self.flush()
                whole = self._whole_segment(keys)
                if whole is not None:
                    return whole
        return self._gather(keys)

    def flush(self) -> None:
        """Writes vectors that are still only in memory to a new segment."""
        if not self._pending:
            return
        name = uuid.uuid4().hex
        keys = np.frombuffer(b"".join(self._pending), dtype=_KEY)
        _save(self._directory / f"{name}.vectors.npy", np.stack(list(self._pending.values())))
        _save(self._directory / f"{name}.keys.npy", keys)
        self._pending = {}
        self._open_segment(self._directory / f"{name}.keys.npy")

    def _open_segment(self, keys_file: Path) -> None:
        vectors = np.load(keys_file.with_name(keys_file.name.replace(".keys.", ".vectors.")), mmap_mode="r")
        keys = np.load(keys_file)
        number = len(self._segments)
        self._segments.append(vectors)
        self._segment_keys.append(keys)
        for row, key in enumerate(keys.tolist()):
            self._row_of.setdefault(key, (number, row))

    def _whole_segment(self, keys: list[bytes]) -> np.ndarray | None:
        """The segment that holds exactly these texts in this order, if there is one."""
        first = self._row_of.get(keys[0]) if keys else None
        if first is None or first[1] != 0 or len(self._segment_keys[first[0]]) != len(keys):
            return None
        same = self._segment_keys[first[0]].tobytes() == b"".join(keys)
        return self._segments[first[0]] if same else None

    def _gather(self, keys: list[bytes]) -> np.ndarray:
        out = np.empty((len(keys), self.dim), dtype=np.int16)
        places = [self._row_of.get(key) for key in keys]
        by_segment: dict[int, tuple[list[int], list[int]]] = {}
        for position, (key, place) in enumerate(zip(keys, places, strict=True)):
            if place is None:
                out[position] = self._pending[key]
            else:
                positions, rows = by_segment.setdefault(place[0], ([], []))
                positions.append(position)
                rows.append(place[1])
        for segment, (positions, rows) in by_segment.items():
            out[positions] = self._segments[segment][rows]
        return out


def _save(path: Path, array: np.ndarray) -> None:
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        np.save(file, array)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
