"""The definition of maxsim: one (question, sentence) at a time, in plain loops over small matrices."""

import itertools

import torch
from torch import Tensor

from kernels.maxsim import MaxSimInputs
from kernels.maxsim.digits import BASE, split_questions


def all_sentences(inputs: MaxSimInputs, _block_tokens: int) -> Tensor:
    """[sentences, question_tokens]."""
    rows = [_row(inputs, sentence, slice(None)) for sentence in range(inputs.ranges.shape[0])]
    width = inputs.question_tokens.shape[0]
    return torch.stack(rows) if rows else inputs.tokens.new_empty((0, width), dtype=inputs.accumulate)


def listed_pairs(
    inputs: MaxSimInputs, question_ids: Tensor, sentence_ids: Tensor, padding: float, _block_tokens: int
) -> Tensor:
    """[pairs, longest question]."""
    bounds = inputs.question_offsets.tolist()
    width = max((end - begin for begin, end in itertools.pairwise(bounds)), default=0)
    shape = (question_ids.numel(), width)
    out = torch.full(shape, padding, dtype=inputs.accumulate, device=inputs.tokens.device)
    for pair, (question, sentence) in enumerate(zip(question_ids.tolist(), sentence_ids.tolist(), strict=True)):
        columns = slice(bounds[question], bounds[question + 1])
        out[pair, : columns.stop - columns.start] = _row(inputs, sentence, columns)
    return out


def _row(inputs: MaxSimInputs, sentence: int, columns: slice) -> Tensor:
    """Best product of each question token with the sentence's tokens."""
    spans = [torch.arange(begin, end) for begin, end in inputs.ranges[sentence].tolist()]
    ids = torch.cat(spans).to(inputs.tokens.device)
    question_tokens = inputs.question_tokens[columns]
    if ids.numel() == 0:
        return torch.full((question_tokens.shape[0],), inputs.empty, dtype=inputs.accumulate)
    question_scale = None if inputs.question_scale is None else inputs.question_scale[columns]
    if inputs.tokens.dtype == torch.int8:
        high, low, question_scale = split_questions(question_tokens, question_scale)
        fixed = high.long() if low is None else BASE * high.long() + low.long()
        products = (inputs.tokens[ids].long() @ fixed.T).to(inputs.accumulate)
    else:
        products = inputs.tokens[ids].to(inputs.accumulate) @ question_tokens.to(inputs.accumulate).T
    if inputs.token_scale is not None:
        products = products * inputs.token_scale[ids, None]
    best = products.amax(0)
    return best if question_scale is None else best * question_scale
