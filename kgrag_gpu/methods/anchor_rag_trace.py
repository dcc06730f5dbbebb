"""What AnchorRAG shows of a walk: evidence paths, anchors, and what each round looked at and kept."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kgrag_gpu.answer.memory import Steps
from kgrag_gpu.index.fuse import Ranking
from kgrag_gpu.kg.store import Kg
from kgrag_gpu.types import Answer, EntityRef, EvidencePath, Retrieval


class Trace:
    """Counts of each round, question by question."""

    def __init__(self, view: Any, kg: Kg):
        self._view = view
        self._kg = kg
        self._rounds: list[dict[str, list[int]]] = []

    def note(self, frontier: Steps, ranked: Steps, kept: Steps, dropped: Steps) -> None:
        """Adds a round: entities expanded, facts ranked, facts kept as evidence, neighbours beyond the hub limit."""
        size = self._view.num_questions
        rows = {"expanded": frontier, "ranked": ranked, "kept": kept, "hub_dropped": dropped}
        counted = {name: torch.bincount(steps.question_ids, minlength=size) for name, steps in rows.items()}
        self._rounds.append({name: counts.tolist() for name, counts in counted.items()})

    def retrievals(
        self,
        steps: Steps,
        rankings: Sequence[Ranking],
        answers: Sequence[Answer | None],
        num_paths: int,
        further: Sequence[Mapping[str, Any]] | None = None,
    ) -> list[Retrieval]:
        """One retrieval a question: ranked passages, best evidence paths, anchors, entities, trace.

        Args:
            steps: the whole memory.
            rankings: of passages (empty where the KG has none).
            answers: those that the method gave itself.
            num_paths: evidence paths for each question, distinct in what they read.
            further: what else the trace of each question says.
        """
        anchors: list[list[int]] = [[] for _ in rankings]
        for question, entity in zip(self._view.agent_questions.tolist(), self._view.anchors.tolist(), strict=True):
            anchors[question].append(entity)
        paths = self._best_paths(steps, num_paths)
        entities = _entities(steps, anchors)
        return [
            Retrieval(
                passage_ids=tuple(ranking.rows.tolist()),
                passage_scores=tuple(ranking.scores.tolist()),
                evidence=tuple(paths[question]),
                anchors=self._refs(anchors[question]),
                evidence_entities=self._refs(entities[question]),
                answer=answers[question],
                trace={**(further[question] if further else {}), "rounds": self._rounds_of(question)},
            )
            for question, ranking in enumerate(rankings)
        ]

    def _rounds_of(self, question: int) -> list[dict[str, int]]:
        """The rounds in which the question took part: the batch may go on without it."""
        rounds = [{name: counts[question] for name, counts in row.items()} for row in self._rounds]
        return [counts for counts in rounds if counts["expanded"]]

    def _best_paths(self, steps: Steps, num_paths: int) -> list[list[EvidencePath]]:
        """The paths worth most of each question, once each by what they read; ties go to the older path."""
        rows = best_first(steps)
        paths: list[list[EvidencePath]] = [[] for _ in range(self._view.num_questions)]
        seen: set[tuple[int, ...]] = set()
        questions, texts = steps.question_ids.tolist(), steps.path_texts.tolist()
        for row in rows:
            key = (questions[row], *sorted(texts[row]))
            if len(paths[questions[row]]) < num_paths and key not in seen:
                seen.add(key)
                paths[questions[row]].append(self._view.evidence_path(steps, row))
        return paths

    def _refs(self, entities: Sequence[int]) -> tuple[EntityRef, ...]:
        return self._kg.entity_refs(entities)


def best_first(steps: Steps) -> list[int]:
    """Rows of steps by score, falling; ties by row."""
    return torch.argsort(steps.scores, descending=True, stable=True).tolist()


def _entities(steps: Steps, anchors: Sequence[Sequence[int]]) -> list[list[int]]:
    """Every entity of the evidence of each question: anchors first, then as the best paths reached them."""
    found = [dict.fromkeys(row) for row in anchors]
    order = best_first(steps)
    questions, reached = steps.question_ids.tolist(), steps.entity_ids.tolist()
    for row in order:
        found[questions[row]].setdefault(reached[row])
    return [list(row) for row in found]


def best_facts(view: Any, steps: Steps, limit: int) -> list[list[str]]:
    """The facts of each question's memory in words, once each, those of the best paths first, at most `limit`."""
    order = torch.argsort(steps.scores, descending=True, stable=True)
    ordered = steps.at(order)
    found: list[dict[str, None]] = [{} for _ in range(view.num_questions)]
    for question, text in zip(ordered.question_ids.tolist(), view.fact_texts(ordered), strict=True):
        if len(found[question]) < limit:
            found[question].setdefault(text)
    return [list(facts) for facts in found]
