"""A KG from columns of triples. Dictionary encoding and sorting are Arrow's and numpy's; Python sees distinct names.

Identity is the term as written (after NFC and outer white space): an id where the source has ids, else the exact name.
Two ids may share a name and stay two entities; names that differ in case are two names.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from kgrag_gpu.kg import arrow_ops as ops
from kgrag_gpu.kg.collapse import collapse_triples
from kgrag_gpu.kg.formats import RawTriples, Report, read_triples
from kgrag_gpu.kg.names import NamesTable, read_names
from kgrag_gpu.kg.ntriples import is_uri, local_name
from kgrag_gpu.kg.relation_text import relation_text
from kgrag_gpu.kg.store import Kg, check_count, make_kg
from kgrag_gpu.kg.text_column import TextColumn
from kgrag_gpu.types import Rejected, UserError

_MID = re.compile(r"(?:/m/|m\.)0[0-9a-z_]+|(?:/g/|g\.)1[0-9a-z_]+")
_QID = re.compile(r"Q[0-9]+")
_RDF_FREEBASE = re.compile(r"https?://rdf\.freebase\.com/ns/([mg]\.[0-9a-z_]+)")


def import_triples(
    path: Path, names_path: Path | None = None, max_rejected_share: float = 0.01, report: Report | None = None
) -> Kg:
    """Build a KG from a file of triples (formats.py), with an optional names file (names.py).

    Raises:
        UserError: unreadable file, no triple in it, or more than `max_rejected_share` of its rows rejected.
    """
    raw = read_triples(path, report)
    check_rejected(path, raw.rejected, raw.num_rows, max_rejected_share)
    names = read_names(names_path) if names_path else None
    source = f"triples {path}" + (f", names {names_path}" if names_path else "")
    return build_triples_kg(raw, names, source)


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


def build_triples_kg(raw: RawTriples, names: NamesTable | None = None, source: str = "triples") -> Kg:
    """A KG of the raw columns. Entities and relations are numbered by first appearance, heads before tails.

    The edge's text is the source's own where it has one, else "head relation tail" in readable words.
    """
    num_raw = len(raw.heads)
    identities, codes = ops.encode(ops.concat([raw.heads, raw.tails]))
    relation_values, relation_codes = ops.encode(raw.relations)
    check_count(len(identities), "entities")
    kept = collapse_triples(codes[:num_raw], relation_codes, codes[num_raw:])
    heads, relations, tails = codes[:num_raw][kept.rows], relation_codes[kept.rows], codes[num_raw:][kept.rows]
    check_count(len(heads), "triples")
    entities = _Entities(identities.to_pylist(), names, raw)
    relation_names: list[str] = relation_values.to_pylist()
    relation_texts = [relation_text(name) for name in relation_names]
    texts = _edge_texts(entities.readable, relation_texts, heads, relations, tails)
    if raw.texts is not None:
        own = raw.texts.take(pa.array(kept.rows))
        texts = ops.choose(pa.array(ops.is_blank(own)), texts, own)
    rejected = list(raw.rejected) + (names.rejected if names else [])
    notes = {
        "format": raw.format,
        "num_rows": raw.num_rows,
        "num_duplicates": num_raw - len(heads),
        "num_self_loops": int((heads == tails).sum()),
        "num_unnamed_entities": entities.num_unnamed,
    }
    return make_kg(
        entity_names=entities.names,
        entity_aliases=entities.aliases,
        entity_descriptions=entities.descriptions,
        entity_external_ids=entities.external_ids,
        relation_names=relation_names,
        relation_texts=relation_texts,
        heads=heads,
        relations=relations,
        tails=tails,
        triple_texts=TextColumn(texts),
        kind="triples",
        manifest={"source": source, "notes": notes},
        rejected=rejected,
    )


class _Entities:
    """Names, aliases, descriptions and ids of the distinct identities, as columns in their order."""

    def __init__(self, identities: list[str], names: NamesTable | None, raw: RawTriples):
        self.names: list[str] = []
        self.aliases: list[tuple[str, ...]] = []
        self.descriptions: list[str] = []
        self.external_ids: list[str] = []
        self.num_unnamed = 0
        qids_are_ids = bool(identities) and sum(map(bool, map(_QID.fullmatch, identities))) * 2 >= len(identities)
        for identity in identities:
            self._add(identity, names, raw, qids_are_ids)
        self.readable = [name.replace("_", " ").strip() if _is_joined(name) else name for name in self.names]

    def _add(self, identity: str, names: NamesTable | None, raw: RawTriples, qids_are_ids: bool) -> None:
        freebase = _RDF_FREEBASE.fullmatch(identity)
        short = freebase.group(1) if freebase else identity
        entry = names.get(short) if names else None
        known = entry is not None or _MID.fullmatch(short) or (qids_are_ids and _QID.fullmatch(short))
        is_id = bool(known) or is_uri(identity) or identity.startswith("_:")
        if entry:
            name, aliases, description = entry.name, entry.aliases, entry.description
        else:
            name = raw.names.get(identity) or (local_name(short) if is_uri(short) else short)
            aliases, description = tuple(raw.aliases.get(identity, ())), raw.descriptions.get(identity, "")
            self.num_unnamed += is_id and identity not in raw.names and name in (short, identity)
        if _is_joined(name):
            aliases = (*aliases, name.replace("_", " ").strip())
        self.names.append(name)
        self.aliases.append(tuple(dict.fromkeys(a for a in aliases if a and a != name)))
        self.descriptions.append(description)
        self.external_ids.append(identity if is_id else "")


def _is_joined(name: str) -> bool:
    """Whether a name writes its spaces as `_` (an id does not)."""
    return "_" in name.strip("_") and " " not in name and not name.startswith("_:") and not _MID.fullmatch(name)


def _edge_texts(
    readable: list[str], relation_texts: list[str], heads: np.ndarray, relations: np.ndarray, tails: np.ndarray
) -> Any:
    entities = pa.array(readable, pa.large_string())
    words = pa.array(relation_texts, pa.large_string())
    columns = [
        entities.take(pa.array(heads)),
        words.take(pa.array(relations)),
        entities.take(pa.array(tails)),
    ]
    return ops.join(columns, " ")
