"""GeAR's graph expansion (Shen et al. 2024, section 3) over any retriever, in the form that asks no model.

Single-question form:
1. The base retriever finds passages for the question.
2. Starts: the facts of the best k passages, and (`num_nearest`) the facts nearest to the question.
3. Diverse triple beam search from the starts (expansion/triple_beam.py).
4. The beams, read breadth-first, give passages in order; these and the base's passages are fused.

`naivege` is the same with `num_nearest: 0`. All questions of a batch go through one beam search.

The paper's agent, with a model, is built on this in gear_agent.py.

Deviations: over the mentions graph the edges of one sentence are one fact (gear_facts.py). Beyond `max_neighbours` a
beam looks at those most like the question.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field

from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.expansion.triple_beam import BeamConfig, Beams, search_beams
from kgrag_gpu.index.fuse import Ranking, append_missing, reciprocal_rank_fusion
from kgrag_gpu.methods.gear_facts import FactIndex
from kgrag_gpu.methods.passage_base import as_ranking, open_base
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.ranking.passage_fusion import calibrated_fusion, evidence_ranking
from kgrag_gpu.types import EvidencePath, Question, Retrieval


class GearConfig(ConfigModel):
    """Constants of the expansion and of the fusion."""

    base: str = "hybrid"  # any registered method that ranks passages
    base_config: Mapping[str, Any] = Field(default_factory=dict)  # values of that method's own configuration
    num_base: Annotated[int, Field(ge=1)] = 10  # k: passages whose facts are starts
    num_nearest: Annotated[int, Field(ge=0)] = 10  # facts nearest to the question that are starts too
    beam: BeamConfig = BeamConfig()
    max_fact_chars: Annotated[int, Field(ge=20)] = 320
    fusion: Literal["rrf", "calibrated"] = "rrf"
    rrf_constant: Annotated[float, Field(gt=0)] = 60.0
    fusion_window: Annotated[int, Field(ge=1)] = 50  # calibrated: the base's passages whose scores count
    graph_weight: Annotated[float, Field(ge=0, le=1)] = 0.4  # calibrated: over a base that knows no graph
    evidence_weight: Annotated[float, Field(ge=0, le=1)] = 0.05  # calibrated: over one that brings evidence of its own
    num_paths: Annotated[int, Field(ge=0)] = 10  # evidence paths kept in the result


class BasePassages(NamedTuple):
    """What the base retriever found for one query."""

    ranking: Ranking
    has_evidence: bool  # it walked a graph itself: its scores already hold what the expansion could add


class Gear:
    """The batched method."""

    Config: ClassVar[type[ConfigModel]] = GearConfig

    def __init__(self, config: GearConfig, resources: Resources):
        self._config = config
        self._resources = resources
        self.facts = FactIndex(resources, config.max_fact_chars)
        self._base = open_base(resources, config.base, config.base_config)

    def retrieve(self, questions: Sequence[Question]) -> list[Retrieval]:
        """Retrieves for a whole batch of questions; see the module's text."""
        resources = self._resources
        base = self.find_base(questions)
        vectors = torch.from_numpy(np.array(resources.vectors([question.text for question in questions])))
        vectors = vectors.to(resources.device)
        starts = [self.passage_facts(found.ranking) for found in base]
        if self._config.num_nearest:
            nearest = self.facts.search(vectors.cpu().numpy(), self._config.num_nearest)
            starts = [np.concatenate([row, found.rows]) for row, found in zip(starts, nearest, strict=True)]
        retrievals = []
        for found, beams, num_candidates in zip(base, *self.expand(starts, vectors), strict=True):
            evidence = self.facts.evidence(beams, self._config.num_paths)
            trace = {"num_candidates": num_candidates}
            retrievals.append(self._as_retrieval(self._fused(found, beams), evidence, trace))
        return retrievals

    def find_base(self, questions: Sequence[Question]) -> list[BasePassages]:
        """The base retriever's passages for each question."""
        found = self._base.retrieve(questions)
        return [BasePassages(as_ranking(one), bool(one.evidence or one.evidence_entities)) for one in found]

    def expand(self, starts: Sequence[np.ndarray], vectors: torch.Tensor) -> tuple[list[Beams], list[int]]:
        """The final beams of each query, and how many candidate chains were scored for it.

        Args:
            starts: fact rows of each query, in any order; repeats count once.
            vectors: int16 [queries, dim] on the resources' device.
        """
        device = self._resources.device
        owners = torch.from_numpy(np.repeat(np.arange(len(starts)), [len(row) for row in starts])).to(device)
        facts = torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *starts])).to(device)
        with self._resources.stage("beam search"):
            found = search_beams(
                self.facts.graph,
                owners,
                facts,
                len(starts),
                lambda rows, some: self.facts.fact_scores(vectors, rows, some),
                lambda rows, chains: self.facts.chain_scores(vectors, rows, chains),
                self._config.beam,
                self._resources.config.seed,
            )
        return found.final(), found.num_candidates.tolist()

    def passage_facts(self, base: Ranking) -> np.ndarray:
        """The facts of the base's best k passages; one that two of them state comes twice."""
        parts = [self.facts.facts_of_passage(passage) for passage in base.rows[: self._config.num_base].tolist()]
        return np.concatenate([np.zeros(0, np.int64), *parts])

    def _fused(self, base: BasePassages, beams: Beams) -> Ranking:
        """The beams' passages, breadth-first, fused with the base's."""
        config, k = self._config, self._resources.config.output_passages
        chains, scores = beams.chains.T.tolist(), beams.scores.tolist()
        pairs = [
            (passage, score)
            for place in chains
            for fact, score in zip(place, scores, strict=True)
            for passage in self.facts.passages_of_fact(fact)
        ]
        graph = evidence_ranking([passage for passage, _ in pairs], [score for _, score in pairs])
        if config.fusion == "calibrated":
            weight = config.evidence_weight if base.has_evidence else config.graph_weight
            return calibrated_fusion(base.ranking, graph, k, weight, config.fusion_window)
        fused = reciprocal_rank_fusion([graph, base.ranking], k, config.rrf_constant)
        return append_missing(fused, base.ranking, k)

    def _as_retrieval(self, ranking: Ranking, evidence: Sequence[EvidencePath], trace: Mapping[str, Any]) -> Retrieval:
        kg = self._resources.kg
        edges = dict.fromkeys(step.edge_id for path in evidence for step in path.steps)
        entities = dict.fromkeys(int(end) for edge in edges for end in (kg.heads[edge], kg.tails[edge]))
        return Retrieval(
            passage_ids=tuple(ranking.rows.tolist()),
            passage_scores=tuple(ranking.scores.tolist()),
            evidence=tuple(evidence),
            evidence_entities=kg.entity_refs(entities),
            trace=trace,
        )
