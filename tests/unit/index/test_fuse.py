"""Rankings and their fusion, with exact values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgrag_gpu.index.fuse import Ranking, append_missing, reciprocal_rank_fusion, top_ranking


def _ranking(*rows: int) -> Ranking:
    return Ranking(np.array(rows, dtype=np.int64), np.arange(len(rows), 0, -1).astype(float))


def test_rrf_hand_example_gives_exact_scores():
    fused = reciprocal_rank_fusion([_ranking(7, 3), _ranking(3, 9)], k=5)
    assert fused.rows.tolist() == [3, 7, 9]
    assert fused.scores.tolist() == pytest.approx([1 / 62 + 1 / 61, 1 / 61, 1 / 62], abs=1e-12)


def test_rrf_tie_goes_to_the_last_ranking():
    assert reciprocal_rank_fusion([_ranking(1, 2), _ranking(2, 1)], k=2).rows.tolist() == [2, 1]


def test_rrf_nothing_gives_nothing():
    assert reciprocal_rank_fusion([], 3).rows.tolist() == []
    assert reciprocal_rank_fusion([_ranking(), _ranking(4)], 3).rows.tolist() == [4]


@given(st.lists(st.permutations(range(8)), min_size=1, max_size=3), st.integers(1, 10))
def test_rrf_equals_a_plain_loop(orders, k):
    scores = dict.fromkeys(range(8), 0.0)
    for order in orders:
        for rank, row in enumerate(order, start=1):
            scores[row] += 1 / (60 + rank)
    last = {row: rank for rank, row in enumerate(orders[-1])}
    expected = sorted(scores, key=lambda row: (-round(scores[row], 12), last[row]))[:k]
    assert reciprocal_rank_fusion([_ranking(*order) for order in orders], k).rows.tolist() == expected


@given(st.lists(st.integers(0, 4), min_size=0, max_size=30), st.integers(1, 12))
def test_top_ranking_ties_go_to_the_lowest_row(values, k):
    ranking = top_ranking(np.array(values, dtype=float), k)
    expected = sorted(range(len(values)), key=lambda row: (-values[row], row))[:k]
    assert ranking.rows.tolist() == expected


def test_top_ranking_leaves_out_what_is_not_above_the_minimum():
    assert top_ranking(np.array([0.0, 2.0, 0.0]), 3, minimum=0.0).rows.tolist() == [1]


def test_append_missing_keeps_the_head_and_its_lead():
    joined = append_missing(_ranking(5, 2), _ranking(2, 8, 9), 4)
    assert joined.rows.tolist() == [5, 2, 8, 9]
    assert (np.diff(joined.scores) < 0).all()
