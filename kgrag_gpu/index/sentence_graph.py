"""Sentences of a KG and what connects them: the graph that connected coverage looks for its sets in.

A unit is a passage, or a triple where the KG has no passages; it is cut into sentences (a triple's text is its one
sentence). Two sentences of different units are neighbours where both mention an entity, or where one mentions an
entity that titles the other's unit (a title edge). Entities that stand in very many units connect nothing.
Also knows which names a question uses. Knows nothing of token states or scores (methods/cover.md, steps 2 to 4).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
import torch
from pydantic import Field

from kernels import csr_expand
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.kg.mention_index import MentionIndex, fold, long_enough
from kgrag_gpu.kg.mentions import kg_mention_table
from kgrag_gpu.kg.store import Kg

_BLOCK_SLOTS = 4_000_000  # neighbours listed at once while the graph is built


class SentenceGraphConfig(ConfigModel):
    """Which entities connect sentences, and which names a question may use."""

    min_chars: Annotated[int, Field(ge=1)] = 4  # shorter names are not looked for
    min_hub_units: Annotated[int, Field(ge=1)] = 20  # an entity in at most so many units always connects
    max_hub_share: Annotated[float, Field(ge=0, le=1)] = 0.02  # nor does one in at most this share of them, up to
    max_hub_units: Annotated[int, Field(ge=1)] = 200  # this many
    other_case_weight: Annotated[float, Field(ge=0, le=1)] = 0.4  # a name that the question writes in other case
    max_named_units: Annotated[int, Field(ge=1)] = 32  # units that one question may name, surest first

    def hub_limit(self, num_units: int) -> int:
        """The most units that an entity may stand in and still connect sentences."""
        return max(self.min_hub_units, min(int(self.max_hub_share * num_units), self.max_hub_units))


class Named(NamedTuple):
    """Names that questions use. Entity rows are sorted by (question, entity), unit rows by (question, weight, unit)."""

    entity_questions: np.ndarray  # int64 [named entities]
    entity_ids: np.ndarray  # int64
    entity_weights: np.ndarray  # float64, 1 where written as in the KG
    unit_questions: np.ndarray  # int64 [named units]
    unit_ids: np.ndarray  # int64
    unit_weights: np.ndarray  # float64: weight / sqrt(units that the same spelling titles)
    unit_spellings: np.ndarray  # int64: equal where the same spelling named them
    num_dropped: np.ndarray  # int64 [questions], named units beyond the limit


@dataclass(frozen=True, eq=False)
class SentenceGraph:
    """Sentences, their neighbours, and the names of their entities.

    Attributes:
        texts: the sentences, units one after the other.
        spans: int64 [sentences, 2], characters of the unit's text (the triple's text).
        unit_ids: int64 [sentences].
        unit_offsets: int64 [units + 1], each unit's sentences.
        title_ids: int64 [units], the entity that titles the unit, -1 where none.
        num_mentions: int64 [entities], units that mention the entity.
        offsets: int64 [sentences + 1] into the neighbour slots; within a sentence they are sorted by
            (entity, kind of edge, neighbour), and a pair that several entities connect has a slot for each.
        neighbours: int32 [slots]. entity_ids: int32 [slots]. is_title_edge: bool [slots].
    """

    texts: Sequence[str]
    spans: np.ndarray
    unit_ids: np.ndarray
    unit_offsets: np.ndarray
    title_ids: np.ndarray
    num_mentions: np.ndarray
    offsets: np.ndarray
    neighbours: np.ndarray
    entity_ids: np.ndarray
    is_title_edge: np.ndarray
    names: "QuestionNames"

    @property
    def num_sentences(self) -> int:
        """Rows of the sentence table."""
        return len(self.unit_ids)

    @property
    def num_units(self) -> int:
        """Passages, or triples of a KG without passages."""
        return len(self.unit_offsets) - 1


class QuestionNames:
    """Finds the entities that a question names, and the units that these title."""

    def __init__(self, kg: Kg, title_ids: np.ndarray, config: SentenceGraphConfig):
        self._config = config
        pairs = [
            (spelling, entity)
            for entity, (name, aliases) in enumerate(zip(kg.entity_names, kg.entity_aliases, strict=True))
            for spelling in dict.fromkeys((name, *aliases))
            if long_enough(spelling, config.min_chars)
        ]
        self._spellings = [spelling for spelling, _ in pairs]
        self._entities = np.array([entity for _, entity in pairs], dtype=np.int64)
        self._index = MentionIndex(self._spellings)
        titled = np.flatnonzero(title_ids >= 0)
        self._titled_units = titled[np.argsort(title_ids[titled], kind="stable")]
        counts = np.bincount(title_ids[titled], minlength=kg.num_entities)
        self._unit_offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        folded = {form: number for number, form in enumerate(dict.fromkeys(map(fold, self._spellings)))}
        self._forms = np.array([folded[fold(spelling)] for spelling in self._spellings], dtype=np.int64)
        self._form_units = np.bincount(self._forms, weights=counts[self._entities], minlength=len(folded))

    def find(self, questions: Sequence[str]) -> Named:
        """The names in each question, in any case; see `Named`."""
        found = self._index.find(questions, case="any")
        rows = np.stack([found.text_ids, found.name_ids, found.starts, found.ends], axis=1).tolist()
        exact = [questions[text][start:end] == self._spellings[name] for text, name, start, end in rows]
        weights = np.where(exact, 1.0, self._config.other_case_weight) if exact else np.zeros(0)
        entities, forms = self._entities[found.name_ids], self._forms[found.name_ids]
        entity_rows = _strongest(found.text_ids, entities, weights)
        owners, units = self._units_of(entities)
        shared = np.maximum(self._form_units[forms[owners]], 1)
        unit_weights = weights[owners] / np.sqrt(shared)
        rows = _strongest(found.text_ids[owners], units, unit_weights)
        questions_of = found.text_ids[owners][rows]
        order = np.lexsort((units[rows], -unit_weights[rows], questions_of))
        rows = rows[order]
        counts = np.bincount(questions_of, minlength=len(questions))
        rank = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        kept = rows[rank < self._config.max_named_units]
        return Named(
            entity_questions=found.text_ids[entity_rows],
            entity_ids=entities[entity_rows],
            entity_weights=weights[entity_rows],
            unit_questions=found.text_ids[owners][kept],
            unit_ids=units[kept],
            unit_weights=unit_weights[kept],
            unit_spellings=forms[owners][kept],
            num_dropped=np.maximum(counts - self._config.max_named_units, 0),
        )

    def _units_of(self, entities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The units that each entity titles: (position in `entities`, unit)."""
        slots, owners = csr_expand(torch.from_numpy(self._unit_offsets), torch.from_numpy(entities))
        return owners.numpy(), self._titled_units[slots.numpy()]


def build_sentence_graph(kg: Kg, config: SentenceGraphConfig | None = None) -> SentenceGraph:
    """Cuts the KG's passages (or triples) into sentences and connects them."""
    config = config or SentenceGraphConfig()
    if kg.passages:
        table = kg_mention_table(kg, config.min_chars)
        unit_offsets, spans = table.sentence_offsets, table.sentence_spans
        title_ids = kg.passage_entities.astype(np.int64)
        mentions = (table.sentence_ids, table.entity_ids)
        units = [p.text for p in kg.passages]
    else:
        units = kg.triple_texts
        unit_offsets = np.arange(kg.num_triples + 1, dtype=np.int64)
        spans = np.array([(0, len(text)) for text in units], dtype=np.int64).reshape(-1, 2)
        title_ids = np.full(kg.num_triples, -1, dtype=np.int64)
        rows = np.arange(kg.num_triples, dtype=np.int64)
        mentions = (np.concatenate([rows, rows]), np.concatenate([kg.heads, kg.tails]).astype(np.int64))
    unit_ids = np.repeat(np.arange(len(unit_offsets) - 1), np.diff(unit_offsets))
    texts = [units[unit][start:end] for unit, (start, end) in zip(unit_ids.tolist(), spans.tolist(), strict=True)]
    sentences, entities = _distinct_pairs(*mentions, kg.num_entities)
    num_mentions = _units_that_mention(unit_ids[sentences], entities, kg.num_entities)
    connecting = (num_mentions <= config.hub_limit(len(unit_offsets) - 1)) & (num_mentions > 0)
    slots = _neighbour_slots(sentences, entities, connecting, unit_ids, title_ids)
    return SentenceGraph(
        texts, spans, unit_ids, unit_offsets, title_ids, num_mentions, *slots, QuestionNames(kg, title_ids, config)
    )


def _strongest(questions: np.ndarray, items: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Rows that hold the highest weight of each (question, item), sorted by them; ties go to the first row."""
    order = np.lexsort((np.arange(len(items)), -weights, items, questions))
    first = np.ones(len(order), dtype=bool)
    same = (questions[order][1:] == questions[order][:-1]) & (items[order][1:] == items[order][:-1])
    first[1:] = ~same
    return order[first]


def _distinct_pairs(sentences: np.ndarray, entities: np.ndarray, num_entities: int) -> tuple[np.ndarray, np.ndarray]:
    """(sentence, entity) once each, sorted."""
    keys = np.unique(sentences * np.int64(max(1, num_entities)) + entities)
    return keys // max(1, num_entities), keys % max(1, num_entities)


def _units_that_mention(units: np.ndarray, entities: np.ndarray, num_entities: int) -> np.ndarray:
    _, distinct = _distinct_pairs(units, entities, num_entities)
    return np.bincount(distinct, minlength=num_entities)


def _neighbour_slots(
    sentences: np.ndarray, entities: np.ndarray, connecting: np.ndarray, unit_ids: np.ndarray, title_ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(offsets, neighbours, entities, is title edge) of the CSR.

    A sentence stands in an entity's list of mentions, in its list of titles, or in both. It meets all of the first
    list (through both roles) and, where it mentions the entity, all of the second.
    """
    num_sentences, num_entities = len(unit_ids), len(connecting)
    titles = title_ids[unit_ids]
    titled = np.flatnonzero(titles >= 0)
    titled = titled[connecting[titles[titled]]]
    kept = connecting[entities]
    mention_rows, mention_entities = sentences[kept], entities[kept]
    mention_lists = _lists(mention_rows, mention_entities, num_entities)
    title_lists = _lists(titled, titles[titled], num_entities)
    parts = [
        _expand(mention_rows, mention_entities, mention_lists, unit_ids, 0),
        _expand(mention_rows, mention_entities, title_lists, unit_ids, 1),
        _expand(titled, titles[titled], mention_lists, unit_ids, 1),
    ]
    source, neighbours, entity_ids, kinds = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((neighbours, kinds, entity_ids, source))
    columns = np.stack([source, entity_ids, kinds, neighbours])[:, order]
    distinct = np.ones(len(order), dtype=bool)
    distinct[1:] = (columns[:, 1:] != columns[:, :-1]).any(axis=0)  # two passages of one title, each naming it
    source, entity_ids, kinds, neighbours = columns[:, distinct]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=num_sentences))]).astype(np.int64)
    return offsets, np.ascontiguousarray(neighbours), np.ascontiguousarray(entity_ids), kinds.astype(bool)


def _lists(sentences: np.ndarray, entities: np.ndarray, num_entities: int) -> tuple[np.ndarray, np.ndarray]:
    """CSR from entity to its sentences, ascending."""
    order = np.lexsort((sentences, entities))
    counts = np.bincount(entities, minlength=num_entities)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), sentences[order]


def _expand(
    sentences: np.ndarray,
    entities: np.ndarray,
    lists: tuple[np.ndarray, np.ndarray],
    unit_ids: np.ndarray,
    kind: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Each (sentence, entity) with every sentence of the entity's list that is in another unit, block by block."""
    offsets, members = lists
    degrees = offsets[entities + 1] - offsets[entities]
    block = np.cumsum(degrees) // _BLOCK_SLOTS
    parts: list[tuple[np.ndarray, ...]] = [(np.zeros(0, np.int32),) * 3]
    for rows in np.split(np.arange(len(entities)), np.flatnonzero(np.diff(block)) + 1):
        slots, owners = (t.numpy() for t in csr_expand(torch.from_numpy(offsets), torch.from_numpy(entities[rows])))
        source, neighbours = sentences[rows][owners], members[slots]
        keep = unit_ids[source] != unit_ids[neighbours]
        columns = (source[keep], neighbours[keep], entities[rows][owners][keep])
        parts.append(tuple(column.astype(np.int32) for column in columns))
    source, neighbours, entity_ids = (np.concatenate(column) for column in zip(*parts, strict=True))
    return source, neighbours, entity_ids, np.full(len(source), kind, dtype=np.int8)
