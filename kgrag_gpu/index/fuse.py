"""Rankings of rows and their fusion."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Ranking(NamedTuple):
    """Rows best first, with the score that ranked them beside each."""

    rows: np.ndarray  # int64
    scores: np.ndarray  # float64


def top_ranking(scores: np.ndarray, k: int, minimum: float = -np.inf) -> Ranking:
    """The best `k` of one score per row that are above `minimum`; ties go to the lowest row."""
    scores = scores.astype(np.float64, copy=False)
    if k < len(scores):
        # Everything at or above the k-th score, so that a tie at the border is settled by row, not by partition.
        border = np.partition(scores, len(scores) - k)[len(scores) - k]
        rows = np.flatnonzero((scores >= border) & (scores > minimum))
    else:
        rows = np.flatnonzero(scores > minimum)
    rows = rows[np.lexsort((rows, -scores[rows]))][:k]
    return Ranking(rows, scores[rows])


def reciprocal_rank_fusion(rankings: Sequence[Ranking], k: int, constant: float = 60.0) -> Ranking:
    """Fuses rankings of one query by the sum of 1 / (constant + rank), rank from 1 (Cormack et al. 2009).

    A row that a ranking lacks gets nothing from it. Ties are common (first and second against second and first): they
    go to the row that the last ranking prefers, then to the lowest row.
    """
    if not rankings:
        return Ranking(np.zeros(0, np.int64), np.zeros(0))
    rows, inverse = np.unique(np.concatenate([r.rows for r in rankings]), return_inverse=True)
    ranks = np.concatenate([np.arange(1, len(r.rows) + 1) for r in rankings])
    # Rounded below any real difference: 1/61 + 1/62 and 1/62 + 1/61 must be one number.
    scores = np.bincount(inverse, weights=1.0 / (constant + ranks), minlength=len(rows)).round(15)
    last_ranks = np.full(len(rows), np.iinfo(np.int64).max)
    num_last = len(rankings[-1].rows)
    last_ranks[inverse[len(inverse) - num_last :]] = np.arange(num_last)
    order = np.lexsort((rows, last_ranks, -scores))[:k]
    return Ranking(rows[order], scores[order])


def append_missing(first: Ranking, then: Ranking, k: int) -> Ranking:
    """`first`, then the rows of `then` that it lacks, with scores kept below the last of `first`."""
    new = ~np.isin(then.rows, first.rows)
    rest, rest_scores = then.rows[new], then.scores[new]
    if len(first.rows) and len(rest):
        # Only the order of the tail means anything: squeeze it under the head, monotonically.
        span = max(float(rest_scores.max() - rest_scores.min()), 1e-12)
        rest_scores = float(first.scores[-1]) - 1e-6 - (rest_scores.max() - rest_scores) / span
    return Ranking(np.concatenate([first.rows, rest])[:k], np.concatenate([first.scores, rest_scores])[:k])
