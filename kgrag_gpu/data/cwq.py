"""ComplexWebQuestions: official records (`answers`), the ToG/AnchorRAG form (one `answer`), and RoG's form."""

from collections.abc import Mapping
from typing import Any

from kgrag_gpu.config.schema import HubConfig
from kgrag_gpu.data.kgqa import distinct, is_rog, parse_rog, topic_refs
from kgrag_gpu.data.pool import PassagePool
from kgrag_gpu.data.records import ParseOptions, RecordError, question_text, record_id, require_mapping, text_list
from kgrag_gpu.types import GoldAnswer, Question

EXPECTED = "`ID`, `question`, `compositionality_type`, and `answers` or `answer`"
FILE_PATTERNS = ("*dev*", "*test*", "cwq*.json*")
HUB = HubConfig(path="rmanluo/RoG-cwq", split="test")


def matches(record: Any) -> bool:
    """Whether the record says how its question was composed, or is of RoG's form."""
    return (isinstance(record, Mapping) and "compositionality_type" in record) or is_rog(record)


def parse(record: Any, pool: PassagePool, options: ParseOptions) -> Question:
    """One CWQ record; `type` is composition, conjunction, comparative or superlative.

    Raises:
        RecordError: no id or question, or answers of another form.
    """
    record = require_mapping(record)
    if is_rog(record):
        return parse_rog(record, options)
    kind = record.get("compositionality_type")
    return Question(
        id=record_id(record, "ID"),
        text=question_text(record, options, "question"),
        golden_answers=distinct(_answers(record)),
        topic_entities=topic_refs(record.get("topic_entity")),
        type=kind if isinstance(kind, str) else "",
    )


def _answers(record: Mapping[str, Any]) -> list[GoldAnswer]:
    if "answers" not in record:
        return [GoldAnswer(text) for text in text_list(record.get("answer"))]
    items = record["answers"]
    if not isinstance(items, list):
        raise RecordError("`answers` is not a list")
    answers = []
    for item in items:
        names = text_list(item.get("answer")) if isinstance(item, Mapping) else ()
        identity = str(item.get("answer_id") or "") if isinstance(item, Mapping) else ""
        if not names and not identity:
            raise RecordError("`answers` holds an item without `answer` and `answer_id`")
        aliases = tuple(a for a in text_list(item.get("aliases")) if a not in names)
        answers.append(GoldAnswer(names[0] if names else identity, aliases, identity))
    return answers
