"""PathQuestion, PathQuestion-Large and WC2014: lines of question, answers and gold path, tab-separated.

    what is the gender of X 's son ?    male(male/)    X#children#Y#gender#male#<end>#male

Names write spaces as `_`. The answer column is `one(one/another/...)`; the set in brackets is gold. A line without
the path column (PathQuestion-Large keeps it apart) has no topic entity and no number of hops.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kgrag_gpu.data.kgqa import distinct, spaced, spaced_answer
from kgrag_gpu.data.pool import PassagePool, nfc
from kgrag_gpu.data.records import (
    ParseOptions,
    RecordError,
    RecordFile,
    question_text,
    read_lines,
    require_mapping,
)
from kgrag_gpu.types import EntityRef, Question

EXPECTED = "a line of question, answer(answer/...) and e#r#e#...#<end>#answer, separated by tabs"
FILE_PATTERNS = ("PQ*.txt", "PQL*.txt", "WC*.txt")
END = "<end>"


def read(path: Path) -> RecordFile:
    """One record a line: `id`, `question`, `answer`, `path` ("" where the line has no third column)."""
    lines = read_lines(path)
    records = []
    for number, (where, line) in enumerate(lines.records, 1):
        cells = [cell.strip() for cell in line.split("\t")]
        names = ("question", "answer", "path")
        record: dict[str, str] = {"line": line}
        if len(cells) in (2, 3):
            record = dict(zip(names, [*cells, "", ""][:3], strict=True))
        records.append((where, {"id": f"{path.stem}-{number}", **record}))
    return RecordFile(records, lines.rejected)


def matches(record: Any) -> bool:
    """Whether a line had the columns and, where there is a path, its `#`."""
    if not isinstance(record, Mapping) or not record.get("question") or not record.get("answer"):
        return False
    path = record.get("path")
    return isinstance(path, str) and (path.count("#") >= 2 or (not path and "(" in record["answer"]))


def parse(record: Any, pool: PassagePool, options: ParseOptions) -> Question:
    """One line. The question's `_` become spaces; gold names keep theirs and carry the readable spelling too.

    Raises:
        RecordError: columns missing, no answer, or a path that is not entity#relation#entity...
    """
    record = require_mapping(record)
    if "line" in record:
        raise RecordError(f"not a line of {EXPECTED}")
    text = spaced(question_text(record, options, "question"))
    answers = distinct(spaced_answer(name) for name in _answer_names(record["answer"]))
    steps = [step for step in record["path"].split("#") if step]
    topics: tuple[EntityRef, ...] = ()
    extra: dict[str, Any] = {}
    num_hops = None
    if steps:
        walked = steps[: steps.index(END)] if END in steps else steps
        if len(walked) < 3 or len(walked) % 2 == 0:
            raise RecordError("the path is not entity#relation#entity#...#<end>#answer")
        topics = (EntityRef(nfc(walked[0]).strip()),)
        num_hops = len(walked) // 2
        extra = {"gold_relations": walked[1::2]}
    return Question(
        id=record["id"], text=text, golden_answers=answers, topic_entities=topics, num_hops=num_hops, extra=extra
    )


def _answer_names(cell: str) -> list[str]:
    """`one(one/another/)` -> the names in brackets; a cell without that form is one name.

    A name may hold brackets of its own: the set is the bracket that holds the name before it.
    """
    places = [i for i, character in enumerate(cell) if character == "("]
    for place in places:
        names = [name.strip() for name in cell[place + 1 :].removesuffix(")").split("/")]
        if cell[:place].strip() in names:
            return [name for name in names if name]
    if places and cell.endswith("/)"):
        raise RecordError("the answer column's set does not hold the answer before it")
    return [cell.strip()]
