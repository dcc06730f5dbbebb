"""The baselines without a graph: BM25, dense vectors, and their reciprocal rank fusion.

Over a KG without passages they rank the triples' texts; the triples found are then the evidence.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.index.fuse import Ranking, append_missing, reciprocal_rank_fusion
from kgrag_gpu.kg.store import Kg
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.types import EvidencePath, EvidenceStep, Question, Retrieval


class PassageSearchConfig(ConfigModel):
    """Nothing of its own: the indexes are configured under `index`."""


class PassageSearch:
    """Base of the three: turns rankings of units into retrievals."""

    Config: ClassVar[type[ConfigModel]] = PassageSearchConfig

    def __init__(self, config: PassageSearchConfig, resources: Resources):
        self._resources = resources
        self._index_config = resources.config.index
        self._num_output = resources.config.output_passages

    def rank(self, questions: Sequence[Question]) -> list[Ranking]:
        """Rankings of `resources.unit_texts`, one per question."""
        raise TypeError(f"{type(self).__name__} ranks nothing by itself")

    def retrieve(self, questions: Sequence[Question]) -> list[Retrieval]:
        """One retrieval per question: the best passages, or the best triples as one-step evidence paths."""
        rankings = self.rank(questions)
        kg = self._resources.kg
        if kg.passages:
            return [Retrieval(tuple(r.rows.tolist()), tuple(r.scores.tolist())) for r in rankings]
        return [_triples_as_evidence(kg, ranking) for ranking in rankings]

    def _lexical(self, questions: Sequence[Question], k: int) -> list[Ranking]:
        index = self._resources.lexical
        with self._resources.stage("search BM25"):
            return index.search([q.text for q in questions], k)

    def _dense(self, questions: Sequence[Question], k: int) -> list[Ranking]:
        index = self._resources.dense
        vectors = self._resources.vectors([q.text for q in questions])
        with self._resources.stage("search dense"):
            return index.search(vectors, k)


class Bm25(PassageSearch):
    """Okapi BM25."""

    def rank(self, questions: Sequence[Question]) -> list[Ranking]:
        """By BM25 score."""
        return self._lexical(questions, self._num_output)


class Dense(PassageSearch):
    """Inner product of SBERT vectors."""

    def rank(self, questions: Sequence[Question]) -> list[Ranking]:
        """By cosine."""
        return self._dense(questions, self._num_output)


class Hybrid(PassageSearch):
    """Reciprocal rank fusion of BM25 and dense search (constant 60)."""

    def rank(self, questions: Sequence[Question]) -> list[Ranking]:
        """By fused rank of the best `index.candidates` of each index."""
        k = self._index_config.candidates
        pairs = zip(self._lexical(questions, k), self._dense(questions, k), strict=True)
        constant = self._index_config.rrf_constant
        return [reciprocal_rank_fusion(pair, self._num_output, constant) for pair in pairs]


def with_base_tail(rankings: Sequence[Ranking], base: Sequence[Retrieval], k: int) -> list[Ranking]:
    """Lets the passages that a method did not reach follow in the base retriever's order."""
    return [append_missing(own, _as_ranking(tail), k) for own, tail in zip(rankings, base, strict=True)]


def _as_ranking(retrieval: Retrieval) -> Ranking:
    return Ranking(np.array(retrieval.passage_ids, dtype=np.int64), np.array(retrieval.passage_scores))


def _triples_as_evidence(kg: Kg, ranking: Ranking) -> Retrieval:
    paths: list[EvidencePath] = []
    entities: dict[int, None] = {}
    for edge_id, score in zip(ranking.rows.tolist(), ranking.scores.tolist(), strict=True):
        head, relation, tail = int(kg.heads[edge_id]), int(kg.relations[edge_id]), int(kg.tails[edge_id])
        step = EvidenceStep(
            kg.entity_names[head], kg.relation_names[relation], kg.entity_names[tail], str(kg.triple_texts[edge_id]),
            edge_id=edge_id,
        )  # fmt: skip
        paths.append(EvidencePath((step,), score))
        entities.update({head: None, tail: None})
    refs = kg.entity_refs(entities)
    return Retrieval(evidence=tuple(paths), evidence_entities=refs)
