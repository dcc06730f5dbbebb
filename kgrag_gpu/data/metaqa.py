"""MetaQA: lines of question, answers and question type, tab-separated; the topic entity stands in [brackets].

    which films have the same director of [Gigi]    A|B    movie_to_director_to_movie

The brackets are taken away: the entity has to be found. The type column is optional; it says the number of hops.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kgrag_gpu.data.kgqa import distinct
from kgrag_gpu.data.pool import PassagePool, nfc
from kgrag_gpu.data.records import (
    ParseOptions,
    RecordError,
    RecordFile,
    question_text,
    read_lines,
    require_mapping,
    text_list,
)
from kgrag_gpu.types import EntityRef, GoldAnswer, Question

EXPECTED = "a line of a question with its [entity], answers joined by | and perhaps the question type, by tabs"
FILE_PATTERNS = ("qa_dev*", "qa_test*", "*dev*.t*", "*test*.t*")
_BRACKETED = re.compile(r"\[([^\[\]]+)\]")
_HOPS_IN_NAME = re.compile(r"(\d)[ _-]?hop", re.IGNORECASE)


def read(path: Path) -> RecordFile:
    """One record a line: `id`, `question`, `answers`, `type`, `num_hops` (from the file's name where it says so)."""
    lines = read_lines(path)
    named = _HOPS_IN_NAME.search(path.name)
    records = []
    for number, (where, line) in enumerate(lines.records, 1):
        cells = [cell.strip() for cell in line.split("\t")]
        record: dict[str, Any] = {"id": f"{path.stem}-{number}", "num_hops": int(named.group(1)) if named else None}
        if len(cells) in (2, 3):
            record |= dict(zip(("question", "answers", "type"), [*cells, ""][:3], strict=True))
        else:
            record["line"] = line
        records.append((where, record))
    return RecordFile(records, lines.rejected)


def matches(record: Any) -> bool:
    """Whether a line had a question with a bracketed entity, and answers."""
    return (
        isinstance(record, Mapping)
        and isinstance(record.get("question"), str)
        and isinstance(record.get("answers"), str)
        and bool(_BRACKETED.search(record["question"]))
    )


def parse(record: Any, pool: PassagePool, options: ParseOptions) -> Question:
    """One line.

    Raises:
        RecordError: columns missing, no bracketed entity, or no answer.
    """
    record = require_mapping(record)
    if "line" in record:
        raise RecordError(f"not a line of {EXPECTED}")
    topics = tuple(dict.fromkeys(nfc(name).strip() for name in _BRACKETED.findall(record["question"])))
    if not topics:
        raise RecordError("the question has no [entity]")
    answers = text_list(record["answers"].split("|"))
    if not answers:
        raise RecordError("the answer column holds no answer")
    kind = record.get("type") or ""
    return Question(
        id=record["id"],
        text=_BRACKETED.sub(r"\1", question_text(record, options, "question")),
        golden_answers=distinct(GoldAnswer(name) for name in answers),
        topic_entities=tuple(EntityRef(name) for name in topics),
        num_hops=kind.count("_to_") or record.get("num_hops"),
        type=kind,
    )
