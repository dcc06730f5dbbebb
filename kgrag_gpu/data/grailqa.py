"""GrailQA: official records and the ToG/AnchorRAG form (with `topic_entity` and `Noisy_Question`).

The noisy twin of a question is asked with `--question-field Noisy_Question`.
"""

from collections.abc import Mapping
from typing import Any

from kgrag_gpu.config.schema import HubConfig
from kgrag_gpu.data.kgqa import distinct, freebase_answers, topic_refs
from kgrag_gpu.data.pool import PassagePool
from kgrag_gpu.data.records import ParseOptions, question_text, record_id, require_mapping
from kgrag_gpu.types import EntityRef, Question

EXPECTED = "`qid`, `question`, `answer` (list of objects with `answer_argument`) and `graph_query`"
FILE_PATTERNS = ("*dev*", "*validation*", "*grailqa*.json*")
HUB = HubConfig(path="dki-lab/grail_qa", split="validation")


def matches(record: Any) -> bool:
    """Whether the record has GrailQA's query graph or logical form."""
    return isinstance(record, Mapping) and "qid" in record and ("graph_query" in record or "s_expression" in record)


def parse(record: Any, pool: PassagePool, options: ParseOptions) -> Question:
    """One GrailQA record; `type` is its level of generalisation, `num_hops` the edges of its query graph.

    Without `topic_entity` the query graph's entity nodes are the topic entities (literals are not).

    Raises:
        RecordError: no id or question, or answers of another form.
    """
    record = require_mapping(record)
    topics = record.get("topic_entity")
    level, num_edges = record.get("level"), record.get("num_edge")
    return Question(
        id=record_id(record, "qid"),
        text=question_text(record, options, "question"),
        golden_answers=distinct(freebase_answers(_rows(record.get("answer")), "entity_name", "answer_argument")),
        topic_entities=_graph_entities(record.get("graph_query")) if topics is None else topic_refs(topics),
        num_hops=num_edges if isinstance(num_edges, int) and num_edges > 0 else None,
        type=level if isinstance(level, str) else "",
    )


def _rows(value: Any) -> Any:
    """The hub keeps lists of objects as an object of lists."""
    if isinstance(value, Mapping):
        return [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]
    return value or []


def _graph_entities(graph: Any) -> tuple[EntityRef, ...]:
    nodes = _rows(graph.get("nodes")) if isinstance(graph, Mapping) else []
    refs = (
        EntityRef(str(node.get("friendly_name") or node.get("id")), str(node.get("id")))
        for node in nodes
        if isinstance(node, Mapping) and node.get("node_type") == "entity"
    )
    return tuple(dict.fromkeys(refs))
