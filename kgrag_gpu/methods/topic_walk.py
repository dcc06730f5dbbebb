"""What Think-on-Graph and Plan-on-Graph share: topic entities, evidence, and what they refuse.

Both papers start from the data set's gold topic entities. Here that is said aloud: `anchors: gold` takes them from the
questions, `anchors: linked` (the default) finds them as AnchorRAG does. Every result's trace names which it was.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from kgrag_gpu.answer.memory import Steps
from kgrag_gpu.answer.sufficiency import ask_enough, think_aloud
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.index.fuse import Ranking, append_missing
from kgrag_gpu.kg.store import Kg
from kgrag_gpu.kg.topics import entity_rows, topic_rows
from kgrag_gpu.methods.anchor_rag_judges import JudgeConfig, ask_keywords
from kgrag_gpu.methods.anchor_rag_trace import best_facts, best_first
from kgrag_gpu.methods.anchor_rag_triples import TripleConfig, TripleView, TripleWorld
from kgrag_gpu.methods.passage_base import as_ranking
from kgrag_gpu.methods.path_answers import PathAnswerConfig
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.ranking.passage_fusion import evidence_ranking
from kgrag_gpu.types import Answer, Question, UserError


class TopicWalkConfig(ConfigModel):
    """Constants of a walk from topic entities."""

    anchors: Literal["linked", "gold"] = "linked"
    max_facts: Annotated[int, Field(ge=1)] = 30  # shown when the model is asked whether they are enough
    num_paths: Annotated[int, Field(ge=0)] = 10  # evidence paths kept in the result
    hub_limit: Annotated[int, Field(ge=1)] = 20  # neighbours along one relation; of more than these ...
    hub_sample: Annotated[int, Field(ge=1)] = 5  # ... a seeded sample of so many is looked at
    judge: JudgeConfig = JudgeConfig(ranking="cosine", verify=False, rank_agents=False)
    link: PathAnswerConfig = PathAnswerConfig()  # how `linked` topic entities are found


class TopicWalk:
    """A KG prepared for walks from topic entities."""

    def __init__(self, config: TopicWalkConfig, depth: int, resources: Resources):
        self._config = config
        self._resources = resources
        self._world = TripleWorld(resources, TripleConfig(paths=config.link), depth, verify=False)
        if config.anchors == "gold":
            self._rows = entity_rows(resources.kg)
        else:
            self._world.answerer  # noqa: B018 (built now, so that no batch pays for it)

    def open_view(self, questions: Sequence[Question]) -> TripleView:
        """The batch's topic entities and scores. A question without a topic entity in the KG has no agent."""
        texts = [question.text for question in questions]
        if self._config.anchors == "gold":
            found = [topic_rows(self._rows, question) for question in questions]
            owners = np.repeat(np.arange(len(found)), [len(rows) for rows in found])
            entities = np.array([row for rows in found for row in rows], dtype=np.int64)
            return self._world.view_from(texts, owners, entities)
        engine = self._resources.engine
        with self._resources.stage("keywords"):
            named = texts if engine is None else ask_keywords(engine, questions)
        return self._world.open_view(texts, named)

    def rankings(self, questions: Sequence[Question], steps: Steps) -> list[Ranking]:
        """Passages in the order of the evidence that stands in them, then by the base retriever; empty without any."""
        kg, k = self._resources.kg, self._resources.config.output_passages
        if not kg.passages:
            return [Ranking(np.zeros(0, np.int64), np.zeros(0)) for _ in questions]
        mentioned: list[list[tuple[int, float]]] = [[] for _ in questions]
        owners, scores, edges = steps.question_ids.tolist(), steps.scores.tolist(), steps.path_edges.tolist()
        for row in best_first(steps):
            for edge in (edge for edge in edges[row] if edge >= 0):
                passages = kg.triple_passages[kg.triple_passage_offsets[edge] : kg.triple_passage_offsets[edge + 1]]
                mentioned[owners[row]].extend((int(passage), scores[row]) for passage in passages)
        base = [as_ranking(found) for found in self._resources.base_retriever("hybrid").retrieve(questions)]
        graph = [evidence_ranking([p for p, _ in pairs], [score for _, score in pairs]) for pairs in mentioned]
        return [append_missing(found, rest, k) for found, rest in zip(graph, base, strict=True)]

    def answer_early(
        self, view: TripleView, steps: Steps, questions: Sequence[Question], answers: list[Answer | None]
    ) -> None:
        """Asks for every open question whether the facts found are enough, and fills in the answers where they are."""
        engine = self._resources.engine
        if engine is None:
            return
        rows = [row for row, answer in enumerate(answers) if answer is None]
        facts = best_facts(view, steps, self._config.max_facts)
        found = ask_enough(engine, [questions[r] for r in rows], [facts[r] for r in rows], "graph")
        for row, answer in zip(rows, found, strict=True):
            answers[row] = answer

    def answer_late(
        self, view: TripleView, steps: Steps, questions: Sequence[Question], answers: list[Answer | None]
    ) -> None:
        """The way out for open questions: a chain of thought over the facts; without a model the best path's end."""
        engine = self._resources.engine
        rows = [row for row, answer in enumerate(answers) if answer is None]
        if engine is None:
            names = view.best_ends(steps)
            for row in rows:
                answers[row] = Answer(names[row], "graph", (names[row],)) if names[row] else Answer("", "none")
            return
        facts = best_facts(view, steps, self._config.max_facts)
        with self._resources.stage("think aloud"):
            found = think_aloud(engine, [questions[r] for r in rows], [facts[r] for r in rows])
        for row, answer in zip(rows, found, strict=True):
            answers[row] = answer


def check_topic_walk(name: str, config: Any, kg: Kg, questions: Sequence[Question]) -> None:
    """Raises UserError for a KG without relation names, and for gold anchors that no question has."""
    if kg.kind == "mentions":
        raise UserError(
            f"method {name} ranks relation names, and a graph of mentions has none; give a KG of triples with --kg, "
            "build one with --set kg.extractor=llm, or use anchorrag, which reads the sentences"
        )
    if config.anchors == "gold" and not any(question.topic_entities for question in questions):
        raise UserError(
            f"method {name}: method.anchors=gold needs questions with topic entities, and none of these has one; "
            "use --set method.anchors=linked"
        )
