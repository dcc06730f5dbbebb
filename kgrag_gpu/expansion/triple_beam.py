"""Diverse triple beam search (GeAR, Shen et al. 2024, algorithm 1) for all questions of a batch at once.

A fact is what a beam is made of: a triple, or several triples that one sentence states. Two facts are neighbours where
they share an entity. Knows no texts and no vectors: the caller scores facts and whole chains.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor

from kernels import csr_expand, segment_topk, triple_beam
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.expansion.neighbours import sample_hubs

Scorer = Callable[[Tensor, Tensor], Tensor]  # (questions [n], facts [n] or chains [n, length]) -> float64 scores [n]

_MAX_SLOTS = 4_000_000  # neighbours listed in one go, before the cut to `max_neighbours`


class BeamConfig(ConfigModel):
    """The paper's b, l, neighbours per beam and gamma."""

    width: Annotated[int, Field(ge=1)] = 10  # b
    length: Annotated[int, Field(ge=1)] = 2  # l, facts in a chain
    max_neighbours: Annotated[int, Field(ge=1)] = 100  # looked at for each beam
    neighbour_policy: Literal["top", "sample"] = "top"  # beyond the limit: most like the query, or a seeded sample
    diverse: bool = True  # off: no decay within a parent
    gamma: Annotated[float, Field(gt=0)] | None = None  # None: 2 b


@dataclass(frozen=True, eq=False)
class FactGraph:
    """Which entities a fact ties together, and the other way round; both as CSR, rows ascending and distinct."""

    entity_offsets: Int64[Tensor, " facts_plus_1"]
    entities: Int64[Tensor, " members"]
    fact_offsets: Int64[Tensor, " entities_plus_1"]
    facts: Int64[Tensor, " members"]

    @classmethod
    def from_members(
        cls, fact_ids: Int64[Tensor, " rows"], entity_ids: Int64[Tensor, " rows"], num_facts: int, num_entities: int
    ) -> "FactGraph":
        """Build from (fact, entity) rows in any order; repeats count once."""
        keys = torch.unique(fact_ids * max(1, num_entities) + entity_ids)
        facts, entities = keys // max(1, num_entities), keys % max(1, num_entities)
        order = torch.argsort(entities, stable=True)
        return cls(_offsets(facts, num_facts), entities, _offsets(entities, num_entities), facts[order])

    @property
    def num_facts(self) -> int:
        """Rows of the fact table."""
        return self.entity_offsets.numel() - 1

    def to(self, device: torch.device | str) -> "FactGraph":
        """The same graph on another device."""
        return FactGraph(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))

    def num_slots(self, fact_ids: Int64[Tensor, " rows"]) -> Int64[Tensor, " rows"]:
        """At most how many neighbours each fact has: one that shares two entities is counted twice."""
        slots, owners = csr_expand(self.entity_offsets, fact_ids)
        entities = self.entities[slots]
        degrees = self.fact_offsets[entities + 1] - self.fact_offsets[entities]
        return torch.zeros_like(fact_ids).index_add_(0, owners, degrees)

    def neighbours(self, fact_ids: Int64[Tensor, " rows"]) -> tuple[Int64[Tensor, " pairs"], Int64[Tensor, " pairs"]]:
        """(row of `fact_ids`, neighbour), each pair once, ascending; a fact is no neighbour of itself."""
        slots, owners = csr_expand(self.entity_offsets, fact_ids)
        more, through = csr_expand(self.fact_offsets, self.entities[slots])
        owners, found = owners[through], self.facts[more]
        kept = found != fact_ids[owners]
        keys = torch.unique(owners[kept] * max(1, self.num_facts) + found[kept])
        return keys // max(1, self.num_facts), keys % max(1, self.num_facts)


@dataclass(frozen=True, eq=False)
class Beams:
    """Chains of facts, those of a question together and best first."""

    question_ids: Int64[Tensor, " beams"]
    chains: Int64[Tensor, "beams length"]
    scores: Float[Tensor, " beams"]  # sum over the chain's beginnings of cos(query, text), decayed

    def __len__(self) -> int:
        return self.question_ids.numel()

    def at(self, rows: Tensor) -> "Beams":
        """Some of the beams."""
        return Beams(self.question_ids[rows], self.chains[rows], self.scores[rows])


@dataclass(frozen=True, eq=False)
class BeamSearch:
    """What a search found: the beams of every step, and how many candidate chains were scored."""

    steps: tuple[Beams, ...]
    num_candidates: Int64[Tensor, " questions"]

    def final(self) -> list[Beams]:
        """For each question the beams of the last step that has any."""
        num_questions = self.num_candidates.numel()
        found = []
        counts = [torch.bincount(step.question_ids, minlength=num_questions).tolist() for step in self.steps]
        starts = [0] * len(self.steps)
        for question in range(num_questions):
            last = max((i for i in range(len(self.steps)) if counts[i][question]), default=0)
            rows = slice(starts[last], starts[last] + counts[last][question])
            found.append(self.steps[last].at(torch.arange(rows.start, rows.stop)))
            starts = [start + count[question] for start, count in zip(starts, counts, strict=True)]
        return found


def search_beams(
    graph: FactGraph,
    start_questions: Int64[Tensor, " starts"],
    start_facts: Int64[Tensor, " starts"],
    num_questions: int,
    fact_scores: Scorer,
    chain_scores: Scorer,
    config: BeamConfig,
    seed: int = 0,
) -> BeamSearch:
    """Diverse triple beam search.

    Step 0 keeps the best b of each question's start facts by `fact_scores`. Step i extends each beam by the facts that
    share an entity with its last fact and stand in no beam of step i-1, adds `chain_scores` of the longer chain to the
    beam's score, and leaves the decay and the cut to `kernels.triple_beam`. Ties: the better beam, then the lower fact.

    Args:
        graph: facts and their entities.
        start_questions, start_facts: in any order; repeats count once.
        num_questions: questions in the batch.
        fact_scores: scores facts for questions; also decides which neighbours are looked at under policy "top".
        chain_scores: scores whole chains for questions; called once a step, for all questions together.
        config: b, l, the limit on neighbours, gamma.
        seed: of policy "sample"; which facts are drawn depends on it and on them alone.
    """
    keys = torch.unique(start_questions * max(1, graph.num_facts) + start_facts)
    questions, facts = keys // max(1, graph.num_facts), keys % max(1, graph.num_facts)
    steps = [_best_starts(questions, facts, fact_scores(questions, facts), num_questions, config.width)]
    num_candidates = torch.bincount(questions, minlength=num_questions)
    gamma = (config.gamma or 2.0 * config.width) if config.diverse else float("inf")
    for _ in range(1, config.length):
        beams = steps[-1]
        parents, reached = _candidates(graph, beams, fact_scores, config, seed)
        chains = torch.cat([beams.chains[parents], reached[:, None]], dim=1)
        owners = beams.question_ids[parents]
        scores = beams.scores[parents] + chain_scores(owners, chains)
        num_candidates += torch.bincount(owners, minlength=num_questions)
        kept = triple_beam(
            scores.float(), parents, beams.question_ids, num_questions, beam_width=config.width, gamma=gamma
        )
        steps.append(_taken(kept.indices, kept.scores, owners, chains))
    return BeamSearch(tuple(steps), num_candidates)


def _best_starts(questions: Tensor, facts: Tensor, scores: Tensor, num_questions: int, width: int) -> Beams:
    top = segment_topk(scores.float(), _offsets(questions, num_questions), width)
    return _taken(top.indices, top.values, questions, facts[:, None])


def _taken(indices: Tensor, scores: Tensor, questions: Tensor, chains: Tensor) -> Beams:
    """Beams of the kept rows, question by question; `indices` are padded with -1."""
    inside = indices >= 0
    rows = indices[inside]
    return Beams(questions[rows], chains[rows], scores[inside].double())


def _candidates(
    graph: FactGraph, beams: Beams, fact_scores: Scorer, config: BeamConfig, seed: int
) -> tuple[Int64[Tensor, " candidates"], Int64[Tensor, " candidates"]]:
    """(beam, fact) that it may be extended by, ascending; listed in blocks of beams, so that hubs fit in memory."""
    last = beams.chains[:, -1]
    size = max(1, graph.num_facts)
    standing = torch.unique(beams.question_ids[:, None] * size + beams.chains)
    block = graph.num_slots(last).cumsum(0) // _MAX_SLOTS
    parts = []
    for number in torch.unique(block):
        rows = torch.nonzero(block == number).flatten()
        owners, found = graph.neighbours(last[rows])
        questions = beams.question_ids[rows[owners]]
        fresh = ~torch.isin(questions * size + found, standing)
        owners, found, questions = owners[fresh], found[fresh], questions[fresh]
        kept = _cut(owners, found, questions, len(rows), fact_scores, config, seed)
        parts.append((rows[owners[kept]], found[kept]))
    empty = torch.zeros_like(last[:0])
    return torch.cat([empty, *(p for p, _ in parts)]), torch.cat([empty, *(f for _, f in parts)])


def _cut(
    owners: Tensor, found: Tensor, questions: Tensor, num_beams: int, scorer: Scorer, config: BeamConfig, seed: int
) -> Tensor:
    """Positions of the neighbours that are looked at, ascending; beams within the limit are left as they are."""
    limit = config.max_neighbours
    counts = torch.bincount(owners, minlength=num_beams)
    if config.neighbour_policy == "sample":
        return torch.nonzero(sample_hubs(owners, found, limit, seed)).flatten()
    crowded = torch.nonzero(counts[owners] > limit).flatten()
    if not crowded.numel():
        return torch.arange(owners.numel(), device=owners.device)
    scores = scorer(questions[crowded], found[crowded])
    top = segment_topk(scores, _offsets(owners[crowded], num_beams), limit).indices
    kept = counts[owners] <= limit
    kept[crowded[top[top >= 0]]] = True
    return torch.nonzero(kept).flatten()


def _offsets(rows: Int64[Tensor, " rows"], size: int) -> Int64[Tensor, " size_plus_1"]:
    offsets = torch.zeros(size + 1, dtype=torch.int64, device=rows.device)
    torch.cumsum(torch.bincount(rows, minlength=size), 0, out=offsets[1:])
    return offsets
