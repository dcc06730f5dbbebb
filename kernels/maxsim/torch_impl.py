"""maxsim in torch: blocks of sentences, one matrix product each, then the maximum over each sentence's tokens.

The questions are the columns of one matrix, so a block of sentence tokens is read once for the whole batch.
"""

import bisect
from typing import NamedTuple

import torch
from torch import Tensor

from kernels.csr_expand import csr_expand
from kernels.maxsim import MaxSimInputs
from kernels.maxsim.digits import BASE, split_questions
from kernels.segments import segment_max

MAX_QUESTIONS = 8  # a block of pairs multiplies the columns of all its questions: few of them, or little is wasted
SMALL_BLOCK = 256
PAIR_BLOCKS = 16  # a block of pairs has few columns: it takes so many times the tokens of a block of all questions
BLOCKS_AT_ONCE = 64


class Questions(NamedTuple):
    """Question tokens in the form that blocks are multiplied by."""

    digits: Tensor  # [dim, question_tokens] float, or int8 high digits
    low: Tensor | None  # [dim, question_tokens] int8
    scale: Tensor | None


def all_sentences(inputs: MaxSimInputs, block_tokens: int) -> Tensor:
    """[sentences, question_tokens]."""
    questions = _prepare(inputs)
    num_sentences, width = inputs.ranges.shape[0], inputs.question_tokens.shape[0]
    out = torch.empty((num_sentences, width), dtype=inputs.accumulate, device=inputs.tokens.device)
    ends = (inputs.ranges[..., 1] - inputs.ranges[..., 0]).sum(1).cumsum(0).tolist()
    first = 0
    while first < num_sentences:
        # The tokens' places are worked out for many blocks at once: a block itself is a few calls.
        past = _block_end(ends, first, BLOCKS_AT_ONCE * block_tokens)
        places, bounds = _places(inputs.ranges[first:past])
        pointers = bounds.tolist()
        start = first
        while start < past:
            stop = min(past, _block_end(ends, start, block_tokens))
            left, right = pointers[start - first], pointers[stop - first]
            block_bounds = bounds[start - first : stop - first + 1] - left
            out[start:stop] = _block(inputs, questions, places[left:right], block_bounds, 0, width)
            start = stop
        first = past
    return out


def listed_pairs(
    inputs: MaxSimInputs, question_ids: Tensor, sentence_ids: Tensor, padding: float, block_tokens: int
) -> Tensor:
    """[pairs, longest question]; pairs are taken question by question, so that a block has few columns."""
    questions = _prepare(inputs)
    offsets = inputs.question_offsets
    lengths = offsets[1:] - offsets[:-1]
    width = int(lengths.max()) if lengths.numel() else 0
    shape = (question_ids.numel(), width)
    out = torch.empty(shape, dtype=inputs.accumulate, device=inputs.tokens.device)
    order = torch.argsort(question_ids, stable=True)
    ranges, owners = inputs.ranges[sentence_ids[order]], question_ids[order]
    ends = (ranges[..., 1] - ranges[..., 0]).sum(1).cumsum(0).tolist()
    owner_list, pointers = owners.tolist(), offsets.tolist()
    columns = torch.arange(width, device=offsets.device)
    first = 0
    while first < len(ends):
        past = _block_end(ends, first, PAIR_BLOCKS * block_tokens)
        within = bisect.bisect_left(owner_list, owner_list[first] + MAX_QUESTIONS, first, past)
        past = max(within, min(past, _block_end(ends, first, SMALL_BLOCK)))
        left, right = pointers[owner_list[first]], pointers[owner_list[past - 1] + 1]
        block = _block(inputs, questions, *_places(ranges[first:past]), left, right)
        own = owners[first:past]
        # each row keeps the columns of its own question, moved to the left
        inside = columns < lengths[own][:, None]
        taken = (offsets[own][:, None] - left + columns).clamp_(max=max(right - left - 1, 0))
        rows = torch.where(inside, block.gather(1, taken), padding) if right > left else padding
        out[order[first:past]] = rows if isinstance(rows, Tensor) else out.new_tensor(rows)
        first = past
    return out


def _block_end(ends: list[int], first: int, block_tokens: int) -> int:
    """Past-the-end row of a block that starts at ``first`` and holds at most ``block_tokens``, or one row."""
    before = ends[first - 1] if first else 0
    return max(first + 1, bisect.bisect_right(ends, before + block_tokens, first))


def _prepare(inputs: MaxSimInputs) -> Questions:
    if inputs.tokens.dtype == torch.int8:
        high, low, scale = split_questions(inputs.question_tokens, inputs.question_scale)
        return Questions(high.T.contiguous(), None if low is None else low.T.contiguous(), scale)
    return Questions(inputs.question_tokens.to(inputs.accumulate).T.contiguous(), None, inputs.question_scale)


def _places(ranges: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of the sentences' tokens, sentence by sentence, and pointers [sentences + 1] into them."""
    begins = ranges[..., 0].flatten()
    lengths = (ranges[..., 1] - ranges[..., 0]).flatten()
    bounds = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    slots, owners = csr_expand(bounds, torch.arange(lengths.numel(), device=bounds.device))
    return begins[owners] + slots - bounds[owners], bounds[:: ranges.shape[1]].contiguous()


def _block(inputs: MaxSimInputs, questions: Questions, places: Tensor, bounds: Tensor, left: int, right: int) -> Tensor:
    """Rows [sentences of the block, columns left..right); ``bounds`` point into ``places``, the tokens' rows."""
    if places.numel() == 0 or right == left:
        shape = (bounds.numel() - 1, right - left)
        return torch.full(shape, inputs.empty, dtype=inputs.accumulate, device=places.device)
    tokens, scale, places = _gathered(inputs, places)
    products = _products(tokens, questions, inputs.accumulate, left, right)
    weights = None if scale is None else scale[places].to(inputs.accumulate)
    best = segment_max(products, places, bounds, weights)
    if questions.scale is not None:
        best *= questions.scale[left:right]
    return best.masked_fill_((bounds[1:] == bounds[:-1])[:, None], inputs.empty)


def _gathered(inputs: MaxSimInputs, places: Tensor) -> tuple[Tensor, Tensor | None, Tensor]:
    """The tokens that the places name, each once, their scales, and the places among them."""
    first, last = (int(end) for end in torch.aminmax(places)) if places.device.type == "cpu" else (0, places.numel())
    if places.device.type == "cpu" and last - first < places.numel():
        # Sentences that follow one another: their tokens are one run, and nothing needs to be copied.
        span = slice(first, last + 1)
        return inputs.tokens[span], None if inputs.token_scale is None else inputs.token_scale[span], places - first
    rows, places = torch.unique(places, return_inverse=True)
    scale = None if inputs.token_scale is None else inputs.token_scale[rows]
    return inputs.tokens.index_select(0, rows), scale, places


def _products(tokens: Tensor, questions: Questions, accumulate: torch.dtype, left: int, right: int) -> Tensor:
    """Tokens times the question columns, before any scale."""
    columns = questions.digits[:, left:right]
    if tokens.dtype != torch.int8:
        return tokens.to(accumulate) @ columns
    high = _integer_product(tokens, columns)
    if questions.low is None:
        return high.to(torch.float32)
    low = _integer_product(tokens, questions.low[:, left:right])
    return torch.add(low, high, alpha=BASE, out=low).to(torch.float32)


def _integer_product(left: Tensor, right: Tensor) -> Tensor:
    """Exact int32 product of two int8 matrices."""
    if left.device.type == "cpu":
        return torch._int_mm(left, right)
    # torch's integer product has shape limits on CUDA; below 1024 dims float32 sums of these are whole as well
    return (left.float() @ right.float()).to(torch.int32)
