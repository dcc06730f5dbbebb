"""The inputs of frontier_relax in checked form, and how costs are looked up.

Costs may be tensors or functions; the forms of the op ask only through ``node_costs_at`` and ``edge_costs_at``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from kernels import checks

CostFunction = Callable[[Tensor, Tensor], Tensor]
INFINITY = float("inf")


class RelaxSeeds(NamedTuple):
    """Where the labels start: one entry for each (question, group, node), costs 0 where None."""

    question_ids: Tensor
    group_ids: Tensor
    node_ids: Tensor
    costs: Tensor | None = None


class RelaxGraph:
    """CSR out-edges, and the same edges by their end, which only the dense form reads (made at first use)."""

    def __init__(self, offsets: Tensor, neighbours: Tensor) -> None:
        """Check and keep ``offsets`` (one more than there are nodes) and ``neighbours``."""
        checks.require_integers("neighbours", neighbours)
        checks.same_device(offsets=offsets, neighbours=neighbours)
        checks.items_fit("slots", neighbours.numel(), "split the graph")
        self.offsets = checks.offsets_over("offsets", offsets, neighbours.numel(), "neighbours")
        checks.ids_below("neighbours", neighbours, self.num_nodes, "the graph")
        self.neighbours = neighbours.int()

    @property
    def num_nodes(self) -> int:
        """Nodes of the graph."""
        return self.offsets.numel() - 1

    @cached_property
    def incoming(self) -> tuple[Tensor, Tensor, Tensor]:
        """Offsets, sources and slots of each node's in-edges, slots rising (int32)."""
        slots = torch.argsort(self.neighbours.long(), stable=True)
        degrees = self.offsets[1:] - self.offsets[:-1]
        sources = torch.repeat_interleave(torch.arange(self.num_nodes, device=slots.device), degrees)[slots]
        counts = torch.bincount(self.neighbours.long(), minlength=self.num_nodes)
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return offsets.int(), sources.int(), slots.int()

    @cached_property
    def ones(self) -> Tensor:
        """A weight of 1 for each slot, as torch's sparse product wants one."""
        return torch.ones(self.neighbours.numel(), device=self.neighbours.device)


@dataclass(frozen=True)
class Problem:
    """Everything a form of frontier_relax needs, checked."""

    graph: RelaxGraph
    seeds: RelaxSeeds
    num_questions: int
    num_groups: int
    num_hops: int
    node_costs: Tensor | CostFunction
    edge_costs: Tensor | CostFunction | None
    edge_ids: Tensor | None
    node_mask: Tensor | None
    max_labels: int | None
    max_cost: float

    @property
    def device(self) -> torch.device:
        """Where the graph lies."""
        return self.graph.offsets.device

    def node_costs_at(self, question_ids: Tensor, node_ids: Tensor) -> Tensor:
        """float32 cost of entering each node; infinite outside the mask."""
        if isinstance(self.node_costs, Tensor):
            cells = question_ids * self.graph.num_nodes + node_ids
            costs = self.node_costs.reshape(-1).index_select(0, cells).float()
        else:
            costs = self.node_costs(question_ids, node_ids).float()
        require_costs("node_costs", costs)
        if self.node_mask is None:
            return costs
        return torch.where(self.mask_at(question_ids, node_ids), costs, INFINITY)

    def mask_at(self, question_ids: Tensor, node_ids: Tensor) -> Tensor:
        """True where the node belongs to the question's local graph."""
        if self.node_mask is None:
            return torch.ones_like(node_ids, dtype=torch.bool)
        return self.node_mask[node_ids] if self.node_mask.ndim == 1 else self.node_mask[question_ids, node_ids]

    def edge_costs_at(self, question_ids: Tensor, slots: Tensor) -> Tensor | None:
        """float32 cost of each slot, or None where edges are free."""
        if self.edge_costs is None:
            return None
        edges = slots if self.edge_ids is None else self.edge_ids[slots].long()
        if not isinstance(self.edge_costs, Tensor):
            costs = self.edge_costs(question_ids, edges).float()
        elif self.edge_costs.ndim == 1:
            costs = self.edge_costs[edges].float()
        else:
            costs = self.edge_costs[question_ids, edges].float()
        require_costs("edge_costs", costs)
        return costs

    def starts(self) -> tuple[Tensor, Tensor]:
        """Sorted distinct keys ``(question * groups + group) * nodes + node`` of the seeds and their least costs."""
        seeds = self.seeds
        keys = (seeds.question_ids * self.num_groups + seeds.group_ids) * self.graph.num_nodes + seeds.node_ids
        costs = torch.zeros(keys.shape, device=keys.device) if seeds.costs is None else seeds.costs.float() + 0.0
        inside = self.mask_at(seeds.question_ids, seeds.node_ids) & (costs <= self.max_cost) & torch.isfinite(costs)
        keys, costs = keys[inside], costs[inside]
        by_cost = torch.argsort(costs, stable=True)
        keys, order = torch.sort(keys[by_cost], stable=True)
        first = first_of_run(keys)
        return keys[first], costs[by_cost][order][first]


def require_costs(name: str, costs: Tensor) -> None:
    """Raise ``ValueError`` where a cost is negative or NaN (CPU only)."""
    if costs.device.type == "cpu" and costs.numel() and not float(costs.min()) >= 0:
        raise ValueError(f"{name} must be at least 0 and not NaN (got {float(costs.min())})")


def first_of_run(ordered: Tensor) -> Tensor:
    """True at the first of each run of equal numbers."""
    first = torch.ones(ordered.shape, dtype=torch.bool, device=ordered.device)
    first[1:] = ordered[1:] != ordered[:-1]
    return first


def cost_bits(costs: Tensor) -> Tensor:
    """Costs of at least 0 as int64 in the same order."""
    return (costs + 0.0).view(torch.int32).long()


def least_arrivals(keys: Tensor, arriving: Tensor) -> tuple[Tensor, Tensor]:
    """Distinct keys, rising, and the candidate with the least cost for each; ties go to the first candidate.

    Candidates come in the order of their slots within a column, so the first is the one with the lowest slot.
    """
    if not keys.numel():
        return keys, keys
    base = keys.min()
    ordered, order = torch.sort(((keys - base) << 31) | cost_bits(arriving), stable=True)
    distinct = ordered >> 31
    first = torch.nonzero(first_of_run(distinct)).flatten()
    return distinct.index_select(0, first) + base, order.index_select(0, first)
