"""IRCoT's processed question sets (HotpotQA, 2Wiki, MuSiQue, IIRC in one JSON-lines format).

A record has `question_id`, `question_text`, `answers_objects` (each with `spans`, `number` and `date`) and `contexts`
(title, paragraph_text, is_supporting). Every span, number or date of an answers object is one accepted answer;
further answers objects are other annotators' answers, accepted too.
"""

from collections.abc import Mapping
from typing import Any

from kgrag_gpu.data.pool import PassagePool, nfc
from kgrag_gpu.data.records import ParseOptions, RecordError, question_text, record_id, require_mapping
from kgrag_gpu.types import GoldAnswer, Question

EXPECTED = "`question_id`, `question_text`, `contexts` (title, paragraph_text, is_supporting) and `answers_objects`"
FILE_PATTERNS = ("dev_subsampled.jsonl*", "*dev_subsampled*.jsonl*", "test_subsampled.jsonl*", "dev.jsonl*")


def matches(record: Any) -> bool:
    """Whether the record has IRCoT's field names."""
    return isinstance(record, Mapping) and "contexts" in record


def parse(record: Any, pool: PassagePool, options: ParseOptions) -> Question:
    """One processed record.

    Raises:
        RecordError: no id, question or contexts.
    """
    record = require_mapping(record)
    identity = record_id(record, "question_id", "id")
    text = question_text(record, options, "question_text", "question")
    contexts = record.get("contexts")
    if not isinstance(contexts, list) or not contexts:
        raise RecordError("no `contexts`")
    rows: list[int] = []
    gold: list[int] = []
    for context in contexts:
        body = context.get("paragraph_text") if isinstance(context, Mapping) else None
        if not isinstance(body, str):
            raise RecordError("an item of `contexts` has no `paragraph_text`")
        row = pool.add(str(context.get("title") or ""), body)
        rows.append(row)
        if context.get("is_supporting"):
            gold.append(row)
    kind = record.get("type")
    return Question(
        id=identity,
        text=text,
        golden_answers=_answers(record.get("answers_objects")),
        gold_passage_ids=tuple(dict.fromkeys(gold)),
        context_passage_ids=tuple(dict.fromkeys(rows)),
        type=kind if isinstance(kind, str) else "",
    )


def _answers(objects: Any) -> tuple[GoldAnswer, ...]:
    names: list[str] = []
    for answer in objects if isinstance(objects, list) else []:
        if not isinstance(answer, Mapping):
            raise RecordError("an item of `answers_objects` is not an object")
        spans = answer.get("spans")
        names.extend(s for s in (spans if isinstance(spans, list) else []) if isinstance(s, str))
        number = answer.get("number")
        if isinstance(number, str | int | float) and not isinstance(number, bool):
            names.append(str(number))
        date = answer.get("date")
        if isinstance(date, Mapping):
            names.append(" ".join(str(date.get(part) or "") for part in ("day", "month", "year")))
    texts = (" ".join(nfc(name).split()) for name in names)
    return tuple(GoldAnswer(name) for name in dict.fromkeys(t for t in texts if t))
