"""What can be walked from an entity: its relations, and behind each relation its neighbours.

One table serves both kinds of graph. Over triples an entity's *links* are its distinct directed relations, and the
members of a link are the entities at their other ends. Over passages a link is a sentence that names the entity or
belongs to its own passage, and its members are all entities that the sentence ties together (the title among them).
The table knows rows only: no names, no texts, no scores.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from kernels import csr_expand
from kgrag_gpu.tensors.csr_graph import CsrGraph


class Expansion(NamedTuple):
    """Rows found behind rows: `owners[i]` is the position in the input that item i came from; owners never fall."""

    owners: Int64[Tensor, " items"]
    rows: Int64[Tensor, " items"]


@dataclass(frozen=True, eq=False)
class WalkTable:
    """Links of entities and members of links.

    Link i of entity v lies at `link_offsets[v] <= i < link_offsets[v + 1]`. Its wording is row `link_texts[i]` of the
    text table; its members are `member_entities[member_offsets[g] : member_offsets[g + 1]]` for `g = link_groups[i]`.
    """

    link_offsets: Int64[Tensor, " entities_plus_1"]
    link_texts: Int64[Tensor, " links"]
    link_groups: Int64[Tensor, " links"]
    member_offsets: Int64[Tensor, " groups_plus_1"]
    member_entities: Int64[Tensor, " members"]
    member_edge_ids: Int64[Tensor, " members"]  # rows of the KG's triples, -1 where a member is no edge's end

    @property
    def num_entities(self) -> int:
        """Rows of the entity table."""
        return self.link_offsets.numel() - 1

    @classmethod
    def from_graph(cls, graph: CsrGraph) -> "WalkTable":
        """Triples: a link for each distinct (entity, directed relation); its text row is 2 * relation + is_inverse."""
        directed = graph.directed_relations()
        entities = torch.repeat_interleave(
            torch.arange(graph.num_entities, device=graph.device), graph.degrees(), output_size=graph.num_slots
        )
        is_first = torch.ones(graph.num_slots, dtype=torch.bool, device=graph.device)
        is_first[1:] = (entities[1:] != entities[:-1]) | (directed[1:] != directed[:-1])
        starts = torch.nonzero(is_first).flatten()  # slots are sorted by (entity, directed relation)
        return cls(
            link_offsets=_offsets(entities[starts], graph.num_entities),
            link_texts=directed[starts],
            link_groups=torch.arange(starts.numel(), device=graph.device),
            member_offsets=torch.cat([starts, starts.new_tensor([graph.num_slots])]),
            member_entities=graph.neighbours.long(),
            member_edge_ids=graph.edge_ids.long(),
        )

    @classmethod
    def from_memberships(
        cls,
        text_ids: Int64[Tensor, " memberships"],
        entity_ids: Int64[Tensor, " memberships"],
        edge_ids: Int64[Tensor, " memberships"],
        num_texts: int,
        num_entities: int,
    ) -> "WalkTable":
        """Texts that tie entities together (sentences): a link for each distinct (entity, text).

        A repeated pair counts once and keeps its highest edge id (-1 means no edge).
        """
        keys, inverse = torch.unique(text_ids * max(1, num_entities) + entity_ids, return_inverse=True)
        edges = torch.full_like(keys, -1).scatter_reduce(0, inverse, edge_ids, "amax")
        texts, entities = keys // max(1, num_entities), keys % max(1, num_entities)
        by_entity = torch.argsort(entities, stable=True)
        return cls(
            link_offsets=_offsets(entities, num_entities),
            link_texts=texts[by_entity],
            link_groups=texts[by_entity],
            member_offsets=_offsets(texts, num_texts),
            member_entities=entities,
            member_edge_ids=edges,
        )

    def to(self, device: torch.device | str) -> "WalkTable":
        """The same table on another device."""
        return WalkTable(**{name: tensor.to(device) for name, tensor in vars(self).items()})

    def num_links(self, entity_ids: Int64[Tensor, " rows"]) -> Int64[Tensor, " rows"]:
        """How many links each entity has."""
        return self.link_offsets[entity_ids + 1] - self.link_offsets[entity_ids]

    def links_of(self, entity_ids: Int64[Tensor, " rows"]) -> Expansion:
        """All links of each entity, in the order of `entity_ids`, ascending within one."""
        slots, owners = csr_expand(self.link_offsets, entity_ids)
        return Expansion(owners, slots)

    def members_of(self, link_ids: Int64[Tensor, " rows"], from_ids: Int64[Tensor, " rows"]) -> Expansion:
        """Members of each link but the entity it was taken from, unless that one stands alone (a self-loop).

        Args:
            link_ids: links.
            from_ids: the entity that each link was taken from.

        Returns:
            Rows of `member_entities`, ascending within a link.
        """
        slots, owners = csr_expand(self.member_offsets, self.link_groups[link_ids])
        groups = self.link_groups[link_ids]
        alone = (self.member_offsets[groups + 1] - self.member_offsets[groups]) == 1
        kept = (self.member_entities[slots] != from_ids[owners]) | alone[owners]
        return Expansion(owners[kept], slots[kept])


def sample_hubs(
    owners: Int64[Tensor, " items"], keys: Int64[Tensor, " items"], limit: int, seed: int
) -> Bool[Tensor, " items"]:
    """Which items stay where an owner has more than `limit`: a seeded sample, the same in every batch.

    Args:
        owners: non-falling; the items of an owner stand together.
        keys: what an item is (a row of the KG), which alone decides its luck.
        limit: items that an owner may keep.
        seed: another seed draws another sample.
    """
    counts = torch.bincount(owners)
    if not owners.numel() or int(counts.max()) <= limit:
        return torch.ones_like(owners, dtype=torch.bool)
    order = torch.argsort(_mixed(keys, seed), stable=True)
    order = order[torch.argsort(owners[order], stable=True)]
    first = counts.cumsum(0) - counts
    places = torch.arange(owners.numel(), device=owners.device) - first[owners[order]]
    kept = torch.zeros_like(owners, dtype=torch.bool)
    kept[order] = places < limit
    return kept


def _mixed(keys: Int64[Tensor, " items"], seed: int) -> Int64[Tensor, " items"]:
    """splitmix64's finaliser (sign bits dropped): neighbouring keys get unrelated numbers. int64 wraps as wanted."""
    mixed = keys + (seed + 1) * 0x1E3779B97F4A7C15
    mixed = (mixed ^ ((mixed >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47
    mixed = (mixed ^ ((mixed >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return (mixed ^ ((mixed >> 31) & 0x1FFFFFFFF)) & 0x7FFFFFFFFFFFFFFF


def _offsets(sorted_or_not: Int64[Tensor, " rows"], size: int) -> Int64[Tensor, " size_plus_1"]:
    offsets = torch.zeros(size + 1, dtype=torch.int64, device=sorted_or_not.device)
    torch.cumsum(torch.bincount(sorted_or_not, minlength=size), 0, out=offsets[1:])
    return offsets
