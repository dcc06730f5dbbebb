"""Triples as AnchorRAG walks them: directed relations, and the facts behind them.

`TripleWorld` is built once per process; `TripleView` is one batch of questions over it. Without a model whole relation
paths are scored instead of single relations (path_answers.py): beams over single relations lose their way at the third
hop. The single-relation walk stays for the model, which sees what it ranks, and as an ablation.
"""

import itertools
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Float64, Int64
from pydantic import Field
from torch import Tensor

from kgrag_gpu.answer.memory import Steps, first_of_best
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.expansion.neighbours import WalkTable
from kgrag_gpu.index.fuse import Ranking
from kgrag_gpu.index.lexical import LexicalIndex
from kgrag_gpu.kg.store import Kg
from kgrag_gpu.kg.text_column import take_texts
from kgrag_gpu.methods.path_answers import PathAnswer, PathAnswerConfig, PathAnswerer
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.ranking.question_units import pair_cosines
from kgrag_gpu.types import Answer, EvidencePath, EvidenceStep, Retrieval

_MAX_EVIDENCE = 20  # ways to answers that a result shows


class TripleConfig(ConfigModel):
    """The walk over triples."""

    whole_paths: bool = True  # without a model: score whole relation paths; off: walk relation by relation
    relation_width: Annotated[int, Field(ge=1)] = 3
    entity_width: Annotated[int, Field(ge=1)] = 3
    max_frontier: Annotated[int, Field(ge=1)] = 3
    max_shortfall: Annotated[float, Field(ge=0)] = 0.02  # verification of a whole path: above it, the answer is a guess
    paths: PathAnswerConfig = PathAnswerConfig()


class TripleWorld:
    """The KG's triples prepared for walking."""

    def __init__(self, resources: Resources, config: TripleConfig, depth: int, verify: bool):
        self.kg = resources.kg
        self._resources = resources
        self._config = config
        self._verify = verify
        self._depth = depth

    @cached_property
    def answerer(self) -> PathAnswerer:
        """Links questions to entities, and answers by whole relation paths."""
        return PathAnswerer(self._resources, self._config.paths.model_copy(update={"max_steps": self._depth}))

    @cached_property
    def walk(self) -> WalkTable:
        """Links are directed relations, members the entities at their other ends."""
        with self._resources.stage("load graph"):
            return WalkTable.from_graph(self._resources.graph)

    @cached_property
    def relation_lexical(self) -> LexicalIndex:
        """BM25 over relation texts."""
        return LexicalIndex(self.kg.relation_texts, self._resources.config.index)

    @cached_property
    def triple_lexical(self) -> LexicalIndex:
        """BM25 over triple texts."""
        return LexicalIndex(list(self.kg.triple_texts), self._resources.config.index)

    def open_view(self, texts: Sequence[str], named_texts: Sequence[str]) -> "TripleView":
        """Linked anchors and scores for one batch. `named_texts` are the questions with keywords behind them."""
        anchors = self.answerer.anchors(named_texts)
        return self.view_from(texts, anchors.question_ids, anchors.entity_ids)

    def view_from(self, texts: Sequence[str], question_ids: np.ndarray, entity_ids: np.ndarray) -> "TripleView":
        """Scores for one batch from given anchors: `entity_ids[i]` is one of question `question_ids[i]` (int64)."""
        return TripleView(self, self._resources, self._config, texts, question_ids, entity_ids)

    def answer_by_paths(self, texts: Sequence[str]) -> list[Retrieval]:
        """The LLM-free form: answers, evidence and anchors by whole relation paths."""
        anchors = self.answerer.anchors(texts)
        found = self.answerer.answer(texts, anchors)
        bounds = anchors.offsets.tolist()
        rows = [anchors.entity_ids[a:b].tolist() for a, b in itertools.pairwise(bounds)]
        return [self._retrieval(answer, entities) for answer, entities in zip(found, rows, strict=True)]

    def _retrieval(self, found: PathAnswer, anchors: list[int]) -> Retrieval:
        """A path that falls too far short of what the graph should hold is no evidence: its answer is a guess.

        A guess keeps its text, as a chain of thought's answer does, and is marked `none`: unanswered by the graph.
        """
        is_verified = found.chosen >= 0 and (not self._verify or found.shortfall <= self._config.max_shortfall)
        names = tuple(dict.fromkeys(self.kg.entity_names[entity] for entity in found.entities))
        answer = Answer(names[0], "graph" if is_verified else "none", names) if names else Answer("", "none")
        score = found.paths[found.chosen].score if found.chosen >= 0 else 0.0
        paths = tuple(
            EvidencePath(
                tuple(evidence_step(self.kg, edge) for edge in edges),
                score,
                {"support": support, "verified": is_verified},
            )
            for edges, support in zip(found.edges[:_MAX_EVIDENCE], found.support, strict=False)
        )
        entities = dict.fromkeys(
            [*found.entities, *(e for edges in found.edges for e in _ends(self.kg, edges)), *anchors]
        )
        return Retrieval(
            evidence=paths,
            anchors=self.kg.entity_refs(anchors),
            evidence_entities=self.kg.entity_refs(entities),
            answer=answer,
            trace={"shortfall": found.shortfall, "words": list(found.words), "num_paths": len(found.paths)},
        )


class TripleView:
    """Anchors and scores of one batch, for the walk relation by relation."""

    def __init__(
        self,
        world: TripleWorld,
        resources: Resources,
        config: TripleConfig,
        texts: Sequence[str],
        question_ids: np.ndarray,
        entity_ids: np.ndarray,
    ):
        self._world = world
        self._resources = resources
        self._kg = world.kg
        device = resources.device
        self.walk = world.walk
        self.widths = (config.relation_width, config.entity_width, config.max_frontier)
        self.num_questions = len(texts)
        self._vectors = torch.from_numpy(np.array(resources.vectors(texts))).to(device)
        self._relation_scores = torch.from_numpy(world.relation_lexical.scores(texts)).to(device)
        self._triple_scores = None
        if world.kg.num_triples <= resources.config.index.exact_limit:
            self._triple_scores = torch.from_numpy(world.triple_lexical.scores(texts)).to(device)
        self.agent_questions = torch.from_numpy(np.array(question_ids, dtype=np.int64)).to(device)
        self.anchors = torch.from_numpy(np.array(entity_ids, dtype=np.int64)).to(device)
        self.questions_of_agents = self.agent_questions

    def grow(self, frontier: Steps, owners: Tensor, link_ids: Tensor) -> tuple[Tensor, Steps]:
        """The directed relations at frontier entities; a path is worth the mean cosine of its relations."""
        texts = self.walk.link_texts[link_ids]
        parents = frontier.at(owners)
        cosines = pair_cosines(self._vectors, self._resources.relation_vectors, parents.question_ids, texts // 2)
        terms = parents.terms + cosines
        return owners, parents.with_columns(
            parents=parents.rows,
            from_ids=parents.entity_ids,
            link_ids=link_ids,
            text_ids=texts,
            path_texts=parents.path_texts.scatter(1, parents.lengths[:, None], texts[:, None]),
            lengths=parents.lengths + 1,
            rounds=parents.rounds + 1,
            terms=terms,
            scores=terms / (parents.lengths + 1).double(),
        )

    def relation_columns(self, steps: Steps) -> list[Tensor]:
        """Cosine and BM25 of the relation's text with the question."""
        relations = steps.text_ids // 2
        cosines = pair_cosines(self._vectors, self._resources.relation_vectors, steps.question_ids, relations)
        return [cosines, self._relation_scores[steps.question_ids, relations]]

    def entity_columns(self, steps: Steps) -> list[Tensor]:
        """Cosine of the fact's text with the question, and its BM25 score unless the KG is too large to index."""
        if self._triple_scores is None:
            return [self.cosine(steps)]
        return [self.cosine(steps), self._triple_scores[steps.question_ids, _last(steps.path_edges, steps)]]

    def frontier_scores(self, steps: Steps) -> Float64[Tensor, " steps"]:
        """The worth of the path."""
        return steps.scores

    def cosine(self, steps: Steps) -> Float64[Tensor, " steps"]:
        """Cosine of each step's fact with the question. Only facts that are looked at are encoded."""
        edges, rows = torch.unique(_last(steps.path_edges, steps), return_inverse=True)
        texts = [self._kg.triple_texts[int(edge)] for edge in edges.tolist()]
        vectors = np.array(self._resources.vectors(texts)) if texts else np.zeros((0, self._vectors.shape[1]), np.int16)
        return pair_cosines(self._vectors, vectors, steps.question_ids, rows)

    def relation_texts(self, steps: Steps) -> list[str]:
        """Each relation with its place: "? | relation | entity" is one seen from its tail."""
        names = self.entity_names(steps.from_ids)
        return [
            f"? | {self._kg.relation_texts[text // 2]} | {name}" if text % 2 else
            f"{name} | {self._kg.relation_texts[text // 2]} | ?"
            for text, name in zip(steps.text_ids.tolist(), names, strict=True)
        ]  # fmt: skip

    def fact_texts(self, steps: Steps) -> list[str]:
        """The new triple of each path in words."""
        return [self._kg.triple_texts[int(edge)] for edge in _last(steps.path_edges, steps).tolist()]

    def walked_texts(self, steps: Steps) -> list[str]:
        """Whole paths in words."""
        return self._joined_facts(steps, 0)

    def path_texts(self, steps: Steps) -> list[str]:
        """What was walked before each path's new step, in words; empty for first steps."""
        return self._joined_facts(steps, 1)

    def entity_names(self, entity_ids: Int64[Tensor, " rows"]) -> list[str]:
        """Names of entities."""
        return take_texts(self._kg.entity_names, entity_ids.cpu().numpy())

    def evidence_path(self, steps: Steps, row: int) -> EvidencePath:
        """One path for people."""
        edges = [edge for edge in steps.path_edges[row].tolist() if edge >= 0]
        inverse = [bool(text % 2) for text in steps.path_texts[row].tolist()]
        found = tuple(evidence_step(self._kg, edge, back) for edge, back in zip(edges, inverse, strict=False))
        starter = self._kg.entity_names[int(self.anchors[int(steps.agent_ids[row])])]
        return EvidencePath(found, float(steps.scores[row]), {"agent": starter, "round": int(steps.rounds[row])})

    def best_ends(self, steps: Steps) -> list[str]:
        """The entity at the end of each question's best path, "" where nothing was found."""
        names = [""] * self.num_questions
        best = steps.at(first_of_best(steps.question_ids, steps.scores))
        for question, name in zip(best.question_ids.tolist(), self.entity_names(best.entity_ids), strict=True):
            names[question] = name
        return names

    def joined(self, steps: Steps) -> Steps:
        """Nothing: over triples agents meet in the supervisor only."""
        return steps.at(steps.rows < -1)

    def book(self, steps: Steps) -> None:
        """Nothing: there are no passages to rank."""

    def rankings(self) -> list[Ranking]:
        """No passages."""
        return [Ranking(np.zeros(0, np.int64), np.zeros(0)) for _ in range(self.num_questions)]

    def _joined_facts(self, steps: Steps, num_left_out: int) -> list[str]:
        rows = zip(steps.path_edges.tolist(), steps.lengths.tolist(), strict=True)
        return ["; ".join(self._kg.triple_texts[int(edge)] for edge in path[: n - num_left_out]) for path, n in rows]


def evidence_step(kg: Kg, edge: int, is_inverse: bool = False) -> EvidenceStep:
    """A triple in words."""
    head, relation, tail = int(kg.heads[edge]), int(kg.relations[edge]), int(kg.tails[edge])
    passages = kg.triple_passages[kg.triple_passage_offsets[edge] : kg.triple_passage_offsets[edge + 1]]
    return EvidenceStep(
        kg.entity_names[head], kg.relation_names[relation], kg.entity_names[tail], kg.triple_texts[edge],
        tuple(passages.tolist()), edge, is_inverse,
    )  # fmt: skip


def _ends(kg: Kg, edges: Sequence[int]) -> list[int]:
    return [int(end) for edge in edges for end in (kg.heads[edge], kg.tails[edge])]


def _last(path_column: Int64[Tensor, "steps depth"], steps: Steps) -> Int64[Tensor, " steps"]:
    """The entry of each path's last step."""
    return path_column.gather(1, (steps.lengths - 1)[:, None])[:, 0]
