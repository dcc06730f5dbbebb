"""Triples from files: `head<TAB>relation<TAB>tail`, `h|r|t`, CSV, JSON lines, N-Triples and Parquet, compressed or not.

Gives columns of text as the file has them; triples_kg.py makes a graph of them. Recovery is line by line: what cannot
be read is rejected with its line number and reason, the rest is kept. No format loops over lines in Python except
JSON lines.

A header line is recognised by its names (`head`/`subject`/`source`, `relation`/`predicate`, `tail`/`object`/`target`,
and `text`/`sentence`/`description` for the edge's text); GraphRAG's relationship tables (`source`, `target`,
`description`) read like that too, their relation is "related to".
"""

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from kgrag_gpu.data.records import excerpt
from kgrag_gpu.kg import arrow_ops as ops
from kgrag_gpu.kg.lines import LineBlock, bare_suffix, open_bytes, read_line_blocks
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


@dataclass(slots=True)
class RawTriples:
    """Columns of triples as text (pa large_string, equally long, no blanks), and what could not be read.

    `texts` is None where the source has no text for its edges. `names`, `aliases` and `descriptions` are what an RDF
    source says about its own URIs.
    """

    heads: Any
    relations: Any
    tails: Any
    format: str
    texts: Any = None
    num_rows: int = 0  # rows that were meant to be triples, rejected ones included
    rejected: list[Rejected] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, list[str]] = field(default_factory=dict)
    descriptions: dict[str, str] = field(default_factory=dict)


def read_triples(path: Path, report: Report | None = None) -> RawTriples:
    """Read a file of triples in whatever of the known formats it is.

    Args:
        path: the suffix decides (.nt, .jsonl, .csv, .parquet); for .tsv, .txt and others the first lines do.
        report: told about progress after every block.

    Raises:
        UserError: missing or empty file, or no known format.
    """
    kind = sniff_format(path)
    if kind == "parquet":
        return _read_parquet(path)
    if kind == "csv":
        return _read_csv(path)
    if kind == "jsonl":
        return _read_jsonl(path, report)
    if kind == "ntriples":
        return _read_ntriples(path, report)
    return _read_separated(path, "\t" if kind == "tsv" else "|", kind, report)


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


def _columns_of(names: list[str]) -> dict[str, int] | None:
    """Positions of head, relation, tail and text by a header's names; None where it is no header."""
    lowered = [name.strip().strip('"').lower() for name in names]
    found = {
        role: lowered.index(next(n for n in known if n in lowered))
        for role, known in COLUMN_NAMES.items()
        if any(n in lowered for n in known)
    }
    return found if {"head", "tail"} <= found.keys() and len(found) >= 3 else None


class _Collector:
    """Gathers checked blocks of columns."""

    def __init__(self, path: Path, kind: str):
        self.path = path
        self.result = RawTriples(None, None, None, kind)
        self._parts: dict[str, list[Any]] = {"head": [], "relation": [], "tail": [], "text": []}

    def reject(self, number: int, reason: str, text: str) -> None:
        self.result.rejected.append(Rejected(f"{self.path.name}:{number}", reason, excerpt(text)))

    def add(self, columns: dict[str, Any], numbers: np.ndarray) -> None:
        """Keep the rows whose head, relation and tail are not blank; `numbers` are their lines."""
        stripped = {role: ops.nfc(ops.strip(column)) for role, column in columns.items()}
        if "relation" not in stripped:
            stripped["relation"] = pa.array([UNNAMED_RELATION] * len(numbers), pa.large_string())
        keep = np.ones(len(numbers), dtype=bool)
        for role in ("head", "relation", "tail"):
            blank = ops.is_blank(stripped[role])
            for row in np.flatnonzero(blank & keep):
                whole = " | ".join(str(stripped[r][int(row)]) for r in ("head", "relation", "tail"))
                self.reject(int(numbers[row]), f"empty {role}", whole)
            keep &= ~blank
        mask = pa.array(keep)
        for role, column in stripped.items():
            self._parts[role].append(column.filter(mask))
        self.result.num_rows += len(numbers)

    def finish(self) -> RawTriples:
        result = self.result
        result.heads, result.relations, result.tails = (
            ops.concat(self._parts[r]) for r in ("head", "relation", "tail")
        )
        result.texts = ops.concat(self._parts["text"]) if self._parts["text"] else None
        result.rejected.sort(key=lambda row: int(row.where.rsplit(":", 1)[1]))
        return result


def _read_separated(path: Path, separator: str, kind: str, report: Report | None) -> RawTriples:
    collector = _Collector(path, kind)
    positions: dict[str, int] | None = None
    num_fields = 3
    for block in read_line_blocks(path):
        skip = 0
        if block.first_number == 1:
            header = block.lines[0].as_py().split(separator)
            positions = _columns_of(header)
            num_fields, skip = (len(header), 1) if positions else (_usual_fields(block, separator), 0)
        _add_separated(
            collector, block, separator, positions or {"head": 0, "relation": 1, "tail": 2}, num_fields, skip
        )
        _progress(report, collector, block)
    return collector.finish()


def _usual_fields(block: LineBlock, separator: str) -> int:
    """The commonest number of fields of the first lines, at least three."""
    counts = ops.count(block.lines[:SNIFF_LINES], separator) + 1
    values, frequency = np.unique(counts[counts >= 3], return_counts=True)
    return int(values[frequency.argmax()]) if len(values) else 3


def _add_separated(
    collector: _Collector, block: LineBlock, separator: str, positions: dict[str, int], num_fields: int, skip: int
) -> None:
    counts = ops.count(block.lines, separator) + 1
    content = ~ops.is_blank(ops.strip(block.lines))
    content[:skip] = False
    good = content & (counts == num_fields) & ~block.not_utf8
    for row in np.flatnonzero(content & ~good):
        reason = f"{num_fields} fields expected, got {counts[row]}" if not block.not_utf8[row] else "not UTF-8"
        collector.reject(block.first_number + int(row), reason, block.lines[int(row)].as_py())
        collector.result.num_rows += 1
    rows = np.flatnonzero(good)
    if len(rows):
        fields = ops.split(block.lines.take(pa.array(rows)), separator, num_fields)
        collector.add({role: fields[i] for role, i in positions.items()}, rows + block.first_number)


def _progress(report: Report | None, collector: _Collector, block: LineBlock) -> None:
    if report:
        report(f"read {block.first_number + len(block.lines) - 1:,} lines of {collector.path.name}")


def _read_csv(path: Path) -> RawTriples:
    """CSV with quoted fields. Arrow parses; bytes that are no UTF-8 are replaced first, and such rows rejected."""
    with open_bytes(path) as stream:
        text = stream.read().decode("utf-8", "replace").removeprefix("\ufeff")
    first_line = text.split("\n", 1)[0]
    header = next(csv.reader([first_line.rstrip("\r")]), [])
    positions = _columns_of(header)
    collector = _Collector(path, "csv")
    bad: list[tuple[int, int, str]] = []

    def skip_row(row: Any) -> str:
        bad.append((row.number, row.actual_columns, row.text))
        return "skip"

    names = [str(i) for i in range(max(3, len(header)))]
    table = pacsv.read_csv(
        io.BytesIO(text.encode("utf-8")),
        read_options=pacsv.ReadOptions(column_names=names, skip_rows=1 if positions else 0, use_threads=False),
        parse_options=pacsv.ParseOptions(invalid_row_handler=skip_row),
        convert_options=pacsv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.large_string()), strings_can_be_null=False
        ),
    )
    for number, actual, row_text in bad:
        collector.reject(number, f"{len(names)} fields expected, got {actual}", row_text)
        collector.result.num_rows += 1
    numbers = _row_numbers(table.num_rows, {number for number, _, _ in bad}, first=2 if positions else 1)
    columns = {
        role: table[names[i]].combine_chunks()
        for role, i in (positions or {"head": 0, "relation": 1, "tail": 2}).items()
    }
    collector.add(columns, numbers)
    return collector.finish()


def _row_numbers(num_rows: int, taken: set[int], first: int) -> np.ndarray:
    """Numbers of the rows that were read, counting the skipped ones between them."""
    numbers = np.setdiff1d(np.arange(first, first + num_rows + len(taken)), np.array(sorted(taken), dtype=np.int64))
    return numbers[:num_rows]


def _read_jsonl(path: Path, report: Report | None) -> RawTriples:
    collector = _Collector(path, "jsonl")
    for block in read_line_blocks(path):
        rows: dict[str, list[str]] = {"head": [], "relation": [], "tail": [], "text": []}
        numbers: list[int] = []
        for offset, line in enumerate(block.lines.to_pylist()):
            if not line.strip():
                continue
            number = block.first_number + offset
            value = _json_triple(line)
            if isinstance(value, str):
                collector.reject(number, value, line)
                collector.result.num_rows += 1
                continue
            numbers.append(number)
            for role, text in value.items():
                rows[role].append(text)
        columns = {role: pa.array(values, pa.large_string()) for role, values in rows.items()}
        collector.add(columns, np.array(numbers, dtype=np.int64))
        _progress(report, collector, block)
    result = collector.finish()
    if not result.texts or ops.is_blank(result.texts).all():
        result.texts = None
    return result


def _json_triple(line: str) -> dict[str, str] | str:
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
        for name in known:
            if isinstance(lowered.get(name), str | int | float):
                found[role] = str(lowered[name])
                break
    missing = [role for role in ("head", "relation", "tail") if role not in found]
    return f"no `{missing[0]}`" if missing else found


def _read_ntriples(path: Path, report: Report | None) -> RawTriples:
    reader = NTriplesReader()
    collector = _Collector(path, "ntriples")
    for block in read_line_blocks(path):
        columns, numbers, rejected = reader.read(block)
        for number, reason, text in rejected:
            collector.reject(number, reason, text)
            collector.result.num_rows += 1
        collector.add(columns, numbers)
        _progress(report, collector, block)
    result = collector.finish()
    result.names, result.aliases, result.descriptions = reader.names, reader.aliases, reader.descriptions
    return result


def _read_parquet(path: Path) -> RawTriples:
    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check the path") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]})") from None
    positions = _columns_of(table.column_names)
    if positions is None:
        raise UserError(
            f"{path}: columns {', '.join(table.column_names)}; expected head, relation, tail (or subject, predicate, "
            "object; or source, target, description)"
        )
    collector = _Collector(path, "parquet")
    columns = {role: ops.concat([table.column(i)]) for role, i in positions.items()}
    collector.add(columns, np.arange(1, table.num_rows + 1))
    return collector.finish()
