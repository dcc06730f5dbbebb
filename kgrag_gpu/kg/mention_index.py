"""Names in texts: every place where a name of a list stands as a whole phrase, by one Aho-Corasick pass.

Knows nothing of graphs. Used for passages (names must be capitalised there) and for questions (any case).

Matching is on folded text (lower case; typographic quotes and dashes as ASCII; line breaks as spaces), character for
character, so that positions are those of the text as written. Accents are kept: "Peru" is not "Perú".
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import ahocorasick
import numpy as np

CHUNK_CHARS = 4_000_000  # texts are joined into chunks of about this length, which bounds the list of raw matches

_NO_BORDER, _WORD, _UNSPACED, _HANGUL = 0, 1, 2, 3
_UNSPACED_RANGES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x0F00, 0x0FFF),  # Tibetan
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),  # ideographic iteration and zero
    (0x3040, 0x30FF),  # kana
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # ideographs
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
_FOLD_TABLE = str.maketrans(
    {"İ": "i", "ς": "σ", "’": "'", "‘": "'", "ʼ": "'", "“": '"', "”": '"'} | dict.fromkeys("‐‑‒–—", "-")
)
_SPACE_TABLE = str.maketrans(dict.fromkeys("\n\r\t\u00a0\u2009\u202f\x00", " "))


@dataclass(frozen=True, slots=True)
class Mentions:
    """Where names stand, sorted by (text, start, end, name). All arrays are int64 [mentions].

    `starts` and `ends` are character offsets in the text. A spelling that several names share gives a row for each.
    """

    text_ids: np.ndarray
    name_ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def __len__(self) -> int:
        return len(self.text_ids)


def fold(text: str) -> str:
    """Lower case with one kind of quote, dash and space; always as long as `text`."""
    if text.isascii():
        return text.lower().replace("\n", " ").replace("\r", " ").replace("\t", " ").replace("\x00", " ")
    folded = text.translate(_SPACE_TABLE).replace("İ", "i").lower().translate(_FOLD_TABLE)
    return folded if len(folded) == len(text) else "".join(c.lower()[:1] for c in text)


def char_classes(codes: np.ndarray) -> np.ndarray:
    """Class of each code point (uint32): 0 no letter, 1 letter or digit, 2 script without spaces, 3 Hangul."""
    classes = np.zeros(int(codes.max(initial=0)) + 1, dtype=np.uint8)
    present = np.zeros(len(classes), dtype=bool)
    present[codes] = True
    for code in np.flatnonzero(present):
        classes[code] = _char_class(int(code))
    return classes[codes]


def _char_class(code: int) -> int:
    if any(low <= code <= high for low, high in _UNSPACED_RANGES):
        return _UNSPACED
    if 0xAC00 <= code <= 0xD7AF or 0x1100 <= code <= 0x11FF:
        return _HANGUL
    return _WORD if unicodedata.category(chr(code))[0] in "LNM" else _NO_BORDER


def code_points(text: str) -> np.ndarray:
    """The text's code points as uint32 [characters]."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def long_enough(name: str, min_chars: int) -> bool:
    """Whether a name is long enough to be looked for: `min_chars`, or 2 in scripts that write words in few signs."""
    if len(name) >= min_chars:
        return True
    return len(name) >= 2 and any(_char_class(ord(c)) in (_UNSPACED, _HANGUL) for c in name)


class MentionIndex:
    """An automaton over a list of names. Building it costs one pass over the names, searching one over the texts."""

    def __init__(self, names: Sequence[str]):
        """Index `names`; empty ones are never found. Names that fold alike are kept apart and found together."""
        self._names = names
        forms: dict[str, list[int]] = {}
        for name_id, name in enumerate(names):
            folded = fold(name).strip()
            if folded:
                forms.setdefault(folded, []).append(name_id)
        self._automaton = ahocorasick.Automaton(ahocorasick.STORE_INTS)
        for form_id, form in enumerate(forms):
            self._automaton.add_word(form, form_id)
        if forms:
            self._automaton.make_automaton()
        self._form_chars = np.array([len(form) for form in forms], dtype=np.int64)
        counts = np.array([len(ids) for ids in forms.values()], dtype=np.int64)
        self._form_offsets = np.concatenate([[0], np.cumsum(counts)])
        self._form_names = np.array([i for ids in forms.values() for i in ids], dtype=np.int64)

    def find(self, texts: Sequence[str], case: Literal["capitalised", "any"] = "capitalised") -> Mentions:
        """All maximal mentions in `texts`.

        A mention begins and ends at word borders (scripts without spaces have one between any two letters; Korean
        particles may follow) and lies inside no longer mention; overlapping ones are kept. With `case="capitalised"`
        its first letter is not lower case, unless it stands exactly as the name is written ("iPhone"). Where some of
        the names of one spelling are written exactly as the text has it, the others are left out.
        """
        parts: list[tuple[np.ndarray, ...]] = []
        start = 0
        while start < len(texts) and len(self._form_chars):
            end, size = start, 0
            while end < len(texts) and (end == start or size + len(texts[end]) <= CHUNK_CHARS):
                size += len(texts[end]) + 1
                end += 1
            parts.append(self._find_chunk(texts, start, end, case))
            start = end
        if not parts:
            return Mentions(*(np.zeros(0, dtype=np.int64) for _ in range(4)))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.lexsort((columns[1], columns[3], columns[2], columns[0]))
        return Mentions(*(column[order] for column in columns))

    def _find_chunk(self, texts: Sequence[str], first: int, last: int, case: str) -> tuple[np.ndarray, ...]:
        chunk = "\n".join(texts[first:last])
        text_starts = np.concatenate([[0], np.cumsum([len(t) + 1 for t in texts[first:last]])]).astype(np.int64)
        # A separator that no name can hold keeps a match inside one text.
        folded = "\x00".join(fold(t) for t in texts[first:last])
        raw = np.array(list(self._automaton.iter(folded)), dtype=np.int64).reshape(-1, 2)
        ends, forms = raw[:, 0] + 1, raw[:, 1]
        starts = ends - self._form_chars[forms]
        keep = _at_borders(chunk, starts, ends)
        starts, ends, forms = starts[keep], ends[keep], forms[keep]
        span_of_row, name_ids = _ragged_gather(self._form_offsets, self._form_names, forms)
        exact = np.fromiter(
            (chunk[starts[s] : ends[s]] == self._names[n] for s, n in zip(span_of_row, name_ids, strict=True)),
            dtype=bool,
            count=len(name_ids),
        )
        any_exact = np.zeros(len(starts), dtype=bool)
        any_exact[span_of_row[exact]] = True
        allowed = np.ones(len(starts), dtype=bool)
        if case == "capitalised":
            allowed = any_exact | np.fromiter((not chunk[s].islower() for s in starts), dtype=bool, count=len(starts))
        maximal = _maximal(starts, ends, allowed)
        rows = maximal[span_of_row] & (exact | ~any_exact[span_of_row])
        spans = span_of_row[rows]
        local = np.searchsorted(text_starts, starts[spans], side="right") - 1
        return local + first, name_ids[rows], starts[spans] - text_starts[local], ends[spans] - text_starts[local]


def find_mentions(
    texts: Sequence[str], names: Sequence[str], case: Literal["capitalised", "any"] = "capitalised"
) -> Mentions:
    """`MentionIndex(names).find(texts, case)`, for names that are searched once."""
    return MentionIndex(names).find(texts, case)


def _at_borders(text: str, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Whether each span begins and ends at a word border: bool [spans]."""
    classes = np.concatenate([[_NO_BORDER], char_classes(code_points(text)), [_NO_BORDER]]).astype(np.uint8)
    before, first, last, after = classes[starts], classes[starts + 1], classes[ends], classes[ends + 1]
    inside_word_before = np.isin(before, (_WORD, _HANGUL)) & np.isin(first, (_WORD, _HANGUL))
    inside_word_after = (last == _WORD) & np.isin(after, (_WORD, _HANGUL))
    return ~inside_word_before & ~inside_word_after


def _ragged_gather(offsets: np.ndarray, values: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each of `rows`, in order, all its values: (position in `rows`, value)."""
    counts = offsets[rows + 1] - offsets[rows]
    owners = np.repeat(np.arange(len(rows)), counts)
    within = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    return owners, values[offsets[rows][owners] + within]


def _maximal(starts: np.ndarray, ends: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Which allowed spans lie inside no other allowed span. Spans are distinct."""
    result = np.zeros(len(starts), dtype=bool)
    ids = np.flatnonzero(allowed)
    if not len(ids):
        return result
    ids = ids[np.lexsort((-ends[ids], starts[ids]))]
    reach = np.maximum.accumulate(ends[ids])
    free = np.ones(len(ids), dtype=bool)
    free[1:] = ends[ids[1:]] > reach[:-1]
    result[ids[free]] = True
    return result
