"""The KG's edges on a device: one compressed sparse row table over both directions. Knows no names and no texts."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int32, Int64, Integer
from torch import Tensor

from kgrag_gpu.types import UserError

MAX_COUNT = 2**31 - 1  # neighbours and edge numbers are int32


@dataclass(frozen=True, eq=False)
class CsrGraph:
    """Both directions of every edge. Slot i of entity v lies at `offsets[v] <= i < offsets[v + 1]`.

    An edge (h, r, t) has a slot at h (forward: neighbour t) and a slot at t (inverse: neighbour h); a self-loop has
    the forward one alone, so it is never walked twice. Within an entity slots are ordered by
    (directed relation = 2 * relation + is_inverse, neighbour, edge).
    """

    offsets: Int64[Tensor, " entities_plus_1"]
    neighbours: Int32[Tensor, " slots"]
    edge_ids: Int32[Tensor, " slots"]
    is_inverse: Bool[Tensor, " slots"]
    edge_relation: Int32[Tensor, " edges"]
    num_entities: int

    @classmethod
    def from_triples(
        cls,
        heads: Integer[Tensor, " edges"] | np.ndarray,
        relations: Integer[Tensor, " edges"] | np.ndarray,
        tails: Integer[Tensor, " edges"] | np.ndarray,
        num_entities: int,
    ) -> "CsrGraph":
        """Build from row numbers of entities and relations; the table lies on the device of `heads`.

        Raises:
            UserError: 2^31 or more entities, edges or slots.
            ValueError: arrays of different length, or row numbers out of range.
        """
        head, relation, tail = (torch.as_tensor(column).to(torch.int64) for column in (heads, relations, tails))
        num_edges = head.numel()
        if relation.numel() != num_edges or tail.numel() != num_edges:
            raise ValueError(f"heads, relations, tails differ in length: {num_edges}, {len(relation)}, {len(tail)}")
        check_counts(num_entities, num_edges)
        _check_range(head, num_entities, "heads")
        _check_range(tail, num_entities, "tails")
        _check_range(relation, MAX_COUNT, "relations")
        edge = torch.arange(num_edges, device=head.device)
        two_way = (head != tail).nonzero().squeeze(1)
        check_slots(num_edges + two_way.numel())
        owner = torch.cat([head, tail[two_way]])
        neighbour = torch.cat([tail, head[two_way]])
        edge_ids = torch.cat([edge, edge[two_way]])
        directed = torch.cat([2 * relation, 2 * relation[two_way] + 1])
        order = _slot_order(owner, directed, neighbour, num_entities)
        offsets = torch.zeros(num_entities + 1, dtype=torch.int64, device=head.device)
        torch.cumsum(torch.bincount(owner, minlength=num_entities), 0, out=offsets[1:])
        return cls(
            offsets=offsets,
            neighbours=neighbour[order].to(torch.int32),
            edge_ids=edge_ids[order].to(torch.int32),
            is_inverse=(directed[order] & 1).bool(),
            edge_relation=relation.to(torch.int32),
            num_entities=num_entities,
        )

    @property
    def num_edges(self) -> int:
        """Triples."""
        return self.edge_relation.numel()

    @property
    def num_slots(self) -> int:
        """Edge ends: two per edge, one per self-loop."""
        return self.neighbours.numel()

    @property
    def device(self) -> torch.device:
        """Where the tensors lie."""
        return self.offsets.device

    @property
    def num_bytes(self) -> int:
        """Size of all tensors."""
        tensors = (self.offsets, self.neighbours, self.edge_ids, self.is_inverse, self.edge_relation)
        return sum(t.numel() * t.element_size() for t in tensors)

    def degrees(self) -> Int64[Tensor, " entities"]:
        """Slots of each entity."""
        return self.offsets[1:] - self.offsets[:-1]

    def directed_relations(self) -> Int64[Tensor, " slots"]:
        """2 * relation + is_inverse of each slot: a relation seen inward is not the same one seen outward."""
        return 2 * self.edge_relation[self.edge_ids.long()].long() + self.is_inverse.long()

    def to(self, device: torch.device | str) -> "CsrGraph":
        """The same graph on another device."""
        return CsrGraph(
            offsets=self.offsets.to(device),
            neighbours=self.neighbours.to(device),
            edge_ids=self.edge_ids.to(device),
            is_inverse=self.is_inverse.to(device),
            edge_relation=self.edge_relation.to(device),
            num_entities=self.num_entities,
        )


def check_counts(num_entities: int, num_edges: int) -> None:
    """Refuse what int32 cannot number, rather than wrap.

    Raises:
        UserError: 2^31 or more entities or edges.
    """
    for count, name in ((num_entities, "entities"), (num_edges, "edges")):
        if count > MAX_COUNT:
            raise UserError(f"the graph has {count:,} {name}; more than 2^31 - 1 cannot be numbered: split the graph")


def check_slots(num_slots: int) -> None:
    """Refuse a table that is too long.

    Raises:
        UserError: 2^31 or more edge ends over both directions.
    """
    if num_slots > MAX_COUNT:
        raise UserError(
            f"the graph has {num_slots:,} edge ends over both directions; "
            "more than 2^31 - 1 do not fit one table: split the graph"
        )


def _check_range(values: Int64[Tensor, " edges"], size: int, name: str) -> None:
    if values.numel() and (int(values.min()) < 0 or int(values.max()) >= size):
        raise ValueError(f"{name} hold row numbers {int(values.min())}..{int(values.max())}, expected 0..{size - 1}")


def _slot_order(
    owner: Int64[Tensor, " slots"],
    directed: Int64[Tensor, " slots"],
    neighbour: Int64[Tensor, " slots"],
    num_entities: int,
) -> Int64[Tensor, " slots"]:
    """Order by (owner, directed relation, neighbour, edge).

    The sorts are stable and a (directed relation, neighbour) run of one owner is still in edge order, so the edge
    needs no sort of its own. One packed sort where the key fits int64, else from the least key to the greatest.
    """
    num_directed = int(directed.max()) + 1 if directed.numel() else 1
    if num_entities * num_directed * num_entities < 2**63:
        key = (owner * num_directed + directed) * num_entities + neighbour
        return torch.argsort(key, stable=True)
    order = torch.argsort(neighbour, stable=True)
    order = order[torch.argsort(directed[order], stable=True)]
    return order[torch.argsort(owner[order], stable=True)]
