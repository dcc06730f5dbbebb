"""Nearest vectors by inner product: FAISS finds candidates, exact fixed-point products rank them."""

from pathlib import Path

import faiss
import numpy as np
import torch

from kgrag_gpu.config.schema import IndexConfig
from kgrag_gpu.index.fuse import Ranking
from kgrag_gpu.tensors.fixed_point import SCALE, to_float

_SPARE = 32  # extra candidates, so that fp32 rounding at the border cannot change the exact top k
_RESCORE_ROWS = 262_144  # candidates whose vectors are in memory at once, as float64
_TRAINING_VECTORS_PER_LIST = 64


class DenseIndex:
    """Searches fixed-point unit vectors: exact up to `exact_limit` of them, IVF-PQ above.

    Attributes:
        kind: "exact" or "ivf-pq".
        recall_at_10: Share of the exact top 10 that the index returns, measured on a sample of its own vectors
            (None for the exact index).
    """

    def __init__(self, vectors: np.ndarray, config: IndexConfig):
        """`vectors` is int16 [rows, dim]; it is kept (a memory map may stay one)."""
        self._vectors = vectors
        self.kind = "exact" if len(vectors) <= config.exact_limit else "ivf-pq"
        self.recall_at_10: float | None = None
        dim = vectors.shape[1]
        if self.kind == "exact":
            self._index: faiss.Index = faiss.IndexFlatIP(dim)
            for start in range(0, len(vectors), 65_536):
                self._index.add(to_float(vectors[start : start + 65_536]))
        else:
            self._index = _build_ivf_pq(vectors, config)
            self.recall_at_10 = self._measure_recall()

    def search(self, queries: np.ndarray, k: int) -> list[Ranking]:
        """The best `k` rows for each int16 [queries, dim] vector, ties to the lowest row."""
        k = min(k, len(self._vectors))
        if k == 0 or len(queries) == 0:
            return [Ranking(np.zeros(0, np.int64), np.zeros(0)) for _ in queries]
        wanted = (
            min(k + _SPARE, len(self._vectors)) if self.kind == "exact" else min(4 * k + _SPARE, len(self._vectors))
        )
        _, candidates = self._index.search(to_float(queries), wanted)
        scores = self._exact_scores(queries, candidates)
        rankings: list[Ranking] = []
        for rows, row_scores in zip(candidates, scores, strict=True):
            order = np.lexsort((rows, -row_scores))[: min(k, int((rows >= 0).sum()))]
            rankings.append(Ranking(rows[order].astype(np.int64), row_scores[order]))
        return rankings

    def save(self, path: Path) -> None:
        """Writes the FAISS index to `path`."""
        faiss.write_index(self._index, str(path))

    def _exact_scores(self, queries: np.ndarray, candidates: np.ndarray) -> np.ndarray:
        """Exact products of each query with its candidates, float64 [queries, candidates]; -inf for no candidate."""
        out = np.full(candidates.shape, -np.inf)
        step = max(1, _RESCORE_ROWS // max(1, candidates.shape[1]))
        for start in range(0, len(queries), step):
            rows = candidates[start : start + step]
            block = torch.from_numpy(self._vectors[np.maximum(rows, 0)]).double()
            left = torch.from_numpy(np.array(queries[start : start + step])).double()
            products = torch.bmm(block, left[:, :, None])[:, :, 0].mul_(SCALE * SCALE).numpy()
            out[start : start + step] = np.where(rows >= 0, products, -np.inf)
        return out

    def _measure_recall(self, sample_size: int = 200) -> float:
        rows = np.linspace(0, len(self._vectors) - 1, sample_size).astype(np.int64)
        queries = to_float(self._vectors[rows])
        exact = faiss.knn(queries, to_float(np.asarray(self._vectors)), 10, metric=faiss.METRIC_INNER_PRODUCT)[1]
        found = [ranking.rows for ranking in self.search(self._vectors[rows], 10)]
        return float(np.mean([len(np.intersect1d(a, b)) / 10 for a, b in zip(exact, found, strict=True)]))


def _build_ivf_pq(vectors: np.ndarray, config: IndexConfig) -> faiss.Index:
    num_lists = int(4 * len(vectors) ** 0.5)
    index = faiss.index_factory(vectors.shape[1], f"IVF{num_lists},PQ{config.pq_bytes}", faiss.METRIC_INNER_PRODUCT)
    step = max(1, len(vectors) // (num_lists * _TRAINING_VECTORS_PER_LIST))
    index.train(to_float(vectors[::step]))
    for start in range(0, len(vectors), 65_536):
        index.add(to_float(vectors[start : start + 65_536]))
    faiss.ParameterSpace().set_index_parameter(index, "nprobe", config.nprobe)
    return index
