"""Questions made unanswerable: the triples that lead to their gold answers are taken out of a graph."""

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kgrag_gpu.kg.store import Kg
from kgrag_gpu.types import GoldAnswer, Question


@dataclass(frozen=True, slots=True)
class Removal:
    """Which questions were made unanswerable, and by which triples.

    `num_unreachable` counts drawn questions without a gold answer in the graph: they are left out.
    """

    question_ids: tuple[int, ...]
    edge_ids: tuple[int, ...]
    num_unreachable: int


def remove_answers(kg: Kg, questions: Sequence[Question], share: float, seed: int) -> Removal:
    """Draw a share of the questions and take every triple at any of their gold answers.

    An answer that many other questions need (a gender, a country) would take those with it, so only its triples within
    reach of the question's topic entities go, at most `num_hops` triples (3 where unknown) away. Without topic entities
    all of the answer's triples go.
    """
    rng = random.Random(seed)
    drawn = sorted(rng.sample(range(len(questions)), round(share * len(questions))))
    graph = _Graph(kg)
    chosen, removed, unreachable = [], set(), 0
    for i in drawn:
        edges = graph.answer_edges(questions[i])
        if edges:
            chosen.append(i)
            removed |= edges
        else:
            unreachable += 1
    return Removal(tuple(chosen), tuple(sorted(removed)), unreachable)


class _Graph:
    """Triples of each entity, and entities of names and ids."""

    def __init__(self, kg: Kg):
        self._ends = np.stack([kg.heads, kg.tails], axis=1).astype(np.int64)
        owners = self._ends.ravel()
        order = np.argsort(owners, kind="stable")
        self._edges = order // 2
        self._offsets = np.searchsorted(owners[order], np.arange(kg.num_entities + 1))
        self._rows: dict[str, list[int]] = defaultdict(list)
        for row, (name, identity) in enumerate(zip(kg.entity_names, kg.entity_external_ids, strict=True)):
            self._rows[name].append(row)
            if identity:
                self._rows[identity].append(row)

    def answer_edges(self, question: Question) -> set[int]:
        """The triples to take so that no gold answer is reached from the topic entities."""
        answers = {row for answer in question.golden_answers for row in self._answer_rows(answer)}
        topics = {row for ref in question.topic_entities for row in self._named(ref.external_id, ref.name)}
        if not topics:
            return {edge for row in answers for edge in self._of(row)}
        near = self._within(topics, max(0, (question.num_hops or 3) - 1))
        return {
            edge for row in answers for edge in self._of(row) if near.intersection(self._ends[edge].tolist()) - {row}
        } | {edge for row in answers & topics for edge in self._of(row)}

    def _within(self, starts: set[int], num_hops: int) -> set[int]:
        reached, frontier = set(starts), set(starts)
        for _ in range(num_hops):
            ahead = {int(end) for row in frontier for edge in self._of(row) for end in self._ends[edge]}
            frontier = ahead - reached
            reached |= frontier
        return reached

    def _of(self, row: int) -> list[int]:
        return self._edges[self._offsets[row] : self._offsets[row + 1]].tolist()

    def _answer_rows(self, answer: GoldAnswer) -> list[int]:
        return [row for name in answer.spellings for row in self._named(answer.external_id, name)]

    def _named(self, identity: str, name: str) -> list[int]:
        return self._rows.get(identity, []) if identity and identity in self._rows else self._rows.get(name, [])
