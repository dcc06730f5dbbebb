"""Bootstrap over questions: how far a mean, or the difference of two runs' means, may be chance.

Percentile intervals from seeded resamples of the questions. Scores lie in [-1, 1] and are put on a grid of 2**-30
before they are summed, so that every sum is exact in float64 and no thread count can change an interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

NUM_RESAMPLES = 1000
CONFIDENCE = 0.95
_GRID = float(1 << 30)
_MAX_QUESTIONS = 1 << 22  # sums stay below 2**53 on the grid
_CELLS = 4_000_000  # resampled indices held at once


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over n questions with its interval; all None where n is 0."""

    mean: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Mean of (run - baseline) over the n questions that both have a score for, its interval and two-sided p."""

    difference: float
    low: float
    high: float
    p: float
    n: int

    @property
    def is_significant(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


def exact_mean(values: Sequence[float] | np.ndarray) -> float:
    """The mean, with a sum that does not depend on the order."""
    return math.fsum(values) / len(values)


def bootstrap_intervals(
    values: np.ndarray, seed: int = 0, num_resamples: int = NUM_RESAMPLES, confidence: float = CONFIDENCE
) -> list[Interval]:
    """The mean of every column with its percentile interval.

    Args:
        values: float64 [questions, metrics], in [-1, 1]; NaN where a question has no such score. Rows in a fixed
            order (by id), or the same seed gives another interval.
        seed: of the resampling.
        num_resamples: how often the questions are drawn anew, with replacement.
        confidence: share of resampled means inside the interval.
    """
    intervals = [Interval(None, None, None, 0)] * values.shape[1]
    columns_by_mask: dict[bytes, list[int]] = {}
    present = ~np.isnan(values)
    for column in range(values.shape[1]):
        columns_by_mask.setdefault(present[:, column].tobytes(), []).append(column)
    for columns in columns_by_mask.values():
        scored = values[present[:, columns[0]]][:, columns]
        if not len(scored):
            continue
        lows, highs = _percentiles(_resampled_means(scored, seed, num_resamples), confidence)
        for i, column in enumerate(columns):
            intervals[column] = Interval(exact_mean(scored[:, i]), float(lows[i]), float(highs[i]), len(scored))
    return intervals


def paired_difference(
    run: np.ndarray,
    baseline: np.ndarray,
    seed: int = 0,
    num_resamples: int = NUM_RESAMPLES,
    confidence: float = CONFIDENCE,
) -> PairedDifference | None:
    """Paired bootstrap of two runs' scores on the same questions, in the same order.

    p is twice the smaller share of resampled differences on one side of 0, (count + 1) / (resamples + 1), at most 1.

    Args:
        run: float64 [questions], NaN where there is no score.
        baseline: the same questions' scores in the other run.
        seed: of the resampling.
        num_resamples: how often the pairs are drawn anew.
        confidence: of the interval.

    Returns:
        None where no question has a score in both.
    """
    difference = (run - baseline)[:, None]
    difference = difference[~np.isnan(difference[:, 0])]
    if not len(difference):
        return None
    means = _resampled_means(difference, seed, num_resamples)
    lows, highs = _percentiles(means, confidence)
    one_side = min(int((means <= 0).sum()), int((means >= 0).sum()))
    p = min(1.0, 2 * (one_side + 1) / (num_resamples + 1))
    return PairedDifference(exact_mean(difference[:, 0]), float(lows[0]), float(highs[0]), p, len(difference))


def _resampled_means(values: np.ndarray, seed: int, num_resamples: int) -> np.ndarray:
    """Means of resampled questions, float64 [resamples, metrics]; a resample is a count of draws per question."""
    num_questions = len(values)
    if num_questions > _MAX_QUESTIONS:
        raise ValueError(f"bootstrap over {num_questions:,} questions (at most {_MAX_QUESTIONS:,}): sums not exact")
    on_grid = np.rint(values * _GRID)
    generator = np.random.default_rng(seed)
    chunk = max(1, min(num_resamples, _CELLS // num_questions))
    sums = []
    for start in range(0, num_resamples, chunk):
        rows = min(chunk, num_resamples - start)
        drawn = generator.integers(0, num_questions, size=(rows, num_questions))
        drawn += np.arange(rows)[:, None] * num_questions
        counts = np.bincount(drawn.ravel(), minlength=rows * num_questions).reshape(rows, num_questions)
        sums.append(counts.astype(np.float64) @ on_grid)
    return np.concatenate(sums) / _GRID / num_questions


def _percentiles(means: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return low, high
