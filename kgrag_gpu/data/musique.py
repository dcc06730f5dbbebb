"""MuSiQue (Ans and Full), official records; also arrays of the same records, such as HippoRAG's musique_train.json.

MuSiQue-Full gives every answerable question an unanswerable twin under the same id: twins are kept, marked
`answerable=False`, and get "#unanswerable" behind their id.
"""

import re
from collections.abc import Mapping
from typing import Any

from kgrag_gpu.config.schema import HubConfig
from kgrag_gpu.data.pool import PassagePool, nfc
from kgrag_gpu.data.records import ParseOptions, RecordError, question_text, record_id, require_mapping, text_list
from kgrag_gpu.types import GoldAnswer, Question

EXPECTED = "`id`, `question`, `paragraphs` (list of `title`, `paragraph_text`, `is_supporting`) and `answer`"
FILE_PATTERNS = (
    "musique_ans*dev.json*",
    "musique_full*dev.json*",
    "musique_dev*.json*",
    "*dev*.json*",
    "*validation*",
    "musique_ans*train.json*",
    "musique_full*train.json*",
    "musique_train.json*",
)
HUB = HubConfig(path="dgslibisey/MuSiQue", split="validation")

_SHAPE = re.compile(r"(\d+)hop\d*")


def matches(record: Any) -> bool:
    """Whether this is a MuSiQue record: only there are the passages called `paragraphs`."""
    return isinstance(record, Mapping) and isinstance(record.get("paragraphs"), list)


def parse(record: Any, pool: PassagePool, options: ParseOptions) -> Question:
    """One MuSiQue record. `type` is the id's shape ("3hop1"), `num_hops` its number.

    Raises:
        RecordError: no id, question, paragraphs or answer.
    """
    record = require_mapping(record)
    identity = record_id(record, "id")
    text = question_text(record, options, "question")
    context, gold = _add_paragraphs(record, pool)
    answerable = record.get("answerable", True) is not False
    shape = _SHAPE.match(identity)
    decomposition = record.get("question_decomposition") or []
    extra = {"question_decomposition": decomposition} | ({} if answerable else {"original_id": identity})
    return Question(
        id=identity if answerable else f"{identity}#unanswerable",
        text=text,
        golden_answers=_answers(record, answerable),
        gold_passage_ids=gold,
        context_passage_ids=context,
        num_hops=int(shape.group(1)) if shape else len(decomposition) or None,
        type=shape.group(0) if shape else "",
        answerable=answerable,
        extra=extra,
    )


def _add_paragraphs(record: Mapping[str, Any], pool: PassagePool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    paragraphs = record.get("paragraphs")
    if not isinstance(paragraphs, list) or not paragraphs:
        raise RecordError("no `paragraphs`" if "paragraphs" not in record else "`paragraphs` is not a filled list")
    context: list[int] = []
    gold: list[int] = []
    for paragraph in paragraphs:
        body = paragraph.get("paragraph_text") if isinstance(paragraph, Mapping) else None
        if not isinstance(body, str):
            raise RecordError("a paragraph has no `paragraph_text`")
        row = pool.add(str(paragraph.get("title") or ""), body)
        context.append(row)
        if paragraph.get("is_supporting"):
            gold.append(row)
    return tuple(dict.fromkeys(context)), tuple(dict.fromkeys(gold))


def _answers(record: Mapping[str, Any], answerable: bool) -> tuple[GoldAnswer, ...]:
    answer = record.get("answer")
    if not isinstance(answer, str) or not answer.strip():
        if answerable and "answer" in record and record["answer"] is not None:
            raise RecordError("`answer` holds no text")
        return ()  # the hidden test split and some unanswerable twins carry none
    name = nfc(answer).strip()
    return (GoldAnswer(name, tuple(a for a in text_list(record.get("answer_aliases")) if a != name)),)
