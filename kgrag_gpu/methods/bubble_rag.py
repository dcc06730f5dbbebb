"""BubbleRAG (bubble expansion over a black-box KG): the most informative connected subgraph that the question asks for.

Single-question form, with the paper's sections:
1. Anchor groups (4.2): parts of the question, each matched to nodes or edges, weighted by kind (anchors/group.py).
2. Schema relaxation (4.2): what a part matches strictly first; a group that meets no other is relaxed level by level.
3. Local graph (4.3): all within h hops of the anchors; h grows, up to `max_hops`, where groups do not meet.
4. Expansion (4.3): from every group, least-cost paths on the cosine cost field (expansion/bubble.py).
5. Collision (4.3): the cheapest nodes that most groups reach are traced back to candidate subgraphs.
6. Ranking (4.4): coverage, structure, evidence, diversity, sparse candidates dropped (ranking/subgraphs.py).
7. Growth (4.4): a model picks facts beside the best subgraphs that complete them (bubble_rag_model.py).
8. Context (4.5): the kept subgraphs' triples, and passages ranked by them.

All questions and groups of a batch are one table of labels. With a model the parts are those that it names (keywords,
latent concepts, their kinds and specific forms). Without one they are the names in the question, the runs of content
words between them. Over passages the base retriever's best passages are one more, described group.

Over passages, `coverage: tokens` ranks by connected coverage (cover.md) over what the bubbles found, `coverage: groups`
by the bubbles alone: a passage's cosine, how close the fronts come to it, and the best subgraph through it. Over bare
triples a model answers from the subgraphs' facts; without one the answer is the node of the best subgraph that lies
farthest from the entities asked about.

Deviations: one label per (question, group, node), as the collision needs (the paper's listing keeps one per node and
can miss meetings); the hop limit stands for the local graph's own breadth-first search; names that the question holds
are groups even where the model does not list them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from kgrag_gpu.anchors.group import GroupConfig, Part, QuestionParts
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.expansion.bubble import bubble_graph
from kgrag_gpu.index.fuse import Ranking, append_missing, top_ranking
from kgrag_gpu.methods.bubble_rag_debug import debug_trace
from kgrag_gpu.methods.bubble_rag_model import BubbleModel, GrowthConfig
from kgrag_gpu.methods.bubble_rag_search import Bubble, BubbleSearch
from kgrag_gpu.methods.cover import Cover, CoverConfig
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.ranking.subgraphs import SubgraphConfig
from kgrag_gpu.tensors.fixed_point import exact_dot
from kgrag_gpu.types import Answer, EntityRef, EvidencePath, EvidenceStep, Question, Retrieval


class BubbleRagConfig(ConfigModel):
    """Constants of BubbleRAG; the article's values."""

    use_model: bool = True  # off: no model names groups or grows subgraphs, even where an engine is open
    base: str = "hybrid"  # over passages: a described group, and what the bubbles do not reach follows in its order
    num_base: Annotated[int, Field(ge=0)] = 10  # passages of the base whose titles form that group
    num_hops: Annotated[int, Field(ge=1)] = 3  # h
    max_hops: Annotated[int, Field(ge=1)] = 5
    edge_weight: Annotated[float, Field(ge=0)] = 0.5  # of an edge's cost beside a node's
    edge_text: bool = True  # off: an edge is known by its relation's name alone
    cost_field: Literal["cosine", "uniform"] = "cosine"  # uniform: breadth-first search
    max_labels: Annotated[int, Field(ge=1)] | None = None  # of one question
    hub_limit: Annotated[int, Field(ge=1)] = 10_000  # edges of a node that fronts cross; a seeded sample of more
    num_meetings: Annotated[int, Field(ge=1)] = 10  # B
    coverage: Literal["tokens", "groups"] = "tokens"
    cosine_weight: float = 1.0  # groups: terms of a passage's score
    front_weight: float = 1.0
    subgraph_weight: float = 0.3
    num_paths: Annotated[int, Field(ge=0)] = 10  # subgraphs kept in the result
    groups: GroupConfig = GroupConfig()
    subgraphs: SubgraphConfig = SubgraphConfig()
    growth: GrowthConfig = GrowthConfig()
    debug: bool = False  # each question's field, fronts, meetings and score terms in its trace; the report draws them


@dataclass(frozen=True, slots=True)
class _Base:
    """What the base retriever says about a question."""

    ranking: Ranking
    part: Part | None


class BubbleRag:
    """The batched method."""

    Config: ClassVar[type[ConfigModel]] = BubbleRagConfig

    def __init__(self, config: BubbleRagConfig, resources: Resources):
        self._config = config
        self._resources = resources
        kg = resources.kg
        self._kg = kg
        with resources.stage("set up bubbles"):
            self._parts = QuestionParts(kg)
            graph = bubble_graph(resources.graph, config.hub_limit, resources.config.seed)
        nodes, edges = self._node_vectors(), self._edge_vectors()
        self._search = BubbleSearch(config, graph, nodes, edges, resources)
        self._model: BubbleModel | None = None
        if config.use_model and resources.engine is not None:
            self._model = BubbleModel(
                resources.engine, config.groups, config.growth, self._parts, graph, nodes, edges, resources
            )
        has_passages = bool(kg.passages)
        self._base = resources.base_retriever(config.base) if has_passages else None
        self._cover: Cover | None = None
        if has_passages and config.coverage == "tokens":
            found = resources.base_retriever("cover", CoverConfig())
            assert isinstance(found, Cover)
            self._cover = found

    def retrieve(self, questions: Sequence[Question]) -> list[Retrieval]:
        """Retrieves for a whole batch of questions; see the module's text."""
        resources = self._resources
        texts = [question.text for question in questions]
        base = self._ask_base(questions)
        with resources.stage("anchor groups"):
            parts = self._parts.read(texts, self._config.groups.specialise)
            if self._model is not None:
                parts = self._model.groups(questions, parts)
            parts = [[*own, *([b.part] if b.part else [])] for own, b in zip(parts, base, strict=True)]
        vectors = torch.from_numpy(np.array(resources.vectors(texts))).to(resources.device)
        bubbles = self._search.run(vectors, parts)
        if self._model is not None:
            with resources.stage("grow subgraphs"):
                self._model.grow(questions, vectors, bubbles)
        if not self._kg.passages:
            return [self._triples_retrieval(bubble) for bubble in bubbles]
        with resources.stage("rank passages"):
            scored = self._passage_rankings(vectors, bubbles)
        if self._cover is not None:
            with resources.stage("connected coverage"):
                scored = self._cover_rankings(questions, scored, base)
        num_output = resources.config.output_passages
        rankings = [append_missing(own, b.ranking, num_output) for own, b in zip(scored, base, strict=True)]
        return [self._passage_retrieval(bubble, ranking) for bubble, ranking in zip(bubbles, rankings, strict=True)]

    def _ask_base(self, questions: Sequence[Question]) -> list[_Base]:
        if self._base is None:
            return [_Base(Ranking(np.zeros(0, np.int64), np.zeros(0)), None) for _ in questions]
        out = []
        titles = self._kg.passage_entities
        for question, found in zip(questions, self._base.retrieve(questions), strict=True):
            rows = np.array(found.passage_ids, dtype=np.int64)
            entities = [int(titles[row]) for row in rows[: self._config.num_base] if titles[row] >= 0]
            part = Part(question.text, "context", question.text, tuple(dict.fromkeys(entities))) if entities else None
            out.append(_Base(Ranking(rows, np.array(found.passage_scores)), part))
        return out

    def _node_vectors(self) -> np.ndarray:
        """int16 [entities, dim]: the passage that an entity titles, else its name."""
        vectors = np.array(self._resources.entity_vectors)
        if self._kg.passages:
            titled = np.flatnonzero(self._kg.passage_entities >= 0)[::-1]  # the first passage of a title stays
            vectors[self._kg.passage_entities[titled]] = np.asarray(self._resources.unit_vectors)[titled]
        return vectors

    def _edge_vectors(self) -> np.ndarray:
        """int16 [triples, dim]: of the edges' texts, or of their relations' names."""
        if self._config.edge_text:
            return np.asarray(self._resources.triple_vectors)
        return np.asarray(self._resources.relation_vectors)[self._kg.relations]

    def _passage_rankings(self, vectors: Tensor, bubbles: Sequence[Bubble]) -> list[Ranking]:
        """Passages that a front reached or a subgraph holds, by cosine, closeness of the fronts, and best subgraph."""
        config, kg = self._config, self._kg
        cosines = exact_dot(vectors.cpu(), torch.from_numpy(np.array(self._resources.unit_vectors))).numpy()
        titles = kg.passage_entities
        rankings = []
        for row, bubble in enumerate(bubbles):
            closeness = np.where(titles >= 0, bubble.closeness[np.maximum(titles, 0)], 0.0)
            best = np.zeros(kg.num_passages)
            for candidate in bubble.candidates:
                held = self._passages_of(candidate.node_ids, candidate.edge_ids)
                best[held] = np.maximum(best[held], candidate.score)
            touched = (closeness > 0) | (best > 0)
            scores = config.cosine_weight * cosines[row] + config.front_weight * closeness
            scores = scores + config.subgraph_weight * best
            rankings.append(top_ranking(np.where(touched, scores.round(9), -np.inf), kg.num_passages))
        return rankings

    def _passages_of(self, nodes: np.ndarray, edges: np.ndarray) -> np.ndarray:
        kg = self._kg
        offsets = kg.triple_passage_offsets
        rows = [kg.triple_passages[offsets[edge] : offsets[edge + 1]] for edge in edges.tolist()]
        titled = self._title_passages
        rows += [titled[node] for node in nodes.tolist() if node in titled]
        return np.unique(np.concatenate(rows)).astype(np.int64) if rows else np.zeros(0, np.int64)

    @property
    def _title_passages(self) -> dict[int, np.ndarray]:
        found = self.__dict__.get("_titled")
        if found is None:
            rows: dict[int, list[int]] = {}
            for passage, entity in enumerate(self._kg.passage_entities.tolist()):
                if entity >= 0:
                    rows.setdefault(entity, []).append(passage)
            found = self.__dict__["_titled"] = {entity: np.array(own) for entity, own in rows.items()}
        return found

    def _cover_rankings(
        self, questions: Sequence[Question], scored: Sequence[Ranking], base: Sequence[_Base]
    ) -> list[Ranking]:
        """Connected coverage seeded by the bubbles' best passages and the base's."""
        assert self._cover is not None
        wanted = self._cover.num_seeds
        seeds = [
            np.union1d(own.rows[:wanted], b.ranking.rows[:wanted]).tolist() for own, b in zip(scored, base, strict=True)
        ]
        return self._cover.rank_found(questions, seeds)

    def _passage_retrieval(self, bubble: Bubble, ranking: Ranking) -> Retrieval:
        return Retrieval(
            passage_ids=tuple(ranking.rows.tolist()),
            passage_scores=tuple(ranking.scores.tolist()),
            evidence=self._evidence(bubble),
            anchors=self._refs(bubble.anchors),
            evidence_entities=self._refs(self._nodes(bubble)),
            trace=self._trace(bubble),
        )

    def _triples_retrieval(self, bubble: Bubble) -> Retrieval:
        answers = [self._kg.entity_names[e] for e in bubble.answers(self._search.ends)]
        far_end = Answer(answers[0], "graph", tuple(answers[:1])) if answers else Answer("", "none")
        return Retrieval(
            evidence=self._evidence(bubble),
            anchors=self._refs(bubble.anchors),
            evidence_entities=self._refs(self._nodes(bubble)),
            answer=far_end if self._model is None else None,
            trace=self._trace(bubble),
        )

    def _trace(self, bubble: Bubble) -> dict[str, Any]:
        trace = bubble.trace(self._kg.entity_names)
        return {**trace, "bubble": debug_trace(self._kg, bubble)} if self._config.debug else trace

    def _nodes(self, bubble: Bubble) -> list[int]:
        kept = bubble.candidates[: self._config.num_paths]
        return list(dict.fromkeys(node for candidate in kept for node in candidate.node_ids.tolist()))

    def _evidence(self, bubble: Bubble) -> tuple[EvidencePath, ...]:
        paths = []
        for candidate in bubble.candidates[: self._config.num_paths]:
            notes: dict[str, Any] = {
                "meeting": self._kg.entity_names[candidate.meeting],
                "groups": [part.text for part, has in zip(bubble.parts, candidate.covered, strict=False) if has],
                **{name: round(value, 4) for name, value in candidate.terms.items()},
            }
            steps = tuple(self._step(edge) for edge in candidate.edge_ids.tolist())
            paths.append(EvidencePath(steps, candidate.score, notes))
        return tuple(paths)

    def _step(self, edge: int) -> EvidenceStep:
        kg = self._kg
        head, relation, tail = int(kg.heads[edge]), int(kg.relations[edge]), int(kg.tails[edge])
        rows = kg.triple_passages[kg.triple_passage_offsets[edge] : kg.triple_passage_offsets[edge + 1]]
        names = (kg.entity_names[head], kg.relation_names[relation], kg.entity_names[tail])
        return EvidenceStep(*names, str(kg.triple_texts[edge]), tuple(int(row) for row in rows), edge)

    def _refs(self, entities: Sequence[int]) -> tuple[EntityRef, ...]:
        return self._kg.entity_refs(entities)
