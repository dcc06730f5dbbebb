"""Entity names in questions: misspelt, lower-cased, with accents or punctuation lost.

Candidates come from two searches over all names: words within one edit, and character trigrams; both are sparse
products over the whole batch. Each candidate is then laid over the question's windows of about as many words, and a
window's score is what its words would cost without a name (keywords.py) less what the name's misspellings cost. A name
of which the question says only a part ("hitler") is scored by the words said less a cost for those left out
(name_parts.py); among such names the one with more edges goes first. Homonyms share a score and stay apart.

The scores are sums of a question's own words: batch size and order of questions change nothing.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from rapidfuzz.distance import OSA
from rapidfuzz.process import cpdist

from kgrag_gpu.anchors.keywords import MentionCosts
from kgrag_gpu.anchors.name_parts import SaidWord, best_part
from kgrag_gpu.anchors.spelling import WordIndex
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.words import FUNCTION_WORDS, fold, is_content, split_words

_BLOCK_CELLS = 8_000_000
_MAX_EDITS = 6
_WEIGHT_SCALE = 256  # trigram weights are whole numbers, so that their sums are exact in any order


class LinkConfig(ConfigModel):
    """How names are found."""

    candidates: int = 40  # names kept from each of the two searches, a question
    links: int = 12  # entities kept, a question
    excess_edits: float = 2.0  # further cost of each edit beyond one a word, in edits
    case_bonus: float = 2.0  # for a name that stands in the question letter by letter, capitals included
    part_cost: float = 1.0  # for a name that is said in part
    missing_cost: float = 1.5  # for each word of a name that the question leaves out
    grammar_missing_cost: float = 0.3  # where that is "the", "of" and the like
    gap_cost: float = 1.0  # for each word between the said words of a name
    popularity_weight: float = 0.4  # of log10(1 + edges) for names said in part
    min_score: float = 0.0  # links at or below are dropped: the language explains their words as well


@dataclass(frozen=True, eq=False)
class Links:
    """Candidate entities of questions: question q owns `offsets[q]` to `offsets[q + 1]`, best first.

    Attributes:
        offsets: int64 [questions + 1].
        entity_ids: int64 [links].
        scores: float64 [links], log10 likelihood ratio of name against plain language.
        starts, ends: int64 [links], the window's words in `words[q]`.
        num_edits: int64 [links], misspellings of the name in its window.
        words: the folded words of each question.
    """

    offsets: np.ndarray
    entity_ids: np.ndarray
    scores: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    num_edits: np.ndarray
    words: list[list[str]]

    @property
    def question_ids(self) -> np.ndarray:
        """int64 [links], the question of each link."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def take(self, rows: np.ndarray, offsets: np.ndarray) -> "Links":
        """The links `rows`, which lie by question as `offsets` says."""
        return Links(
            offsets,
            self.entity_ids[rows],
            self.scores[rows],
            self.starts[rows],
            self.ends[rows],
            self.num_edits[rows],
            self.words,
        )


class NameIndex:
    """Names and aliases of a graph's entities, prepared for search."""

    def __init__(
        self,
        names: Sequence[str],
        aliases: Sequence[Sequence[str]],
        costs: MentionCosts,
        config: LinkConfig | None = None,
        num_edges: np.ndarray | None = None,
    ):
        """`num_edges` of each entity (default: all alike) orders names that are said in part."""
        self.config = config or LinkConfig()
        degrees = np.zeros(len(names)) if num_edges is None else np.asarray(num_edges, dtype=np.float64)
        self._popularity = np.rint(np.log10(1 + degrees) * 2**20) / 2**20
        self._costs = costs
        self._spellings = [(name, *others) for name, others in zip(names, aliases, strict=True)]
        rows: dict[str, list[int]] = {}
        for entity, spellings in enumerate(self._spellings):
            for folded in dict.fromkeys(folded_name(s) for s in spellings):
                if folded:
                    rows.setdefault(folded, []).append(entity)
        # A name of symbols alone ("$") has no words to compare: it is found where it stands between spaces.
        self._symbols = {name: entities for name, entities in rows.items() if not split_words(name)}
        rows = {name: entities for name, entities in rows.items() if name not in self._symbols}
        self.names = list(rows)
        self._entities = list(rows.values())
        self._num_words = np.array([len(name.split()) for name in self.names], dtype=np.int64)
        self._lengths = np.array([len(name) for name in self.names], dtype=np.int64)
        self._build_words()
        self._build_trigrams()

    def link(self, texts: Sequence[str]) -> Links:
        """The entities that each text may name, best first; equal scores by entity row."""
        words = [split_words(text) for text in texts]
        candidates = list(self._candidates(words))
        found = [self._windows(w, names) for w, names in zip(words, candidates, strict=True)]
        rows = np.concatenate([np.zeros((0, 4), np.int64), *found])
        text_ids = np.repeat(np.arange(len(texts)), [len(f) for f in found])
        name_ids, starts, ends, _ = rows.T
        windows = [
            " ".join(words[q][s:e]) for q, s, e in zip(text_ids.tolist(), starts.tolist(), ends.tolist(), strict=True)
        ]
        edits = self._edits(name_ids, windows)
        scores = self._scores(words, text_ids, starts, ends, edits)
        table = np.stack([text_ids, name_ids, starts, ends, edits, np.zeros_like(edits)])
        parts, part_scores = self._parts(words, candidates)
        return self._best(texts, words, np.concatenate([table, parts], axis=1), np.append(scores, part_scores))

    def _parts(self, words: Sequence[list[str]], candidates: Sequence[list[int]]) -> tuple[np.ndarray, np.ndarray]:
        """Names said in part: (text, name, start, end, edits, 1) and scores."""
        rows, scores = [], []
        edit_cost = self._costs.config.edit_cost
        for q, (question, names) in enumerate(zip(words, candidates, strict=True)):
            said: dict[int, list[SaidWord]] = {}
            for place, word in enumerate(question):
                cost = self._costs.cost(word)
                telling = is_content(word) and cost > self._costs.config.relation_cost
                for row, edits in self._words.near(word):
                    if telling or not edits:  # "the" and "film" name nothing in part, but are not left out either
                        worth = cost - edit_cost * edits if telling else 0.0
                        said.setdefault(row, []).append(SaidWord(place, row, edits, worth))
            for name in names:
                part = best_part(self._name_words[name], said, self._missing, self.config.gap_cost)
                if part is not None:
                    rows.append((q, name, part.start, part.end, part.edits, 1))
                    scores.append(part.score - self.config.part_cost)
        return np.array(rows, dtype=np.int64).reshape(-1, 6).T, np.rint(np.array(scores) * 2**20) / 2**20

    def _symbol_links(self, texts: Sequence[str]) -> list[tuple[int, int, int]]:
        """(text, entity, words before) of names of symbols alone."""
        found = []
        for q, text in enumerate(texts if self._symbols else []):
            pieces = fold(text).split()
            for i, piece in enumerate(pieces):
                before = len(split_words(" ".join(pieces[:i])))
                found.extend((q, entity, before) for entity in self._symbols.get(piece, ()))
        return found

    def _build_words(self) -> None:
        vocabulary = sorted({word for name in self.names for word in name.split()})
        self._words = WordIndex(vocabulary)
        c = self.config
        self._missing = [c.grammar_missing_cost if w in FUNCTION_WORDS else c.missing_cost for w in vocabulary]
        self._name_words = [[self._words.row_of[w] for w in dict.fromkeys(name.split())] for name in self.names]
        pairs = [(row, i) for i, rows in enumerate(self._name_words) for row in rows]
        self._word_names = _matrix(pairs, (len(vocabulary), len(self.names)))
        scaled = np.rint(np.array(self._missing) * _WEIGHT_SCALE).astype(np.int32)
        self._name_missing = np.asarray(self._word_names.T @ scaled).ravel()

    def _build_trigrams(self) -> None:
        self._trigrams: dict[str, int] = {}
        pairs = [
            (self._trigrams.setdefault(t, len(self._trigrams)), i)
            for i, name in enumerate(self.names)
            for t in _trigrams(name)
        ]
        by_trigram = _matrix(pairs, (len(self._trigrams), len(self.names)))
        counts = np.diff(by_trigram.indptr)
        weights = np.rint(np.log(1 + len(self.names) / (1 + counts)) * _WEIGHT_SCALE).astype(np.int32)
        by_trigram.data = np.repeat(weights, counts)
        self._trigram_names = by_trigram
        self._name_weights = np.asarray(by_trigram.sum(axis=0)).ravel()

    def _candidates(self, words: Sequence[list[str]]) -> Iterator[list[int]]:
        """Rows of names worth comparing with each text, ascending."""
        word_pairs, word_values, trigram_pairs = [], [], []
        for q, question in enumerate(words):
            worth: dict[int, float] = {}
            for word in question:
                for row, count in self._words.near(word):
                    value = self._costs.cost(word) - self._costs.config.edit_cost * count
                    worth[row] = max(worth.get(row, value), value)
            for row, value in worth.items():
                word_pairs.append((q, row))
                word_values.append(round((value + self._missing[row]) * _WEIGHT_SCALE))
            known = (self._trigrams.get(t) for t in sorted(_trigrams(" ".join(question))))
            trigram_pairs.extend((q, row) for row in known if row is not None)
        by_word = _matrix(word_pairs, (len(words), len(self._words.words)), word_values)
        by_trigram = _matrix(trigram_pairs, (len(words), len(self._trigrams)))
        block = max(1, _BLOCK_CELLS // max(1, len(self.names)))
        for start in range(0, len(words), block):
            part = slice(start, start + block)
            close = (by_word[part] @ self._word_names).toarray().astype(np.int64) - self._name_missing
            alike = 2 * (by_trigram[part] @ self._trigram_names).toarray().astype(np.int64) - self._name_weights
            for first, second in zip(self._top(close), self._top(alike), strict=True):
                yield sorted(set(first) | set(second))

    def _top(self, scores: np.ndarray) -> list[list[int]]:
        """The best `candidates` columns of each row; equal scores by the lowest column."""
        num_names = scores.shape[1]
        k = min(self.config.candidates, num_names)
        if k == 0:
            return [[] for _ in scores]
        keys = scores * num_names + np.arange(num_names - 1, -1, -1)
        return np.argpartition(keys, num_names - k, axis=1)[:, num_names - k :].tolist()

    def _windows(self, words: list[str], candidates: list[int]) -> np.ndarray:
        """(name, start, end, characters) of windows that a candidate could cover: int64 [pairs, 4]."""
        names = np.array(candidates, dtype=np.int64)
        if not words or not len(names):
            return np.zeros((0, 4), np.int64)
        sizes = self._num_words[names]
        letters = np.concatenate([[0], np.cumsum([len(w) + 1 for w in words])])
        longest = min(len(words), int(sizes.max()) + 1)  # longer windows suit no name: work grows with the words alone
        starts = np.repeat(np.arange(len(words)), longest)
        ends = starts + np.tile(np.arange(1, longest + 1), len(words))
        starts, ends = starts[ends <= len(words)], ends[ends <= len(words)]
        chars = letters[ends] - letters[starts] - 1
        near_size = np.abs((ends - starts)[None] - sizes[:, None]) <= 1
        near_length = np.abs(chars[None] - self._lengths[names][:, None]) <= 2 + self._lengths[names][:, None] // 8
        row, window = np.nonzero(near_size & near_length)
        return np.stack([names[row], starts[window], ends[window], chars[window]], axis=1)

    def _edits(self, name_ids: np.ndarray, windows: list[str]) -> np.ndarray:
        if not windows:
            return np.zeros(0, np.int64)
        names = [self.names[i] for i in name_ids.tolist()]
        return np.asarray(cpdist(names, windows, scorer=OSA.distance, score_cutoff=_MAX_EDITS)).astype(np.int64)

    def _scores(
        self, words: Sequence[list[str]], text_ids: np.ndarray, starts: np.ndarray, ends: np.ndarray, edits: np.ndarray
    ) -> np.ndarray:
        """Cost of the window as language less the cost of the edits; more than one edit a longer word costs extra."""
        costs = [self._costs.running(w) for w in words]
        longer = [np.concatenate([[0], np.cumsum([len(x) >= 3 for x in w])]).astype(np.int64) for w in words]
        offsets = np.concatenate([[0], np.cumsum([len(c) for c in costs])]).astype(np.int64)[:-1]
        flat = np.concatenate([np.zeros(0), *costs])
        flat_longer = np.concatenate([np.zeros(0, np.int64), *longer])
        at_start, at_end = offsets[text_ids] + starts, offsets[text_ids] + ends
        excess = np.maximum(0, edits - (flat_longer[at_end] - flat_longer[at_start]))
        edit_cost = self._costs.config.edit_cost
        scores = flat[at_end] - flat[at_start] - edit_cost * (edits + self.config.excess_edits * excess)
        scores = np.where(edits > _MAX_EDITS, -np.inf, scores)  # beyond the cut-off the distance is not known
        # One grid for all: sums that differ in their last bits only are equal.
        return np.rint(scores * 2**20) / 2**20

    def _best(self, texts: Sequence[str], words: list[list[str]], table: np.ndarray, scores: np.ndarray) -> Links:
        """Names to entities; the best window of each, the best entities of each text."""
        num_homonyms = np.array([len(e) for e in self._entities], dtype=np.int64)
        keep = scores > self.config.min_score
        table, scores = table[:, keep], scores[keep]
        rows = np.repeat(np.arange(table.shape[1]), num_homonyms[table[1]])
        entities = np.array([e for i in table[1].tolist() for e in self._entities[i]], dtype=np.int64)
        text_ids, _, starts, ends, edits, is_part = table[:, rows]
        scores = scores[rows] + is_part * self.config.popularity_weight * self._popularity[entities]
        symbols = np.array(self._symbol_links(texts), dtype=np.int64).reshape(-1, 3)
        text_ids, entities = np.append(text_ids, symbols[:, 0]), np.append(entities, symbols[:, 1])
        starts, ends = np.append(starts, symbols[:, 2]), np.append(ends, symbols[:, 2])
        edits, is_part = (np.append(column, np.zeros(len(symbols), np.int64)) for column in (edits, is_part))
        scores = np.append(scores, np.full(len(symbols), self._costs.config.relation_cost))
        for i in np.flatnonzero((edits == 0) & (is_part == 0)).tolist():
            if self._stands_in(texts[int(text_ids[i])], int(entities[i])):
                scores[i] += self.config.case_bonus
        order = np.lexsort((ends, starts, entities, -scores, text_ids))
        kept: list[int] = []
        seen: set[tuple[int, int]] = set()
        counts = np.zeros(len(texts), dtype=np.int64)
        for i in order.tolist():
            key = (int(text_ids[i]), int(entities[i]))
            if counts[key[0]] < self.config.links and key not in seen:
                seen.add(key)
                counts[key[0]] += 1
                kept.append(i)
        picked = np.array(kept, dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        return Links(offsets, entities[picked], scores[picked], starts[picked], ends[picked], edits[picked], words)

    def _stands_in(self, text: str, entity: int) -> bool:
        """Whether a spelling with capitals stands in the text exactly, as whole words."""
        return any(
            spelling != spelling.lower() and re.search(rf"(?<!\w){re.escape(spelling)}(?!\w)", text)
            for spelling in self._spellings[entity]
        )


def folded_name(name: str) -> str:
    """The name's folded words; a name of symbols alone ("$") is itself."""
    return " ".join(split_words(name)) or fold(name).strip()


def _trigrams(folded: str) -> set[str]:
    padded = f"  {folded} "
    return {padded[i : i + 3] for i in range(len(padded) - 2)}


def _matrix(pairs: list[tuple[int, int]], shape: tuple[int, int], values: Sequence[int] | None = None) -> sp.csr_array:
    data = np.ones(len(pairs), np.int32) if values is None else np.array(values, dtype=np.int32)
    rows, columns = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return sp.csr_array((data, (rows, columns)), shape=shape, dtype=np.int32)
