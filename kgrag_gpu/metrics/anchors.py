"""Anchor metrics of one question: how well the method's anchors match the gold topic entities."""

from kgrag_gpu.metrics.entities import EntityLookup
from kgrag_gpu.types import Result


def anchor_hit(result: Result, num_first: int) -> float | None:
    """1.0 where any gold topic entity is among the first anchors, else 0.0; None without gold topic entities."""
    gold = result.question.topic_entities
    if not gold:
        return None
    first = EntityLookup(result.retrieval.anchors[:num_first])
    return float(any(first.holds(entity.external_id, [entity.name]) for entity in gold))


def anchor_recall(result: Result) -> float | None:
    """The share of distinct gold topic entities among all anchors; None without gold topic entities."""
    gold = set(result.question.topic_entities)
    if not gold:
        return None
    anchors = EntityLookup(result.retrieval.anchors)
    return sum(anchors.holds(entity.external_id, [entity.name]) for entity in gold) / len(gold)
