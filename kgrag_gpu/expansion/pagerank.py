"""The graph that PageRank runs over (passages and entities together) and where its walks restart.

Nodes 0 .. P-1 are the passages, P .. P+N-1 the entities. An entity that is the title of passages has no edges of its
own: whoever mentions it is joined to those passages directly, because entity and passage are the same thing there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse

from kgrag_gpu.index.fuse import Ranking
from kgrag_gpu.kg.mention_index import MentionIndex
from kgrag_gpu.kg.store import Kg


@dataclass(frozen=True)
class PassageEntityGraph:
    """An undirected weighted graph in CSR form, rows sorted.

    Attributes:
        offsets: int64 [nodes + 1].
        neighbours: int32 [slots].
        weights: float32 [slots].
        num_passages: Nodes below this are passages.
        title_offsets: int64 [entities + 1], and `title_passages` int64: the passages that each entity is the title of.
    """

    offsets: torch.Tensor
    neighbours: torch.Tensor
    weights: torch.Tensor
    num_passages: int
    title_offsets: np.ndarray
    title_passages: np.ndarray

    @property
    def num_nodes(self) -> int:
        """Passages and entities."""
        return len(self.offsets) - 1

    def nodes_of_entity(self, entity: int) -> np.ndarray:
        """The passages that the entity is the title of, or its own node."""
        own = self.title_passages[self.title_offsets[entity] : self.title_offsets[entity + 1]]
        return own if len(own) else np.array([self.num_passages + entity])


def passage_entity_graph(kg: Kg, mention_weight: float) -> PassageEntityGraph:
    """Joins each passage to what it mentions, and entities to each other where a triple has no passage.

    Args:
        kg: Any KG. Its triples' provenance says which passage mentions which entity.
        mention_weight: Weight of an edge to an entity that is no passage's title and that two passages mention; to one
            that n passages mention it is 2 / n of that, since a rare name says more. Edges between passages weigh 1.
    """
    num_passages, num_nodes = kg.num_passages, kg.num_passages + kg.num_entities
    order = np.argsort(kg.passage_entities, kind="stable")
    order = order[kg.passage_entities[order] >= 0]
    counts = np.bincount(kg.passage_entities[order], minlength=kg.num_entities)
    title_offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)

    triples = np.repeat(np.arange(kg.num_triples), np.diff(kg.triple_passage_offsets))
    passages = kg.triple_passages.astype(np.int64)
    ends = np.concatenate([kg.heads[triples], kg.tails[triples]]).astype(np.int64)
    passages = np.concatenate([passages, passages])
    left, right = _to_title_passages(passages, ends, title_offsets, order)
    is_plain = counts[ends] == 0
    mentions = np.unique(np.stack([passages[is_plain], ends[is_plain]], axis=1), axis=0)
    num_mentions = np.bincount(mentions[:, 1], minlength=kg.num_entities)
    mention_weights = mention_weight * 2.0 / np.maximum(2, num_mentions[mentions[:, 1]])
    loose = np.flatnonzero(np.diff(kg.triple_passage_offsets) == 0)
    edges = [
        (left, right, np.ones(len(left))),
        (mentions[:, 0], mentions[:, 1] + num_passages, mention_weights),
        (
            kg.heads[loose].astype(np.int64) + num_passages,
            kg.tails[loose].astype(np.int64) + num_passages,
            np.ones(len(loose)),
        ),
    ]
    matrix = sparse.csr_matrix((num_nodes, num_nodes), dtype=np.float32)
    for rows, columns, weights in edges:
        keep = rows != columns
        pairs, kept = np.unique(rows[keep] * num_nodes + columns[keep], return_index=True)  # joined once
        part = sparse.csr_matrix(
            (weights[keep][kept].astype(np.float32), (pairs // num_nodes, pairs % num_nodes)),
            shape=(num_nodes, num_nodes),
        )
        matrix = matrix.maximum(part)
    return _as_graph(sparse.csr_matrix(matrix.maximum(matrix.T)), num_passages, title_offsets, order.astype(np.int64))


def fact_walk_graph(kg: Kg, synonyms: tuple[np.ndarray, np.ndarray, np.ndarray]) -> PassageEntityGraph:
    """HippoRAG 2's graph (Gutierrez et al. 2025, section 3.1): nobody is merged with anybody.

    Args:
        kg: Any KG with passages.
        synonyms: (entity, entity, weight) of names that mean the same, in either direction.

    Returns:
        Head and tail of a triple are joined, by as much as there are triples of the two; a passage is joined to each
        entity of its triples by 1; synonyms by their weight, where no triple joins them more.
    """
    num_passages, num_nodes = kg.num_passages, kg.num_passages + kg.num_entities
    triples = np.repeat(np.arange(kg.num_triples), np.diff(kg.triple_passage_offsets))
    ends = np.concatenate([kg.heads[triples], kg.tails[triples]]).astype(np.int64) + num_passages
    passages = np.concatenate([kg.triple_passages, kg.triple_passages]).astype(np.int64)
    heads, tails = kg.heads.astype(np.int64) + num_passages, kg.tails.astype(np.int64) + num_passages
    left, right, weights = synonyms

    def joined(rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> sparse.csr_matrix:
        rows, columns, values = (column[rows != columns] for column in (rows, columns, values))
        # Equal pairs are added up.
        return sparse.csr_matrix((values.astype(np.float32), (rows, columns)), shape=(num_nodes, num_nodes))

    relations = joined(heads, tails, np.ones(len(heads)))
    context = joined(passages, ends, np.ones(len(ends)))
    context.data[:] = 1.0
    alike = joined(left.astype(np.int64) + num_passages, right.astype(np.int64) + num_passages, weights)
    matrix = (relations + relations.T).maximum(context.maximum(context.T)).maximum(alike.maximum(alike.T))
    none = np.zeros(kg.num_entities + 1, dtype=np.int64)
    return _as_graph(matrix, num_passages, none, none[:0])


def _as_graph(
    matrix: sparse.csr_matrix, num_passages: int, title_offsets: np.ndarray, title_passages: np.ndarray
) -> PassageEntityGraph:
    """A symmetric matrix of weights, passages before entities, as the tensors of a walk."""
    rows = matrix.tocsr()
    rows.sort_indices()
    return PassageEntityGraph(
        torch.from_numpy(rows.indptr.astype(np.int64)),
        torch.from_numpy(rows.indices.astype(np.int32)),
        torch.from_numpy(rows.data.astype(np.float32)),
        num_passages,
        title_offsets,
        title_passages,
    )


def _to_title_passages(
    passages: np.ndarray, entities: np.ndarray, title_offsets: np.ndarray, title_passages: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(passage, passage) for every mention of a title by a passage."""
    starts, counts = title_offsets[entities], title_offsets[entities + 1] - title_offsets[entities]
    left = np.repeat(passages, counts)
    within = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
    return left, title_passages[np.repeat(starts, counts) + within]


class QuestionNames:
    """Finds the KG's names in questions, in any case."""

    def __init__(self, kg: Kg):
        spellings = [*kg.entity_names, *(alias for row in kg.entity_aliases for alias in row)]
        owners = [*range(kg.num_entities), *(e for e, row in enumerate(kg.entity_aliases) for _ in row)]
        self._owners = np.array(owners, dtype=np.int64)
        self._index = MentionIndex(spellings)

    def find(self, texts: Sequence[str], lower_case_weight: float) -> list[dict[int, float]]:
        """For each question the entities it names, with 1 for a capitalised mention and less for a lower-case one."""
        found = self._index.find(texts, case="any")
        named: list[dict[int, float]] = [{} for _ in texts]
        columns = (found.text_ids.tolist(), self._owners[found.name_ids].tolist(), found.starts.tolist())
        for text, entity, start in zip(*columns, strict=True):
            weight = lower_case_weight if str(texts[text])[start].islower() else 1.0
            named[text][entity] = max(weight, named[text].get(entity, 0.0))
        return named


def restart_vectors(
    graph: PassageEntityGraph,
    base: Sequence[Ranking],
    named: Sequence[dict[int, float]],
    num_passages: int,
    name_weight: float,
) -> torch.Tensor:
    """Where each question's walk restarts, float64 [questions, nodes], rows sum to 1 (0 where nothing was found).

    Args:
        graph: The graph that is walked.
        base: A ranking of passages per question; the first `num_passages` get mass by 1 / rank, 1 in all.
        named: Entities named in each question with their weights; together they get `name_weight`.
        num_passages: How many passages of the base ranking take part.
        name_weight: Mass of the names, against 1 of the passages.
    """
    restart = torch.zeros(len(base), graph.num_nodes, dtype=torch.float64)
    for row, (ranking, entities) in enumerate(zip(base, named, strict=True)):
        top = ranking.rows[:num_passages]
        if len(top):
            mass = 1.0 / np.arange(1, len(top) + 1)
            restart[row, torch.from_numpy(top)] += torch.from_numpy(mass / mass.sum())
        total = sum(entities.values())
        for entity, weight in entities.items():
            nodes = graph.nodes_of_entity(entity)
            restart[row, torch.from_numpy(nodes)] += name_weight * weight / total / len(nodes)
    return restart / restart.sum(dim=1, keepdim=True).clamp_min(1e-300)
