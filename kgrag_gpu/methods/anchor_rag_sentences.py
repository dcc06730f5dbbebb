"""Passages as AnchorRAG walks them: sentences tie entities together, and evidence earns passages their rank.

`SentenceWorld` is built once per process from the KG. `SentenceView` is one batch of questions over it: their anchors,
what each path of sentences is worth, and what its passages earn.
"""

import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from kgrag_gpu.anchors.keywords import MentionCosts
from kgrag_gpu.anchors.link import Links, NameIndex
from kgrag_gpu.anchors.spelling import SpellingConfig, word_list
from kgrag_gpu.expansion.neighbours import WalkTable
from kgrag_gpu.index.fuse import Ranking
from kgrag_gpu.index.lexical import LexicalIndex
from kgrag_gpu.kg.mention_index import MentionIndex, long_enough
from kgrag_gpu.kg.mentions import MentionTable, kg_mention_table
from kgrag_gpu.kg.store import Kg
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.ranking.question_units import WordWeights

_MIN_CHARS = 4


class Named(NamedTuple):
    """Entities that questions name, once each, sorted by (question, entity); `starts` and `ends` say where."""

    question_ids: np.ndarray  # int64
    entity_ids: np.ndarray  # int64
    scores: np.ndarray  # float64: 1 as written in the KG, less in other case
    starts: np.ndarray
    ends: np.ndarray


class SentenceWorld:
    """The sentences of a KG's passages and the entities in them.

    Attributes:
        texts: the sentences of all passages, in order.
        passage_ids: int64 [sentences].
        title_ids: int64 [passages], the entity that the passage's title names, -1 where none.
        walk: entity -> sentences that name it or stand in its own passages -> their entities.
        num_mentions, num_titled: int64 [entities], passages that mention the entity, and that it titles.
    """

    def __init__(self, resources: Resources):
        kg = resources.kg
        self.kg = kg
        self._resources = resources
        with resources.stage("build sentence graph"):
            table = kg_mention_table(kg, _MIN_CHARS)
            owners = np.repeat(np.arange(kg.num_passages), np.diff(table.sentence_offsets))
            spans = table.sentence_spans.tolist()
            self.texts = [kg.passages[p].text[a:b] for p, (a, b) in zip(owners.tolist(), spans, strict=True)]
            self.passage_ids = torch.from_numpy(owners).to(resources.device)
            self.title_ids = torch.from_numpy(kg.passage_entities.astype(np.int64)).to(resources.device)
            self.walk = self._walk_table(table, owners).to(resources.device)
            pairs = np.unique(table.entity_ids * max(1, kg.num_passages) + table.passage_ids)
            self.num_mentions = self._counts(pairs // max(1, kg.num_passages))
            self.num_titled = self._counts(kg.passage_entities[kg.passage_entities >= 0])

    @cached_property
    def vectors(self) -> np.ndarray:
        """Sentence vectors, int16 [sentences, dim]."""
        return self._resources.vectors(self.texts, "encode sentences")

    @cached_property
    def lexical(self) -> LexicalIndex:
        """BM25 over the sentences."""
        with self._resources.stage("build BM25"):
            return LexicalIndex(self.texts, self._resources.config.index)

    @cached_property
    def word_weights(self) -> WordWeights:
        """Rarity of words over the passages."""
        return WordWeights(self._resources.unit_texts)

    @cached_property
    def _names(self) -> tuple[MentionIndex, list[str], np.ndarray]:
        pairs = [
            (spelling, entity)
            for entity, (name, aliases) in enumerate(zip(self.kg.entity_names, self.kg.entity_aliases, strict=True))
            for spelling in dict.fromkeys((name, *aliases))
            if long_enough(spelling, _MIN_CHARS)
        ]
        spellings = [spelling for spelling, _ in pairs]
        return MentionIndex(spellings), spellings, np.array([entity for _, entity in pairs], dtype=np.int64)

    @cached_property
    def _fuzzy_names(self) -> NameIndex:
        """The same names, found misspelt."""
        spelling = SpellingConfig()
        words = word_list(spelling, self.kg.entity_names)
        with self._resources.stage("index names"):
            return NameIndex(self.kg.entity_names, self.kg.entity_aliases, MentionCosts(words, frozenset()))

    def misspelt_entities(self, questions: Sequence[str], score: float, min_ratio: float) -> Named:
        """Entities that each question names with a misspelling.

        The words must hold one that no passage has, and the name must explain them better than plain language does.

        Args:
            questions: texts.
            score: what such a name counts.
            min_ratio: log10 of how much better the name explains the words.
        """
        links = self._fuzzy_names.link(questions)
        is_close = (links.num_edits > 0) & (links.scores >= min_ratio)
        kept = np.array([row for row in np.flatnonzero(is_close).tolist() if self._is_odd(links, row)], dtype=np.int64)
        kept = kept[np.lexsort((links.entity_ids[kept], links.question_ids[kept]))]
        return Named(
            links.question_ids[kept],
            links.entity_ids[kept],
            np.full(len(kept), score),
            links.starts[kept],
            links.ends[kept],
        )

    def _is_odd(self, links: Links, row: int) -> bool:
        words = links.words[int(links.question_ids[row])][int(links.starts[row]) : int(links.ends[row])]
        return any(word not in self.word_weights for word in words)

    def named_entities(self, questions: Sequence[str], other_case_score: float) -> Named:
        """Entities whose name or alias stands in each question, in any case."""
        index, spellings, owners = self._names
        found = index.find(questions, case="any")
        rows = np.stack([found.text_ids, found.name_ids, found.starts, found.ends], axis=1).tolist()
        exact = np.array([questions[text][a:b] == spellings[name] for text, name, a, b in rows], dtype=bool)
        scores = np.where(exact, 1.0, other_case_score)
        entities = owners[found.name_ids]
        order = np.lexsort((found.starts, -scores, entities, found.text_ids))
        keys = (found.text_ids * max(1, self.kg.num_entities) + entities)[order]
        first = order[np.diff(keys, prepend=-1) != 0]
        return Named(found.text_ids[first], entities[first], scores[first], found.starts[first], found.ends[first])

    def _counts(self, entity_ids: np.ndarray) -> Int64[Tensor, " entities"]:
        counts = np.bincount(entity_ids, minlength=self.kg.num_entities)
        return torch.from_numpy(counts).to(self._resources.device)

    def _walk_table(self, table: MentionTable, owners: np.ndarray) -> WalkTable:
        """Memberships: a sentence holds the entities that it mentions and the one that titles its passage."""
        titles = self.kg.passage_entities[owners].astype(np.int64)
        titled = np.flatnonzero(titles >= 0)
        sentence_ids = np.concatenate([titled, table.sentence_ids])
        entity_ids = np.concatenate([titles[titled], table.entity_ids])
        edge_ids = _edge_ids(self.kg, self.texts, owners, sentence_ids, entity_ids)
        tensors = (torch.from_numpy(column) for column in (sentence_ids, entity_ids, edge_ids))
        return WalkTable.from_memberships(*tensors, num_texts=len(self.texts), num_entities=self.kg.num_entities)


def merge_named(first: Named, second: Named, num_entities: int) -> Named:
    """Both, each (question, entity) once; `first` wins."""
    keys = [named.question_ids * max(1, num_entities) + named.entity_ids for named in (first, second)]
    new = ~np.isin(keys[1], keys[0])
    order = np.argsort(np.concatenate([keys[0], keys[1][new]]), kind="stable")
    return Named(*(np.concatenate([a, b[new]])[order] for a, b in zip(first, second, strict=True)))


class PairScores:
    """A sparse [rows, columns] table of scores; 0 where it holds nothing, and where the column is -1."""

    def __init__(
        self,
        rows: Int64[Tensor, " pairs"],
        columns: Int64[Tensor, " pairs"],
        scores: Float64[Tensor, " pairs"],
        num_columns: int,
    ):
        self._num_columns = max(1, num_columns)
        self._keys, order = torch.sort(rows * self._num_columns + columns)
        self._scores = scores[order]

    def __call__(self, rows: Int64[Tensor, "..."], columns: Int64[Tensor, "..."]) -> Float64[Tensor, "..."]:
        """The scores at (row, column)."""
        if not self._keys.numel():
            return torch.zeros(columns.shape, dtype=torch.float64, device=columns.device)
        keys = rows * self._num_columns + columns
        places = torch.searchsorted(self._keys, keys).clamp(max=self._keys.numel() - 1)
        return torch.where((self._keys[places] == keys) & (columns >= 0), self._scores[places], 0.0)


def rankings_of(
    keys: Int64[Tensor, " pairs"], scores: Float64[Tensor, " pairs"], num_questions: int, num_passages: int
) -> list[Ranking]:
    """One ranking a question from distinct keys `question * passages + passage`: score falling, ties by passage."""
    passages, questions = (keys % max(1, num_passages)).cpu().numpy(), (keys // max(1, num_passages)).cpu().numpy()
    values = scores.cpu().numpy()
    order = np.lexsort((passages, -values, questions))
    bounds = np.searchsorted(questions[order], np.arange(num_questions + 1))
    return [Ranking(passages[order[a:b]], values[order[a:b]]) for a, b in itertools.pairwise(bounds)]


def _edge_ids(
    kg: Kg, texts: Sequence[str], owners: np.ndarray, sentence_ids: np.ndarray, entity_ids: np.ndarray
) -> np.ndarray:
    """The KG's edge that a sentence makes to an entity, -1 where there is none (the title in its own passage)."""
    edges = np.repeat(np.arange(kg.num_triples), np.diff(kg.triple_passage_offsets)).tolist()
    known: dict[tuple[int, int, str], int] = {
        (passage, int(kg.tails[edge]), kg.triple_texts[int(edge)]): edge
        for edge, passage in zip(edges, kg.triple_passages.tolist(), strict=True)
    }
    pairs = zip(sentence_ids.tolist(), entity_ids.tolist(), strict=True)
    return np.array([known.get((int(owners[s]), e, texts[int(s)]), -1) for s, e in pairs], dtype=np.int64)
