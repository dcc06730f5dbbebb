"""Where a KG holds the topic entities that a question set names."""

from collections.abc import Mapping

from kgrag_gpu.kg.store import Kg
from kgrag_gpu.types import EntityRef, Question


def entity_rows(kg: Kg) -> dict[str, int]:
    """Row of each external id and each name; an id goes before a name, an earlier homonym before a later one."""
    rows: dict[str, int] = {}
    for row, identity in enumerate(kg.entity_external_ids):
        if identity:
            rows.setdefault(identity, row)
    for row, name in enumerate(kg.entity_names):
        rows.setdefault(name, row)
    return rows


def topic_rows(rows: Mapping[str, int], question: Question) -> list[int]:
    """Rows of a question's topic entities in its order, once each; those that the KG lacks are left out."""
    found = (_row(rows, ref) for ref in question.topic_entities)
    return list(dict.fromkeys(row for row in found if row is not None))


def _row(rows: Mapping[str, int], ref: EntityRef) -> int | None:
    return rows.get(ref.external_id, rows.get(ref.name)) if ref.external_id else rows.get(ref.name)
