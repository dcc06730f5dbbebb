"""WebQuestions: official records (`utterance`, `targetValue`) and the ToG/AnchorRAG form (`question`, `answers`).

Answers are names without ids. Records have no id: a question is called by its text's hash.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from kgrag_gpu.config.schema import HubConfig
from kgrag_gpu.data.kgqa import distinct, topic_refs
from kgrag_gpu.data.pool import PassagePool, nfc
from kgrag_gpu.data.records import ParseOptions, RecordError, question_text, require_mapping, text_list
from kgrag_gpu.types import GoldAnswer, Question

EXPECTED = "`url`, `question` and `answers`, or `utterance` and `targetValue`"
FILE_PATTERNS = ("*test*", "WebQuestions*.json*")
HUB = HubConfig(path="stanfordnlp/web_questions", split="test")
# (list (description "Jamaican English") (description Patois))
_DESCRIPTION = re.compile(r'\(description\s+("(?:[^"\\]|\\.)*"|[^()"]+)\)')


def matches(record: Any) -> bool:
    """Whether the record has a page address and answers by name, or the official target value."""
    if not isinstance(record, Mapping):
        return False
    return "targetValue" in record or ("url" in record and "answers" in record)


def parse(record: Any, pool: PassagePool, options: ParseOptions) -> Question:
    """One WebQuestions record.

    Raises:
        RecordError: no question, or a target value of another form.
    """
    record = require_mapping(record)
    identity = hashlib.sha256(question_text(record, ParseOptions(), "question", "utterance").encode()).hexdigest()[:12]
    official = "targetValue" in record
    answers = _target_answers(record["targetValue"]) if official else text_list(record.get("answers"))
    return Question(
        id=f"wq-{identity}",
        text=question_text(record, options, "question", "utterance"),
        golden_answers=distinct(GoldAnswer(name) for name in answers),
        topic_entities=topic_refs(record.get("topic_entity")),
    )


def _target_answers(value: Any) -> tuple[str, ...]:
    if not isinstance(value, str) or not value.lstrip().startswith("(list"):
        raise RecordError('`targetValue` is not of the form (list (description "..."))')
    names = (json.loads(m) if m.startswith('"') else m for m in _DESCRIPTION.findall(value))
    return tuple(dict.fromkeys(nfc(n).strip() for n in names if n.strip()))
