"""maxsim in Triton: a program owns one row and a tile of question tokens, and never writes the products."""

# Triton turns plain values into constexpr at the call, which its annotations do not say.
# pyright: reportArgumentType=false, reportAssignmentType=false, reportCallIssue=false

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.maxsim import MaxSimInputs
from kernels.maxsim.digits import BASE, split_questions

TOKENS, COLUMNS = 16, 16


@triton.jit
def _maxsim_kernel(
    tokens, token_scale, ranges, sentence_ids, high, low, question_scale, firsts, lengths, out,
    dim, num_ranges, width, empty, padding,
    WHOLE: tl.constexpr, TWO: tl.constexpr, BASE: tl.constexpr,
    DIM: tl.constexpr, TOKENS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    own = column < tl.load(lengths + row)
    question = tl.load(firsts + row) + column
    sentence = tl.load(sentence_ids + row)
    axis = tl.arange(0, DIM)
    reads = (axis < dim)[:, None] & own[None, :]
    digits = tl.load(high + question[None, :] * dim + axis[:, None], mask=reads, other=0)
    if TWO:
        lower = tl.load(low + question[None, :] * dim + axis[:, None], mask=reads, other=0)
    best = tl.full([COLUMNS], float("-inf"), tl.float32)
    seen = tl.full([], 0, tl.int64)
    for part in range(num_ranges):
        begin = tl.load(ranges + (sentence * num_ranges + part) * 2)
        end = tl.load(ranges + (sentence * num_ranges + part) * 2 + 1)
        seen += end - begin
        for start in range(begin, end, TOKENS):
            token = start + tl.arange(0, TOKENS)
            inside = token < end
            block = tl.load(
                tokens + token[:, None].to(tl.int64) * dim + axis[None, :],
                mask=inside[:, None] & (axis < dim)[None, :],
                other=0,
            )
            if WHOLE:
                total = tl.dot(block, digits, out_dtype=tl.int32)
                if TWO:
                    total = total * BASE + tl.dot(block, lower, out_dtype=tl.int32)
                product = total.to(tl.float32)
            else:
                product = tl.dot(block.to(tl.float32), digits, input_precision="ieee")
            product *= tl.load(token_scale + token, mask=inside, other=1.0)[:, None]
            product = tl.where(inside[:, None], product, float("-inf"))
            best = tl.maximum(best, tl.max(product, axis=0))
    best *= tl.load(question_scale + question, mask=own, other=1.0)
    best = tl.where(seen > 0, best, empty)
    tl.store(out + row * width + column, tl.where(own, best, padding), mask=column < width)


def all_sentences(inputs: MaxSimInputs, _block_tokens: int) -> Tensor:
    """[sentences, question_tokens]."""
    sentences = torch.arange(inputs.ranges.shape[0], device=inputs.tokens.device)
    width = inputs.question_tokens.shape[0]
    return _run(inputs, sentences, torch.zeros_like(sentences), torch.full_like(sentences, width), width, 0.0)


def listed_pairs(
    inputs: MaxSimInputs, question_ids: Tensor, sentence_ids: Tensor, padding: float, _block_tokens: int
) -> Tensor:
    """[pairs, longest question]."""
    offsets = inputs.question_offsets
    lengths = offsets[1:] - offsets[:-1]
    width = int(lengths.max()) if lengths.numel() else 0
    return _run(inputs, sentence_ids, offsets[question_ids], lengths[question_ids], width, padding)


def _run(
    inputs: MaxSimInputs, sentences: Tensor, firsts: Tensor, lengths: Tensor, width: int, padding: float
) -> Tensor:
    out = torch.empty((sentences.numel(), width), dtype=torch.float32, device=sentences.device)
    if not out.numel():
        return out
    whole, low, scale = inputs.tokens.dtype == torch.int8, None, inputs.question_scale
    if whole:
        high, low, scale = split_questions(inputs.question_tokens, inputs.question_scale)
    else:
        high = inputs.question_tokens.float()
    ones = torch.ones(max(inputs.tokens.shape[0], high.shape[0], 1), device=out.device)
    dim = inputs.tokens.shape[1]
    _maxsim_kernel[(sentences.numel(), triton.cdiv(width, COLUMNS))](
        inputs.tokens.contiguous(),
        ones if inputs.token_scale is None else inputs.token_scale.contiguous(),
        inputs.ranges.contiguous(),
        sentences.contiguous(),
        high.contiguous(),
        high if low is None else low.contiguous(),
        ones if scale is None else scale.contiguous(),
        firsts.contiguous(),
        lengths.contiguous(),
        out,
        dim,
        inputs.ranges.shape[1],
        width,
        inputs.empty,
        padding,
        WHOLE=whole,
        TWO=low is not None,
        BASE=BASE,
        DIM=max(32, triton.next_power_of_2(dim)),
        TOKENS=TOKENS,
        COLUMNS=COLUMNS,
    )
    return out
