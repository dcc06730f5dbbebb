"""MaxSim: for each (question, sentence), how well each question token is met by the best token of the sentence."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from kernels import backend as backends
from kernels import checks

BLOCK_TOKENS = 1024


class MaxSimInputs(NamedTuple):
    """Checked inputs, as every form of the op takes them."""

    tokens: Tensor  # [tokens, dim] float or int8
    token_scale: Tensor | None  # [tokens] float32
    ranges: Tensor  # [sentences, ranges, 2] int64
    question_tokens: Tensor  # [question_tokens, dim] float or int8
    question_scale: Tensor | None  # [question_tokens] float32
    question_offsets: Tensor  # [questions + 1] int64
    accumulate: torch.dtype
    empty: float


def maxsim(
    tokens: Shaped[Tensor, "tokens dim"],
    sentence_ranges: Int[Tensor, "sentences ..."],
    question_tokens: Shaped[Tensor, "question_tokens dim"],
    question_offsets: Int[Tensor, " questions_plus_one"],
    *,
    question_ids: Int[Tensor, " pairs"] | None = None,
    sentence_ids: Int[Tensor, " pairs"] | None = None,
    token_scale: Float[Tensor, "..."] | None = None,
    question_scale: Float[Tensor, "..."] | None = None,
    accumulate: torch.dtype = torch.float32,
    empty: float = float("-inf"),
    padding: float = 0.0,
    block_tokens: int = BLOCK_TOKENS,
    backend: str = "auto",
) -> Float[Tensor, "rows columns"]:
    """``max over tokens t of the sentence of tokens[t] . question_tokens[j]`` (ColBERT's late interaction).

    Without pairs every sentence meets every question: the result is [sentences, question_tokens] and question q
    owns the columns ``question_offsets[q] : question_offsets[q + 1]``. With pairs the result is
    [pairs, longest question], row i for ``(question_ids[i], sentence_ids[i])``, its columns past the question's
    length filled with ``padding``. Pairs may repeat and come in any order.

    Exactness. int8 tokens are met by int8 question tokens, or by float ones put on a grid of 1/16256 of their
    largest component; sums are integers, so the result is one for all blocks, batches and devices. Float tokens are
    multiplied in ``accumulate``: unit vectors on a grid of 2^-11 (float64: 2^-24) have exact sums; others agree
    to rounding.

    Args:
        tokens: token states, float (any width) or int8.
        sentence_ranges: [sentences, 2] first and past-the-end token, or [sentences, ranges, 2] where a sentence owns
            several runs (its title's tokens and its own). Empty runs are allowed.
        question_tokens: all questions' tokens, one after the other.
        question_offsets: pointers of the questions into ``question_tokens``.
        question_ids, sentence_ids: the pairs; both or none.
        token_scale: what an int8 (or float) token is multiplied by: one number, or one for each token.
        question_scale: the same for question tokens.
        accumulate: float32 or float64; ignored where tokens are int8.
        empty: the value of a sentence without tokens.
        padding: the value of columns past a question's length.
        block_tokens: sentence tokens multiplied at a time; changes memory and speed only.
        backend: ``auto``, ``reference``, ``torch`` or ``triton`` (float32 sums).

    Returns:
        float32 (float64 where ``accumulate`` is).

    Raises:
        ValueError: shapes that do not fit. IndexError: ids or ranges outside. OverflowError: past 2^31 - 1 rows.

    Working set: see ``maxsim_bytes``.
    """
    inputs = _checked(
        tokens, sentence_ranges, question_tokens, question_offsets, token_scale, question_scale, accumulate, empty
    )
    if (question_ids is None) != (sentence_ids is None):
        raise ValueError("give both question_ids and sentence_ids, or neither for all sentences")
    if block_tokens < 1:
        raise ValueError(f"block_tokens must be at least 1 (got {block_tokens})")
    if question_ids is not None and sentence_ids is not None:
        question_ids, sentence_ids = _checked_pairs(inputs, question_ids, sentence_ids)
    chosen = backends.choose(backend, "maxsim")
    if chosen == "reference":
        from kernels.maxsim.reference import all_sentences, listed_pairs
    elif chosen == "triton" and inputs.accumulate == torch.float32:
        from kernels.maxsim.triton_impl import all_sentences, listed_pairs
    else:
        from kernels.maxsim.torch_impl import all_sentences, listed_pairs
    if question_ids is None or sentence_ids is None:
        return all_sentences(inputs, block_tokens)
    return listed_pairs(inputs, question_ids, sentence_ids, padding, block_tokens)


def maxsim_bytes(
    num_rows: int, num_columns: int, dim: int, num_question_tokens: int, *, int8: bool, block_tokens: int = BLOCK_TOKENS
) -> int:
    """Peak bytes of the torch form above its inputs, in float32 or int8.

    The output; the questions in working form (one copy float, two digits int8); and one block: its gathered tokens and
    its products (int8: both digits as int32, then their sum as float32); and the places of 64 blocks' tokens, 40 bytes
    each while they are worked out. Listed pairs take 16 times the tokens at once, of at most 8 questions: less than
    this from 128 questions on, and 2 kB more for each of `block_tokens` below.
    """
    block = block_tokens * (64 * 40 + dim * (1 if int8 else 8) + num_question_tokens * (12 if int8 else 4))
    return 4 * num_rows * num_columns + num_question_tokens * dim * (6 if int8 else 4) + block


def _checked(tokens, ranges, question_tokens, question_offsets, token_scale, question_scale, accumulate, empty):
    checks.floats("tokens", tokens, 2, also=(torch.int8,))
    checks.floats("question_tokens", question_tokens, 2, also=(torch.int8,))
    checks.same_device(tokens=tokens, sentence_ranges=ranges, question_tokens=question_tokens)
    checks.items_fit("tokens", tokens.shape[0], "split the sentences")
    if tokens.shape[1] != question_tokens.shape[1]:
        raise ValueError(
            f"tokens and question_tokens must have one dim (got {tokens.shape[1]} and {question_tokens.shape[1]})"
        )
    if question_tokens.dtype == torch.int8 and tokens.dtype != torch.int8:
        raise TypeError(f"int8 question_tokens need int8 tokens (got {tokens.dtype}); pass the questions as float")
    if tokens.dtype == torch.int8 and tokens.shape[1] > 1024:
        raise ValueError(f"int8 tokens may have at most 1024 dims, or sums leave int32 (got {tokens.shape[1]})")
    if accumulate not in (torch.float32, torch.float64):
        raise TypeError(f"accumulate must be torch.float32 or torch.float64 (got {accumulate})")
    offsets = checks.offsets_over("question_offsets", question_offsets, question_tokens.shape[0], "question_tokens")
    return MaxSimInputs(
        tokens,
        _scale("token_scale", token_scale, tokens),
        _checked_ranges(ranges, tokens.shape[0]),
        question_tokens,
        _scale("question_scale", question_scale, question_tokens),
        offsets,
        torch.float32 if tokens.dtype == torch.int8 else accumulate,
        empty,
    )


def _checked_ranges(ranges: Tensor, num_tokens: int) -> Tensor:
    if ranges.ndim == 2:
        ranges = ranges[:, None, :]
    if ranges.ndim != 3 or ranges.shape[2] != 2:
        raise ValueError(
            f"sentence_ranges must be [sentences, 2] or [sentences, ranges, 2] (got {tuple(ranges.shape)})"
        )
    ranges = checks.integers("sentence_ranges", ranges, 3)
    if ranges.device.type == "cpu" and ranges.numel():
        if int(ranges.min()) < 0 or int(ranges.max()) > num_tokens:
            raise IndexError(
                f"sentence_ranges must lie in 0..{num_tokens} (got {int(ranges.min())}..{int(ranges.max())})"
            )
        if bool((ranges[..., 1] < ranges[..., 0]).any()):
            raise ValueError("sentence_ranges must not end before they begin")
    return ranges


def _checked_pairs(inputs: MaxSimInputs, question_ids: Tensor, sentence_ids: Tensor) -> tuple[Tensor, Tensor]:
    question_ids = checks.integers("question_ids", question_ids)
    sentence_ids = checks.integers("sentence_ids", sentence_ids)
    checks.same_device(tokens=inputs.tokens, question_ids=question_ids, sentence_ids=sentence_ids)
    checks.items_fit(
        "pairs", checks.same_length(question_ids=question_ids, sentence_ids=sentence_ids), "split the pairs"
    )
    checks.ids_below("question_ids", question_ids, inputs.question_offsets.numel() - 1, "the questions")
    checks.ids_below("sentence_ids", sentence_ids, inputs.ranges.shape[0], "the sentences")
    return question_ids, sentence_ids


def _scale(name: str, scale: Tensor | None, of: Tensor) -> Tensor | None:
    if scale is None:
        return None
    checks.same_device(scale=scale, tokens=of)
    if scale.numel() == 1:
        return scale.float().reshape(1).expand(of.shape[0])
    if scale.shape != (of.shape[0],):
        raise ValueError(f"{name} must be one number or one for each token, {of.shape[0]} (got {tuple(scale.shape)})")
    return scale.float()
