"""Exact walks along chosen relation paths, for all questions at once: ends, number of ways there, and their triples.

A walk never goes straight back over the triple it came by: "films with the same director as X" does not end at X
through the very triple that led away from it, while a second triple between the two (a mutual `spouse`) may. Knows no
names and no texts.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from kgrag_gpu.expansion.relation_paths import StepGraph

BACKWARD_SUPPORT = 0.5  # of a triple walked from tail to head, where a forward one counts 1


@dataclass(frozen=True, eq=False)
class WalkEnds:
    """Ends of walks: walk w owns `offsets[w]` to `offsets[w + 1]`, best supported first, equal ones by entity row.

    Attributes:
        entities: rows of the KG.
        support: number of ways to the end, triples walked backward counted by half each.
        edge_ids: triples of one such way, -1 beyond its length.
    """

    offsets: Int64[Tensor, " walks_plus_1"]
    entities: Int64[Tensor, " ends"]
    support: Float64[Tensor, " ends"]
    edge_ids: Int64[Tensor, "ends depth"]

    def on_host(self) -> "WalkEnds":
        """The same on the CPU."""
        return WalkEnds(self.offsets.cpu(), self.entities.cpu(), self.support.cpu(), self.edge_ids.cpu())

    def away_from(self, anchors: Int64[Tensor, " walks"]) -> "WalkEnds":
        """The same with a walk's own anchor left out of its ends, unless it is the only one.

        "Who wrote the films that X directed?" has X among its ends, and with the most ways, wherever X wrote some; but
        a question seldom asks for the entity that it names.
        """
        walks = torch.repeat_interleave(
            torch.arange(len(anchors), device=anchors.device), self.offsets.diff(), output_size=len(self.entities)
        )
        kept = (self.entities != anchors[walks]) | (self.offsets.diff() == 1)[walks]
        counts = torch.bincount(walks[kept], minlength=len(anchors))
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return WalkEnds(offsets, self.entities[kept], self.support[kept], self.edge_ids[kept])


@dataclass(eq=False)
class _States:
    """Where the walks stand: walk, entity, ways so far, triples so far."""

    walks: Tensor
    entities: Tensor
    support: Tensor
    trails: Tensor

    def merged(self, keys: Tensor) -> "_States":
        """One state for each distinct key, by key: ways added up, the first trail kept. Sums of halves are exact."""
        _, place, counts = torch.unique(keys, return_inverse=True, return_counts=True)
        order = torch.argsort(place, stable=True)
        first = order[counts.cumsum(0) - counts]
        support = torch.zeros(len(counts), dtype=torch.float64, device=keys.device)
        support.index_add_(0, place, self.support)
        return _States(self.walks[first], self.entities[first], support, self.trails[first])


def walk_paths(
    graph: StepGraph,
    anchors: Int64[Tensor, " walks"],
    paths: Int64[Tensor, "walks depth"],
    max_slots: int = 20_000_000,
) -> WalkEnds:
    """Walk one path from each anchor.

    Args:
        graph: the KG by steps.
        anchors: where each walk begins.
        paths: its steps, padded with -1.
        max_slots: slots expanded at a time; more walks than fit are split over several goes, nothing is dropped.
            A single walk is done whatever its size.

    Returns:
        The ends of every walk; a walk that leads nowhere has none.
    """
    found = _walk(graph, anchors, paths, max_slots)
    if found is not None:
        return found
    half = len(anchors) // 2
    left = walk_paths(graph, anchors[:half], paths[:half], max_slots)
    right = walk_paths(graph, anchors[half:], paths[half:], max_slots)
    return WalkEnds(
        torch.cat([left.offsets, right.offsets[1:] + left.offsets[-1]]),
        torch.cat([left.entities, right.entities]),
        torch.cat([left.support, right.support]),
        torch.cat([left.edge_ids, right.edge_ids]),
    )


def _walk(graph: StepGraph, anchors: Tensor, paths: Tensor, max_slots: int) -> WalkEnds | None:
    """None when the walks together are too many for `max_slots`."""
    num_walks, depth = paths.shape
    device = anchors.device
    states = _States(
        torch.arange(num_walks, device=device),
        anchors,
        torch.ones(num_walks, dtype=torch.float64, device=device),
        torch.full((num_walks, depth), -1, dtype=torch.int64, device=device),
    )
    done: list[_States] = []
    for position in range(depth):
        steps = paths[states.walks, position]
        done.append(_rows(states, (steps < 0) & (position > 0)))
        states, steps = _rows(states, steps >= 0), steps[steps >= 0]
        groups, found = graph.find_groups(states.entities, steps)
        states = _rows(states, found)
        sizes = graph.sizes(groups).sum()
        if int(sizes) > max_slots and num_walks > 1:
            return None
        states = _advance(graph, states, groups, position)
        ahead = paths[:, position + 1] if position + 1 < depth else torch.full_like(paths[:, 0], -1)
        now, then = paths[states.walks, position], ahead[states.walks]
        # Only a walk that turns, or that could go round a self-loop again, needs to know its last triple.
        edges = torch.where((then == graph.inverse[now]) | (then == now), states.trails[:, position] + 1, 0)
        spots = states.walks * graph.num_entities + states.entities
        states = states.merged(_pair_keys(spots, edges))
    done.append(states)
    return _ends(done, num_walks, graph.num_entities)


def _advance(graph: StepGraph, states: _States, groups: Tensor, position: int) -> _States:
    slots, place = graph.slots_of(groups)
    edges = graph.edge_ids[slots].long()
    ahead = torch.ones_like(edges, dtype=torch.bool) if not position else edges != states.trails[place, position - 1]
    slots, place, edges = slots[ahead], place[ahead], edges[ahead]
    weight = torch.where(graph.is_forward(slots), 1.0, BACKWARD_SUPPORT).double()
    trails = states.trails[place]
    trails[:, position] = edges
    return _States(states.walks[place], graph.neighbours[slots].long(), states.support[place] * weight, trails)


def _pair_keys(major: Tensor, minor: Tensor) -> Tensor:
    """One number for each pair, ordered as the pairs are; `major` is renumbered first, so that the product fits."""
    if not len(major):
        return major
    return torch.unique(major, return_inverse=True)[1] * (int(minor.max()) + 1) + minor


def _rows(states: _States, mask: Tensor) -> _States:
    return _States(states.walks[mask], states.entities[mask], states.support[mask], states.trails[mask])


def _ends(done: list[_States], num_walks: int, num_entities: int) -> WalkEnds:
    joined = _States(
        torch.cat([s.walks for s in done]),
        torch.cat([s.entities for s in done]),
        torch.cat([s.support for s in done]),
        torch.cat([s.trails for s in done]),
    )
    ends = joined.merged(joined.walks * max(num_entities, 1) + joined.entities)
    order = torch.argsort(ends.support, descending=True, stable=True)  # rows are by (walk, entity) already
    order = order[torch.argsort(ends.walks[order], stable=True)]
    offsets = torch.zeros(num_walks + 1, dtype=torch.int64, device=ends.walks.device)
    torch.cumsum(torch.bincount(ends.walks, minlength=num_walks), 0, out=offsets[1:])
    return WalkEnds(offsets, ends.entities[order], ends.support[order], ends.trails[order])
