"""Top-k, and mean of the top k, over ragged segments."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from kernels import backend as backends
from kernels import checks


class SegmentTopk(NamedTuple):
    """Best scores of each segment in falling order, and their positions in ``scores``; padding -inf and -1."""

    values: Float[Tensor, "segments k"]
    indices: Int[Tensor, "segments k"]


def segment_topk(
    scores: Float[Tensor, " items"], offsets: Int[Tensor, " segments_plus_one"], k: int, *, backend: str = "auto"
) -> SegmentTopk:
    """The k highest scores of each segment.

    Order: score falling, equal scores by the lowest position (-0.0 equals 0.0). A segment shorter than k is
    padded with -inf and -1.

    Args:
        scores: any floating type; the values come back in the same type.
        offsets: pointers of the segments, from 0 to ``len(scores)``.
        k: at least 1.
        backend: ``auto``, ``reference``, ``torch`` or ``triton`` (float32 and shorter).

    Returns:
        ``SegmentTopk(values, indices)``; indices are int64 positions in ``scores``.

    Raises:
        ValueError: k below 1, NaN among the scores, offsets that do not fit. OverflowError: past 2^31 - 1 items.

    Working set: see ``segment_topk_bytes``.
    """
    offsets = _checked(scores, offsets, k)
    chosen = backends.choose(backend, "segment_topk")
    if chosen == "reference":
        from kernels.segment_topk.reference import topk
    elif chosen == "triton" and scores.dtype != torch.float64:
        from kernels.segment_topk.triton_impl import topk
    else:
        from kernels.segment_topk.torch_impl import topk
    return SegmentTopk(*topk(scores, offsets, k))


def segment_topk_mean(
    scores: Float[Tensor, " items"],
    offsets: Int[Tensor, " segments_plus_one"],
    k: int,
    *,
    empty: float = float("-inf"),
    backend: str = "auto",
) -> Float[Tensor, " segments"]:
    """Mean of the top min(k, length) scores of each segment (AnchorRAG's disambiguation score).

    The sum is taken in float64 from the highest score down, so it depends on the segment alone.

    Args:
        scores, offsets, k, backend: as in ``segment_topk``.
        empty: the value of a segment without scores.
    """
    offsets = _checked(scores, offsets, k)
    longest = int((offsets[1:] - offsets[:-1]).max()) if offsets.numel() > 1 else 0
    top = segment_topk(scores, offsets, max(1, min(k, longest)), backend=backend)
    taken = (top.indices >= 0).sum(1)
    total = torch.zeros(taken.shape, dtype=torch.float64, device=scores.device)
    for column in range(top.values.shape[1]):  # a fixed order of additions, whatever the number of segments
        total += torch.where(top.indices[:, column] >= 0, top.values[:, column].double(), 0.0)
    mean = total / taken.clamp(min=1)
    return torch.where(taken > 0, mean, torch.full_like(mean, empty)).to(scores.dtype)


def segment_topk_bytes(num_items: int, num_segments: int, k: int) -> int:
    """Peak bytes of the torch form above its inputs.

    16 bytes for each cell of a padded block (at most ``max(BLOCK_CELLS, twice the longest segment)`` cells, and
    never more than twice the items), 4 an item for the sortable form, 12 to 16 an output cell, 40 a segment.
    """
    from kernels.segment_topk.torch_impl import BLOCK_CELLS

    cells = min(2 * num_items, BLOCK_CELLS)
    return 16 * cells + 4 * num_items + 16 * num_segments * k + 40 * num_segments


def _checked(scores: Tensor, offsets: Tensor, k: int) -> Tensor:
    checks.floats("scores", scores, 1)
    checks.same_device(scores=scores, offsets=offsets)
    checks.items_fit("scores", scores.numel(), "split the segments over several calls")
    if k < 1:
        raise ValueError(f"k must be at least 1 (got {k})")
    if scores.device.type == "cpu" and bool(torch.isnan(scores).any()):
        raise ValueError("scores hold NaN, which has no rank; replace them (by -inf to rank them last)")
    return checks.offsets_over("offsets", offsets, scores.numel(), "scores")
