"""Text files as blocks of lines: gzip, bz2, zstd by suffix; one bad line never stops a file; memory stays bounded."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kgrag_gpu.kg import arrow_ops as ops
from kgrag_gpu.types import UserError

BLOCK_BYTES = 32 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


@dataclass(frozen=True, slots=True)
class LineBlock:
    """Some lines of a file. `first_number` is the number of the first; line ends are cut off.

    `not_utf8` bool [lines] marks lines with bytes that are no UTF-8 (replaced by U+FFFD in `lines`). `progress` is the
    share of the file's bytes, as they lie on disk, that were read by the end of the block.
    """

    first_number: int
    lines: Any  # pa.LargeStringArray
    not_utf8: np.ndarray
    progress: float = 1.0


def open_bytes(path: Path) -> BinaryIO:
    """The file's bytes, decompressed.

    Raises:
        UserError: missing, a folder, or not readable.
    """
    return _open(path)[0]


def _open(path: Path) -> tuple[BinaryIO, BinaryIO]:
    """(the decompressed bytes, the file as it lies)."""
    try:
        if path.is_dir():
            raise UserError(f"{path}: is a folder; a file of triples is expected")
        raw: Any = pa.OSFile(str(path))
        compression = _COMPRESSED.get(path.suffix)
        return (pa.CompressedInputStream(raw, compression) if compression else raw), raw
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check the path") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None


def bare_suffix(path: Path) -> str:
    """The suffix under a compression's own: ".nt" of "dump.nt.gz"."""
    return Path(path.stem).suffix.lower() if path.suffix in _COMPRESSED else path.suffix.lower()


def read_line_blocks(path: Path, block_bytes: int = BLOCK_BYTES) -> Iterator[LineBlock]:
    """The lines of a file in order, a block at a time; a block ends at a line end.

    Raises:
        UserError: the file cannot be opened, is empty, or its compression is broken or cut off.
    """
    number = 1
    with ThreadPoolExecutor(1) as ahead:  # the next piece is read and decompressed while the caller works on this one
        pieces = _pieces(path, block_bytes)
        coming = ahead.submit(next, pieces, None)
        while (piece := coming.result()) is not None:
            coming = ahead.submit(next, pieces, None)
            data, progress = piece
            block = _block(data, number, progress)
            number += len(block.lines)
            yield block
    if number == 1:
        raise UserError(f"{path}: the file is empty; triples were expected; copy or download it again")


def _pieces(path: Path, block_bytes: int) -> Iterator[tuple[bytes, float]]:
    """(bytes up to a line end, share of the file read so far)."""
    rest, first = b"", True
    stream, raw = _open(path)
    size = max(1, path.stat().st_size)
    with stream:
        while True:
            try:
                data = stream.read(block_bytes)
            except OSError as error:
                reason = str(error).splitlines()[0]
                raise UserError(f"{path}: broken or cut-off file ({reason}); copy or download it again") from None
            if first:
                data, first = data.removeprefix(_BOM), False
            if not data:
                break
            data = rest + data
            end = data.rfind(b"\n") + 1
            rest = data[end:]
            if end:
                yield data[:end], min(1.0, raw.tell() / size)
    if rest:
        yield rest, 1.0


def _block(data: bytes, number: int, progress: float) -> LineBlock:
    try:
        data.decode("utf-8")
        replaced = False
    except UnicodeDecodeError:
        data = data.decode("utf-8", "replace").encode("utf-8")
        replaced = True
    ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 10) + 1
    if not len(ends) or ends[-1] != len(data):
        ends = np.append(ends, len(data))
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    raw = pa.LargeStringArray.from_buffers(len(ends), pa.py_buffer(offsets.tobytes()), pa.py_buffer(data))
    lines = ops.rtrim(raw, "\r\n")
    if replaced:
        not_utf8 = np.asarray(pc.fill_null(ops.contains(lines, "\ufffd"), False))
    else:
        not_utf8 = np.zeros(len(lines), dtype=bool)
    return LineBlock(number, lines, not_utf8, progress)
