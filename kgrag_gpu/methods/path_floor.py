"""The floor of a KGQA score: the answers of a random relation path of the right length from the gold topic entity.

A set whose floor is high says little about a method that scores higher. Both directions are walked, as the methods do.
Paths are drawn by a hash of question and path, so that the floor is the same for any batch and order.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
import xxhash

from kgrag_gpu.expansion.relation_paths import StepGraph, first_level, next_level
from kgrag_gpu.expansion.relation_walks import walk_paths
from kgrag_gpu.kg.store import Kg
from kgrag_gpu.kg.topics import entity_rows, topic_rows
from kgrag_gpu.methods.path_answers import PathAnswerConfig
from kgrag_gpu.metrics.answer import exact_match
from kgrag_gpu.tensors.csr_graph import CsrGraph
from kgrag_gpu.types import Question


class Floor(NamedTuple):
    """Mean strict hit of random paths, and the number of questions that it could be computed for."""

    hit: float
    num_questions: int


def floor_of_questions(kg: Kg, questions: Sequence[Question], device: torch.device | str = "cpu") -> Floor | None:
    """The floor of a question set over a KG of bare triples, with the steps that `anchorrag-lr` walks by default.

    None where nothing can be said: the KG has passages, or no question has topic entity, number of hops and answers.
    """
    if kg.passages or not any(q.topic_entities and q.num_hops and q.golden_answers for q in questions):
        return None
    config = PathAnswerConfig()
    graph = CsrGraph.from_triples(kg.heads, kg.relations, kg.tails, kg.num_entities).to(device)
    steps = StepGraph.from_graph(graph, kg.num_relations, config.alias_share, config.min_alias_pairs)
    floor = random_path_floor(steps, config.max_ends, kg, questions)
    return floor if floor.num_questions else None


def random_path_floor(
    step_graph: StepGraph,
    max_ends: int,
    kg: Kg,
    questions: Sequence[Question],
    num_samples: int = 5,
    seed: int = 0,
) -> Floor:
    """Walks `num_samples` random paths of each question's own length and takes their best supported ends as answers.

    Questions without a gold topic entity in the KG, a number of hops or gold answers are left out; a path that leads
    nowhere (only straight back) misses.
    """
    rows = entity_rows(kg)
    starts = [next(iter(topic_rows(rows, q)), None) for q in questions]
    usable = [
        i
        for i, (q, start) in enumerate(zip(questions, starts, strict=True))
        if start is not None and q.num_hops and q.golden_answers
    ]
    hits = np.zeros(len(questions))
    for length in sorted({questions[i].num_hops or 0 for i in usable}):
        group = [i for i in usable if questions[i].num_hops == length]
        anchors = torch.tensor([starts[i] for i in group], device=step_graph.neighbours.device)
        ids = [questions[i].id for i in group]
        owners, paths = _random_paths(step_graph, max_ends, anchors, ids, length, num_samples, seed)
        ends = walk_paths(step_graph, anchors[owners], paths).on_host()
        for walk, owner in enumerate(owners.tolist()):
            first = int(ends.offsets[walk])
            if int(ends.offsets[walk + 1]) > first:
                question = questions[group[owner]]
                name = kg.entity_names[int(ends.entities[first])]
                hits[group[owner]] += exact_match(name, question.golden_answers) / int((owners == owner).sum())
    return Floor(float(hits[usable].mean()) if usable else 0.0, len(usable))


def _random_paths(
    step_graph: StepGraph,
    max_ends: int,
    anchors: torch.Tensor,
    ids: Sequence[str],
    length: int,
    num_samples: int,
    seed: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(position in `anchors`, path) of the drawn paths, by position."""
    level = first_level(step_graph, anchors, max_ends if length > 1 else 0)
    owners, paths = level.parents, level.steps[:, None]
    for size in range(2, length + 1):
        level = next_level(step_graph, level, max_ends if size < length else 0)
        owners = owners[level.parents]
        paths = torch.cat([paths[level.parents], level.steps[:, None]], 1)
    salts = np.array([xxhash.xxh3_64_intdigest(f"{seed}:{name}".encode()) for name in ids], dtype=np.uint64)
    keys = salts[owners.cpu().numpy()]
    for column in paths.cpu().numpy().T:
        keys = (keys ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        keys ^= keys >> np.uint64(29)
    host = owners.cpu().numpy()
    order = np.lexsort((keys, host))
    place = np.arange(len(order)) - np.searchsorted(host[order], host[order])
    drawn = torch.from_numpy(order[place < num_samples]).to(owners.device)
    return owners[drawn], paths[drawn]
