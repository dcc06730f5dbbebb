"""Relation paths from anchors: which sequences of relations can be walked, and where a chosen sequence ends.

A *step* is a directed relation, merged with those directed relations that say the same from the other side: a graph
that stores both `children` and `parents` has one step for "children, or whom `parents` names from there". Merged are
relations of which one, reversed, shares more than a share of the smaller one's pairs with the other.

Listing paths walks samples of each path's ends (they only decide which relations go on from there); walking a chosen
path is exact and never goes straight back over the triple it came by. Knows no names and no texts.
"""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from kernels import csr_expand
from kgrag_gpu.tensors.csr_graph import CsrGraph

ALIAS_SHARE = 0.05
MIN_ALIAS_PAIRS = 3
_HASH_FACTOR, _HASH_PRIME = 2_654_435_761, 4_294_967_291  # Knuth's multiplicative hash: a fixed shuffle of row numbers


@dataclass(frozen=True, eq=False)
class StepGraph:
    """Both directions of every edge, grouped by (entity, step).

    Group g of entity v lies at `group_offsets[v] <= g < group_offsets[v + 1]`, by step; its slots at
    `slot_offsets[g]` to `slot_offsets[g + 1]`, by (neighbour, edge).

    Attributes:
        step_of: the step of each directed relation (2 * relation + is_inverse).
        inverse: the step that leads back.
        is_backward: steps all of whose directed relations are inverse.
        group_keys: entity * steps + step of each group, ascending.
        is_forward_slot: whether a slot walks its edge from head to tail.
    """

    step_of: Int64[Tensor, " directed"]
    inverse: Int64[Tensor, " steps"]
    is_backward: Bool[Tensor, " steps"]
    group_offsets: Int64[Tensor, " entities_plus_1"]
    group_steps: Int64[Tensor, " groups"]
    group_keys: Int64[Tensor, " groups"]
    slot_offsets: Int64[Tensor, " groups_plus_1"]
    neighbours: Int64[Tensor, " slots"]
    edge_ids: Int64[Tensor, " slots"]
    is_forward_slot: Bool[Tensor, " slots"]

    @property
    def num_steps(self) -> int:
        """Distinct steps."""
        return self.inverse.numel()

    @property
    def num_entities(self) -> int:
        """Rows of the entity table."""
        return self.group_offsets.numel() - 1

    @classmethod
    def from_graph(
        cls,
        graph: CsrGraph,
        num_relations: int,
        alias_share: float = ALIAS_SHARE,
        min_alias_pairs: int = MIN_ALIAS_PAIRS,
    ) -> "StepGraph":
        """Group the graph's slots by step.

        Args:
            graph: both directions of every edge.
            num_relations: rows of the relation table.
            alias_share: share of the smaller relation's pairs from which two relations are one step.
            min_alias_pairs: pairs that the two must share at least.
        """
        device = graph.device
        directed = graph.directed_relations()
        owners = torch.repeat_interleave(torch.arange(graph.num_entities, device=device), graph.degrees())
        neighbours = graph.neighbours.long()
        step_of = _merge_aliases(owners, neighbours, directed, graph.num_entities, 2 * num_relations, alias_share,
                                 min_alias_pairs)  # fmt: skip
        num_steps = int(step_of.max()) + 1 if step_of.numel() else 0
        steps = step_of[directed]
        order = torch.argsort(neighbours, stable=True)
        order = order[torch.argsort((owners * max(num_steps, 1) + steps)[order], stable=True)]
        owners, steps, neighbours = owners[order], steps[order], neighbours[order]
        is_first = torch.ones_like(steps, dtype=torch.bool)
        is_first[1:] = (owners[1:] != owners[:-1]) | (steps[1:] != steps[:-1])
        starts = is_first.nonzero().flatten()
        group_offsets = torch.zeros(graph.num_entities + 1, dtype=torch.int64, device=device)
        torch.cumsum(torch.bincount(owners[starts], minlength=graph.num_entities), 0, out=group_offsets[1:])
        end = torch.tensor([steps.numel()], device=device)
        back = torch.ones(num_steps, dtype=torch.int64, device=device)
        all_directed = torch.arange(2 * num_relations, device=device)
        back.scatter_reduce_(0, step_of, all_directed & 1, "amin")
        inverse = torch.zeros(num_steps, dtype=torch.int64, device=device)
        inverse[step_of] = step_of[all_directed ^ 1]
        return cls(
            step_of=step_of,
            inverse=inverse,
            is_backward=back.bool(),
            group_offsets=group_offsets,
            group_steps=steps[starts],
            group_keys=owners[starts] * num_steps + steps[starts],
            slot_offsets=torch.cat([starts, end]),
            neighbours=neighbours,
            edge_ids=graph.edge_ids.long()[order],
            is_forward_slot=~graph.is_inverse[order],
        )

    def sharing(self) -> sp.csr_array:
        """How many entities have both steps a and b: int64 [steps, steps]. Its diagonal counts the entities of one.

        The ends of step c are the entities that have `inverse[c]`, so row `inverse[c]` says what goes on after c.
        """
        entities = np.repeat(np.arange(self.num_entities), np.diff(self.group_offsets.cpu().numpy()))
        steps = self.group_steps.cpu().numpy()
        shape = (self.num_entities, self.num_steps)
        has_step = sp.csr_array((np.ones(len(steps), np.int64), (entities, steps)), shape=shape)
        return (has_step.T @ has_step).tocsr()

    def sample_ends(self, num_samples: int) -> tuple[Int64[Tensor, " samples"], Int64[Tensor, " steps_plus_1"]]:
        """A fixed sample of at most `num_samples` distinct ends of each step, with offsets by step."""
        owners = torch.repeat_interleave(
            torch.arange(self.num_entities, device=self.group_steps.device), self.group_offsets.diff()
        )
        steps = self.inverse[self.group_steps]  # an entity with the inverse of c is an end of c
        keep = _sample_rows(steps, owners, num_samples)
        steps, ends = steps[keep], owners[keep]
        offsets = torch.zeros(self.num_steps + 1, dtype=torch.int64, device=steps.device)
        torch.cumsum(torch.bincount(steps, minlength=self.num_steps), 0, out=offsets[1:])
        return ends, offsets


@dataclass(frozen=True, eq=False)
class PathLevel:
    """Paths of one length, by (parent, step). `parents` are rows of the level before (level 1: rows of the anchors).

    `path_ids` and `entities` are samples of the paths' ends, by path; empty at the last level, which nothing goes on
    from.
    """

    parents: Int64[Tensor, " paths"]
    steps: Int64[Tensor, " paths"]
    path_ids: Int64[Tensor, " ends"]
    entities: Int64[Tensor, " ends"]

    def keep(self, rows: Int64[Tensor, " kept"]) -> "PathLevel":
        """The paths `rows` (ascending) with their ends."""
        place = torch.full((len(self.steps),), -1, dtype=torch.int64, device=self.steps.device)
        place[rows] = torch.arange(len(rows), device=self.steps.device)
        moved = place[self.path_ids]
        held = moved >= 0
        return PathLevel(self.parents[rows], self.steps[rows], moved[held], self.entities[held])


def first_level(graph: StepGraph, anchors: Int64[Tensor, " agents"], max_ends: int) -> PathLevel:
    """Paths of one step from each anchor."""
    return _grow(graph, torch.arange(len(anchors), device=anchors.device), anchors, max_ends)


def next_level(graph: StepGraph, level: PathLevel, max_ends: int) -> PathLevel:
    """Paths one step longer. `max_ends` sampled ends are kept a path; 0 at the last level."""
    return _grow(graph, level.path_ids, level.entities, max_ends)


def _grow(
    graph: StepGraph, owners: Int64[Tensor, " ends"], entities: Int64[Tensor, " ends"], max_ends: int
) -> PathLevel:
    groups, place = csr_expand(graph.group_offsets, entities)
    keys = owners[place] * max(graph.num_steps, 1) + graph.group_steps[groups]
    distinct, path_of = torch.unique(keys, return_inverse=True)
    parents, steps = distinct // max(graph.num_steps, 1), distinct % max(graph.num_steps, 1)
    if max_ends == 0:
        none = distinct.new_zeros(0)
        return PathLevel(parents, steps, none, none)
    starts = graph.slot_offsets[groups]
    sizes = graph.slot_offsets[groups + 1] - starts
    taken = sizes.clamp(max=max_ends)  # evenly spaced slots of a large group
    rows = torch.repeat_interleave(torch.arange(len(groups), device=groups.device), taken)
    nth = torch.arange(len(rows), device=groups.device) - torch.repeat_interleave(taken.cumsum(0) - taken, taken)
    ends = graph.neighbours[starts[rows] + nth * sizes[rows] // taken[rows]]
    pairs = torch.unique(path_of[rows] * max(graph.num_entities, 1) + ends)
    path_ids, ends = pairs // max(graph.num_entities, 1), pairs % max(graph.num_entities, 1)
    keep = _sample_rows(path_ids, ends, max_ends)
    return PathLevel(parents, steps, path_ids[keep], ends[keep])


def _sample_rows(owners: Int64[Tensor, " rows"], entities: Int64[Tensor, " rows"], limit: int) -> Tensor:
    """At most `limit` rows of each owner, those of the least hashed entity; ordered by (owner, entity)."""
    hashed = (entities * _HASH_FACTOR) % _HASH_PRIME
    order = torch.argsort(hashed, stable=True)
    order = order[torch.argsort(owners[order], stable=True)]
    ranks = _rank_within(owners[order])
    order = order[ranks < limit]
    order = order[torch.argsort(entities[order], stable=True)]
    return order[torch.argsort(owners[order], stable=True)]


def _rank_within(owners: Int64[Tensor, " rows"]) -> Int64[Tensor, " rows"]:
    """Position of each row within its run of equal owners."""
    if not owners.numel():
        return owners
    is_first = torch.ones_like(owners, dtype=torch.bool)
    is_first[1:] = owners[1:] != owners[:-1]
    positions = torch.arange(len(owners), device=owners.device)
    return positions - torch.cummax(torch.where(is_first, positions, 0), 0).values


def _merge_aliases(
    owners: Int64[Tensor, " slots"],
    neighbours: Int64[Tensor, " slots"],
    directed: Int64[Tensor, " slots"],
    num_entities: int,
    num_directed: int,
    alias_share: float,
    min_pairs: int,
) -> Int64[Tensor, " directed"]:
    """The step of each directed relation, numbered by the lowest directed relation in it."""
    if not num_directed:
        return owners.new_zeros(0)
    pairs, pair_ids = torch.unique(owners * max(num_entities, 1) + neighbours, return_inverse=True)
    distinct = torch.unique(pair_ids * num_directed + directed)
    pair_ids, directed = distinct // num_directed, distinct % num_directed
    sizes = torch.bincount(directed, minlength=num_directed)
    offsets = torch.zeros(len(pairs) + 1, dtype=torch.int64, device=owners.device)
    torch.cumsum(torch.bincount(pair_ids, minlength=len(pairs)), 0, out=offsets[1:])
    others, place = csr_expand(offsets, pair_ids)  # every two relations over the same pair of entities
    one, two = directed[place], directed[others]
    opposite = (one & 1 == 0) & (two & 1 == 1)
    keys, shared = torch.unique(one[opposite] * num_directed + two[opposite], return_counts=True)
    one, two = keys // num_directed, keys % num_directed
    same = (shared > alias_share * torch.minimum(sizes[one], sizes[two])) & (shared >= min_pairs)
    root = list(range(num_directed))

    def find(node: int) -> int:
        while root[node] != node:
            node = root[node]
        return node

    for a, b in zip(one[same].tolist(), two[same].tolist(), strict=True):
        for left, right in ((a, b), (a ^ 1, b ^ 1)):
            low, high = sorted((find(left), find(right)))
            root[high] = low
    roots = torch.tensor([find(node) for node in range(num_directed)], device=owners.device)
    return torch.unique(roots, return_inverse=True)[1]
