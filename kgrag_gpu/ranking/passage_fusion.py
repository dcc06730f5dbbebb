"""Fusion of a base retriever's passages with those that graph evidence points at, on their scores instead of ranks.

Rank fusion throws away how sure each side is. Here both are brought to one scale within the question: the best is 1,
the last of the base's leading passages is 0.
"""

import numpy as np

from kgrag_gpu.index.fuse import Ranking, append_missing


def evidence_ranking(passage_ids: list[int], scores: list[float]) -> Ranking:
    """Distinct passages in the order of their first mention, each with the highest score it was mentioned with."""
    best: dict[int, float] = {}
    for passage, score in zip(passage_ids, scores, strict=True):
        best[passage] = max(score, best.get(passage, -np.inf))
    return Ranking(np.array(list(best), dtype=np.int64), np.array(list(best.values()), dtype=np.float64))


def calibrated_fusion(base: Ranking, graph: Ranking, k: int, weight: float, num_base: int) -> Ranking:
    """The best `k` passages by (1 - weight) * base + weight * graph, both rescaled; the base's tail follows.

    Args:
        base: best first. Its first `num_base` passages are rescaled to 1..0; those behind have 0 and follow in order.
        graph: passages with scores, in any order; rescaled so that the best is 1 and what has half its score, 0.
        k: how many passages are wanted.
        weight: of the graph, 0 to 1.
        num_base: passages of the base that take part by score.
    """
    head = Ranking(base.rows[:num_base], base.scores[:num_base])
    rows = np.union1d(head.rows, graph.rows)
    scores = np.zeros(len(rows))
    scores[np.searchsorted(rows, head.rows)] += (1 - weight) * _rescaled(head.scores)
    scores[np.searchsorted(rows, graph.rows)] += weight * _above_half_of_best(graph.scores)
    scores = scores.round(12)  # far below any real difference
    order = np.lexsort((rows, -scores))
    return append_missing(Ranking(rows[order], scores[order]), base, k)


def _rescaled(scores: np.ndarray) -> np.ndarray:
    if not len(scores):
        return scores
    low, high = scores.min(), scores.max()
    return (scores - low) / (high - low) if high > low else np.ones(len(scores))


def _above_half_of_best(scores: np.ndarray) -> np.ndarray:
    best = scores.max() if len(scores) else 0.0
    return np.clip(2.0 * scores / best - 1.0, 0.0, 1.0) if best > 0 else np.zeros(len(scores))
