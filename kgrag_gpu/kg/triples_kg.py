"""A KG from files of triples. Dictionary encoding and sorting are Arrow's and numpy's; Python sees odd names only.

Identity is the term as written (after NFC and outer white space): an id where the source has ids, else the exact name.
Two ids may share a name and stay two entities; names that differ in case are two names. Entities and relations are
numbered by first appearance, a row's head before its tail, so that adding a file to a graph gives what building both
at once would have given.
"""

import itertools
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from kgrag_gpu.kg import arrow_ops as ops
from kgrag_gpu.kg.collapse import collapse_triples
from kgrag_gpu.kg.formats import Report, TripleOptions, TripleReader
from kgrag_gpu.kg.names import NamesTable, read_names
from kgrag_gpu.kg.ntriples import is_uri, local_name
from kgrag_gpu.kg.numbering import NumberedTriples, Part, Spool, join_parts
from kgrag_gpu.kg.relation_text import FREEBASE_ID, is_joined, relation_text
from kgrag_gpu.kg.store import Kg, check_count, make_kg
from kgrag_gpu.kg.text_column import MadeTexts, TextColumn, TextLists
from kgrag_gpu.types import Rejected, UserError

_QID = re.compile(r"Q[0-9]+")
_RDF_FREEBASE = re.compile(r"https?://rdf\.freebase\.com/ns/([mg]\.[0-9a-z_]+)")
# What may be an id or a name with joined words; any other identity is its own plain name.
_ODD = r"_|^[A-Za-z][A-Za-z0-9+.-]*:|^/?[mg][./][01]|^Q[0-9]+$"
_CHUNK_ENTITIES = 1_000_000


def import_triples(
    path: Path,
    names_path: Path | None = None,
    max_rejected_share: float = 0.01,
    report: Report | None = None,
    options: TripleOptions | None = None,
    work_dir: Path | None = None,
    base: Kg | None = None,
) -> Kg:
    """Build a KG from a file of triples (formats.py), with an optional names file (names.py).

    Args:
        path: the triples.
        names_path: names of their ids.
        max_rejected_share: share of unreadable rows from which the file is refused.
        report: told about progress after every block.
        options: columns and languages.
        work_dir: where blocks are laid aside while a file of many blocks is read, and found again when the import was
            stopped; None keeps them in memory. Removed at the end.
        base: a KG to add to; the result is what one build of both would be, but for the base's own rejects.

    Raises:
        UserError: unreadable file, no triple in it, or more than `max_rejected_share` of its rows rejected.
    """
    reader = TripleReader(path, options)
    spool = Spool(work_dir, _input_key(path, reader.options)) if work_dir else Spool()
    try:
        parts = list(_read_parts(reader, spool, report))
        check_rejected(path, reader.rejected, reader.num_rows, max_rejected_share)
        names = read_names(names_path) if names_path else None
    except UserError:  # nothing that the same command could go on with
        spool.close()
        raise
    source = f"triples {path}" + (f", names {names_path}" if names_path else "")
    if report:
        report(f"{path.name}: numbering {reader.num_rows - len(reader.rejected):,} triples")
    kg = _build(parts, reader, names, source, base)
    spool.close()
    return kg


def _input_key(path: Path, options: TripleOptions) -> str:
    state = path.stat()
    return f"{path.resolve()} {state.st_size} {state.st_mtime_ns} {sorted(options.columns.items())} {options.languages}"


def _read_parts(reader: TripleReader, spool: Spool, report: Report | None) -> Iterator[Part]:
    """The file's blocks, numbered; those that an earlier process laid aside are not parsed again."""
    started, num_resumed = time.monotonic(), 0
    blocks = reader.blocks(spool.has)
    for index, block in enumerate(blocks):
        if block is None:
            reader.restore(spool.notes(index))
            num_resumed = reader.num_rows
        else:
            spool.put(index, Part.of(block), reader.take_notes())
        yield spool.get(index)
        if report:
            seconds = time.monotonic() - started
            rate = (reader.num_rows - num_resumed) / max(seconds, 1e-9)
            left = seconds * (1 - reader.progress) / max(reader.progress, 1e-9)
            report(
                f"{reader.path.name}: {reader.num_rows:,} rows, {reader.progress:.0%}, {rate:,.0f} rows/s, "
                f"{left:,.0f} s left to read"
            )


def check_rejected(path: Path, rejected: Sequence[Rejected], num_rows: int, max_share: float) -> None:
    """Refuse a file of which too much, or everything, cannot be read.

    Raises:
        UserError: says how many, why the first, and what to do.
    """
    if num_rows == 0:
        raise UserError(f"{path}: no triple in the file; expected one a line: head, relation, tail")
    if rejected and (len(rejected) > max_share * num_rows or len(rejected) == num_rows):
        first = rejected[0]
        raise UserError(
            f"{path}: {len(rejected):,} of {num_rows:,} rows cannot be read (first: {first.where}: {first.reason}), "
            f"more than {max_share:.2%}; check the file, or raise kg.max_rejected_share (--max-rejected-share)"
        )


def _build(parts: list[Part], reader: TripleReader, names: NamesTable | None, source: str, base: Kg | None) -> Kg:
    """A KG of the parts, behind `base`. An edge without a text of its own gets "head relation tail" when it is read."""
    raw = join_parts(itertools.chain([_part_of(base)] if base else [], parts))
    check_count(len(raw.identities), "entities")
    num_old = base.num_triples if base else 0
    kept = _distinct_rows(raw, num_old)
    heads, relations, tails = raw.heads[kept], raw.rels[kept], raw.tails[kept]
    check_count(len(heads), "triples")
    entities = _entities(raw.identities, names, reader, base)
    relation_texts = [relation_text(name) for name in raw.relations]
    made = MadeTexts(entities.names, relation_texts, heads, relations, tails)
    if raw.texts is None:
        texts: Sequence[str] = made
    else:
        own = TextColumn(raw.texts.take(pa.array(kept)))
        blank = ops.is_blank(own.array)
        texts = own if not blank.any() else own.replaced(blank, made.take(np.flatnonzero(blank)))
    notes = {
        "format": reader.format,
        "num_rows": reader.num_rows,
        "num_duplicates": len(raw.heads) - len(heads),
        "num_self_loops": int((heads == tails).sum()),
        "num_unnamed_entities": entities.num_unnamed,
    }
    if base is not None:
        source = f"{base.manifest.get('source', '')} + {source}"
        notes["num_added_triples"] = len(heads) - num_old
    return make_kg(
        entity_names=entities.names,
        entity_aliases=entities.aliases,
        entity_descriptions=entities.descriptions,
        entity_external_ids=entities.external_ids,
        relation_names=raw.relations,
        relation_texts=relation_texts,
        heads=heads,
        relations=relations,
        tails=tails,
        triple_texts=texts,
        triple_passage_offsets=_extended(base.triple_passage_offsets, len(heads)) if base else None,
        triple_passages=base.triple_passages if base else None,
        passages=base.passages if base else None,
        passage_entities=base.passage_entities if base else None,
        kind=base.kind if base else "triples",
        manifest={"source": source, "notes": notes},
        rejected=[*reader.rejected, *(names.rejected if names else [])],
    )


def _part_of(base: Kg) -> Part:
    """A KG as a part of its own: identities are ids where it has any."""
    ids, names = (TextColumn(column).array for column in (base.entity_external_ids, base.entity_names))
    identities = ops.choose(pa.array(ops.is_blank(ids)), names, ids)
    texts = None if isinstance(base.triple_texts, MadeTexts) else TextColumn(base.triple_texts).array
    return Part(identities, list(base.relation_names), np.stack([base.heads, base.relations, base.tails]), texts)


def _distinct_rows(raw: NumberedTriples, num_old: int) -> np.ndarray:
    """The first row of every triple, ascending. The first `num_old` rows are known to be distinct."""
    rows = np.arange(len(raw.heads))
    if num_old:  # only old rows about a new row's head can equal a new row
        is_new_head = np.zeros(len(raw.identities), dtype=bool)
        is_new_head[raw.heads[num_old:]] = True
        rows = np.concatenate([np.flatnonzero(is_new_head[raw.heads[:num_old]]), rows[num_old:]])
    first = rows[collapse_triples(raw.heads[rows], raw.rels[rows], raw.tails[rows]).rows]
    return np.concatenate([np.arange(num_old), first[first >= num_old]]) if num_old else first


def _extended(offsets: np.ndarray, num_triples: int) -> np.ndarray:
    """Passage offsets of more triples, the further ones without passages."""
    return np.concatenate([offsets, np.full(num_triples + 1 - len(offsets), offsets[-1])])


@dataclass(frozen=True, slots=True)
class _Entities:
    """The entity table of the distinct identities, in their order."""

    names: Sequence[str]
    aliases: Sequence[tuple[str, ...]]
    descriptions: Sequence[str]
    external_ids: Sequence[str]
    num_unnamed: int


def _entities(identities: Any, names: NamesTable | None, reader: TripleReader, base: Kg | None) -> _Entities:
    num_old = base.num_entities if base else 0
    num_qids = int(ops.matches(identities, f"^{_QID.pattern}$").sum())
    naming = _Naming(names, reader, qids_are_ids=num_qids * 2 >= max(1, len(identities)))
    chunks = [
        naming.columns(identities.slice(start, _CHUNK_ENTITIES))
        for start in range(num_old, len(identities), _CHUNK_ENTITIES)
    ]
    if base:
        old = (base.entity_names, base.entity_aliases, base.entity_descriptions, base.entity_external_ids)
        chunks.insert(0, tuple(_array(column) for column in old))
    parts = [pa.chunked_array(column) for column in zip(*chunks, strict=True)]
    texts = [TextColumn(parts[i]) for i in (0, 2, 3)]
    return _Entities(texts[0], TextLists(parts[1]), texts[1], texts[2], naming.num_unnamed)


def _array(column: Sequence[Any]) -> Any:
    if isinstance(column, TextColumn | TextLists):
        return column.array
    is_texts = not len(column) or isinstance(column[0], str)
    values = column if is_texts else [list(row) for row in column]
    return pa.array(values, pa.large_string() if is_texts else pa.list_(pa.string()))


class _Naming:
    """Names, aliases, descriptions and ids of identities."""

    def __init__(self, names: NamesTable | None, reader: TripleReader, qids_are_ids: bool):
        self._names, self._reader, self._qids_are_ids = names, reader, qids_are_ids
        self._knows_names = bool(names or reader.names or reader.aliases or reader.descriptions)
        self.num_unnamed = 0

    def columns(self, identities: Any) -> tuple[Any, Any, Any, Any]:
        """The four columns for a run of identities."""
        is_odd = np.ones(len(identities), bool) if self._knows_names else ops.matches(identities, _ODD)
        blank = pa.repeat(pa.scalar("", pa.large_string()), len(identities))
        if not is_odd.any():
            return identities, pa.array([[]] * len(identities), pa.list_(pa.string())), blank, blank
        rows = [
            self._row(identity) if odd else (identity, (), "", "")
            for identity, odd in zip(identities.to_pylist(), is_odd.tolist(), strict=True)
        ]
        names, aliases, descriptions, external_ids = zip(*rows, strict=True)
        texts = [pa.array(column, pa.large_string()) for column in (names, descriptions, external_ids)]
        return texts[0], pa.array(aliases, pa.list_(pa.string())), texts[1], texts[2]

    def _row(self, identity: str) -> tuple[str, tuple[str, ...], str, str]:
        reader = self._reader
        freebase = _RDF_FREEBASE.fullmatch(identity)
        short = freebase.group(1) if freebase else identity
        entry = self._names.get(short) if self._names else None
        known = entry is not None or FREEBASE_ID.fullmatch(short) or (self._qids_are_ids and _QID.fullmatch(short))
        is_id = bool(known) or is_uri(identity) or identity.startswith("_:")
        if entry:
            name, aliases, description = entry.name, entry.aliases, entry.description
        else:
            name = reader.names.get(identity) or (local_name(short) if is_uri(short) else short)
            aliases, description = tuple(reader.aliases.get(identity, ())), reader.descriptions.get(identity, "")
            self.num_unnamed += is_id and identity not in reader.names and name in (short, identity)
        if is_joined(name):
            aliases = (*aliases, name.replace("_", " ").strip())
        aliases = tuple(dict.fromkeys(a for a in aliases if a and a != name))
        return name, aliases, description, identity if is_id else ""
