"""Nodes within k hops of many sets of seeds in one call: the local graphs of a batch."""

from typing import NamedTuple

from jaxtyping import Int
from torch import Tensor

from kernels import backend as backends
from kernels import checks

FORMS = ("auto", "lists", "bits")


class KHop(NamedTuple):
    """Nodes of each set, rising: set i holds ``node_ids[offsets[i] : offsets[i + 1]]``."""

    offsets: Int[Tensor, " sets_plus_one"]
    node_ids: Int[Tensor, " nodes"]


def k_hop(
    offsets: Int[Tensor, " nodes_plus_one"],
    neighbours: Int[Tensor, " slots"],
    seed_ids: Int[Tensor, " seeds"],
    set_ids: Int[Tensor, " seeds"],
    num_sets: int,
    num_hops: int,
    *,
    form: str = "auto",
    backend: str = "auto",
) -> KHop:
    """All nodes that at most ``num_hops`` edges separate from the seeds of each set, seeds included.

    A set is a question (the union of its anchors' neighbourhoods, BubbleRAG step 3) or a single anchor, as
    ``set_ids`` say. The CSR must hold every edge in both directions. Two forms give equal results:

    * lists: the frontier of every set is expanded and merged by sorting; costs what it walks, whatever the graph.
    * bits (CPU): each node holds one bit for each of 64 sets, and takes the union of its neighbours' bits in one
      pass over all slots; best once the frontiers of the batch walk the graph many times over.

    ``auto`` begins with lists and changes to bits at the hop where that is less work.

    Args:
        offsets, neighbours: the graph; int32 neighbours save half the reading.
        seed_ids, set_ids: the seeds and the set each belongs to; they may repeat.
        num_sets: sets in the batch; a set without seeds is empty.
        num_hops: at least 0.
        form: ``auto``, ``lists`` or ``bits``.
        backend: ``auto``, ``reference`` or ``torch``.

    Raises:
        ValueError: options or lengths that do not fit. IndexError: ids outside.
        OverflowError: more than 2^31 - 1 nodes listed, or slots walked in one hop; split the sets.

    Working set: see ``k_hop_bytes``.
    """
    checks.require_integers("neighbours", neighbours)
    offsets, seed_ids = checks.integers("offsets", offsets), checks.integers("seed_ids", seed_ids)
    set_ids = checks.integers("set_ids", set_ids)
    device = checks.same_device(offsets=offsets, neighbours=neighbours, seed_ids=seed_ids, set_ids=set_ids)
    checks.same_length(seed_ids=seed_ids, set_ids=set_ids)
    checks.items_fit("slots", neighbours.numel(), "split the graph")
    checks.ids_below("seed_ids", seed_ids, offsets.numel() - 1, "the graph")
    checks.ids_below("set_ids", set_ids, num_sets, "the sets")
    if num_hops < 0:
        raise ValueError(f"num_hops must be at least 0 (got {num_hops})")
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)} (got {form!r})")
    if form == "bits" and device.type != "cpu":
        raise ValueError(f"form='bits' runs on the CPU alone (got tensors on {device}); use 'lists'")
    if backends.choose(backend, "k_hop", has_triton_form=False) == "reference":
        from kernels.k_hop.reference import walk
    else:
        from kernels.k_hop.torch_impl import walk
    return KHop(*walk(offsets, neighbours, seed_ids, set_ids, num_sets, num_hops, form))


def k_hop_bytes(num_nodes: int, num_slots: int, num_sets: int, num_listed: int) -> int:
    """Peak bytes of the bits form above its inputs, once the walk has changed to it.

    The words of all sets and the union being made for one of them, a block of gathered words, and the list twice
    while its pieces are joined.
    """
    from kernels.k_hop.torch_impl import BLOCK_SLOTS

    words = -(-num_sets // 64)
    gathered = 16 * min(num_slots, BLOCK_SLOTS)
    return 8 * num_nodes * words + max(16 * num_nodes + gathered, 16 * num_listed + 20 * num_nodes)
