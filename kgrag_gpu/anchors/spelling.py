"""Misspelt words: known words within one edit, and which of them was meant.

An edit is an insertion, deletion, substitution or swap of neighbours. A correction is chosen by how common the word
is and by how near it comes to what the graph's relations say; where a question shows no sign of misspelling, its
known words are left alone.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from rapidfuzz.distance import OSA

from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.words import ASKING_WORDS, FUNCTION_WORDS, SHARED_WORDS, fold, split_words

MIN_EDITED_LENGTH = 3  # a shorter word is taken as written: its neighbours are too many


class SpellingConfig(ConfigModel):
    """How corrections are weighed, in log10 units of word frequency."""

    language: str | None = "en"  # of the frequency list; None uses the graph's own words alone
    max_words: int = 60_000  # the list's most frequent words that a correction may be
    known_frequency: float = 10**-5.7  # words rarer than this count as unknown
    noise_share: float = 0.2  # share of unknown words from which known words are doubted too
    meaning_weight: float = 6.0  # of the word's cosine to the nearest relation
    edit_cost: float = 1.0
    unknown_cost: float = 1.0
    grammar_meaning: float = 0.35  # what a grammar word gets for its cosine: any question has them
    rarest: float = -6.3


class WordIndex:
    """Looks up known words within one edit, through the strings that one deletion leaves of each word."""

    def __init__(self, vocabulary: Iterable[str]):
        self.words = list(vocabulary)
        self.row_of = {word: row for row, word in enumerate(self.words)}
        self._by_deletion: dict[str, list[int]] = {}
        for row, word in enumerate(self.words):
            if len(word) >= MIN_EDITED_LENGTH:
                for form in _deletions(word):
                    self._by_deletion.setdefault(form, []).append(row)
        self._found: dict[str, list[tuple[int, int]]] = {}

    def __contains__(self, word: str) -> bool:
        return word in self.row_of

    def near(self, word: str) -> list[tuple[int, int]]:
        """(row, edits) of the known words within one edit, the word itself first, the others by row.

        Words of three letters are edited only into longer ones.
        """
        if word not in self._found:
            self._found[word] = self._look_up(word)
        return self._found[word]

    def _look_up(self, word: str) -> list[tuple[int, int]]:
        same = self.row_of.get(word)
        found = [] if same is None else [(same, 0)]
        if len(word) < MIN_EDITED_LENGTH or word.isdigit():
            return found
        rows = {row for form in _deletions(word) for row in self._by_deletion.get(form, ())}
        for row in sorted(rows):
            other = self.words[row]
            is_long = max(len(other), len(word)) > MIN_EDITED_LENGTH
            if row != same and is_long and OSA.distance(other, word, score_cutoff=1) <= 1:
                found.append((row, 1))
        return found


@dataclass(frozen=True, eq=False)
class WordList:
    """Frequencies of folded words (share of running text), and an index of the most common."""

    frequencies: Mapping[str, float]
    common: WordIndex

    def frequency(self, word: str) -> float:
        """0 for an unknown word."""
        return self.frequencies.get(word, 0.0)

    def cost(self, word: str, unknown: float) -> float:
        """-log10 of the frequency, at most `unknown`."""
        frequency = self.frequencies.get(word)
        return min(unknown, -math.log10(frequency)) if frequency else unknown


def word_list(config: SpellingConfig, texts: Iterable[str] = ()) -> WordList:
    """The language's frequency list; without a language, the frequencies of `texts` (the graph's own words)."""
    if config.language is not None:
        return _language_list(config.language, config.max_words)
    counts: dict[str, int] = {}
    for text in texts:
        for word in split_words(text):
            counts[word] = counts.get(word, 0) + 1
    total = sum(counts.values()) or 1
    return _listed({word: count / total for word, count in counts.items()}, config.max_words)


@lru_cache(maxsize=4)
def _language_list(language: str, max_words: int) -> WordList:
    import wordfreq

    frequencies: dict[str, float] = {}
    for word, frequency in wordfreq.get_frequency_dict(language).items():
        pieces = split_words(word)
        if len(pieces) == 1:
            frequencies[pieces[0]] = max(frequency, frequencies.get(pieces[0], 0.0))
    return _listed(frequencies, max_words)


def _listed(frequencies: dict[str, float], max_words: int) -> WordList:
    by_frequency = sorted(frequencies, key=lambda w: (-frequencies[w], w))
    return WordList(frequencies, WordIndex(by_frequency[:max_words]))


@dataclass(frozen=True, slots=True)
class QuestionWords:
    """A question's words around one anchor: words `start` to `end` name it, with `num_edits` misspellings."""

    words: Sequence[str]
    start: int
    end: int
    num_edits: int


@dataclass(eq=False)
class Speller:
    """Corrects the words outside the anchor, against a frequency list and the graph's relation words.

    `meaning(words)` gives each word's cosine to the nearest relation text, in any batch the same.
    """

    words: WordList
    relation_words: frozenset[str]
    meaning: Callable[[Sequence[str]], np.ndarray]
    config: SpellingConfig = field(default_factory=SpellingConfig)

    def correct(self, questions: Sequence[QuestionWords]) -> list[list[str]]:
        """The words of each question with the misspelt ones replaced; the anchor's stay as written."""
        doubts = [self._doubtful(q) for q in questions]
        doubted = {q.words[i] for q, d in zip(questions, doubts, strict=True) for i, _ in d}
        candidates = {word: self._candidates(word) for word in sorted(doubted)}
        needed = sorted({c for forms in candidates.values() for c, _ in forms})
        meanings = dict(zip(needed, self._meanings(needed), strict=True))
        corrected = []
        for question, doubtful in zip(questions, doubts, strict=True):
            words = list(question.words)
            for i, unknown in doubtful:
                forms = candidates[words[i]]
                words[i] = max(forms, key=lambda f: (self._score(f, unknown, meanings[f[0]]), f[0]))[0]
            corrected.append(words)
        return corrected

    def _doubtful(self, question: QuestionWords) -> list[tuple[int, bool]]:
        """(position, unknown) of the words that may be misspelt."""
        outside = [
            (i, w)
            for i, w in enumerate(question.words)
            if not question.start <= i < question.end and len(w) >= MIN_EDITED_LENGTH and not w.isdigit()
        ]
        unknown = {
            i
            for i, w in outside
            if w not in self.relation_words and self.words.frequency(w) < self.config.known_frequency
        }
        num_long = sum(len(w) > MIN_EDITED_LENGTH for _, w in outside) + question.end - question.start
        is_noisy = (len(unknown) + question.num_edits) >= self.config.noise_share * max(1, num_long)
        return [(i, i in unknown) for i, _ in outside if is_noisy or i in unknown]

    def _candidates(self, word: str) -> tuple[tuple[str, int], ...]:
        common = self.words.common
        return ((word, 0), *((common.words[row], edits) for row, edits in common.near(word) if edits))

    def _meanings(self, words: Sequence[str]) -> list[float]:
        cosines = np.maximum(self.meaning(words), 0.0).tolist() if words else []
        grammar = FUNCTION_WORDS | ASKING_WORDS | SHARED_WORDS
        found = []
        for word, cosine in zip(words, cosines, strict=True):
            if word in self.relation_words:
                cosine = 1.0
            elif word in grammar:
                cosine = max(cosine, self.config.grammar_meaning)
            found.append(cosine)
        return found

    def _score(self, form: tuple[str, int], unknown: bool, meaning: float) -> float:
        word, edits = form
        frequency = self.words.frequency(word)
        c = self.config
        score = max(math.log10(frequency), c.rarest) if frequency else c.rarest - c.unknown_cost
        if edits:
            score -= c.edit_cost
        elif unknown:
            score -= c.unknown_cost
        return score + c.meaning_weight * meaning


def relation_vocabulary(relation_texts: Iterable[str]) -> frozenset[str]:
    """The folded words that relation texts are made of."""
    return frozenset(word for text in relation_texts for word in split_words(fold(text)))


def _deletions(word: str) -> set[str]:
    return {word} | {word[:i] + word[i + 1 :] for i in range(len(word))}
