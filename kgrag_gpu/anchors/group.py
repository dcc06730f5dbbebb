"""Weighted anchor groups of questions (BubbleRAG, Section 4.2): what a question must be matched by, and with what.

A part of a question is an entity, a relation or an attribute, or the whole of it as a base retriever sees it. Its group
is the set of nodes (entities) or edges that match it; each kind has a share of the weight, split among its groups, and
a question's weights sum to 1. Parts are read without a model: the names that the question holds, and the content words
between them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.kg.mention_index import MentionIndex
from kgrag_gpu.kg.store import Kg
from kgrag_gpu.words import fold, is_content

Kind = Literal["entity", "relation", "attribute", "context"]
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
NUM_LEVELS = 3


class GroupConfig(ConfigModel):
    """Weights of the kinds, and how far a part may be from what matches it."""

    entity_weight: Annotated[float, Field(ge=0)] = 0.5
    relation_weight: Annotated[float, Field(ge=0)] = 0.3
    attribute_weight: Annotated[float, Field(ge=0)] = 0.2
    context_weight: Annotated[float, Field(ge=0)] = 0.1  # of what a base retriever finds for the whole question
    max_entities: Annotated[int, Field(ge=1)] = 5  # nodes that a described, not named, entity is matched by
    max_edges: Annotated[int, Field(ge=1)] = 10  # edges that a relation or an attribute is matched by
    relax: bool = True  # off: the strict level alone
    taus: tuple[float, float, float] = (0.6, 0.45, 0.3)  # least cosine at each level of relaxation
    specialise: bool = True  # general words are made specific: by a model, or without one by the names beside them


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a question. `specific` is what is matched at level 0; `entities` are its nodes where they are named."""

    text: str
    kind: Kind
    specific: str
    entities: tuple[int, ...] = ()


class QuestionParts:
    """Reads parts from questions without a model."""

    def __init__(self, kg: Kg):
        spellings = [*kg.entity_names, *(alias for row in kg.entity_aliases for alias in row)]
        owners = [*range(kg.num_entities), *(e for e, row in enumerate(kg.entity_aliases) for _ in row)]
        self._owners = np.array(owners, dtype=np.int64)
        self._index = MentionIndex(spellings)
        self._names = kg.entity_names

    def read(self, texts: Sequence[str], specialise: bool) -> list[list[Part]]:
        """For each question one entity part a name (homonyms together), then one relation part a run of content words.

        A name in other case than the KG's counts only where it has two words or no name is written as in the KG: "it"
        or "home" would else be entities.
        """
        found = self._index.find(texts, case="any")
        named: list[dict[tuple[int, int], list[int]]] = [{} for _ in texts]
        columns = (found.text_ids.tolist(), self._owners[found.name_ids].tolist(), found.starts.tolist(),
                   found.ends.tolist())  # fmt: skip
        for text, entity, start, end in zip(*columns, strict=True):
            named[text].setdefault((start, end), []).append(entity)
        return [self._parts(text, spans, specialise) for text, spans in zip(texts, named, strict=True)]

    def entities(self, names: Sequence[str]) -> list[tuple[int, ...]]:
        """Rows of the entities that each text is a name of, whole, in any case; homonyms together, () where none."""
        found = self._index.find(names, case="any")
        rows: list[dict[int, None]] = [{} for _ in names]
        columns = (found.text_ids.tolist(), self._owners[found.name_ids].tolist(), found.starts.tolist(),
                   found.ends.tolist())  # fmt: skip
        for text, entity, start, end in zip(*columns, strict=True):
            if (start, end) == (0, len(names[text])):
                rows[text].setdefault(entity)
        return [tuple(row) for row in rows]

    def _parts(self, text: str, spans: dict[tuple[int, int], list[int]], specialise: bool) -> list[Part]:
        kept: dict[tuple[int, int], tuple[int, ...]] = {}
        for (start, end), entities in sorted(spans.items(), key=lambda item: (item[0][0] - item[0][1], item[0])):
            inside = any(start < other_end and other_start < end for other_start, other_end in kept)
            words = [fold(word) for word in _WORD.findall(text[start:end])]
            plain = text[start].islower() and len(words) < 2
            if not inside and not plain and any(is_content(word) for word in words):
                kept[start, end] = tuple(dict.fromkeys(entities))
        parts = [Part(text[s:e], "entity", text[s:e], entities) for (s, e), entities in sorted(kept.items())]
        names = " ".join(part.text for part in parts)
        for run in _content_runs(text, sorted(kept)):
            parts.append(Part(run, "relation", f"{run} {names}" if specialise and names else run))
        return parts


def _content_runs(text: str, taken: Sequence[tuple[int, int]]) -> list[str]:
    """Runs of content words between names and grammar words, in order, once each."""
    runs: list[list[str]] = [[]]
    last_end = 0
    for match in _WORD.finditer(text):
        covered = any(start < match.end() and match.start() < end for start, end in taken)
        crossed = any(last_end <= start < match.start() for start, _ in taken)
        if covered or crossed or not is_content(fold(match.group())):
            runs.append([])
        if not covered and is_content(fold(match.group())):
            runs[-1].append(match.group())
        last_end = match.end()
    return list(dict.fromkeys(" ".join(run) for run in runs if run))


@dataclass(frozen=True, eq=False)
class Groups:
    """Anchor groups of a batch, question by question, and their members.

    Attributes:
        question_ids: int64 [groups].
        numbers: int64 [groups], the group's place in its question.
        weights: float64 [groups], 1 in all for each question with groups.
        levels: int64 [groups], level of relaxation used, -1 where nothing matches at any level.
        parts: what each group stands for.
        member_groups: int64 [members], rows of the groups.
        entity_ids: int64 [members], -1 where the member is an edge.
        edge_ids: int64 [members], -1 where it is an entity.
        scores: float64 [members], cosine of an edge or of a described entity, 1 for a name.
    """

    question_ids: np.ndarray
    numbers: np.ndarray
    weights: np.ndarray
    levels: np.ndarray
    parts: list[Part]
    member_groups: np.ndarray
    entity_ids: np.ndarray
    edge_ids: np.ndarray
    scores: np.ndarray

    @property
    def most(self) -> int:
        """Groups of the question that has most."""
        return int(self.numbers.max(initial=-1)) + 1


def level_texts(part: Part, level: int) -> str:
    """What a part is matched by at a level: in full; its last word, modifiers dropped; as it stands, by meaning."""
    if level == 0:
        return part.specific
    return part.text.split()[-1] if level == 1 else part.text


def kind_weights(parts: Sequence[Sequence[Part]], matched: Sequence[Sequence[bool]], config: GroupConfig) -> np.ndarray:
    """Weights of all parts in order, float64; a part that nothing matches weighs 0, and each question sums to 1."""
    shares = {
        "entity": config.entity_weight,
        "relation": config.relation_weight,
        "attribute": config.attribute_weight,
        "context": config.context_weight,
    }
    weights: list[float] = []
    for row, has_match in zip(parts, matched, strict=True):
        counts = {kind: sum(p.kind == kind and m for p, m in zip(row, has_match, strict=True)) for kind in shares}
        raw = [shares[p.kind] / counts[p.kind] if m else 0.0 for p, m in zip(row, has_match, strict=True)]
        total = sum(raw)
        weights += [value / total if total else 0.0 for value in raw]
    return np.array(weights, dtype=np.float64)
