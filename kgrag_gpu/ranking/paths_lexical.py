"""How far the words of a phrase and of a relation's text are spelt alike: director / directed, screenwriter / written.

An encoder puts "screenwriter" as near to "directed by" as to "written by"; their letters tell them apart. The measure
is the longest run of letters that two words share, over the shorter word; below half, or below four letters, it is 0.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import scipy.sparse as sp

from kgrag_gpu.words import is_content

_MIN_RUN = 4
_MIN_SHARE = 0.5


class RelationSpelling:
    """The content words of relation texts, indexed by runs of four letters."""

    def __init__(self, texts: Sequence[str]):
        words_of = [_content_words(text) or text.split() for text in texts]
        self._words = sorted({word for words in words_of for word in words})
        row_of = {word: row for row, word in enumerate(self._words)}
        self._num_texts = len(texts)
        self._text_rows = [np.array([row_of[w] for w in words], dtype=np.int64) for words in words_of]
        self._by_run: dict[str, list[int]] = {}
        for row, word in enumerate(self._words):
            for run in _runs(word):
                self._by_run.setdefault(run, []).append(row)

    def likeness(self, phrases: Sequence[str]) -> np.ndarray:
        """float64 [phrases, texts]: the mean over a phrase's content words of each one's best word in the text."""
        words_of = [_content_words(phrase) for phrase in phrases]
        words = sorted({word for own in words_of for word in own})
        alike = self._words_to_texts(words)
        row_of = {word: row for row, word in enumerate(words)}
        entries = [(i, row_of[w], 1.0 / len(own)) for i, own in enumerate(words_of) for w in own]
        rows, columns, shares = zip(*entries, strict=True) if entries else ((), (), ())
        means = sp.csr_array((np.array(shares, float), (rows, columns)), shape=(len(phrases), len(words)))
        return np.asarray(means @ alike)

    def _words_to_texts(self, words: Sequence[str]) -> np.ndarray:
        to_words = np.zeros((len(words), len(self._words)))
        for i, word in enumerate(words):
            for row in {row for run in _runs(word) for row in self._by_run.get(run, ())}:
                to_words[i, row] = letters_alike(word, self._words[row])
        best = np.zeros((len(words), self._num_texts))
        for text, rows in enumerate(self._text_rows):
            if len(rows):
                best[:, text] = to_words[:, rows].max(axis=1)
        return best


@lru_cache(maxsize=1 << 18)
def letters_alike(word: str, other: str) -> float:
    """Longest common run of letters over the shorter word's length; 0 where too short to mean anything."""
    if word == other:
        return 1.0
    longest = 0
    for start in range(len(word)):
        while start + longest < len(word) and word[start : start + longest + 1] in other:
            longest += 1
    share = longest / min(len(word), len(other)) if longest >= _MIN_RUN else 0.0
    return share if share >= _MIN_SHARE else 0.0


def _content_words(text: str) -> list[str]:
    return [word for word in text.split() if is_content(word)]


def _runs(word: str) -> set[str]:
    """Runs of four letters; a shorter word is its own run, for equal words."""
    return {word[i : i + _MIN_RUN] for i in range(max(1, len(word) - _MIN_RUN + 1))}
