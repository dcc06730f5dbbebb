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
from jaxtyping import Bool, Int32, Int64, UInt8
from torch import Tensor

from kernels import csr_expand
from kgrag_gpu.tensors.csr_graph import BLOCK_SLOTS, CsrGraph, entity_runs
from kgrag_gpu.tensors.packed_bits import bits_at, pack_bits

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
        inverse_bits: whether a slot walks its edge from tail to head (see `is_forward`).

    Where no relations are merged, the slots are the graph's own, and take no memory again.
    """

    step_of: Int64[Tensor, " directed"]
    inverse: Int64[Tensor, " steps"]
    is_backward: Bool[Tensor, " steps"]
    group_offsets: Int64[Tensor, " entities_plus_1"]
    group_steps: Int32[Tensor, " groups"]
    slot_offsets: Int32[Tensor, " groups_plus_1"]
    neighbours: Int32[Tensor, " slots"]
    edge_ids: Int32[Tensor, " slots"]
    inverse_bits: UInt8[Tensor, " slot_bytes"]

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
        block_slots: int = BLOCK_SLOTS,
    ) -> "StepGraph":
        """Group the graph's slots by step.

        Args:
            graph: both directions of every edge.
            num_relations: rows of the relation table.
            alias_share: share of the smaller relation's pairs from which two relations are one step.
            min_alias_pairs: pairs that the two must share at least.
            block_slots: slots in work at a time.
        """
        device = graph.device
        step_of = _merge_aliases(graph, 2 * num_relations, alias_share, min_alias_pairs, block_slots)
        num_steps = int(step_of.max()) + 1 if step_of.numel() else 0
        is_merged = num_steps < 2 * num_relations
        neighbours, edge_ids = graph.neighbours, graph.edge_ids
        if is_merged:
            neighbours, edge_ids = torch.empty_like(neighbours), torch.empty_like(edge_ids)
        is_inverse = torch.empty(graph.num_slots if is_merged else 0, dtype=torch.bool, device=device)
        groups_of = torch.zeros(graph.num_entities, dtype=torch.int64, device=device)
        group_steps, starts = [], []
        for first, last in entity_runs(graph.offsets, block_slots):
            part = slice(int(graph.offsets[first]), int(graph.offsets[last]))
            owners, directed = _owners(graph, first, last), graph.directed_relations(part.start, part.stop)
            steps = step_of[directed]
            if is_merged:
                order = torch.argsort(graph.neighbours[part], stable=True)
                order = order[torch.argsort((owners * num_steps + steps)[order], stable=True)]
                owners, steps, is_inverse[part] = owners[order], steps[order], (directed[order] & 1).bool()
                neighbours[part], edge_ids[part] = graph.neighbours[part][order], graph.edge_ids[part][order]
            is_first = torch.ones_like(steps, dtype=torch.bool)
            is_first[1:] = (owners[1:] != owners[:-1]) | (steps[1:] != steps[:-1])
            begins = is_first.nonzero().flatten()
            groups_of[first:last] = torch.bincount(owners[begins], minlength=last - first)
            group_steps.append(steps[begins].to(torch.int32))
            starts.append((begins + part.start).to(torch.int32))
        none = torch.zeros(0, dtype=torch.int32, device=device)
        end = torch.tensor([graph.num_slots], dtype=torch.int32, device=device)
        back = torch.ones(num_steps, dtype=torch.int64, device=device)
        all_directed = torch.arange(2 * num_relations, device=device)
        back.scatter_reduce_(0, step_of, all_directed & 1, "amin")
        inverse = torch.zeros(num_steps, dtype=torch.int64, device=device)
        inverse[step_of] = step_of[all_directed ^ 1]
        return cls(
            step_of=step_of,
            inverse=inverse,
            is_backward=back.bool(),
            group_offsets=torch.cat([groups_of.new_zeros(1), groups_of.cumsum(0)]),
            group_steps=torch.cat([none, *group_steps]),
            slot_offsets=torch.cat([*starts, end]),
            neighbours=neighbours,
            edge_ids=edge_ids,
            inverse_bits=pack_bits(is_inverse) if is_merged else graph.inverse_bits,
        )

    @property
    def num_bytes(self) -> int:
        """Size of all tensors, those shared with the graph included."""
        tensors = (self.step_of, self.inverse, self.is_backward, self.group_offsets, self.group_steps)
        slots = (self.slot_offsets, self.neighbours, self.edge_ids, self.inverse_bits)
        return sum(t.numel() * t.element_size() for t in (*tensors, *slots))

    def is_forward(self, slots: Int64[Tensor, " slots"]) -> Bool[Tensor, " slots"]:
        """Whether slots walk their edges from head to tail."""
        return ~bits_at(self.inverse_bits, slots)

    def sizes(self, groups: Int64[Tensor, " groups"]) -> Int64[Tensor, " groups"]:
        """Slots of groups."""
        return (self.slot_offsets[groups + 1] - self.slot_offsets[groups]).long()

    def slots_of(self, groups: Int64[Tensor, " groups"]) -> tuple[Int64[Tensor, " slots"], Int64[Tensor, " slots"]]:
        """All slots of groups, in order, and the place in `groups` that each came from."""
        return ranges(self.slot_offsets[groups].long(), self.sizes(groups))

    def find_groups(
        self, entities: Int64[Tensor, " pairs"], steps: Int64[Tensor, " pairs"]
    ) -> tuple[Int64[Tensor, " found"], Bool[Tensor, " pairs"]]:
        """The groups of those (entity, step) pairs that have one, and a mask of these pairs."""
        low, end = self.group_offsets[entities], self.group_offsets[entities + 1]
        high = end
        while bool((low < high).any()):  # every pair halves its own entity's groups
            middle = (low + high) // 2
            is_less = (low < high) & (self.group_steps[middle.clamp(max=self.group_steps.numel() - 1)] < steps)
            low, high = torch.where(is_less, middle + 1, low), torch.where(is_less | (low >= high), high, middle)
        found = low < end
        found[found.clone()] = self.group_steps[low[found]] == steps[found]
        return low[found], found

    def sharing(self) -> sp.csr_array:
        """How many entities have both steps a and b: int64 [steps, steps]. Its diagonal counts the entities of one.

        The ends of step c are the entities that have `inverse[c]`, so row `inverse[c]` says what goes on after c.
        """
        offsets, steps = self.group_offsets.cpu().numpy(), self.group_steps.cpu().numpy()
        total = sp.csr_array((self.num_steps, self.num_steps), dtype=np.int64)
        for first, last in entity_runs(self.group_offsets, BLOCK_SLOTS):
            held = steps[offsets[first] : offsets[last]]
            parts = np.ones(len(held), np.int64), held, offsets[first : last + 1] - offsets[first]
            has_step = sp.csr_array(parts, shape=(last - first, self.num_steps))
            total = total + has_step.T @ has_step
        return total.tocsr()

    def sample_ends(
        self, num_samples: int, block_groups: int = BLOCK_SLOTS
    ) -> tuple[Int64[Tensor, " samples"], Int64[Tensor, " steps_plus_1"]]:
        """A fixed sample of at most `num_samples` distinct ends of each step, with offsets by step."""
        none = self.inverse.new_zeros(0)
        steps, ends = none, none
        for first, last in entity_runs(self.group_offsets, block_groups):
            part = slice(int(self.group_offsets[first]), int(self.group_offsets[last]))
            counts = self.group_offsets[first : last + 1].diff()
            owners = torch.repeat_interleave(torch.arange(first, last, device=none.device), counts)
            # An entity with the inverse of c is an end of c. The sample of all samples is that of all ends.
            steps = torch.cat([steps, self.inverse[self.group_steps[part].long()]])
            ends = torch.cat([ends, owners])
            keep = _sample_rows(steps, ends, num_samples)
            steps, ends = steps[keep], ends[keep]
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
    keys = owners[place] * max(graph.num_steps, 1) + graph.group_steps[groups].long()
    distinct, path_of = torch.unique(keys, return_inverse=True)
    parents, steps = distinct // max(graph.num_steps, 1), distinct % max(graph.num_steps, 1)
    if max_ends == 0:
        none = distinct.new_zeros(0)
        return PathLevel(parents, steps, none, none)
    starts, sizes = graph.slot_offsets[groups].long(), graph.sizes(groups)
    taken = sizes.clamp(max=max_ends)  # evenly spaced slots of a large group
    rows = torch.repeat_interleave(torch.arange(len(groups), device=groups.device), taken)
    nth = torch.arange(len(rows), device=groups.device) - torch.repeat_interleave(taken.cumsum(0) - taken, taken)
    ends = graph.neighbours[starts[rows] + nth * sizes[rows] // taken[rows]].long()
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


def ranges(
    starts: Int64[Tensor, " ranges"], sizes: Int64[Tensor, " ranges"]
) -> tuple[Int64[Tensor, " items"], Int64[Tensor, " items"]]:
    """The numbers `starts[i]` to `starts[i] + sizes[i]` of every range i, and the range that each is of."""
    owners = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)
    nth = torch.arange(len(owners), device=sizes.device) - (sizes.cumsum(0) - sizes)[owners]
    return starts[owners] + nth, owners


def _rank_within(owners: Int64[Tensor, " rows"]) -> Int64[Tensor, " rows"]:
    """Position of each row within its run of equal owners."""
    if not owners.numel():
        return owners
    is_first = torch.ones_like(owners, dtype=torch.bool)
    is_first[1:] = owners[1:] != owners[:-1]
    positions = torch.arange(len(owners), device=owners.device)
    return positions - torch.cummax(torch.where(is_first, positions, 0), 0).values


def _owners(graph: CsrGraph, first: int, last: int) -> Int64[Tensor, " slots"]:
    """The entity of each slot of a run of entities, counted from the run's first."""
    counts = graph.offsets[first : last + 1].diff()
    return torch.repeat_interleave(torch.arange(last - first, device=graph.device), counts)


def _merge_aliases(
    graph: CsrGraph, num_directed: int, alias_share: float, min_pairs: int, block_slots: int
) -> Int64[Tensor, " directed"]:
    """The step of each directed relation, numbered by the lowest directed relation in it."""
    device = graph.device
    if not num_directed:
        return torch.zeros(0, dtype=torch.int64, device=device)
    sizes = torch.zeros(num_directed, dtype=torch.int64, device=device)
    keys, shared = sizes.new_zeros(0), sizes.new_zeros(0)
    for first, last in entity_runs(graph.offsets, block_slots):
        part = slice(int(graph.offsets[first]), int(graph.offsets[last]))
        directed = graph.directed_relations(part.start, part.stop)
        size = max(graph.num_entities, 1)
        pairs, pair_ids = torch.unique(
            _owners(graph, first, last) * size + graph.neighbours[part].long(), return_inverse=True
        )
        distinct = torch.unique(pair_ids * num_directed + directed)
        pair_ids, directed = distinct // num_directed, distinct % num_directed
        sizes += torch.bincount(directed, minlength=num_directed)
        offsets = torch.zeros(len(pairs) + 1, dtype=torch.int64, device=device)
        torch.cumsum(torch.bincount(pair_ids, minlength=len(pairs)), 0, out=offsets[1:])
        others, place = csr_expand(offsets, pair_ids)  # every two relations over the same pair of entities
        one, two = directed[place], directed[others]
        opposite = (one & 1 == 0) & (two & 1 == 1)
        more, counts = torch.unique(one[opposite] * num_directed + two[opposite], return_counts=True)
        keys, spot = torch.unique(torch.cat([keys, more]), return_inverse=True)
        shared = torch.zeros_like(keys).index_add_(0, spot, torch.cat([shared, counts]))
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
    roots = torch.tensor([find(node) for node in range(num_directed)], device=device)
    return torch.unique(roots, return_inverse=True)[1]
