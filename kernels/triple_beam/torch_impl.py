"""triple_beam in torch: one sort by (parent, score falling, row), the decay by rank, then segment_topk."""

import torch
from torch import Tensor

from kernels.segment_topk import segment_topk
from kernels.segment_topk.torch_impl import sortable


def step(
    scores: Tensor, parent_ids: Tensor, parent_questions: Tensor, num_questions: int, beam_width: int, gamma: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Indices, decayed scores and raw scores, each [questions, beam_width]."""
    decayed = decay_by_rank(scores, parent_ids, gamma)
    questions = parent_questions[parent_ids]
    order = torch.argsort(questions, stable=True)
    counts = torch.bincount(questions, minlength=num_questions)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    top = segment_topk(decayed[order], offsets, beam_width)
    inside = top.indices >= 0
    if not scores.numel():
        return top.indices, top.values, top.values.clone()
    indices = torch.where(inside, order[top.indices.clamp(min=0)], -1)
    return indices, top.values, torch.where(inside, scores[indices.clamp(min=0)], float("-inf"))


def decay_by_rank(scores: Tensor, parent_ids: Tensor, gamma: float) -> Tensor:
    """Each score times ``exp(-min(n, gamma) / gamma)``, n its rank (from 0) among the scores of its parent."""
    keys = (parent_ids << 32) - sortable(scores).long()  # parent first, then score falling
    ordered, order = torch.sort(keys, stable=True)
    del ordered
    parents = parent_ids[order]
    places = torch.arange(parents.numel(), device=parents.device)
    starts = torch.where(torch.cat([parents.new_ones(1, dtype=torch.bool), parents[1:] != parents[:-1]]), places, 0)
    ranks = places - torch.cummax(starts, 0).values if parents.numel() else places
    weights = torch.exp(-ranks.double().clamp(max=gamma) / gamma)
    out = torch.empty_like(scores)
    out[order] = (scores[order].double() * weights).float()
    return out
