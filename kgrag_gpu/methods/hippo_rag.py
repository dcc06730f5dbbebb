"""HippoRAG 2 (Gutierrez et al. 2025, section 3): PageRank from the facts nearest to the question.

Single-question form:
1. The facts nearest to the question, by SBERT (query to triple).
2. Recognition memory: with a model open, it keeps those of them that help, by number. None kept: dense retrieval.
3. Restart at the kept facts' entities, each by the mean cosine of its facts over the number of its passages, and at
   every passage by its cosine, scaled to 0..1 and times `passage_weight`.
4. Walk with damping .5 over triples, passages and synonyms; passages rank by the mass that reaches them.

The whole batch is one call of the model and one walk.

Deviations: over the mentions graph a fact is a sentence (gear_facts.py). Synonyms are sought among the `max_synonyms`
nearest names. A reply that cannot be read keeps all facts.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field

from kernels.ppr import ppr, ppr_graph
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.expansion.pagerank import fact_walk_graph
from kgrag_gpu.index.dense import DenseIndex
from kgrag_gpu.index.fuse import Ranking, top_ranking
from kgrag_gpu.methods.gear_facts import FactIndex
from kgrag_gpu.methods.passage_base import as_ranking
from kgrag_gpu.methods.passage_search import with_base_tail
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.prompts.registry import make_request, sampling_for
from kgrag_gpu.tensors.fixed_point import exact_dot
from kgrag_gpu.types import Question, Retrieval


class HippoRagConfig(ConfigModel):
    """The paper's constants."""

    num_facts: Annotated[int, Field(ge=1)] = 5  # shown to the filter
    filter_facts: bool = True  # where a model is open
    damping: Annotated[float, Field(gt=0, lt=1)] = 0.5
    tolerance: Annotated[float, Field(gt=0)] = 1e-6
    passage_weight: Annotated[float, Field(ge=0)] = 0.05
    min_synonym: Annotated[float, Field(ge=0, le=1)] = 0.8  # cosine of two names that count as one
    max_synonyms: Annotated[int, Field(ge=1)] = 50  # of one name
    max_fact_chars: Annotated[int, Field(ge=20)] = 320


class HippoRag:
    """The batched method."""

    Config: ClassVar[type[ConfigModel]] = HippoRagConfig

    def __init__(self, config: HippoRagConfig, resources: Resources):
        self._config = config
        self._resources = resources
        self._engine = resources.engine if config.filter_facts else None
        self._facts = FactIndex(resources, config.max_fact_chars)
        self._dense = resources.base_retriever("dense")
        names = resources.entity_vectors
        with resources.stage("build PageRank graph"):
            graph = fact_walk_graph(resources.kg, synonym_pairs(names, config, resources))
            edges = (graph.offsets, graph.neighbours, graph.weights)
            self._walk = ppr_graph(*(tensor.to(resources.device) for tensor in edges), symmetric=True)
            self._num_nodes = graph.num_nodes
            self._num_passages_of = _num_passages_of(self._facts, resources.kg.num_entities)

    def retrieve(self, questions: Sequence[Question]) -> list[Retrieval]:
        """Ranks passages by the mass that reaches them; see the module's text."""
        resources, num_passages = self._resources, self._resources.kg.num_passages
        base = self._dense.retrieve(questions)
        vectors = np.array(resources.vectors([question.text for question in questions]))
        found = self._facts.search(vectors, self._config.num_facts)
        kept = self._filtered(questions, found)
        with resources.stage("PageRank"):
            cosines = exact_dot(torch.from_numpy(vectors), torch.from_numpy(np.array(resources.unit_vectors))).numpy()
            restart = torch.from_numpy(np.stack([self._restart(*row) for row in zip(kept, cosines, strict=True)]))
            mass = ppr(self._walk, restart.float().to(resources.device), self._config.damping, self._config.tolerance)
            # Rounded far below any real difference, so that the last bits of a sum never decide a rank.
            scores = mass[:, :num_passages].cpu().double().clamp_min(1e-12).log().numpy().round(6)
        k = resources.config.output_passages
        walked = [top_ranking(row, k) for row in scores]
        ranked = [
            own if len(facts.rows) else as_ranking(dense) for own, facts, dense in zip(walked, kept, base, strict=True)
        ]
        rows = zip(with_base_tail(ranked, base, k), found, kept, strict=True)
        return [self._retrieval(*row) for row in rows]

    def _filtered(self, questions: Sequence[Question], found: Sequence[Ranking]) -> list[Ranking]:
        """Step 2: the facts that the model keeps, all questions in one batch; all of them without a model."""
        engine = self._engine
        if engine is None:
            return list(found)
        requests = [
            make_request(
                "filter_facts", question.id, len(facts.rows), question=question.text,
                options=[self._facts.texts[fact] for fact in facts.rows.tolist()],
            )
            for question, facts in zip(questions, found, strict=True)
        ]  # fmt: skip
        with self._resources.stage("filter facts"):
            replies = engine.generate(requests, sampling_for("filter_facts", engine.sampling))
        kept = []
        for reply, facts in zip(replies, found, strict=True):
            numbers = getattr(reply.parsed, "keep", ()) if reply.ok else range(1, len(facts.rows) + 1)
            rows = np.array(sorted(number - 1 for number in numbers), dtype=np.int64)
            kept.append(Ranking(facts.rows[rows], facts.scores[rows]))
        return kept

    def _restart(self, facts: Ranking, cosines: np.ndarray) -> np.ndarray:
        """Step 3: where one question's walk restarts, float64 [nodes], in all 1 (0 without facts)."""
        num_passages = len(cosines)
        restart = np.zeros(self._num_nodes)
        sums, counts = np.zeros(self._num_nodes), np.zeros(self._num_nodes)
        for fact, score in zip(facts.rows.tolist(), facts.scores.tolist(), strict=True):
            nodes = np.array(self._facts.entities_of_fact(fact), dtype=np.int64) + num_passages
            sums[nodes] += max(score, 0.0)
            counts[nodes] += 1
        if not counts.any():
            return restart
        restart = sums / np.maximum(1, counts)
        restart[num_passages:] /= self._num_passages_of
        span = max(float(cosines.max() - cosines.min()), 1e-12)
        restart[:num_passages] = self._config.passage_weight * (cosines - cosines.min()) / span
        return restart / max(float(restart.sum()), 1e-300)

    def _retrieval(self, ranking: Ranking, found: Ranking, kept: Ranking) -> Retrieval:
        kg = self._resources.kg
        entities = dict.fromkeys(e for fact in kept.rows.tolist() for e in self._facts.entities_of_fact(fact))
        return Retrieval(
            passage_ids=tuple(ranking.rows.tolist()),
            passage_scores=tuple(ranking.scores.tolist()),
            evidence_entities=kg.entity_refs(entities),
            trace={
                "facts": [self._facts.texts[fact] for fact in found.rows.tolist()],
                "kept": [self._facts.texts[fact] for fact in kept.rows.tolist()],
            },
        )


def synonym_pairs(
    names: np.ndarray, config: HippoRagConfig, resources: Resources
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(entity, entity, cosine) of names at least `min_synonym` alike.

    Args:
        names: int16 [entities, dim], vectors of the names.
        config: the threshold, and how many of a name are looked at.
        resources: for the index's configuration.
    """
    if not len(names):
        none = np.zeros(0, dtype=np.int64)
        return none, none, np.zeros(0)
    found = DenseIndex(names, resources.config.index).search(names, config.max_synonyms + 1)
    left = np.repeat(np.arange(len(found)), [len(one.rows) for one in found])
    right, cosines = np.concatenate([one.rows for one in found]), np.concatenate([one.scores for one in found])
    kept = (cosines >= config.min_synonym) & (left != right)
    return left[kept], right[kept], cosines[kept]


def _num_passages_of(facts: FactIndex, num_entities: int) -> np.ndarray:
    """In how many passages' facts each entity stands, at least 1."""
    offsets, members = facts.graph.fact_offsets.cpu().numpy(), facts.graph.facts.cpu().numpy()
    owners = np.repeat(np.arange(num_entities), np.diff(offsets))
    counts = np.diff(facts.passage_offsets)[members]
    starts = np.repeat(facts.passage_offsets[members], counts)
    within = np.arange(len(starts)) - np.repeat(np.cumsum(counts) - counts, counts)
    pairs = np.unique(np.stack([np.repeat(owners, counts), facts.passages[starts + within]], axis=1), axis=0)
    return np.maximum(1, np.bincount(pairs[:, 0], minlength=num_entities))
