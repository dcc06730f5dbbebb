"""A long column of texts held in one Arrow buffer: a sequence of str without one Python object per text."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ITERATION_ROWS = 65_536


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

    def update_hash(self, digest: "hashlib._Hash") -> None:
        """Feed lengths and bytes of all texts to `digest`; equal texts feed equal bytes however they are stored."""
        digest.update(len(self).to_bytes(8, "little"))
        if not len(self):
            return
        digest.update(
            pc.call_function("binary_length", [self.array]).to_numpy(zero_copy_only=False).astype("<i8").tobytes()
        )
        _, offsets, data = self.array.buffers()
        bounds = np.frombuffer(offsets, dtype=np.int64)[[self.array.offset, self.array.offset + len(self)]]
        if data is not None:
            digest.update(memoryview(data)[bounds[0] : bounds[1]])
