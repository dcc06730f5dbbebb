"""`cover`: passages ranked by connected coverage, our own method (cover.md, step by step).

Single-question form:
1. Encode the question once: its vector and the states of its word pieces.
2. Seeds: the dense top 100 and the passages whose titles the question names (all passages in the exact form).
3. Score every sentence of a seed, every pair of linked sentences that touches one, and grow the best pairs by a third
   and a fourth sentence (ranking/coverage_sets.py). In a corpus of more than `num_near` passages, neighbours join only
   from that many of the best dense ranks.
4. A passage's score is the most that it earns in any set; what no set touched follows in dense order.
5. The winning sets are the evidence paths; each says which words of the question its sentences covered.

Over a KG of bare triples a triple is a passage of one sentence. No language model takes part, with or without one.

Against its first description (`cover-article`), chosen on one half of the questions and measured on the other: a
sentence also covers `unit_share` of what the rest of its passage covers; sets grow to four sentences, all by step 6's
rule; hubs and entities that the question names cost more, and a sentence's own coverage counts less; 100 dense seeds,
not 50; token states are brought back to unit norm after the projection to 128 directions.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.index.dense import DenseIndex
from kgrag_gpu.index.fuse import Ranking, append_missing
from kgrag_gpu.index.sentence_graph import SentenceGraphConfig, build_sentence_graph
from kgrag_gpu.index.tokens import TokenIndex, TokensConfig, build_token_index
from kgrag_gpu.kg.store import Kg
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.ranking.coverage import ConnectedCoverage, CoverageConfig, CoverageResult
from kgrag_gpu.ranking.coverage_paths import JOIN, CoveredSet
from kgrag_gpu.types import EntityRef, EvidencePath, EvidenceStep, Passage, Question, Retrieval


class CoverConfig(ConfigModel):
    """Seeds, storage, and the constants of connected coverage."""

    exact: bool = False  # every passage is a seed
    num_dense: Annotated[int, Field(ge=0)] = 100  # pruned form: seeds from dense search
    num_near: Annotated[int, Field(ge=0)] = 4_000  # pruned form: dense ranks from which neighbours may join
    index: TokensConfig = TokensConfig()
    graph: SentenceGraphConfig = SentenceGraphConfig()
    coverage: CoverageConfig = CoverageConfig()


class Cover:
    """Connected coverage as a method of its own and as a base retriever."""

    Config: ClassVar[type[ConfigModel]] = CoverConfig

    def __init__(self, config: CoverConfig, resources: Resources, tokens: TokenIndex | None = None):
        """`tokens` is the token index of `resources.unit_texts` where the caller has it already."""
        self._config = config
        self._resources = resources
        self._kg = resources.kg
        texts = resources.unit_texts
        encoder = resources.encoder
        with resources.stage("encode tokens"):
            tokens = tokens or build_token_index(texts, encoder, resources.cache_dir, config.index)
        assert tokens is not None  # one worker builds all shards
        with resources.stage("build sentence graph"):
            graph = build_sentence_graph(self._kg, config.graph)
            title_chars = np.array([len(p.title) for p in self._kg.passages] or [0] * len(texts), dtype=np.int64)
            self.coverage = ConnectedCoverage(tokens, graph, title_chars, config.coverage, resources.device)
        with resources.stage("build dense index"):
            self._dense = DenseIndex(tokens.vectors, resources.config.index)

    @property
    def num_seeds(self) -> int:
        """Passages that the pruned form starts from."""
        return self._config.num_dense

    @property
    def passages(self) -> list[Passage]:
        """The passages ranked; empty over a KG of bare triples."""
        return self._kg.passages

    def retrieve(self, questions: Sequence[Question]) -> list[Retrieval]:
        """Ranks passages (or triples) for a batch of questions."""
        config, resources = self._config, self._resources
        num_output = resources.config.output_passages
        texts = [question.text for question in questions]
        with resources.stage("encode questions"):
            states = resources.encoder.token_states(texts)
        with resources.stage("search dense"):
            is_large = not config.exact and len(resources.unit_texts) > config.num_near
            wanted = max(num_output, config.num_dense, config.num_near if is_large else 0)
            dense = self._dense.search(states.vectors, wanted)
        with resources.stage("connected coverage"):
            seeds = None if config.exact else [ranking.rows[: config.num_dense] for ranking in dense]
            near = [ranking.rows[: config.num_near] for ranking in dense] if is_large else None
            results = self.coverage.rank(texts, states, seeds, num_output, near)
        return [self._retrieval(result, tail, num_output) for result, tail in zip(results, dense, strict=True)]

    def rank_found(self, questions: Sequence[Question], found: Sequence[Sequence[int]]) -> list[Ranking]:
        """Ranks what another method found: connected coverage seeded by its passages instead of by dense search.

        Args:
            questions: a batch.
            found: passage rows for each question, in any order.

        Returns:
            For each question the ranking of `found`, of the named passages, and of their neighbours.
        """
        texts = [question.text for question in questions]
        seeds = [np.array(sorted(set(rows)), dtype=np.int64) for rows in found]
        results = self.coverage.rank(texts, self._resources.encoder.token_states(texts), seeds)
        return [result.ranking for result in results]

    def _retrieval(self, result: CoverageResult, dense: Ranking, num_output: int) -> Retrieval:
        kg, graph = self._kg, self.coverage.graph
        evidence = tuple(evidence_path(kg, graph.unit_ids, graph.texts, found) for found in result.sets)
        ranking = append_missing(result.ranking, dense, num_output)
        entities = dict.fromkeys(e for path in result.sets for e in _entities(kg, graph.unit_ids, path))
        named = dict.fromkeys(int(graph.title_ids[unit]) for unit in result.named)
        return Retrieval(
            passage_ids=tuple(ranking.rows.tolist()) if kg.passages else (),
            passage_scores=tuple(ranking.scores.tolist()) if kg.passages else (),
            evidence=evidence,
            anchors=_refs(kg, named),
            evidence_entities=_refs(kg, entities),
            trace={"num_scored": len(result.ranking.rows), "num_named_dropped": result.num_named_dropped},
        )


def evidence_path(kg: Kg, unit_ids: np.ndarray, sentences: Sequence[str], found: CoveredSet) -> EvidencePath:
    """A winning set in words: a step for each sentence, with the entity that links it to the sentence before."""
    steps = []
    for place, sentence in enumerate(found.sentence_ids):
        unit = int(unit_ids[sentence])
        if not kg.passages:
            head, relation, tail = int(kg.heads[unit]), int(kg.relations[unit]), int(kg.tails[unit])
            names = (kg.entity_names[head], kg.relation_names[relation], kg.entity_names[tail])
            steps.append(EvidenceStep(*names, text=sentences[sentence], edge_id=unit))
            continue
        # The first sentence is tied to the second by the second's link; every later one brings its own.
        link = found.link_entities[max(place - 1, 0)] if found.link_entities else JOIN
        if not found.link_entities:
            relation, tail = "stands alone", ""
        elif link == JOIN:
            relation, tail = "is named by the question", ""
        else:
            relation, tail = "is about" if kg.passage_entities[unit] == link else "mentions", kg.entity_names[link]
        steps.append(EvidenceStep(kg.passages[unit].title, relation, tail, sentences[sentence], (unit,)))
    notes = {"covered": found.covered, "missed": found.missed, "words": [list(pair) for pair in found.words]}
    return EvidencePath(tuple(steps), found.worth, notes)


def _entities(kg: Kg, unit_ids: np.ndarray, found: CoveredSet) -> list[int]:
    units = [int(unit_ids[sentence]) for sentence in found.sentence_ids]
    if not kg.passages:
        return [int(end) for unit in units for end in (kg.heads[unit], kg.tails[unit])]
    titles = [int(kg.passage_entities[unit]) for unit in units]
    return [entity for entity in (*titles, *found.link_entities) if entity >= 0]


def _refs(kg: Kg, entities) -> tuple[EntityRef, ...]:
    return kg.entity_refs(e for e in entities if e >= 0)
