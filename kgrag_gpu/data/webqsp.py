"""WebQSP: official records, the ToG/AnchorRAG form (with `topic_entity` and `NoisyQuestion`), and RoG's form.

A question may have several parses; an answer of any of them is gold. The noisy twin of a question is asked with
`--question-field NoisyQuestion`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from kgrag_gpu.config.schema import HubConfig
from kgrag_gpu.data.kgqa import distinct, freebase_answers, is_rog, parse_rog, topic_refs
from kgrag_gpu.data.pool import PassagePool
from kgrag_gpu.data.records import ParseOptions, RecordError, question_text, record_id, require_mapping
from kgrag_gpu.types import EntityRef, Question

EXPECTED = "`QuestionId`, `RawQuestion` and `Parses`"
FILE_PATTERNS = ("*WebQSP*test*", "*WebQSP*.json*", "*test*")
HUB = HubConfig(path="rmanluo/RoG-webqsp", split="test")


def matches(record: Any) -> bool:
    """Whether the record has WebQSP's parses, or is of RoG's form."""
    return (isinstance(record, Mapping) and "Parses" in record and "RawQuestion" in record) or is_rog(record)


def parse(record: Any, pool: PassagePool, options: ParseOptions) -> Question:
    """One WebQSP record. `num_hops` is the length of the first parse's inferential chain.

    Raises:
        RecordError: no id, question or parses, or an answer of another form.
    """
    record = require_mapping(record)
    if is_rog(record):
        return parse_rog(record, options)
    parses = record.get("Parses")
    if not isinstance(parses, list) or not all(isinstance(p, Mapping) for p in parses):
        raise RecordError("no `Parses` (a list of objects)")
    answers = [
        answer
        for item in parses
        for answer in freebase_answers(item.get("Answers") or [], "EntityName", "AnswerArgument")
    ]
    chain = next((p["InferentialChain"] for p in parses if p.get("InferentialChain")), None)
    return Question(
        id=record_id(record, "QuestionId"),
        text=question_text(record, options, "RawQuestion", "ProcessedQuestion"),
        golden_answers=distinct(answers),
        topic_entities=topic_refs(record.get("topic_entity")) or _parse_entities(parses),
        num_hops=len(chain) if isinstance(chain, list) else None,
    )


def _parse_entities(parses: Sequence[Mapping[str, Any]]) -> tuple[EntityRef, ...]:
    """The topic entities that the official records give inside their parses."""
    refs = (
        EntityRef(str(p["TopicEntityName"]), str(p.get("TopicEntityMid") or ""))
        for p in parses
        if p.get("TopicEntityName")
    )
    return tuple(dict.fromkeys(refs))
