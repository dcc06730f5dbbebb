"""A user's own questions: a JSON object with `question` and, where known, `id`, `golden_answers`, `topic_entities`.

- `golden_answers`: a text, or a list; each text of the list is an answer, each inner list is one answer with its other
  spellings behind it.
- `topic_entities`: a list of names, or of objects with `name` and `id`.
- `id` may be a number; without one the record is called by a hash of its question.
- every other field is carried through in `extra`, unread.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from kgrag_gpu.data.pool import PassagePool, nfc
from kgrag_gpu.data.records import ParseOptions, RecordError, question_text, record_id, require_mapping, text_list
from kgrag_gpu.types import EntityRef, GoldAnswer, Question

EXPECTED = "`question`, and where there are any `id`, `golden_answers` and `topic_entities`"
FILE_PATTERNS = ("questions.jsonl*", "*dev*.jsonl*", "*test*.jsonl*")

_READ = {"id", "question", "golden_answers", "topic_entities"}


def matches(record: Any) -> bool:
    """Whether this is a JSON object at all: which field holds the question is the user's choice."""
    return isinstance(record, Mapping)


def parse(record: Any, pool: PassagePool, options: ParseOptions) -> Question:
    """One own record.

    Raises:
        RecordError: no question, or answers or entities of another form.
    """
    record = require_mapping(record)
    text = question_text(record, options, "question")
    identity = record_id(record, "id") if record.get("id") is not None else _hash_id(text)
    return Question(
        id=identity,
        text=text,
        golden_answers=_answers(record.get("golden_answers")),
        topic_entities=_entities(record.get("topic_entities")),
        extra={k: v for k, v in record.items() if k not in _READ - {options.question_field}},
    )


def _hash_id(text: str) -> str:
    return "q-" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _answers(value: Any) -> tuple[GoldAnswer, ...]:
    if value is None:
        return ()
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list):
        raise RecordError("`golden_answers` is not a list of texts or of lists of texts")
    answers = []
    for item in values:
        spellings = text_list(item)
        if not spellings:
            raise RecordError("`golden_answers` holds an item that is neither a text nor a list of texts")
        answers.append(GoldAnswer(spellings[0], spellings[1:]))
    return tuple(answers)


def _entities(value: Any) -> tuple[EntityRef, ...]:
    if value is None:
        return ()
    refs = []
    for item in [value] if isinstance(value, str) else value if isinstance(value, list) else [None]:
        if isinstance(item, str):
            refs.append(EntityRef(nfc(item).strip()))
        elif isinstance(item, Mapping) and isinstance(item.get("name"), str):
            refs.append(EntityRef(nfc(item["name"]).strip(), str(item.get("id") or "")))
        else:
            raise RecordError("`topic_entities` is not a list of names or of objects with `name` and `id`")
    return tuple(refs)
