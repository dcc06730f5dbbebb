"""The definition of triple_beam: the words of GeAR's step 4 as loops over lists."""

import math

import torch
from torch import Tensor


def step(
    scores: Tensor, parent_ids: Tensor, parent_questions: Tensor, num_questions: int, beam_width: int, gamma: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Indices, decayed scores and raw scores, each [questions, beam_width]."""
    raw, parents, questions = scores.tolist(), parent_ids.tolist(), parent_questions.tolist()
    decayed = torch.empty(len(raw), dtype=torch.float32)
    for parent in range(len(questions)):
        children = [row for row in range(len(raw)) if parents[row] == parent]
        for rank, row in enumerate(sorted(children, key=lambda row: (-raw[row], row))):
            decayed[row] = raw[row] * math.exp(-min(rank, gamma) / gamma)
    indices = torch.full((num_questions, beam_width), -1, dtype=torch.int64)
    for question in range(num_questions):
        rows = [row for row in range(len(raw)) if questions[parents[row]] == question]
        rows = sorted(rows, key=lambda row: (-decayed[row].item(), row))[:beam_width]
        indices[question, : len(rows)] = torch.tensor(rows, dtype=torch.int64)
    indices = indices.to(scores.device)
    if not raw:
        nothing = torch.full(indices.shape, float("-inf"), device=scores.device)
        return indices, nothing, nothing.clone()
    inside, rows = indices >= 0, indices.clamp(min=0)
    kept = torch.where(inside, decayed.to(scores.device)[rows], float("-inf"))
    return indices, kept, torch.where(inside, scores[rows], float("-inf"))
