"""k_hop in torch: sorted lists of (set, node) keys while frontiers are small, then words of 64 sets for each node."""

import numpy as np
import torch
from torch import Tensor

from kernels import checks
from kernels.csr_expand import csr_expand

BLOCK_SLOTS = 1 << 22  # slots whose words are gathered at a time
LIST_FACTOR = 5  # expanding and sorting one slot costs about as much as this many slots of a pass over words
SETS = 64


def walk(
    offsets: Tensor, neighbours: Tensor, seed_ids: Tensor, set_ids: Tensor, num_sets: int, num_hops: int, form: str
) -> tuple[Tensor, Tensor]:
    """Offsets and node ids of the sets."""
    num_nodes = offsets.numel() - 1
    pass_slots = neighbours.numel() * -(-num_sets // SETS)
    seen = _distinct(set_ids * num_nodes + seed_ids)
    frontier = seen
    for hop in range(num_hops):
        nodes = frontier % num_nodes if num_nodes else frontier
        walked = int((offsets[nodes + 1] - offsets[nodes]).sum())
        wide = form == "auto" and offsets.device.type == "cpu" and walked * LIST_FACTOR > pass_slots
        if form == "bits" or wide:
            return _walk_bits(offsets, neighbours, seen, num_sets, num_hops - hop)
        slots, owners = csr_expand(offsets, nodes)
        found = (frontier - nodes).index_select(0, owners) + neighbours.index_select(0, slots)
        if hop < num_hops - 1:
            frontier = _without(_distinct(found), seen)
            found = frontier
        seen = _distinct(torch.cat([seen, found]))
        if not frontier.numel():
            break
    sets = torch.arange(num_sets + 1, device=seen.device)
    return torch.searchsorted(seen, sets * num_nodes), seen % max(num_nodes, 1)


def _distinct(keys: Tensor) -> Tensor:
    return torch.unique_consecutive(torch.sort(keys).values)


def _without(keys: Tensor, seen: Tensor) -> Tensor:
    """Keys that are not in ``seen``; both sorted."""
    if not seen.numel():
        return keys
    places = torch.searchsorted(seen, keys).clamp_(max=seen.numel() - 1)
    return keys[seen[places] != keys]


def _walk_bits(
    offsets: Tensor, neighbours: Tensor, seen: Tensor, num_sets: int, num_hops: int
) -> tuple[Tensor, Tensor]:
    num_nodes = offsets.numel() - 1
    lists, lengths = [], []
    for first in range(0, num_sets, SETS):
        past = min(first + SETS, num_sets)
        bounds = torch.searchsorted(seen, torch.tensor([first * num_nodes, past * num_nodes])).tolist()
        keys = seen[bounds[0] : bounds[1]]
        words = torch.zeros(num_nodes, dtype=torch.int64)
        # every (set, node) stands there once, so adding bits is joining them
        words.index_add_(0, keys % max(num_nodes, 1), torch.ones_like(keys) << (keys // max(num_nodes, 1) - first))
        for _ in range(num_hops):
            words |= _neighbours_union(offsets, neighbours, words)
        for nodes in _members(words, past - first):
            lists.append(nodes)
            lengths.append(nodes.numel())
    checks.items_fit("nodes listed", sum(lengths), "split the sets")
    return torch.tensor([0, *lengths]).cumsum(0), torch.cat(lists) if lists else seen


def _neighbours_union(offsets: Tensor, neighbours: Tensor, words: Tensor) -> Tensor:
    """Bitwise or of the words of each node's neighbours, in blocks of rows."""
    out = torch.zeros_like(words)
    if not neighbours.numel():
        return out
    row, num_nodes = 0, words.numel()
    while row < num_nodes:
        limit = offsets[row] + BLOCK_SLOTS
        past = max(row + 1, int(torch.searchsorted(offsets, limit, right=True)) - 1)
        bounds = offsets[row : past + 1]
        begin, end = int(bounds[0]), int(bounds[-1])
        filled = torch.nonzero(bounds[1:] > bounds[:-1]).flatten()
        if end > begin:
            gathered = words.index_select(0, neighbours[begin:end]).numpy()
            starts = (bounds[:-1].index_select(0, filled) - begin).numpy()
            out[row + filled] = torch.from_numpy(np.bitwise_or.reduceat(gathered, starts))
        row = past
    return out


def _members(words: Tensor, num_sets: int) -> list[Tensor]:
    """The nodes whose word holds each set's bit."""
    planes = words.view(torch.uint8).view(-1, 8)  # little-endian: byte b holds sets 8b to 8b + 7
    members = []
    for first in range(0, num_sets, 8):
        plane = planes[:, first // 8].contiguous()
        for bit in range(min(8, num_sets - first)):
            held = torch.bitwise_and(plane, 1 << bit).to(torch.bool)
            members.append(torch.nonzero(held).flatten())
    return members
