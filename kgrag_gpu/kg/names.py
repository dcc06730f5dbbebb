"""A names file: what the ids of a triples file are called. Columns id, name, qid, description, aliases.

Tab-separated without a header in that order (aliases separated by |), or TSV, CSV, JSON lines or Parquet with a header
that says which is which, such as GraphRAG's entity tables (`title`, `description`).
"""

import csv
import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from kgrag_gpu.data.pool import nfc
from kgrag_gpu.data.records import excerpt, read_text
from kgrag_gpu.kg.lines import bare_suffix
from kgrag_gpu.types import Rejected, UserError

_COLUMNS = {
    "id": ("id", "mid", "entity_id", "external_id", "uri"),
    "name": ("name", "label", "title", "entity"),
    "qid": ("qid", "wikidata", "wikidata_id"),
    "description": ("description", "desc"),
    "aliases": ("aliases", "alias", "alternative_names"),
}


@dataclass(frozen=True, slots=True)
class EntityNames:
    """What a names file says about one id."""

    name: str
    description: str = ""
    aliases: tuple[str, ...] = ()
    qid: str = ""


@dataclass(slots=True)
class NamesTable:
    """Names by id. `get` also knows an id in Freebase's other spelling (`/m/0x` and `m.0x`) and by its QID."""

    rows: dict[str, EntityNames] = field(default_factory=dict)
    rejected: list[Rejected] = field(default_factory=list)

    def get(self, identity: str) -> EntityNames | None:
        """The entry of an id, None where the file has none."""
        return self.rows.get(identity) or self.rows.get(other_spelling(identity))


def other_spelling(identity: str) -> str:
    """`/m/0x` for `m.0x` and the other way round; anything else as it is."""
    if identity.startswith(("/m/", "/g/")):
        return f"{identity[1]}.{identity[3:]}"
    if identity.startswith(("m.", "g.")):
        return f"/{identity[0]}/{identity[2:]}"
    return identity


def read_names(path: Path) -> NamesTable:
    """Read a names file.

    Raises:
        UserError: missing, empty, no known columns, or no usable row.
    """
    table = NamesTable()
    by_qid: dict[str, EntityNames] = {}
    for where, row in _rows(path, table):
        identity = _text(row.get("id")) or _text(row.get("name"))
        name = _text(row.get("name"))
        if not identity or not name:
            table.rejected.append(Rejected(where, "no id" if not identity else "no name", excerpt(str(row))))
            continue
        aliases = row.get("aliases") or ()
        values = aliases.split("|") if isinstance(aliases, str) else aliases
        entry = EntityNames(
            name=name,
            description=_text(row.get("description")),
            aliases=tuple(dict.fromkeys(a for a in (_text(v) for v in values) if a and a != name)),
            qid=_text(row.get("qid")),
        )
        table.rows.setdefault(identity, entry)
        if entry.qid:
            by_qid.setdefault(entry.qid, entry)
    if not table.rows:
        raise UserError(f"{path}: no row with an id and a name; columns id, name, qid, description, aliases expected")
    table.rows = by_qid | table.rows
    return table


def _text(value: Any) -> str:
    return nfc(str(value)).strip() if value is not None else ""


def _rows(path: Path, table: NamesTable):
    """(place, row by column) for each line of the file."""
    suffix = bare_suffix(path)
    if suffix == ".parquet":
        try:
            records = pq.read_table(path).to_pylist()
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]})") from None
        roles = _roles(list(records[0]) if records else [])
        for number, record in enumerate(records, 1):
            yield f"{path.name}:{number}", {role: record[column] for role, column in roles.items()}
        return
    lines = read_text(path).splitlines()
    if suffix in (".jsonl", ".ndjson"):
        yield from _json_rows(path, lines, table)
        return
    if suffix == ".csv":
        cells = list(csv.reader(io.StringIO("\n".join(lines))))
    else:
        cells = [line.split("\t") for line in lines]
    roles = _roles(cells[0])
    start = 1 if {"name"} <= roles.keys() else 0
    order = {role: cells[0].index(column) for role, column in roles.items()} if start else None
    for number, row in enumerate(cells[start:], start + 1):
        if not any(cell.strip() for cell in row):
            continue
        positions = order or dict(zip(_COLUMNS, range(5), strict=True))
        yield f"{path.name}:{number}", {role: row[i] for role, i in positions.items() if i < len(row)}


def _json_rows(path: Path, lines: list[str], table: NamesTable):
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
            roles = _roles(list(record))
        except (json.JSONDecodeError, TypeError):
            table.rejected.append(Rejected(f"{path.name}:{number}", "the line is not a JSON object", excerpt(line)))
            continue
        yield f"{path.name}:{number}", {role: record[column] for role, column in roles.items()}


def _roles(columns: list[str]) -> dict[str, str]:
    """Which column plays which role, by its name."""
    lowered = {column.strip().lower(): column for column in columns if isinstance(column, str)}
    found = {}
    for role, known in _COLUMNS.items():
        for name in known:
            if name in lowered:
                found[role] = lowered[name]
                break
    return found
