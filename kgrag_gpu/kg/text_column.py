"""Long columns that read like lists without one Python object per row: texts, lists of texts, and made edge texts."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kgrag_gpu.kg.relation_text import readable_name

ITERATION_ROWS = 65_536
HASHED_ROWS = 1 << 22


class TextColumn(Sequence[str]):
    """Texts of, say, 10^8 edges. Reads like a list; `take` fetches many rows at once."""

    def __init__(self, values: Sequence[str] | pa.Array | pa.ChunkedArray):
        """Wrap texts; a null reads as the empty text."""
        if isinstance(values, pa.ChunkedArray):
            array = pc.cast(values, pa.large_string()).combine_chunks()
        elif isinstance(values, pa.Array):
            array = pc.cast(values, pa.large_string())
        else:
            array = pa.array(values, pa.large_string())
        self.array: Any = pc.fill_null(array, "")

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index):
        if isinstance(index, slice):
            return self.take(np.arange(*index.indices(len(self))))
        position = int(index) + (len(self) if index < 0 else 0)
        if not 0 <= position < len(self):
            raise IndexError(f"row {index} of {len(self)} texts")
        return self.array[position].as_py()

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), ITERATION_ROWS):
            yield from self.array.slice(start, ITERATION_ROWS).to_pylist()

    def take(self, rows: np.ndarray) -> list[str]:
        """The texts of `rows` (integers [n]), in that order."""
        return self.array.take(pa.array(np.asarray(rows, dtype=np.int64))).to_pylist()

    def replaced(self, mask: np.ndarray, texts: Sequence[str]) -> "TextColumn":
        """The column with the rows of `mask` (bool [rows]) replaced by `texts`, in order."""
        values = pa.array(texts, pa.large_string())
        return TextColumn(pc.call_function("replace_with_mask", [self.array, pa.array(mask), values]))

    def update_hash(self, digest: "hashlib._Hash") -> None:
        """Feed lengths and bytes of all texts to `digest`; equal texts feed equal bytes however they are stored."""
        digest.update(len(self).to_bytes(8, "little"))
        if not len(self):
            return
        for start in range(0, len(self), HASHED_ROWS):
            lengths = pc.call_function("binary_length", [self.array.slice(start, HASHED_ROWS)])
            digest.update(np.asarray(lengths).astype("<i8").data)
        _, offsets, data = self.array.buffers()
        bounds = np.frombuffer(offsets, dtype=np.int64)[[self.array.offset, self.array.offset + len(self)]]
        if data is not None:
            digest.update(memoryview(data)[bounds[0] : bounds[1]])


class TextLists(Sequence[tuple[str, ...]]):
    """The aliases of, say, 10^7 entities: row i is a tuple of texts."""

    def __init__(self, lists: pa.Array | pa.ChunkedArray):
        """Wrap a column of lists of texts; a null reads as the empty tuple."""
        self.array: Any = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, index: int) -> tuple[str, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, ...]]: ...
    def __getitem__(self, index):
        if isinstance(index, slice):
            rows = pa.array(np.arange(*index.indices(len(self))))
            return [self._tuple(row) for row in self.array.take(rows).to_pylist()]
        position = int(index) + (len(self) if index < 0 else 0)
        if not 0 <= position < len(self):
            raise IndexError(f"row {index} of {len(self)} lists")
        return self._tuple(self.array[position].as_py())

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        for start in range(0, len(self), ITERATION_ROWS):
            yield from map(self._tuple, self.array.slice(start, ITERATION_ROWS).to_pylist())

    @property
    def is_blank(self) -> bool:
        """Whether no row has a text."""
        return not len(self.array.flatten())

    @staticmethod
    def _tuple(row: list[str] | None) -> tuple[str, ...]:
        return tuple(row) if row else ()


class MadeTexts(Sequence[str]):
    """Edge texts where the source has none: "head relation tail" in readable words, made when they are read."""

    def __init__(
        self,
        entity_names: Sequence[str],
        relation_texts: Sequence[str],
        heads: np.ndarray,
        relations: np.ndarray,
        tails: np.ndarray,
    ):
        self._names, self._relations = entity_names, relation_texts
        self._rows = heads, relations, tails

    def __len__(self) -> int:
        return len(self._rows[0])

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index):
        if isinstance(index, slice):
            return self.take(np.arange(*index.indices(len(self))))
        position = int(index) + (len(self) if index < 0 else 0)
        if not 0 <= position < len(self):
            raise IndexError(f"row {index} of {len(self)} texts")
        return self.take(np.array([position]))[0]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), ITERATION_ROWS):
            yield from self.take(np.arange(start, min(len(self), start + ITERATION_ROWS)))

    def take(self, rows: np.ndarray) -> list[str]:
        """The texts of `rows` (integers [n]), in that order."""
        heads, relations, tails = (column[rows] for column in self._rows)
        entities, places = np.unique(np.concatenate([heads, tails]), return_inverse=True)
        names = take_texts(self._names, entities)
        readable = [readable_name(name) for name in names]
        ends = places.reshape(2, -1).tolist()
        return [
            f"{readable[head]} {self._relations[relation]} {readable[tail]}"
            for head, relation, tail in zip(ends[0], relations.tolist(), ends[1], strict=True)
        ]


def take_texts(texts: Sequence[str], rows: np.ndarray) -> list[str]:
    """The texts of `rows` (integers [n]), in that order, from a list or from one of these columns."""
    if isinstance(texts, TextColumn | MadeTexts):
        return texts.take(rows)
    return [texts[int(row)] for row in rows]
