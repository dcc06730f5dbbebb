"""How much a question's words say about a name, and the words that no name explains.

A mention is judged as a noisy channel would: the words of a window are explained either by the language (common words,
words of the graph's relations, possibly misspelt) or by an entity's name (possibly misspelt). `MentionCosts` prices
the first explanation, in log10 units; link.py prices the second and keeps the difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kgrag_gpu.anchors.spelling import WordList
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.words import is_content

_STEM_LENGTH = 4
_STEM_SHARE = 0.6


class MentionConfig(ConfigModel):
    """Costs in log10 units."""

    edit_cost: float = 2.2  # of one misspelling: about one word in 160 has it, at one of its letters
    unknown_cost: float = 7.5  # of a word that the language does not know
    relation_cost: float = 3.0  # at most this for words of the graph's relations: a question is full of them
    digit_cost: float = 1.5  # of a number, and one more for each digit


@dataclass(eq=False)
class MentionCosts:
    """What it costs to explain words without any name."""

    words: WordList
    relation_words: frozenset[str]
    config: MentionConfig = field(default_factory=MentionConfig)
    _known: dict[str, float] = field(default_factory=dict)

    @cached_property
    def _by_start(self) -> dict[str, list[str]]:
        """The relation words by their first letters."""
        found: dict[str, list[str]] = {}
        for word in sorted(self.relation_words):
            found.setdefault(word[:_STEM_LENGTH], []).append(word)
        return found

    def cost(self, word: str) -> float:
        """The cheaper of: the word as written, or a known word misspelt once."""
        if word not in self._known:
            best = self._as_written(word)
            if not word.isdigit():
                common = self.words.common
                for row, edits in common.near(word):
                    if edits:
                        best = min(best, self._as_written(common.words[row]) + self.config.edit_cost)
            self._known[word] = best
        return self._known[word]

    def running(self, words: Sequence[str]) -> np.ndarray:
        """Sums of the costs before each word, float64 [words + 1]: a window's cost is a difference of two."""
        return np.concatenate([[0.0], np.cumsum([self.cost(word) for word in words])])

    def _as_written(self, word: str) -> float:
        c = self.config
        if word.isdigit():
            return min(c.unknown_cost, c.digit_cost + len(word))
        cost = self.words.cost(word, c.unknown_cost)
        return min(cost, c.relation_cost) if self._is_relation_word(word) else cost

    def _is_relation_word(self, word: str) -> bool:
        """Whether the word, or one that begins alike, stands in a relation's text ("director" in "directed by")."""
        if word in self.relation_words:
            return len(word) >= _STEM_LENGTH
        for other in self._by_start.get(word[:_STEM_LENGTH], ()):
            shared = _shared_start(word, other)
            if shared >= _STEM_LENGTH and shared >= _STEM_SHARE * max(len(word), len(other)):
                return True
        return False


def unexplained_words(words: Sequence[str], spans: Sequence[tuple[int, int]]) -> list[str]:
    """Content words outside the given spans: what the linked names leave to be explained by relations."""
    return [w for i, w in enumerate(words) if is_content(w) and not any(start <= i < end for start, end in spans)]


def _shared_start(word: str, other: str) -> int:
    length = min(len(word), len(other))
    return next((i for i in range(length) if word[i] != other[i]), length)
