"""The definition of k_hop: a breadth-first search over Python sets, one set of seeds after the other."""

from torch import Tensor


def walk(
    offsets: Tensor, neighbours: Tensor, seed_ids: Tensor, set_ids: Tensor, num_sets: int, num_hops: int, _form: str
) -> tuple[Tensor, Tensor]:
    """Offsets and node ids of the sets."""
    bounds, ends = offsets.tolist(), neighbours.tolist()
    seeds = list(zip(set_ids.tolist(), seed_ids.tolist(), strict=True))
    pointers, listed = [0], []
    for number in range(num_sets):
        reached = frontier = {node for owner, node in seeds if owner == number}
        for _ in range(num_hops):
            frontier = {end for node in frontier for end in ends[bounds[node] : bounds[node + 1]]} - reached
            reached = reached | frontier
        listed.extend(sorted(reached))
        pointers.append(len(listed))
    return offsets.new_tensor(pointers), offsets.new_tensor(listed)
