"""The KG's edges on a device: one compressed sparse row table over both directions. Knows no names and no texts."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int32, Int64, Integer, UInt8
from torch import Tensor

from kgrag_gpu.tensors.packed_bits import bits_at, pack_bits
from kgrag_gpu.types import UserError

BLOCK_SLOTS = 1 << 24  # put in order at a time
MAX_COUNT = 2**31 - 1  # neighbours and edge numbers are int32


@dataclass(frozen=True, eq=False)
class CsrGraph:
    """Both directions of every edge. Slot i of entity v lies at `offsets[v] <= i < offsets[v + 1]`.

    An edge (h, r, t) has a slot at h (forward: neighbour t) and a slot at t (inverse: neighbour h); a self-loop has
    the forward one alone, so it is never walked twice. Within an entity slots are ordered by
    (directed relation = 2 * relation + is_inverse, neighbour, edge).

    It takes 8 bytes and a bit a slot, 2 bytes an edge (4 from 2^15 relations on) and 8 an entity.
    """

    offsets: Int64[Tensor, " entities_plus_1"]
    neighbours: Int32[Tensor, " slots"]
    edge_ids: Int32[Tensor, " slots"]
    inverse_bits: UInt8[Tensor, " slot_bytes"]
    edge_relation: Integer[Tensor, " edges"]
    num_entities: int

    @classmethod
    def from_triples(
        cls,
        heads: Integer[Tensor, " edges"] | np.ndarray,
        relations: Integer[Tensor, " edges"] | np.ndarray,
        tails: Integer[Tensor, " edges"] | np.ndarray,
        num_entities: int,
        block_slots: int = BLOCK_SLOTS,
    ) -> "CsrGraph":
        """Build from row numbers of entities and relations; the table lies on the device of `heads`.

        Entities are put in order a run of about `block_slots` slots at a time: beside the inputs and the table itself
        the peak is some 60 bytes for each of these.

        Raises:
            UserError: 2^31 or more entities, edges or slots.
            ValueError: arrays of different length, or row numbers out of range.
        """
        head, relation, tail = (_tensor(column) for column in (heads, relations, tails))
        num_edges = head.numel()
        if relation.numel() != num_edges or tail.numel() != num_edges:
            raise ValueError(f"heads, relations, tails differ in length: {num_edges}, {len(relation)}, {len(tail)}")
        check_counts(num_entities, num_edges)
        _check_range(head, num_entities, "heads")
        _check_range(tail, num_entities, "tails")
        _check_range(relation, MAX_COUNT, "relations")
        is_two_way = head != tail
        check_slots(num_edges + int(is_two_way.sum()))
        degrees = torch.bincount(head, minlength=num_entities)
        degrees += torch.bincount(tail[is_two_way], minlength=num_entities)
        offsets = torch.zeros(num_entities + 1, dtype=torch.int64, device=head.device)
        torch.cumsum(degrees, 0, out=offsets[1:])
        num_slots = int(offsets[-1])
        neighbours, edge_ids = (torch.empty(num_slots, dtype=torch.int32, device=head.device) for _ in range(2))
        is_inverse = torch.empty(num_slots, dtype=torch.bool, device=head.device)
        for first, last in entity_runs(offsets, block_slots):
            out = ((head >= first) & (head < last)).nonzero().squeeze(1)
            back = ((tail >= first) & (tail < last) & is_two_way).nonzero().squeeze(1)
            owner = torch.cat([head[out], tail[back]]).long() - first
            neighbour = torch.cat([tail[out], head[back]]).long()
            directed = torch.cat([2 * relation[out].long(), 2 * relation[back].long() + 1])
            order = _slot_order(owner, directed, neighbour, num_entities)
            part = slice(int(offsets[first]), int(offsets[last]))
            neighbours[part] = neighbour[order].to(torch.int32)
            edge_ids[part] = torch.cat([out, back])[order].to(torch.int32)
            is_inverse[part] = (directed[order] & 1).bool()
        is_short = num_edges == 0 or int(relation.max()) <= torch.iinfo(torch.int16).max
        return cls(
            offsets=offsets,
            neighbours=neighbours,
            edge_ids=edge_ids,
            inverse_bits=pack_bits(is_inverse),
            edge_relation=relation.to(torch.int16 if is_short else torch.int32),
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
        tensors = (self.offsets, self.neighbours, self.edge_ids, self.inverse_bits, self.edge_relation)
        return sum(t.numel() * t.element_size() for t in tensors)

    def degrees(self) -> Int64[Tensor, " entities"]:
        """Slots of each entity."""
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def is_inverse(self) -> Bool[Tensor, " slots"]:
        """Whether each slot walks its edge from tail to head."""
        return bits_at(self.inverse_bits, torch.arange(self.num_slots, device=self.device))

    def directed_relations(self, start: int = 0, end: int | None = None) -> Int64[Tensor, " slots"]:
        """2 * relation + is_inverse of slots: a relation seen inward is not the same one seen outward."""
        slots = torch.arange(start, self.num_slots if end is None else end, device=self.device)
        edges = self.edge_ids[start:end].long()
        return 2 * self.edge_relation[edges].long() + bits_at(self.inverse_bits, slots).long()

    def to(self, device: torch.device | str) -> "CsrGraph":
        """The same graph on another device."""
        return CsrGraph(
            offsets=self.offsets.to(device),
            neighbours=self.neighbours.to(device),
            edge_ids=self.edge_ids.to(device),
            inverse_bits=self.inverse_bits.to(device),
            edge_relation=self.edge_relation.to(device),
            num_entities=self.num_entities,
        )


def entity_runs(offsets: Int64[Tensor, " entities_plus_1"], block_slots: int) -> Iterator[tuple[int, int]]:
    """(first, last) of runs of entities with about `block_slots` slots together; a hub with more is alone."""
    first, num_entities = 0, len(offsets) - 1
    while first < num_entities:
        limit = offsets[first] + block_slots
        last = max(first + 1, int(torch.searchsorted(offsets, limit, right=True)) - 1)
        yield first, min(last, num_entities)
        first = last


def _tensor(column: Integer[Tensor, " edges"] | np.ndarray) -> Integer[Tensor, " edges"]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a memory map is read-only, and nothing here writes to it
        return torch.as_tensor(column)


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


def _check_range(values: Integer[Tensor, " edges"], size: int, name: str) -> None:
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
