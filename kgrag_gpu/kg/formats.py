"""Triples from files: `head<TAB>relation<TAB>tail`, `h|r|t`, CSV, JSON lines, N-Triples and Parquet, compressed or not.

Gives blocks of columns of text as the file has them; triples_kg.py makes a graph of them. A file of any size passes
through in bounded memory. Recovery is line by line: what cannot be read is rejected with its line number and reason,
the rest is kept. No format loops over lines in Python except JSON lines.

A header line is recognised by its names (`head`/`subject`/`source`, `relation`/`predicate`, `tail`/`object`/`target`,
and `text`/`sentence`/`description` for the edge's text), or by those that the caller gives; GraphRAG's relationship
tables (`source`, `target`, `description`) read like that too, their relation is "related to".
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from kgrag_gpu.data.records import excerpt
from kgrag_gpu.kg import arrow_ops as ops
from kgrag_gpu.kg.lines import BLOCK_BYTES, LineBlock, bare_suffix, open_bytes, read_line_blocks
from kgrag_gpu.kg.ntriples import NTriplesReader
from kgrag_gpu.types import Rejected, UserError

Report = Callable[[str], None]
SNIFF_LINES = 200
UNNAMED_RELATION = "related to"
COLUMN_NAMES = {
    "head": ("head", "subject", "source", "h", "s", "subj", "from", "head_entity"),
    "relation": ("relation", "predicate", "r", "p", "rel", "pred", "relationship", "edge"),
    "tail": ("tail", "object", "target", "t", "o", "obj", "to", "tail_entity"),
    "text": ("text", "sentence", "description"),
}
_BATCH_ROWS = 262_144  # of Parquet, in one block


@dataclass(frozen=True, slots=True)
class TripleOptions:
    """How a file of triples is read beyond what its first lines show.

    Attributes:
        columns: the header's names of head, relation, tail and text, where they are not among the usual ones.
        languages: N-Triples: literals tagged with another language are left out; None keeps all as edges, and takes
            names from English and untagged ones.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    languages: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class TripleBlock:
    """Columns of some triples as text (pa large_string, equally long, no blanks); `texts` None: the edges have none."""

    heads: Any
    relations: Any
    tails: Any
    texts: Any = None


class TripleReader:
    """Reads a file block after block. What it learns on the way stays here: counts, rejects, and an RDF source's names.

    Iterate once; the attributes are complete afterwards.

    Attributes:
        format: "tsv", "pipe", "csv", "jsonl", "ntriples" or "parquet".
        num_rows: rows that were meant to be triples, rejected ones included.
        rejected: what could not be read, by line.
        names, aliases, descriptions: what an RDF source says about its own URIs.
        progress: share of the file's bytes that were read, 0 to 1.
    """

    def __init__(self, path: Path, options: TripleOptions | None = None):
        """Raises: UserError: missing or empty file, or no known format."""
        self.path = path
        self.options = options or TripleOptions()
        self.format = sniff_format(path)
        self.num_rows = 0
        self.rejected: list[Rejected] = []
        self._ntriples = NTriplesReader(self.options.languages)
        self.names, self.aliases = self._ntriples.names, self._ntriples.aliases
        self.descriptions = self._ntriples.descriptions
        self.progress = 0.0
        self._num_noted = (0, 0)

    def __iter__(self) -> Iterator[TripleBlock]:
        for block in self.blocks():
            assert block is not None
            yield block

    def blocks(self, is_known: Callable[[int], bool] = lambda _: False) -> Iterator[TripleBlock | None]:
        """The blocks in order. None stands for one that `is_known` (by its number) from an earlier process.

        Forms of lines leave such blocks out; CSV (whose fields may hold line ends) and Parquet are read anew.
        """
        if self.format == "parquet":
            yield from self._parquet()
        elif self.format == "csv":
            yield from self._csv()
        else:
            parsers = {"jsonl": self._json_lines, "ntriples": self._statements}
            parse = parsers.get(self.format) or self._separated()
            for index, block in enumerate(self._lines()):
                yield None if index and is_known(index) else parse(block)
        self.progress = 1.0
        self.rejected.sort(key=lambda row: int(row.where.rsplit(":", 1)[1]))

    def take_notes(self) -> dict[str, Any]:
        """What was learned since the last call, for `restore` in another process."""
        rejected = [[row.where, row.reason, row.excerpt] for row in self.rejected[self._num_noted[0] :]]
        said = self._ntriples.take_said()
        notes = {"rejected": rejected, "num_rows": self.num_rows - self._num_noted[1], "said": said}
        self._num_noted = len(self.rejected), self.num_rows
        return notes

    def restore(self, notes: Mapping[str, Any]) -> None:
        """Learn what an earlier process noted about a block that is left out now."""
        self.rejected.extend(Rejected(*row) for row in notes["rejected"])
        self.num_rows += notes["num_rows"]
        self._ntriples.learn(notes["said"])
        self._num_noted = len(self.rejected), self.num_rows

    def _lines(self) -> Iterator[LineBlock]:
        for block in read_line_blocks(self.path):
            self.progress = block.progress
            yield block

    def _reject(self, number: int, reason: str, text: str) -> None:
        self.rejected.append(Rejected(f"{self.path.name}:{number}", reason, excerpt(text)))
        self.num_rows += 1

    def _block(self, columns: dict[str, Any], numbers: np.ndarray) -> TripleBlock:
        """The rows whose head, relation and tail are not blank; `numbers` are their lines."""
        stripped = {role: ops.nfc(ops.strip(column)) for role, column in columns.items()}
        if "relation" not in stripped:
            stripped["relation"] = pa.repeat(pa.scalar(UNNAMED_RELATION, pa.large_string()), len(numbers))
        keep = np.ones(len(numbers), dtype=bool)
        for role in ("head", "relation", "tail"):
            blank = ops.is_blank(stripped[role])
            for row in np.flatnonzero(blank & keep):
                whole = " | ".join(str(stripped[r][int(row)]) for r in ("head", "relation", "tail"))
                self._reject(int(numbers[row]), f"empty {role}", whole)
            keep &= ~blank
        self.num_rows += int(keep.sum())
        if not keep.all():
            stripped = {role: column.filter(pa.array(keep)) for role, column in stripped.items()}
        return TripleBlock(stripped["head"], stripped["relation"], stripped["tail"], stripped.get("text"))

    def _columns_of(self, names: list[str]) -> dict[str, int] | None:
        """Positions of head, relation, tail and text by a header's names; None where it is no header."""
        lowered = [name.strip().strip('"').lower() for name in names]
        found = {
            role: lowered.index(next(n for n in known if n in lowered))
            for role, known in COLUMN_NAMES.items()
            if any(n in lowered for n in known)
        }
        for role, wanted in self.options.columns.items():
            if wanted.lower() not in lowered:
                raise UserError(
                    f"{self.path}: no column {wanted!r} for the {role}; its first line has: {', '.join(names)}"
                )
            found[role] = lowered.index(wanted.lower())
        is_header = bool(self.options.columns) or len(found) >= 3
        return found if is_header and {"head", "tail"} <= found.keys() else None

    def _separated(self) -> Callable[[LineBlock], TripleBlock]:
        """Parses blocks by what the first one shows: a header, or the usual number of fields."""
        separator = "\t" if self.format == "tsv" else "|"
        seen: dict[str, Any] = {}

        def parse(block: LineBlock) -> TripleBlock:
            if not seen:
                header = block.lines[0].as_py().split(separator)
                columns = self._columns_of(header)
                seen["columns"] = columns or {"head": 0, "relation": 1, "tail": 2}
                seen["num_fields"] = len(header) if columns else _usual_fields(block, separator)
                return self._split_lines(block, separator, seen["columns"], seen["num_fields"], 1 if columns else 0)
            return self._split_lines(block, separator, seen["columns"], seen["num_fields"], 0)

        return parse

    def _split_lines(
        self, block: LineBlock, separator: str, positions: dict[str, int], num_fields: int, skip: int
    ) -> TripleBlock:
        counts = ops.count(block.lines, separator) + 1
        content = ~ops.is_blank(ops.strip(block.lines))
        content[:skip] = False
        good = content & (counts == num_fields) & ~block.not_utf8
        for row in np.flatnonzero(content & ~good):
            reason = f"{num_fields} fields expected, got {counts[row]}" if not block.not_utf8[row] else "not UTF-8"
            self._reject(block.first_number + int(row), reason, block.lines[int(row)].as_py())
        rows = np.flatnonzero(good)
        lines = block.lines if len(rows) == len(good) else block.lines.take(pa.array(rows))
        fields = ops.split(lines, separator, num_fields)
        return self._block({role: fields[i] for role, i in positions.items()}, rows + block.first_number)

    def _csv(self) -> Iterator[TripleBlock]:
        """CSV with quoted fields, parsed by Arrow; bytes that are no UTF-8 are replaced."""
        with open_bytes(self.path) as stream:
            start = stream.read(1 << 20)
        start = start.removeprefix(b"\xef\xbb\xbf")
        first_line = start.split(b"\n", 1)[0].decode("utf-8", "replace")
        header = next(csv.reader([first_line.rstrip("\r")]), [])
        positions = self._columns_of(header)
        chosen = positions or {"head": 0, "relation": 1, "tail": 2}
        bad: list[tuple[int, int, str]] = []

        def skip_row(row: Any) -> str:
            bad.append((row.number, row.actual_columns, row.text))
            return "skip"

        names = [str(i) for i in range(max(3, len(header)))]
        with open_bytes(self.path) as stream:
            batches = pacsv.open_csv(
                stream,
                read_options=pacsv.ReadOptions(
                    column_names=names, skip_rows=1 if positions else 0, use_threads=False, block_size=BLOCK_BYTES
                ),
                parse_options=pacsv.ParseOptions(invalid_row_handler=skip_row, newlines_in_values=True),
                convert_options=pacsv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.large_binary()), strings_can_be_null=False
                ),
            )
            next_row, num_bad = (2 if positions else 1), 0
            for batch in batches:
                taken, num_bad = bad[num_bad:], len(bad)
                for number, actual, text in taken:
                    self._reject(number, f"{len(names)} fields expected, got {actual}", text)
                numbers = _row_numbers(batch.num_rows, {number for number, _, _ in taken}, next_row)
                next_row += batch.num_rows + len(taken)
                yield self._block({role: _as_texts(batch.column(i)) for role, i in chosen.items()}, numbers)
            for number, actual, text in bad[num_bad:]:
                self._reject(number, f"{len(names)} fields expected, got {actual}", text)

    def _json_lines(self, block: LineBlock) -> TripleBlock:
        rows: dict[str, list[str]] = {"head": [], "relation": [], "tail": [], "text": []}
        numbers: list[int] = []
        for offset, line in enumerate(block.lines.to_pylist()):
            if not line.strip():
                continue
            number = block.first_number + offset
            value = self._json_triple(line)
            if isinstance(value, str):
                self._reject(number, value, line)
                continue
            numbers.append(number)
            for role, text in value.items():
                rows[role].append(text)
        if not any(rows["text"]):
            del rows["text"]
        columns = {role: pa.array(values, pa.large_string()) for role, values in rows.items()}
        return self._block(columns, np.array(numbers, dtype=np.int64))

    def _json_triple(self, line: str) -> dict[str, str] | str:
        """The fields of a JSON triple (an object with known names, or an array of three), or why it is none."""
        try:
            value = json.loads(line)
        except (json.JSONDecodeError, RecursionError):
            return "the line is not JSON"
        if isinstance(value, list):
            if len(value) != 3:
                return f"3 fields expected, got {len(value)}"
            value = dict(zip(("head", "relation", "tail"), value, strict=True))
        if not isinstance(value, dict):
            return "a JSON object or an array of three is expected"
        lowered = {str(k).lower(): v for k, v in value.items()}
        found: dict[str, str] = {"text": ""}
        for role, known in COLUMN_NAMES.items():
            wanted = self.options.columns.get(role)
            for name in (wanted.lower(),) if wanted else known:
                if isinstance(lowered.get(name), str | int | float):
                    found[role] = str(lowered[name])
                    break
        missing = [role for role in ("head", "relation", "tail") if role not in found]
        return f"no `{missing[0]}`" if missing else found

    def _statements(self, block: LineBlock) -> TripleBlock:
        columns, numbers, rejected = self._ntriples.read(block)
        for number, reason, text in rejected:
            self._reject(number, reason, text)
        return self._block(columns, numbers)

    def _parquet(self) -> Iterator[TripleBlock]:
        try:
            file = pq.ParquetFile(self.path)
        except FileNotFoundError:
            raise UserError(f"{self.path}: no such file; check the path") from None
        except (pa.ArrowInvalid, OSError) as error:
            raise UserError(f"{self.path}: not a readable Parquet file ({str(error).splitlines()[0]})") from None
        names = file.schema_arrow.names
        positions = self._columns_of(names)
        if positions is None:
            raise UserError(
                f"{self.path}: columns {', '.join(names)}; expected head, relation, tail (or subject, predicate, "
                "object; or source, target, description)"
            )
        wanted = [names[i] for i in positions.values()]
        number = 1
        for batch in file.iter_batches(_BATCH_ROWS, columns=wanted):
            columns = {role: ops.concat([batch.column(names[i])]) for role, i in positions.items()}
            block = self._block(columns, np.arange(number, number + batch.num_rows))
            number += batch.num_rows
            self.progress = number / max(1, file.metadata.num_rows)
            yield block


def sniff_format(path: Path) -> str:
    """ "tsv", "pipe", "csv", "jsonl", "ntriples" or "parquet".

    Raises:
        UserError: the file cannot be read, or its first lines are none of these.
    """
    suffix = bare_suffix(path)
    if suffix == ".parquet":
        return "parquet"
    with open_bytes(path) as stream:
        try:
            start = stream.read(1 << 20).decode("utf-8", "replace").removeprefix("\ufeff")
        except OSError as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"{path}: broken or cut-off file ({reason}); copy or download it again") from None
    lines = [line for line in start.split("\n")[:SNIFF_LINES] if line.strip()]
    if not lines:
        raise UserError(f"{path}: the file is empty; triples were expected; copy or download it again")
    by_suffix = {".nt": "ntriples", ".ntriples": "ntriples", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}
    if suffix in by_suffix:
        return by_suffix[suffix]
    votes = {
        "ntriples": sum(line.lstrip().startswith(("<", "_:")) and line.rstrip().endswith(".") for line in lines),
        "jsonl": sum(line.lstrip().startswith(("{", "[")) for line in lines),
        "tsv": sum(line.count("\t") >= 2 for line in lines),
        "pipe": sum(line.count("|") == 2 for line in lines),
        "csv": sum(len(next(csv.reader([line]), [])) >= 3 for line in lines),
    }
    best = max(votes, key=lambda name: votes[name])  # ties: the order above
    if votes[best] * 2 < len(lines):
        raise UserError(
            f"{path}: no known form of triples; expected three columns (head, relation, tail) separated by tabs, "
            "| or commas, JSON lines, N-Triples or Parquet"
        )
    return best


def _usual_fields(block: LineBlock, separator: str) -> int:
    """The commonest number of fields of the first lines, at least three."""
    counts = ops.count(block.lines[:SNIFF_LINES], separator) + 1
    values, frequency = np.unique(counts[counts >= 3], return_counts=True)
    return int(values[frequency.argmax()]) if len(values) else 3


def _row_numbers(num_rows: int, taken: set[int], first: int) -> np.ndarray:
    """Numbers of the rows that were read, counting the skipped ones between them."""
    numbers = np.setdiff1d(np.arange(first, first + num_rows + len(taken)), np.array(sorted(taken), dtype=np.int64))
    return numbers[:num_rows]


def _as_texts(column: Any) -> Any:
    """Bytes as texts; what is no UTF-8 is replaced by U+FFFD."""
    try:
        return column.cast(pa.large_string())
    except pa.ArrowInvalid:
        return pa.array([value.decode("utf-8", "replace") for value in column.to_pylist()], pa.large_string())
