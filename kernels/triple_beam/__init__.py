"""One step of GeAR's diverse triple beam search: decay within each parent, then the best of each question."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from kernels import backend as backends
from kernels import checks


class Beams(NamedTuple):
    """The kept candidates of each question, best first; padding -1 and -inf.

    ``indices`` are rows of the candidates, ``scores`` their scores after decay, ``raw_scores`` before.
    """

    indices: Int[Tensor, "questions beams"]
    scores: Float[Tensor, "questions beams"]
    raw_scores: Float[Tensor, "questions beams"]


def triple_beam(
    scores: Float[Tensor, " candidates"],
    parent_ids: Int[Tensor, " candidates"],
    parent_questions: Int[Tensor, " parents"],
    num_questions: int,
    *,
    beam_width: int = 10,
    gamma: float | None = None,
    backend: str = "auto",
) -> Beams:
    """Keep the ``beam_width`` best candidates of each question, favouring those of different parents.

    GeAR, diverse triple beam search (one step of it): within each parent the candidates are sorted by
    score falling, the n-th of them (from 0) is multiplied by ``exp(-min(n, gamma) / gamma)``, and the question's best
    by that product stay. Equal scores go to the lower row, in both sorts. Candidates may come in any order; a
    question may have none. Scores are meant to be at least 0, as sums of cosines mostly are: the factor brings
    a score below 0 nearer to 0, as the published words have it.

    The decay is computed in float64 and the products are rounded to float32 once, so that devices agree.

    Args:
        scores: of the whole chain, the candidate's triple included.
        parent_ids: which beam each candidate extends, a row of ``parent_questions``.
        parent_questions: the question of each beam.
        num_questions: questions in the batch.
        beam_width: b, at least 1.
        gamma: how far the decay goes on; None is the paper's ``2 b``.

    Returns:
        ``Beams(indices, scores, raw_scores)``, each [questions, b].

    Raises:
        ValueError: lengths, b or gamma out of range, NaN scores. IndexError: ids outside.

    Working set: see ``triple_beam_bytes``.
    """
    checks.floats("scores", scores, 1)
    parent_ids = checks.integers("parent_ids", parent_ids)
    parent_questions = checks.integers("parent_questions", parent_questions)
    checks.same_device(scores=scores, parent_ids=parent_ids, parent_questions=parent_questions)
    checks.items_fit("candidates", checks.same_length(scores=scores, parent_ids=parent_ids), "split the questions")
    checks.ids_below("parent_ids", parent_ids, parent_questions.numel(), "parent_questions")
    checks.ids_below("parent_questions", parent_questions, num_questions, "the questions")
    if beam_width < 1:
        raise ValueError(f"beam_width must be at least 1 (got {beam_width})")
    gamma = 2.0 * beam_width if gamma is None else float(gamma)
    if not gamma > 0:
        raise ValueError(f"gamma must be above 0 (got {gamma})")
    if scores.device.type == "cpu" and bool(torch.isnan(scores).any()):
        raise ValueError("scores hold NaN, which has no rank")
    if backends.choose(backend, "triple_beam", has_triton_form=False) == "reference":
        from kernels.triple_beam.reference import step
    else:
        from kernels.triple_beam.torch_impl import step
    return Beams(*step(scores.float(), parent_ids, parent_questions, num_questions, beam_width, gamma))


def triple_beam_bytes(num_candidates: int, num_questions: int, beam_width: int) -> int:
    """Peak bytes of the torch form above its inputs: the sort's keys and orders, and the padded top-b."""
    from kernels.segment_topk import segment_topk_bytes

    topk = segment_topk_bytes(num_candidates, num_questions, beam_width)
    return 28 * num_candidates + max(topk, 32 * num_candidates) + 16 * num_questions * beam_width
