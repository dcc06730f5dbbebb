"""A user's own questions without gold: JSON lines, a JSON array, CSV, TSV, Parquet, or one question a line; gzip too.

Records are read as own JSONL (own_jsonl.py) says, so `golden_answers` and `topic_entities` serve where they are given
and every unknown field is carried through. A question without text is rejected with its place; the rest is asked.
"""

import csv
import io
from pathlib import Path
from typing import Any

from kgrag_gpu.data import own_jsonl
from kgrag_gpu.data.pool import PassagePool
from kgrag_gpu.data.records import ParseOptions, RecordError, RecordFile, excerpt, read_json_records, read_text
from kgrag_gpu.data.registry import _with_unique_ids, content_hash
from kgrag_gpu.types import Question, QuestionSet, Rejected, UserError

SET_NAME = "questions"
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_CSV_FIELD_BYTES = 16 * 1024 * 1024  # the csv module's own limit of 128 KiB would end the file at one long field


def load_asked(path: Path, question_field: str | None = None, limit: int | None = None) -> QuestionSet:
    """The questions of a file, in its order; ids that repeat get a suffix (#2, #3 ...).

    Args:
        path: .jsonl, .json, .parquet, .csv and .tsv (first row: names of the columns), .txt (one question a line).
        question_field: field or column that holds the question, `question` by default.
        limit: only the first so many questions.

    Raises:
        UserError: the file cannot be read, has no such field, or holds no question at all.
    """
    file = _read(path)
    _check_field(path, file, question_field or "question")
    questions: list[Question] = []
    rejected: list[Rejected] = list(file.rejected)
    for where, record in file.records:
        try:
            questions.append(own_jsonl.parse(record, PassagePool(), ParseOptions(question_field)))
        except RecordError as error:
            rejected.append(Rejected(where, str(error), excerpt(record)))
    if not questions:
        first = f"; the first: {rejected[0].where}: {rejected[0].reason}" if rejected else ""
        raise UserError(f"{path}: no record holds a question{first}; each needs {own_jsonl.EXPECTED}")
    questions = _with_unique_ids(questions)[:limit]
    return QuestionSet(
        name=SET_NAME,
        questions=tuple(questions),
        passages=(),
        source=f"file {path}",
        content_hash=content_hash(questions, PassagePool()),
        rejected=tuple(rejected),
    )


def _read(path: Path) -> RecordFile:
    suffix = Path(path.stem).suffix.lower() if path.suffix == ".gz" else path.suffix.lower()
    if suffix == ".txt":
        return _read_lines(path)
    if suffix in _DELIMITERS:
        return _read_table(path, _DELIMITERS[suffix])
    if suffix in (".jsonl", ".json", ".ndjson", ".parquet"):
        return read_json_records(path)
    raise UserError(f"{path}: questions are read from .jsonl, .json, .parquet, .csv, .tsv or .txt; rename the file")


def _read_lines(path: Path) -> RecordFile:
    lines = read_text(path).split("\n")
    if not lines[-1]:
        lines.pop()  # what stands behind the last line end is no line
    return RecordFile([(f"{path.name}:{n}", {"question": line, "line": n}) for n, line in enumerate(lines, 1)])


def _read_table(path: Path, delimiter: str) -> RecordFile:
    """Rows as records; an empty cell is a field that is not there."""
    csv.field_size_limit(_CSV_FIELD_BYTES)
    rows = csv.DictReader(io.StringIO(read_text(path), newline=""), delimiter=delimiter)
    result = RecordFile()
    try:
        for row in rows:
            where = f"{path.name}:{rows.line_num}"
            if row.pop(None, None):  # type: ignore[call-overload]
                result.rejected.append(Rejected(where, "the row has more cells than the header", excerpt(row)))
            else:
                result.records.append((where, {key: value for key, value in row.items() if value}))
    except csv.Error as error:
        raise UserError(f"{path}:{rows.line_num}: not a readable table ({error}); repair that row") from None
    return result


def _check_field(path: Path, file: RecordFile, field: str) -> None:
    records: list[Any] = [record for _, record in file.records if isinstance(record, dict)]
    if not any(field in record for record in records):
        names = sorted({str(key) for record in records for key in record})
        raise UserError(
            f"{path}: no record has the field {field!r}; name the question's field with --question-field; "
            f"fields: {', '.join(names) or 'none'}"
        )
