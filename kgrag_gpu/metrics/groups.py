"""Group sufficiency for MuSiQue-Full: an answerable question and its unanswerable twin are judged together.

A group scores the answer's EM and F1 only where, for every member, the run said rightly whether it can be answered
from the passages; else 0. A prediction says "answerable" when it is not empty and its source is graph or passages:
an answer from the model's own head (`cot`) does not claim evidence.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

from kgrag_gpu.metrics.answer import exact_match, token_f1
from kgrag_gpu.types import Result


def says_answerable(result: Result) -> bool:
    """Whether the run claims evidence for its answer."""
    return not result.error and bool(result.answer.text.strip()) and result.answer.source in ("graph", "passages")


def group_sufficiency(results: Sequence[Result]) -> dict[str, float | int] | None:
    """Mean EM, F1 and sufficiency over groups; None where no group has an unanswerable member.

    Members of a group share `question.extra["original_id"]`, or the id where there is none. Groups without an
    answerable member or without an unanswerable one are not counted.
    """
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        groups[str(result.question.extra.get("original_id", result.question.id))].append(result)
    whole = [group for _, group in sorted(groups.items()) if len({r.question.answerable for r in group}) == 2]
    if not whole:
        return None
    scores = [_group_scores(group) for group in whole]
    return {
        "num_groups": len(whole),
        "em": math.fsum(em for em, _, _ in scores) / len(whole),
        "f1": math.fsum(f1 for _, f1, _ in scores) / len(whole),
        "sufficiency": math.fsum(right for _, _, right in scores) / len(whole),
    }


def _group_scores(group: Sequence[Result]) -> tuple[float, float, float]:
    if any(says_answerable(result) != result.question.answerable for result in group):
        return 0.0, 0.0, 0.0
    answerable = [r for r in group if r.question.answerable and r.question.golden_answers]
    if not answerable:
        return 0.0, 0.0, 1.0
    em = math.fsum(exact_match(r.answer.text, r.question.golden_answers) for r in answerable) / len(answerable)
    f1 = math.fsum(token_f1(r.answer.text, r.question.golden_answers) for r in answerable) / len(answerable)
    return em, f1, 1.0
