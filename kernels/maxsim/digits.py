"""Fixed-point form of question tokens: two int8 digits, so that products with int8 tokens are exact integers."""

import torch
from torch import Tensor

BASE = 128
LARGEST = 127 * BASE


def split_questions(question_tokens: Tensor, question_scale: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor]:
    """High digit, low digit (None where the question is int8 already) and the scale [question_tokens].

    ``question_tokens ~ (128 * high + low) * scale``, both digits within -127..127.
    """
    num_tokens = question_tokens.shape[0]
    if question_tokens.dtype == torch.int8:
        ones = torch.ones(num_tokens, device=question_tokens.device)
        return question_tokens, None, ones if question_scale is None else question_scale
    wide = question_tokens.double()
    largest = wide.abs().amax(1) if wide.shape[1] else wide.new_zeros(num_tokens)
    step = torch.where(largest > 0, largest, 1.0) / LARGEST
    fixed = torch.round(wide / step[:, None])
    high = torch.floor((fixed + BASE // 2) / BASE)
    low = fixed - BASE * high
    scale = step.float() if question_scale is None else step.float() * question_scale
    return high.to(torch.int8), low.to(torch.int8), scale
