"""A corpus of passages from a file: JSON array, JSON lines or Parquet of records with a text and, mostly, a title."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kgrag_gpu.data.pool import PassagePool, join_sentences
from kgrag_gpu.data.records import RecordError, excerpt, read_json_records, require_mapping, require_text
from kgrag_gpu.types import Passage, Rejected, UserError

EXPECTED = (
    "`text` (or `paragraph_text`, `passage`, `contents`, or `sentences`) and, where there is one, `title` and `id`"
)


def load_passages(path: Path, max_rejected_share: float = 0.01) -> tuple[list[Passage], list[Rejected]]:
    """The distinct passages of a file in its order, and the records that could not be used.

    Raises:
        UserError: the file cannot be read, holds no passage, or more than `max_rejected_share` of it is unusable.
    """
    file = read_json_records(path)
    pool = PassagePool()
    rejected = list(file.rejected)
    for where, record in file.records:
        try:
            _add(record, pool)
        except RecordError as error:
            rejected.append(Rejected(where, str(error), excerpt(record)))
    num_records = len(file.records) + len(file.rejected)
    if len(rejected) > max_rejected_share * num_records or not len(pool):
        first = rejected[0]
        raise UserError(
            f"{path}: {len(rejected):,} of {num_records:,} records are no passages (first: {first.where}: "
            f"{first.reason}); a passage needs {EXPECTED}"
        )
    return pool.passages, rejected


def _add(record: Any, pool: PassagePool) -> None:
    if isinstance(record, str) and record.strip():
        pool.add("", record)
        return
    record = require_mapping(record)
    title = record.get("title")
    sentences = record.get("sentences")
    if isinstance(sentences, list) and sentences and all(isinstance(s, str) for s in sentences):
        text = join_sentences(sentences)
    else:
        text = require_text(record, "text", "paragraph_text", "passage", "contents")
    pool.add(title if isinstance(title, str) else "", text, external_id=_external_id(record))


def _external_id(record: Mapping[str, Any]) -> str:
    for name in ("id", "_id", "external_id"):
        value = record.get(name)
        if isinstance(value, str | int):
            return str(value)
    return ""
