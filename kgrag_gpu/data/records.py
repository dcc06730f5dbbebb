"""Raw records from files: JSON arrays, a JSON object around one array, JSON lines, Parquet, text lines; gzip by suffix.

Knows nothing of any data set. The border between "the file is wrong" (UserError, nothing runs) and "a record is
wrong" (rejected and counted, the rest runs):

- missing, empty or unreadable file, first line not JSON, JSON array that does not parse -> UserError;
- last line of a JSON-lines file not JSON -> UserError: the file was cut off and nobody knows how much is missing;
- any other line that is not JSON -> rejected.

What a record must hold is the loader's business; registry.py says when a whole file is refused for it.
"""

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kgrag_gpu.data.pool import nfc
from kgrag_gpu.types import Rejected, UserError

EXCERPT_CHARS = 120


class RecordError(Exception):
    """One record cannot be used; the message is the reason that goes into `Rejected`."""


@dataclass(frozen=True, slots=True)
class ParseOptions:
    """What the user asked for that changes how a record is read."""

    question_field: str | None = None


@dataclass(slots=True)
class RecordFile:
    """The records of one file, each with its place ("dev.jsonl:17"), and what could not be read."""

    records: list[tuple[str, Any]] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)


def excerpt(value: Any) -> str:
    """The beginning of a record, for people."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= EXCERPT_CHARS else text[: EXCERPT_CHARS - 1] + "…"


def read_text(path: Path) -> str:
    """Whole text of a UTF-8 file (gzip by suffix), without a byte-order mark.

    Raises:
        UserError: missing, a folder, unreadable, not UTF-8, cut-off gzip, or empty.
    """
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = raw.decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check the path given with --data or KGRAG_DATA") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder, a file is expected here; name one of its files") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start}); convert it to UTF-8") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path}: broken gzip file ({error}); copy or download it again") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None
    if not text.strip():
        raise UserError(f"{path}: the file is empty; records were expected; copy or download it again")
    return text


def read_json_records(path: Path) -> RecordFile:
    """Records of a JSON array, of a JSON object around one array of objects, of JSON lines, or of a Parquet file."""
    if path.suffix == ".parquet":
        return _read_parquet(path)
    text = read_text(path)
    start = text.lstrip()[:1]
    if start == "[":
        return _from_array(path, _load_whole(path, text))
    if start == "{":
        first_line = text.lstrip().split("\n", 1)[0]
        if _loads(first_line) is _NOT_JSON:
            return _from_array(path, _unwrap(path, _load_whole(path, text)))
        if "\n" not in text.strip():
            return _from_single_object(path, text)
        return _from_lines(path, text)
    raise UserError(f"{path}:1: the file does not start like JSON; a JSON array or one JSON object a line is expected")


def read_lines(path: Path) -> RecordFile:
    """Non-empty lines of a text file, for formats that are not JSON."""
    lines = read_text(path).splitlines()
    return RecordFile([(f"{path.name}:{n}", line) for n, line in enumerate(lines, 1) if line.strip()])


_NOT_JSON = object()


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return _NOT_JSON


def _load_whole(path: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) - 1 or error.msg.startswith("Unterminated"):
            raise UserError(
                f"{path}: the JSON is cut off at line {text.count(chr(10)) + 1}; copy or download the file again"
            ) from None
        raise UserError(
            f"{path}:{error.lineno}: not valid JSON ({error.msg}, column {error.colno}); repair or download it again"
        ) from None


def _unwrap(path: Path, value: Any) -> list[Any]:
    """The one array of objects inside a JSON object, such as WebQSP's {"Version": ..., "Questions": [...]}."""
    arrays = {k: v for k, v in value.items() if isinstance(v, list) and v and isinstance(v[0], dict)}
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    raise UserError(
        f"{path}: a JSON object with {len(arrays)} arrays of records; expected one array, or one object a line"
    )


def _from_single_object(path: Path, text: str) -> RecordFile:
    """One line with one object: either the wrapper of an array, or a JSON-lines file of one record."""
    value = json.loads(text)
    arrays = [v for v in value.values() if isinstance(v, list) and v and isinstance(v[0], dict)]
    is_wrapper = len(arrays) == 1 and not ({"question", "question_text", "RawQuestion"} & value.keys())
    return _from_array(path, arrays[0]) if is_wrapper else RecordFile([(f"{path.name}:1", value)])


def _from_array(path: Path, values: Any) -> RecordFile:
    if not values:
        raise UserError(f"{path}: the JSON array is empty; records were expected")
    return RecordFile([(f"{path.name}[{i}]", value) for i, value in enumerate(values)])


def _from_lines(path: Path, text: str) -> RecordFile:
    result = RecordFile()
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    for number, line in lines:
        value = _loads(line)
        if value is not _NOT_JSON:
            result.records.append((f"{path.name}:{number}", value))
        elif number == lines[-1][0]:
            raise UserError(
                f"{path}:{number}: the last line is not complete JSON, so the file is cut off; "
                "copy or download it again, or delete that line"
            )
        else:
            result.rejected.append(Rejected(f"{path.name}:{number}", "the line is not JSON", excerpt(line)))
    return result


def _read_parquet(path: Path) -> RecordFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path).to_pylist()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check the path given with --data or KGRAG_DATA") from None
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]})") from None
    if not rows:
        raise UserError(f"{path}: the Parquet file has no rows; records were expected")
    return RecordFile([(f"{path.name}[{i}]", row) for i, row in enumerate(rows)])


def require_mapping(record: Any) -> Mapping[str, Any]:
    """The record itself when it is a JSON object.

    Raises:
        RecordError: anything else.
    """
    if not isinstance(record, Mapping):
        raise RecordError(f"a JSON object is expected, got {type(record).__name__}")
    return record


def require_text(record: Mapping[str, Any], *names: str) -> str:
    """The first of the named fields that holds text, NFC-normalised and stripped.

    Raises:
        RecordError: none of them does.
    """
    for name in names:
        value = record.get(name)
        if isinstance(value, str) and value.strip():
            return nfc(value).strip()
    present = [name for name in names if name in record]
    if present:
        raise RecordError(f"`{present[0]}` holds no text")
    raise RecordError("no " + " or ".join(f"`{name}`" for name in names))


def question_text(record: Mapping[str, Any], options: ParseOptions, *names: str) -> str:
    """The question: the field that `--question-field` names, else the first of the format's own `names`."""
    return require_text(record, options.question_field) if options.question_field else require_text(record, *names)


def record_id(record: Mapping[str, Any], *names: str) -> str:
    """The record's id as text; numbers are taken as they print.

    Raises:
        RecordError: none of the named fields holds one.
    """
    for name in names:
        value = record.get(name)
        if isinstance(value, str | int) and not isinstance(value, bool) and str(value).strip():
            return str(value).strip()
    raise RecordError("no " + " or ".join(f"`{name}`" for name in names))


def text_list(value: Any) -> tuple[str, ...]:
    """Texts of a field that may be a text, a list of texts, or absent; empty ones and repeats are dropped."""
    values = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
    texts = (nfc(v).strip() for v in values if isinstance(v, str))
    return tuple(dict.fromkeys(t for t in texts if t))
