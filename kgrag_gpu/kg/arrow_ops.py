"""Arrow's string functions under plain names. Each takes and gives whole columns, so no import loops over lines."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def rtrim(column: Any, characters: str) -> Any:
    """Cut `characters` off the end of each text."""
    return pc.call_function("utf8_rtrim", [column], pc.TrimOptions(characters))


def strip(column: Any) -> Any:
    """Cut white space off both ends."""
    return pc.call_function("utf8_trim_whitespace", [column])


def nfc(column: Any) -> Any:
    """Unicode NFC."""
    return pc.call_function("utf8_normalize", [column], pc.Utf8NormalizeOptions("NFC"))


def contains(column: Any, part: str) -> Any:
    """Whether each text holds `part`."""
    return pc.call_function("match_substring", [column], pc.MatchSubstringOptions(part))


def matches(column: Any, pattern: str) -> np.ndarray:
    """Which texts a regular expression (RE2) finds something in: bool [rows]."""
    return np.asarray(pc.call_function("match_substring_regex", [column], pc.MatchSubstringOptions(pattern)))


def count(column: Any, part: str) -> np.ndarray:
    """How often each text holds `part`: int64 [rows]."""
    counts = pc.call_function("count_substring", [column], pc.MatchSubstringOptions(part))
    return np.asarray(counts).astype(np.int64)


def split(column: Any, separator: str, num_fields: int) -> list[Any]:
    """The fields of texts that all have `num_fields` of them, as `num_fields` columns."""
    pieces = pc.call_function("split_pattern", [column], pc.SplitPatternOptions(separator)).flatten()
    return [pieces.take(pa.array(np.arange(i, len(pieces), num_fields))) for i in range(num_fields)]


def extract(column: Any, pattern: str) -> Any:
    """The named groups of a regular expression (RE2) as a struct column; null where it does not match."""
    return pc.call_function("extract_regex", [column], pc.ExtractRegexOptions(pattern))


def is_blank(column: Any) -> np.ndarray:
    """Which texts are null or empty: bool [rows]."""
    lengths = pc.fill_null(pc.call_function("binary_length", [column]), 0)
    return np.asarray(lengths) == 0


def join(columns: Sequence[Any], separator: str) -> Any:
    """Row-wise concatenation."""
    options = pc.JoinOptions(null_handling="replace", null_replacement="")
    separators = pa.scalar(separator, pa.large_string())
    return pc.call_function("binary_join_element_wise", [*columns, separators], options)


def encode(column: Any) -> tuple[Any, np.ndarray]:
    """(distinct values in first-seen order, their number for each row int64 [rows])."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    encoded = pc.call_function("dictionary_encode", [array])
    return encoded.dictionary, np.asarray(encoded.indices).astype(np.int64)


def encode_chunks(columns: Sequence[Any]) -> tuple[Any, list[np.ndarray]]:
    """(distinct values of all columns in first-seen order, for each column the number of each of its rows, int32)."""
    if not columns:
        return pa.array([], pa.large_string()), []
    encoded = pc.call_function("dictionary_encode", [pa.chunked_array(columns, pa.large_string())])
    # Arrow may drop columns without rows, so the numbers are cut anew.
    codes = [np.asarray(chunk.indices).astype(np.int32, copy=False) for chunk in encoded.chunks]
    joined = np.concatenate(codes) if codes else np.zeros(0, np.int32)
    distinct = encoded.chunk(encoded.num_chunks - 1).dictionary if codes else pa.array([], pa.large_string())
    return distinct, np.split(joined, np.cumsum([len(column) for column in columns])[:-1])


def concat(parts: Sequence[Any]) -> Any:
    """Columns laid end to end, as large strings; a single one is not copied."""
    chunks = [chunk for part in parts for chunk in (part.chunks if isinstance(part, pa.ChunkedArray) else [part])]
    if not chunks:
        return pa.array([], pa.large_string())
    chunks = [pc.cast(chunk, pa.large_string()) for chunk in chunks]
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def starts_with(column: Any, prefix: str) -> Any:
    """Whether each text begins with `prefix`."""
    return pc.call_function("starts_with", [column], pc.MatchSubstringOptions(prefix))


def choose(mask: Any, when_true: Any, when_false: Any) -> Any:
    """Row-wise choice by a boolean column."""
    return pc.call_function("if_else", [mask, when_true, when_false])


def field(column: Any, name: str) -> Any:
    """One field of a struct column as texts, empty where the struct is null."""
    return pc.fill_null(pc.call_function("struct_field", [column], pc.StructFieldOptions([name])), "")
