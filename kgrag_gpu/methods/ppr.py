"""Personalised PageRank over passages and entities (the graph part of HippoRAG, Gutierrez et al. 2024, section 3).

For one question: restart at the best passages of the base retriever and at the entities that the question names; walk
with damping 0.5; score passage p by `log(mass(p) + floor) + cosine_weight * cos(question, p)`.

Deviations: the KG needs no model (mentions), so the query's entities come from name matching; the restart also uses
passages; the ranking adds the cosine on a calibrated scale, because rank fusion throws away how sure the graph is.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
import torch
from pydantic import Field

from kernels.ppr import ppr, ppr_graph
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.expansion.pagerank import QuestionNames, passage_entity_graph, restart_vectors
from kgrag_gpu.index.fuse import Ranking, top_ranking
from kgrag_gpu.methods.passage_search import with_base_tail
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.tensors.fixed_point import exact_dot
from kgrag_gpu.types import Question, Retrieval


class PprConfig(ConfigModel):
    """Constants of PageRank."""

    base: str = "hybrid"  # retriever whose passages the walk restarts at
    damping: Annotated[float, Field(gt=0, lt=1)] = 0.5
    tolerance: Annotated[float, Field(gt=0)] = 1e-6
    restart_passages: Annotated[int, Field(ge=0)] = 20
    name_weight: Annotated[float, Field(ge=0)] = 6.0  # restart mass of named entities against 1 of the passages
    lower_case_weight: Annotated[float, Field(ge=0)] = 0.1  # of a name written in lower case in the question
    mention_weight: Annotated[float, Field(ge=0)] = 0.065  # edge to an entity, no title, that two passages mention
    cosine_weight: Annotated[float, Field(ge=0)] = 6.0
    floor: Annotated[float, Field(gt=0)] = 0.001  # mass below this makes no difference
    num_evidence_entities: Annotated[int, Field(ge=0)] = 20


class Ppr:
    """Batched personalised PageRank."""

    Config: ClassVar[type[ConfigModel]] = PprConfig

    def __init__(self, config: PprConfig, resources: Resources):
        self._config = config
        self._resources = resources
        with resources.stage("build PageRank graph"):
            self._graph = passage_entity_graph(resources.kg, config.mention_weight)
            edges = (self._graph.offsets, self._graph.neighbours, self._graph.weights)
            self._walk = ppr_graph(*(tensor.to(resources.device) for tensor in edges), symmetric=True)
            self._names = QuestionNames(resources.kg)
        self._base = resources.base_retriever(config.base)

    def retrieve(self, questions: Sequence[Question]) -> list[Retrieval]:
        """Ranks passages by the mass that reaches them; those of the base retriever that it misses follow."""
        config, resources, kg = self._config, self._resources, self._resources.kg
        base = self._base.retrieve(questions)
        vectors = torch.from_numpy(np.array(resources.vectors([q.text for q in questions])))
        with resources.stage("PageRank"):
            named = self._names.find([q.text for q in questions], config.lower_case_weight)
            rankings = [Ranking(np.array(r.passage_ids, np.int64), np.array(r.passage_scores)) for r in base]
            restart = restart_vectors(self._graph, rankings, named, config.restart_passages, config.name_weight)
            mass = ppr(self._walk, restart.float().to(resources.device), config.damping, config.tolerance).cpu()
        with resources.stage("rank passages"):
            passage_mass = mass[:, : self._graph.num_passages].double()
            scores = (passage_mass + config.floor).log()
            if kg.passages:
                scores += config.cosine_weight * exact_dot(vectors, torch.from_numpy(np.array(resources.unit_vectors)))
            # Rounded far below any real difference, so that the last bits of a sum never decide a rank.
            scores = torch.where(passage_mass > 0, scores, -torch.inf).numpy().round(9)
            ranked = [top_ranking(row, resources.config.output_passages) for row in scores]
            ranked = with_base_tail(ranked, base, resources.config.output_passages)
        entities = mass[:, self._graph.num_passages :].numpy()
        return [self._retrieval(*row) for row in zip(ranked, named, entities, strict=True)]

    def _retrieval(self, ranking: Ranking, named: dict[int, float], entity_mass: np.ndarray) -> Retrieval:
        kg = self._resources.kg
        anchors = sorted(named, key=lambda entity: (-named[entity], entity))
        reached = top_ranking(entity_mass, self._config.num_evidence_entities, minimum=0.0).rows.tolist()
        return Retrieval(
            passage_ids=tuple(ranking.rows.tolist()),
            passage_scores=tuple(ranking.scores.tolist()),
            anchors=kg.entity_refs(anchors),
            evidence_entities=kg.entity_refs(reached),
            trace={"num_named": len(named)},
        )
