"""The facts that GeAR's beams are made of: their texts, vectors, entities and passages.

A fact is a triple, worded "head relation tail". Where the relation says nothing (the mentions graph) the sentence
stands for it: the edges of one sentence are one fact, worded "title: sentence", that ties all its names together.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from kgrag_gpu.expansion.triple_beam import Beams, FactGraph
from kgrag_gpu.index.dense import DenseIndex
from kgrag_gpu.index.fuse import Ranking
from kgrag_gpu.kg.mentions import RELATION
from kgrag_gpu.kg.store import Kg
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.tensors.fixed_point import exact_pair_dot
from kgrag_gpu.types import EvidencePath, EvidenceStep, UserError

_PAIR_BLOCK = 16_384  # pairs whose float64 vectors are in memory at once


class FactIndex:
    """All facts of a KG that was made from passages.

    Attributes:
        texts: wording of each fact.
        fact_of_edge: int64 [triples].
        graph: facts and their entities, on the resources' device.
        num_chains_scored, num_chains_encoded: candidate chains so far, and how many distinct texts they were.
    """

    def __init__(self, resources: Resources, max_chars: int):
        """`max_chars` caps a fact's wording, at a word.

        Raises:
            UserError: the KG has no passages.
        """
        kg = resources.kg
        if not kg.passages or not len(kg.triple_passages):
            raise UserError(
                "GeAR ranks passages by the triples read in them, and this KG has none with a passage; build one from "
                "passages (--kg an OpenIE file, or no --kg at all), or use anchorrag over bare triples"
            )
        self._kg = kg
        self._resources = resources
        self.fact_of_edge, first_edges = fact_numbers(kg)
        self.texts = [_shortened(_wording(kg, edge), max_chars) for edge in first_edges.tolist()]
        edges = np.argsort(self.fact_of_edge, kind="stable")
        self._edge_offsets = _offsets(self.fact_of_edge[edges], len(self.texts))
        self._edges = edges
        self.passage_offsets, self.passages = self._distinct_passages()
        by_passage = np.argsort(self.passages, kind="stable")
        owners = np.repeat(np.arange(len(self.texts)), np.diff(self.passage_offsets))
        self._facts_of_passages = owners[by_passage]
        self._passage_fact_offsets = _offsets(self.passages, kg.num_passages)
        members = torch.from_numpy(np.concatenate([self.fact_of_edge, self.fact_of_edge]))
        ends = torch.from_numpy(np.concatenate([kg.heads, kg.tails]).astype(np.int64))
        self.graph = FactGraph.from_members(members, ends, len(self.texts), kg.num_entities).to(resources.device)
        vectors = resources.vectors(self.texts, "encode facts")
        with resources.stage("build fact index"):
            self.dense = DenseIndex(vectors, resources.config.index)
            self._vectors = torch.from_numpy(np.array(vectors)).to(resources.device)
        self.num_chains_scored = 0
        self.num_chains_encoded = 0

    def facts_of_passage(self, passage: int) -> np.ndarray:
        """The facts that a passage states, ascending."""
        return self._facts_of_passages[self._passage_fact_offsets[passage] : self._passage_fact_offsets[passage + 1]]

    def passages_of_fact(self, fact: int) -> list[int]:
        """The passages that state a fact, ascending."""
        return self.passages[self.passage_offsets[fact] : self.passage_offsets[fact + 1]].tolist()

    def entities_of_fact(self, fact: int) -> list[int]:
        """The entities that a fact ties together, those of its first edge first."""
        edges = self._edges[self._edge_offsets[fact] : self._edge_offsets[fact + 1]]
        return list(dict.fromkeys(int(end) for edge in edges for end in (self._kg.heads[edge], self._kg.tails[edge])))

    def search(self, vectors: np.ndarray, k: int) -> list[Ranking]:
        """The `k` nearest facts of each int16 vector."""
        return self.dense.search(vectors, k)

    def fact_scores(
        self, query_vectors: Tensor, query_ids: Int64[Tensor, " pairs"], fact_ids: Int64[Tensor, " pairs"]
    ) -> Float64[Tensor, " pairs"]:
        """cos(query, fact) of each pair."""
        return _pair_scores(query_vectors, query_ids, self._vectors, fact_ids)

    def chain_scores(
        self, query_vectors: Tensor, query_ids: Int64[Tensor, " pairs"], chains: Int64[Tensor, "pairs length"]
    ) -> Float64[Tensor, " pairs"]:
        """cos(query, text of the whole chain) of each pair; equal chains are encoded once."""
        distinct, rows = torch.unique(chains, dim=0, return_inverse=True)
        texts = self.chain_texts(distinct)
        vectors = torch.from_numpy(np.array(self._resources.vectors(texts))) if texts else self._vectors[:0]
        self.num_chains_scored += len(chains)
        self.num_chains_encoded += len(texts)
        return _pair_scores(query_vectors, query_ids, vectors.to(query_vectors.device), rows)

    def chain_texts(self, chains: Int64[Tensor, "chains length"]) -> list[str]:
        """The facts of each chain as one text."""
        texts = self.texts
        return [" ; ".join([texts[fact] for fact in chain]) for chain in chains.tolist()]

    def evidence(self, beams: Beams, num_paths: int, **notes: int) -> list[EvidencePath]:
        """The best beams in words; a step is the edge of its fact that ties it to the step before or behind it."""
        paths = []
        for chain, score in zip(beams.chains[:num_paths].tolist(), beams.scores[:num_paths].tolist(), strict=True):
            steps = []
            for place, fact in enumerate(chain):
                other = chain[place - 1] if place else chain[1] if len(chain) > 1 else fact
                steps.append(self._step(fact, set(self.entities_of_fact(other))))
            paths.append(EvidencePath(tuple(steps), score, notes))
        return paths

    def _step(self, fact: int, tied: set[int]) -> EvidenceStep:
        kg = self._kg
        edges = self._edges[self._edge_offsets[fact] : self._edge_offsets[fact + 1]].tolist()
        edge = next((e for e in edges if int(kg.tails[e]) in tied), edges[0])
        head, relation, tail = int(kg.heads[edge]), int(kg.relations[edge]), int(kg.tails[edge])
        names = kg.entity_names[head], kg.relation_names[relation], kg.entity_names[tail]
        return EvidenceStep(
            *names, str(kg.triple_texts[edge]), passage_ids=tuple(self.passages_of_fact(fact)), edge_id=edge
        )

    def _distinct_passages(self) -> tuple[np.ndarray, np.ndarray]:
        """CSR of the distinct passages of each fact, ascending."""
        facts = np.repeat(self.fact_of_edge, np.diff(self._kg.triple_passage_offsets))
        size = max(1, self._kg.num_passages)
        keys = np.unique(facts * size + self._kg.triple_passages)
        return _offsets(keys // size, len(self.texts)), keys % size


def fact_numbers(kg: Kg) -> tuple[np.ndarray, np.ndarray]:
    """The fact of each triple, int64 [triples], numbered by first triple; and the first triple of each fact."""
    numbers: dict[object, int] = {}
    speechless = {row for row, name in enumerate(kg.relation_names) if name == RELATION}
    facts = np.zeros(kg.num_triples, dtype=np.int64)
    first_edges: list[int] = []
    for edge, relation in enumerate(kg.relations.tolist()):
        key: object = (int(kg.heads[edge]), str(kg.triple_texts[edge])) if relation in speechless else edge
        number = numbers.setdefault(key, len(first_edges))
        if number == len(first_edges):
            first_edges.append(edge)
        facts[edge] = number
    return facts, np.array(first_edges, dtype=np.int64)


def _wording(kg: Kg, edge: int) -> str:
    head, relation = kg.entity_names[kg.heads[edge]], kg.relation_names[kg.relations[edge]]
    if relation == RELATION:
        return f"{head}: {kg.triple_texts[edge]}"
    return f"{head} {kg.relation_texts[kg.relations[edge]]} {kg.entity_names[kg.tails[edge]]}"


def _shortened(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else (text[:max_chars].rsplit(" ", 1)[0] or text[:max_chars])


def _offsets(rows: Sequence[int] | np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.bincount(np.asarray(rows, dtype=np.int64), minlength=size))])


def _pair_scores(left: Tensor, left_ids: Tensor, right: Tensor, right_ids: Tensor) -> Float64[Tensor, " pairs"]:
    parts = [
        exact_pair_dot(left[left_ids[start : start + _PAIR_BLOCK]], right[right_ids[start : start + _PAIR_BLOCK]])
        for start in range(0, len(left_ids), _PAIR_BLOCK)
    ]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.float64, device=left.device)
