"""The knowledge graph in memory and on disk (a folder of Parquet files and a manifest).

Knows nothing of where a graph comes from; build.py, mentions.py, formats.py and openie_import.py make graphs.
"""

import hashlib
import json
import secrets
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kgrag_gpu.kg.text_column import HASHED_ROWS, MadeTexts, TextColumn, TextLists
from kgrag_gpu.types import EntityRef, Passage, Rejected, UserError

SCHEMA_VERSION = 2
MAX_ROWS = 2**31 - 1  # row numbers are int32
LISTED_ENTITIES = 1_000_000  # columns of more entities are read row by row, never as Python lists
_WRITTEN_ROWS = 1 << 22  # of triples at a time
_FILES = ("entities", "relations", "triples", "passages")


@dataclass(frozen=True, eq=False)
class Kg:
    """Entities, relations, triples and passages; every `*_ids`-like array holds row numbers of these tables.

    Triples are distinct and keep their direction; self-loops are allowed. `make_kg` checks and hashes.
    """

    entity_names: Sequence[str]
    entity_aliases: Sequence[tuple[str, ...]]
    entity_descriptions: Sequence[str]
    entity_external_ids: Sequence[str]  # MID, QID, URI; "" where the source has none
    relation_names: list[str]
    relation_texts: list[str]  # readable words
    heads: np.ndarray  # int32 [triples]
    relations: np.ndarray  # int32 [triples]
    tails: np.ndarray  # int32 [triples]
    triple_texts: Sequence[str]  # the source sentence, or a readable sentence made from the triple
    triple_passage_offsets: np.ndarray  # int64 [triples + 1]
    triple_passages: np.ndarray  # int32: rows of passages, ascending within a triple
    passages: list[Passage]
    passage_entities: np.ndarray  # int32 [passages]: the entity that the title names, -1 where none
    kind: str  # "mentions", "openie", "triples", "llm", joined by "+" where merged
    content_hash: str
    manifest: Mapping[str, Any] = field(default_factory=dict)  # source, building config
    rejected: tuple[Rejected, ...] = ()

    @property
    def num_entities(self) -> int:
        """Rows of the entity table."""
        return len(self.entity_names)

    @property
    def num_relations(self) -> int:
        """Rows of the relation table."""
        return len(self.relation_names)

    @property
    def num_triples(self) -> int:
        """Rows of the triple table."""
        return len(self.heads)

    @property
    def num_passages(self) -> int:
        """Rows of the passage table."""
        return len(self.passages)

    @property
    def counts(self) -> dict[str, int]:
        """The sizes, for manifests and tables."""
        return {
            "num_entities": self.num_entities,
            "num_relations": self.num_relations,
            "num_triples": self.num_triples,
            "num_passages": self.num_passages,
            "num_rejected": len(self.rejected),
        }

    def entity_refs(self, entities: Iterable[int]) -> tuple[EntityRef, ...]:
        """Entities by name and id, in order."""
        return tuple(EntityRef(self.entity_names[int(e)], self.entity_external_ids[int(e)]) for e in entities)


def make_kg(
    *,
    entity_names: Sequence[str],
    relation_names: list[str],
    heads: np.ndarray,
    relations: np.ndarray,
    tails: np.ndarray,
    triple_texts: Sequence[str],
    kind: str,
    relation_texts: list[str] | None = None,
    entity_aliases: Sequence[tuple[str, ...]] | None = None,
    entity_descriptions: Sequence[str] | None = None,
    entity_external_ids: Sequence[str] | None = None,
    triple_passage_offsets: np.ndarray | None = None,
    triple_passages: np.ndarray | None = None,
    passages: list[Passage] | None = None,
    passage_entities: np.ndarray | None = None,
    manifest: Mapping[str, Any] | None = None,
    rejected: Sequence[Rejected] = (),
) -> Kg:
    """A checked and hashed `Kg`. What is left out is empty.

    Raises:
        UserError: a table has 2^31 rows or more.
        ValueError: columns of one table differ in length, or a row number is out of range (an error of ours).
    """
    num_entities, num_triples = len(entity_names), len(heads)
    passages = passages or []
    for name, count in (("entities", num_entities), ("triples", num_triples), ("passages", len(passages))):
        check_count(count, name)
    columns: dict[str, Any] = {
        "entity_names": _listed(entity_names),
        "entity_aliases": _listed([()] * num_entities if entity_aliases is None else entity_aliases),
        "entity_descriptions": _listed([""] * num_entities if entity_descriptions is None else entity_descriptions),
        "entity_external_ids": _listed([""] * num_entities if entity_external_ids is None else entity_external_ids),
        "relation_names": relation_names,
        "relation_texts": relation_texts or list(relation_names),
        "heads": _int32(heads),
        "relations": _int32(relations),
        "tails": _int32(tails),
        "triple_texts": triple_texts,
        "triple_passage_offsets": _no_offsets(num_triples)
        if triple_passage_offsets is None
        else np.asarray(triple_passage_offsets, dtype=np.int64),
        "triple_passages": _int32([] if triple_passages is None else triple_passages),
        "passages": passages,
        "passage_entities": _int32(np.full(len(passages), -1) if passage_entities is None else passage_entities),
    }
    _check(columns)
    return Kg(**columns, kind=kind, content_hash=_hash(columns), manifest=manifest or {}, rejected=tuple(rejected))


def check_count(count: int, name: str) -> None:
    """Refuse a table that int32 row numbers cannot count.

    Raises:
        UserError: `count` is 2^31 or more.
    """
    if count > MAX_ROWS:
        raise UserError(f"{count:,} {name}: more than 2^31 - 1 cannot be numbered; split the graph into parts")


def _listed(column: Sequence[Any]) -> Sequence[Any]:
    """A short column as a list."""
    return column if isinstance(column, list) or len(column) > LISTED_ENTITIES else list(column)


def _no_offsets(num_triples: int) -> np.ndarray:
    """Passage offsets of triples without passages: all 0, in no memory."""
    return np.broadcast_to(np.int64(0), num_triples + 1)


def _int32(values: Any) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.int32)


def _check(columns: Mapping[str, Any]) -> None:
    num_entities, num_passages = len(columns["entity_names"]), len(columns["passages"])
    num_triples = len(columns["heads"])
    lengths = {
        "entity_aliases": num_entities,
        "entity_descriptions": num_entities,
        "entity_external_ids": num_entities,
        "relation_texts": len(columns["relation_names"]),
        "relations": num_triples,
        "tails": num_triples,
        "triple_texts": num_triples,
        "triple_passage_offsets": num_triples + 1,
        "passage_entities": num_passages,
    }
    for name, expected in lengths.items():
        if len(columns[name]) != expected:
            raise ValueError(f"{name} has {len(columns[name])} rows, {expected} expected")
    ranges = {
        "heads": (0, num_entities),
        "tails": (0, num_entities),
        "relations": (0, len(columns["relation_names"])),
        "triple_passages": (0, num_passages),
        "passage_entities": (-1, num_entities),
    }
    for name, (low, high) in ranges.items():
        values = columns[name]
        if len(values) and (values.min() < low or values.max() >= high):
            raise ValueError(f"{name} holds row numbers outside [{low}, {high})")
    offsets = columns["triple_passage_offsets"]
    has_passages = len(columns["triple_passages"]) > 0
    if (
        offsets[0] != 0
        or offsets[-1] != len(columns["triple_passages"])
        or (has_passages and (np.diff(offsets) < 0).any())
    ):
        raise ValueError("triple_passage_offsets do not cut triple_passages into rows")


def _hash(columns: Mapping[str, Any]) -> str:
    """The same for the same content, however its columns are held."""
    digest = hashlib.sha256()
    aliases = columns["entity_aliases"]
    is_bare = isinstance(aliases, TextLists) and aliases.is_blank
    joined = pa.repeat(pa.scalar("", pa.large_string()), len(aliases)) if is_bare else ["\x1f".join(a) for a in aliases]
    texts: list[Any] = [
        columns["entity_names"],
        joined,
        columns["entity_descriptions"],
        columns["entity_external_ids"],
        columns["relation_names"],
        columns["relation_texts"],
        columns["triple_texts"],
        [p.title for p in columns["passages"]],
        [p.text for p in columns["passages"]],
        [p.external_id for p in columns["passages"]],
    ]
    for column in texts:
        if isinstance(column, MadeTexts):
            digest.update(b"made of the names")
        else:
            (column if isinstance(column, TextColumn) else TextColumn(column)).update_hash(digest)
    for name in ("heads", "relations", "tails", "triple_passage_offsets", "triple_passages", "passage_entities"):
        values = columns[name]
        for start in range(0, len(values), HASHED_ROWS):
            part = np.ascontiguousarray(values[start : start + HASHED_ROWS])
            digest.update(part.astype(part.dtype.newbyteorder("<"), copy=False).data)
    return digest.hexdigest()[:32]


def save_kg(kg: Kg, directory: Path | str) -> Path:
    """Write `kg` to `directory`, whole or not at all (a temporary name, then a rename), and return the directory.

    A KG of other content in that place is replaced; a place that holds anything else is left alone.
    What the import could not read goes to `rejected.jsonl` beside the tables.

    Raises:
        UserError: the place is taken by something that is no KG, or cannot be written.
    """
    directory = Path(directory)
    if directory.exists() and not _is_kg(directory) and (directory.is_file() or any(directory.iterdir())):
        raise UserError(f"{directory}: exists and is not a KG folder; give another --out, or empty it")
    temporary = directory.with_name(f".{directory.name}.{secrets.token_hex(6)}.tmp")
    try:
        temporary.mkdir(parents=True)
        _write(kg, temporary)
        _put_in_place(temporary, directory, kg.content_hash)
    except OSError as error:
        raise UserError(f"{directory}: cannot be written ({error.strerror or error}); give another place") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return directory


def _is_kg(directory: Path) -> bool:
    return (directory / "manifest.json").is_file()


def _put_in_place(temporary: Path, directory: Path, content_hash: str) -> None:
    """Rename; where another process has just put the same KG there, keep that one."""
    if _is_kg(directory):
        if _read_manifest(directory).get("content_hash") == content_hash:
            (temporary / "manifest.json").replace(directory / "manifest.json")
            (temporary / "rejected.jsonl").replace(directory / "rejected.jsonl")
            return
        retired = directory.with_name(f".{directory.name}.{secrets.token_hex(6)}.old")
        directory.rename(retired)
        temporary.rename(directory)
        shutil.rmtree(retired, ignore_errors=True)
        return
    try:
        temporary.rename(directory)
    except OSError:
        if not _is_kg(directory) or _read_manifest(directory).get("content_hash") != content_hash:
            raise


def _write(kg: Kg, directory: Path) -> None:
    tables = {
        "entities": {
            "name": _text_array(kg.entity_names),
            "aliases": kg.entity_aliases.array
            if isinstance(kg.entity_aliases, TextLists)
            else pa.array([list(a) for a in kg.entity_aliases], pa.list_(pa.string())),
            "description": _text_array(kg.entity_descriptions),
            "external_id": _text_array(kg.entity_external_ids),
        },
        "relations": {"name": _text_array(kg.relation_names), "text": _text_array(kg.relation_texts)},
        "passages": {
            "title": pa.array([p.title for p in kg.passages], pa.string()),
            "text": pa.array([p.text for p in kg.passages], pa.large_string()),
            "external_id": pa.array([p.external_id for p in kg.passages], pa.string()),
            "entity": pa.array(kg.passage_entities),
        },
    }
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), directory / f"{name}.parquet", compression="zstd", use_dictionary=False)
    _write_triples(kg, directory / "triples.parquet")
    with (directory / "rejected.jsonl").open("w", encoding="utf-8") as lines:
        for row in kg.rejected:
            record = {"where": row.where, "reason": row.reason, "excerpt": row.excerpt}
            lines.write(json.dumps(record, ensure_ascii=False) + "\n")
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "kind": kg.kind,
        **kg.counts,
        "has_triple_texts": not isinstance(kg.triple_texts, MadeTexts),
        "num_triple_passages": len(kg.triple_passages),
        "content_hash": kg.content_hash,
        **{k: v for k, v in kg.manifest.items() if k in ("source", "config", "notes")},
    }
    (directory / "manifest.json").write_text(json.dumps(manifest, ensure_ascii=False, indent=2) + "\n", "utf-8")


def _text_array(column: Sequence[str]) -> Any:
    return column.array if isinstance(column, TextColumn) else pa.array(column, pa.large_string())


def _write_triples(kg: Kg, path: Path) -> None:
    """A run of rows at a time. Row numbers lie uncompressed: they hardly shrink, and are read at once."""
    has_texts = not isinstance(kg.triple_texts, MadeTexts)
    texts = _text_array(kg.triple_texts) if has_texts else None
    numbers = pa.int32()
    schema = pa.schema(
        {"head": numbers, "relation": numbers, "tail": numbers, "text": pa.large_string(),
         "passages": pa.large_list(pa.int32())}
    )  # fmt: skip
    plain: Any = {"head": "none", "relation": "none", "tail": "none", "text": "zstd", "passages.list.element": "zstd"}
    with pq.ParquetWriter(path, schema, compression=plain, use_dictionary=False) as writer:
        for start in range(0, max(1, kg.num_triples), _WRITTEN_ROWS):
            part = slice(start, start + _WRITTEN_ROWS)
            heads = pa.array(kg.heads[part])
            bounds = np.ascontiguousarray(kg.triple_passage_offsets[start : start + len(heads) + 1])
            passages = pa.array(kg.triple_passages[bounds[0] : bounds[-1]])
            columns = [
                heads,
                pa.array(kg.relations[part]),
                pa.array(kg.tails[part]),
                pa.nulls(len(heads), pa.large_string()) if texts is None else texts.slice(start, _WRITTEN_ROWS),
                pa.LargeListArray.from_arrays(bounds - bounds[0], passages),
            ]
            writer.write_table(pa.table(columns, schema=schema))


def _read_manifest(directory: Path) -> dict[str, Any]:
    path = directory / "manifest.json"
    try:
        manifest = json.loads(path.read_text("utf-8"))
        version = manifest["schema_version"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{directory}: not a KG folder (no readable manifest.json); build one with `python -m pipelines.build_kg`"
        ) from None
    if version != SCHEMA_VERSION:
        raise UserError(f"{directory}: schema version {version}, {SCHEMA_VERSION} is read here; build the KG again")
    return manifest


def load_kg(directory: Path | str) -> Kg:
    """Read a KG folder.

    Raises:
        UserError: no KG there, a file is missing or broken, or the counts are not those of the manifest.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise UserError(f"{directory}: no such KG folder; build one with `python -m pipelines.build_kg`")
    manifest = _read_manifest(directory)
    tables = {name: _read_table(directory, name, manifest) for name in _FILES}
    entities, relations, triples, passages = (tables[name] for name in _FILES)
    names, ids = (_texts(entities[name]) for name in ("name", "external_id"))
    relation_texts = relations["text"].to_pylist()
    heads, kinds, tails = (_column(triples, name) for name in ("head", "relation", "tail"))
    offsets, triple_passages = _no_offsets(len(heads)), np.zeros(0, np.int32)
    if manifest["num_triple_passages"]:
        lists = triples["passages"].combine_chunks()
        offsets, triple_passages = np.asarray(lists.offsets, dtype=np.int64), _int32(np.asarray(lists.flatten()))
        offsets = offsets - offsets[0]
    texts = MadeTexts(names, relation_texts, heads, kinds, tails)
    return Kg(
        entity_names=names,
        entity_aliases=_listed(TextLists(entities["aliases"])),
        entity_descriptions=_texts(entities["description"]),
        entity_external_ids=ids,
        relation_names=relations["name"].to_pylist(),
        relation_texts=relation_texts,
        heads=heads,
        relations=kinds,
        tails=tails,
        triple_texts=TextColumn(triples["text"]) if manifest["has_triple_texts"] else texts,
        triple_passage_offsets=offsets,
        triple_passages=triple_passages,
        passages=[Passage(**row) for row in passages.drop_columns(["entity"]).to_pylist()],
        passage_entities=_column(passages, "entity"),
        kind=manifest["kind"],
        content_hash=manifest["content_hash"],
        manifest={k: v for k, v in manifest.items() if k in ("source", "config", "notes")},
        rejected=_read_rejected(directory / "rejected.jsonl"),
    )


def _read_table(directory: Path, name: str, manifest: Mapping[str, Any]) -> pa.Table:
    """One table, mapped; of the triples only the columns that hold something."""
    path = directory / f"{name}.parquet"
    columns = None
    if name == "triples":
        columns = ["head", "relation", "tail"]
        columns += ["text"] if manifest.get("has_triple_texts", True) else []
        columns += ["passages"] if manifest.get("num_triple_passages", 1) else []
    try:
        table = pq.read_table(path, columns=columns, memory_map=True)
    except (OSError, pa.ArrowInvalid) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{directory}: the KG is incomplete ({reason}); build it again") from None
    if table.num_rows != manifest.get(f"num_{name}"):
        raise UserError(f"{path}: {table.num_rows} rows, {manifest.get(f'num_{name}')} expected; build it again")
    return table


def _texts(column: pa.ChunkedArray) -> Sequence[str]:
    return _listed(TextColumn(column))


def _column(table: pa.Table, name: str) -> np.ndarray:
    return _int32(table[name].to_numpy())


def _read_rejected(path: Path) -> tuple[Rejected, ...]:
    if not path.is_file():
        return ()
    return tuple(Rejected(**json.loads(line)) for line in path.read_text("utf-8").splitlines() if line)
