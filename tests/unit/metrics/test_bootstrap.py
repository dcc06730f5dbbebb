"""Bootstrap intervals: exact cases, agreement with a plain loop, coverage, and the paired difference."""

import numpy as np
import pytest

from kgrag_gpu.metrics.bootstrap import bootstrap_intervals, exact_mean, paired_difference


def test_intervals_constant_scores_have_no_width():
    (interval,) = bootstrap_intervals(np.ones((20, 1)))
    assert (interval.mean, interval.low, interval.high, interval.n) == (1.0, 1.0, 1.0, 20)


def test_intervals_equal_a_plain_loop():
    scores = np.random.default_rng(3).random((30, 2))
    got = bootstrap_intervals(scores, seed=5, num_resamples=200)
    generator = np.random.default_rng(5)
    means = [scores[generator.integers(0, 30, size=30)].mean(axis=0) for _ in range(200)]
    for column in range(2):
        low, high = np.quantile([m[column] for m in means], [0.025, 0.975])
        assert got[column].low == pytest.approx(low, abs=1e-8)
        assert got[column].high == pytest.approx(high, abs=1e-8)


def test_intervals_missing_scores_stay_out():
    scores = np.array([[1.0, np.nan], [0.0, np.nan], [np.nan, np.nan]])
    first, second = bootstrap_intervals(scores)
    assert (first.mean, first.n) == (0.5, 2)
    assert (second.mean, second.low, second.high, second.n) == (None, None, None, 0)


def test_intervals_same_seed_same_interval_other_seed_another():
    scores = np.random.default_rng(0).random((40, 1))
    assert bootstrap_intervals(scores, seed=1) == bootstrap_intervals(scores, seed=1)
    assert bootstrap_intervals(scores, seed=1) != bootstrap_intervals(scores, seed=2)


def test_intervals_hold_the_true_mean_about_as_often_as_they_claim():
    generator = np.random.default_rng(11)
    scores = (generator.random((100, 300)) < 0.4).astype(float)  # 300 experiments of 100 questions
    held = [interval.low <= 0.4 <= interval.high for interval in bootstrap_intervals(scores)]
    assert 0.90 <= np.mean(held) <= 0.985


def test_intervals_large_set_is_drawn_in_pieces_with_equal_result():
    scores = np.random.default_rng(0).random((5000, 1))  # more resamples than fit at once
    (interval,) = bootstrap_intervals(scores, num_resamples=1000)
    spread = scores.std() / np.sqrt(5000)
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * spread, rel=0.1)


def test_paired_difference_equal_runs_are_not_significant():
    scores = np.random.default_rng(0).random(50)
    result = paired_difference(scores, scores)
    assert result is not None
    assert (result.difference, result.low, result.high, result.p, result.n) == (0.0, 0.0, 0.0, 1.0, 50)
    assert not result.is_significant


def test_paired_difference_clear_gain_is_significant_where_unpaired_intervals_overlap():
    baseline = np.random.default_rng(0).random(60) * 0.9
    run = baseline + 0.05
    result = paired_difference(run, baseline)
    assert result is not None
    assert result.difference == pytest.approx(0.05)
    assert result.is_significant
    assert result.p == pytest.approx(2 / 1001)
    a, b = bootstrap_intervals(np.stack([run, baseline], axis=1))
    assert a.low is not None and b.high is not None and a.low < b.high


def test_paired_difference_swapped_runs_change_only_the_sign():
    generator = np.random.default_rng(1)
    a, b = generator.integers(0, 2, 80).astype(float), generator.integers(0, 2, 80).astype(float)
    there, back = paired_difference(a, b), paired_difference(b, a)
    assert there is not None and back is not None
    assert there.difference == -back.difference
    assert there.low == pytest.approx(-back.high)
    assert there.p == back.p


def test_paired_difference_noise_is_rarely_called_significant():
    generator = np.random.default_rng(2)
    called = []
    for _ in range(100):
        a, b = (generator.random((2, 60)) < 0.5).astype(float)
        result = paired_difference(a, b, num_resamples=400)
        assert result is not None
        called.append(result.is_significant)
    assert np.mean(called) <= 0.12


def test_paired_difference_uses_only_questions_scored_in_both():
    result = paired_difference(np.array([1.0, np.nan, 1.0]), np.array([0.0, 0.0, np.nan]))
    assert result is not None
    assert (result.difference, result.n) == (1.0, 1)
    assert paired_difference(np.array([np.nan]), np.array([1.0])) is None


def test_exact_mean_does_not_depend_on_the_order():
    values = np.random.default_rng(0).random(1000)
    assert exact_mean(values) == exact_mean(values[::-1])
