"""Which reached entities an agent goes on from (AnchorRAG, entity ranking; the next frontier)."""

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from kgrag_gpu.ranking.relations import keep_best


def widest_frontier(
    agent_ids: Int64[Tensor, " steps"], scores: Float64[Tensor, " steps"], limit: int
) -> Int64[Tensor, " kept"]:
    """Rows of the best `limit` steps of each agent, sorted by (agent, row); ties go to the lowest row."""
    order = torch.argsort(agent_ids, stable=True)
    return order[keep_best(scores[order], agent_ids[order], limit)]


def rarity(num_mentions: Int64[Tensor, " items"]) -> Float64[Tensor, " items"]:
    """Higher for entities that few passages mention: an end shared with few says more. `-log2(max(2, mentions))`."""
    return -torch.log2(num_mentions.clamp(min=2).double())
