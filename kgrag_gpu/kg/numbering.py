"""Numbers a stream of triples: entities and relations by first appearance, a row's head before its tail.

Works in two passes, so that a file of any size fits: every block of rows is numbered by itself and laid aside, in
memory or on disk; then the blocks' own dictionaries are joined into one. Blocks that lie on disk serve again when the
same import is started anew. Arrow encodes; no loop sees a row.
"""

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from kgrag_gpu.kg import arrow_ops as ops
from kgrag_gpu.kg.formats import TripleBlock


@dataclass(frozen=True, slots=True)
class Part:
    """One block of rows: its own entities and relations, and int32 [3, rows] of heads, relations and tails in them."""

    identities: Any  # pa large_string, in first-seen order
    relations: list[str]
    codes: np.ndarray
    texts: Any = None

    @classmethod
    def of(cls, block: TripleBlock) -> "Part":
        """Number a block by itself."""
        num_rows = len(block.heads)
        values, codes = ops.encode(ops.concat([block.heads, block.tails]))
        alternating = np.empty(2 * num_rows, dtype=np.int64)
        alternating[0::2], alternating[1::2] = codes[:num_rows], codes[num_rows:]
        first = np.zeros(len(values), dtype=np.int64)
        first[alternating[::-1]] = np.arange(2 * num_rows)[::-1]  # the last that is written is the first that was seen
        order = np.argsort(first)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        relations, relation_codes = ops.encode(block.relations)
        rows = np.stack([rank[codes[:num_rows]], relation_codes, rank[codes[num_rows:]]]).astype(np.int32)
        return cls(values.take(pa.array(order)), relations.to_pylist(), rows, block.texts)


class Spool:
    """Parts laid aside: in memory, or as files of a folder that knows which input they are of."""

    def __init__(self, directory: Path | None = None, key: str = ""):
        """`key` says what the parts were read from; a folder with the parts of another is emptied."""
        self._directory = directory
        self._kept: dict[int, Part] = {}
        if directory is not None:
            state = directory / "input.txt"
            if not state.is_file() or state.read_text("utf-8") != key:
                shutil.rmtree(directory, ignore_errors=True)
                directory.mkdir(parents=True)
                state.write_text(key, "utf-8")

    def has(self, index: int) -> bool:
        """Whether the part was laid aside, here or by an earlier process."""
        return index in self._kept if self._directory is None else self._path(index, "json").is_file()

    def put(self, index: int, part: Part, notes: dict[str, Any]) -> None:
        """Lay a part aside; `notes` come back by `notes`."""
        if self._directory is None:
            self._kept[index] = part
            return
        np.save(self._path(index, "npy"), part.codes)
        _write_column(part.identities, self._path(index, "arrow"))
        if part.texts is not None:
            _write_column(part.texts, self._path(index, "texts"))
        text = json.dumps({"relations": part.relations, "has_texts": part.texts is not None, **notes})
        temporary = self._path(index, "tmp")
        temporary.write_text(text, "utf-8")
        temporary.replace(self._path(index, "json"))  # written last: with it the part is whole

    def notes(self, index: int) -> dict[str, Any]:
        """What was noted with a part on disk."""
        return json.loads(self._path(index, "json").read_text("utf-8"))

    def get(self, index: int) -> Part:
        """A part; on disk its columns are mapped, not read."""
        if self._directory is None:
            return self._kept[index]
        notes = self.notes(index)
        texts = _map_column(self._path(index, "texts")) if notes["has_texts"] else None
        codes = np.load(self._path(index, "npy"), mmap_mode="r")
        return Part(_map_column(self._path(index, "arrow")), notes["relations"], codes, texts)

    def close(self) -> None:
        """Remove what was laid aside."""
        self._kept.clear()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _path(self, index: int, suffix: str) -> Path:
        assert self._directory is not None
        return self._directory / f"{index:06d}.{suffix}"


@dataclass(frozen=True, slots=True)
class NumberedTriples:
    """All rows, repeated ones included: int32 [rows] each, over the distinct `identities` and `relations`."""

    identities: Any  # pa large_string
    relations: list[str]
    heads: np.ndarray
    rels: np.ndarray
    tails: np.ndarray
    texts: Any  # pa large_string or chunked array of it, None where no row has a text of its own


def join_parts(parts: Iterable[Part]) -> NumberedTriples:
    """One numbering over all parts, in their order."""
    parts = list(parts)
    distinct, places = ops.encode_chunks([part.identities for part in parts])
    relation_rows: dict[str, int] = {}
    for part in parts:
        for name in part.relations:
            relation_rows.setdefault(name, len(relation_rows))
    num_rows = sum(part.codes.shape[1] for part in parts)
    heads, rels, tails = (np.empty(num_rows, dtype=np.int32) for _ in range(3))
    row = 0
    for part, place in zip(parts, places, strict=True):
        end = row + part.codes.shape[1]
        local = np.array([relation_rows[name] for name in part.relations], dtype=np.int32)
        heads[row:end], tails[row:end] = place[part.codes[0]], place[part.codes[2]]
        rels[row:end] = local[part.codes[1]] if end > row else 0
        row = end
    return NumberedTriples(distinct, list(relation_rows), heads, rels, tails, _joined_texts(parts))


def _joined_texts(parts: list[Part]) -> Any:
    if all(part.texts is None for part in parts):
        return None
    blank = pa.scalar("", pa.large_string())
    columns = [pa.repeat(blank, part.codes.shape[1]) if part.texts is None else part.texts for part in parts]
    return pa.chunked_array(columns, pa.large_string())


def _write_column(column: Any, path: Path) -> None:
    table = pa.table({"text": column})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _map_column(path: Path) -> Any:
    with pa.memory_map(str(path)) as source:
        return ops.concat([pa.ipc.open_file(source).read_all().column(0)])
