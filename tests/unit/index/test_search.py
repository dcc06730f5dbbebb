"""BM25 and dense search: exact order, ties, and that every question is searched with its own words."""

import numpy as np

from kgrag_gpu.config.schema import IndexConfig
from kgrag_gpu.index.dense import DenseIndex
from kgrag_gpu.index.lexical import LexicalIndex
from kgrag_gpu.tensors.fixed_point import to_fixed


def test_lexical_each_question_finds_its_own_text():
    texts = ["the Danube flows through Vienna", "the Thames flows through London", "Rome lies on the Tiber"]
    index = LexicalIndex(texts, IndexConfig())
    found = index.search(["Which river is in Vienna?", "London river", "the Tiber"], 3)
    assert [ranking.rows[0] for ranking in found] == [0, 1, 2]


def test_lexical_question_without_a_known_word_finds_nothing():
    index = LexicalIndex(["alpha beta", "gamma"], IndexConfig())
    assert [r.rows.tolist() for r in index.search(["zzz", "", "gamma"], 2)] == [[], [], [1]]


def test_lexical_equal_texts_come_in_row_order():
    index = LexicalIndex(["red house", "blue", "red house", "red house"], IndexConfig())
    assert index.search(["red house"], 3)[0].rows.tolist() == [0, 2, 3]


def test_lexical_one_question_scores_as_in_a_batch():
    texts = [f"word{i} word{i + 1} shared" for i in range(40)]
    index = LexicalIndex(texts, IndexConfig())
    queries = [f"word{i} shared" for i in range(0, 40, 3)]
    together = index.search(queries, 5)
    alone = [index.search([query], 5)[0] for query in queries]
    assert all((a.rows == b.rows).all() and (a.scores == b.scores).all() for a, b in zip(together, alone, strict=True))


def _unit_vectors(num: int, dim: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(num, dim))
    return to_fixed(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def test_dense_exact_search_equals_integer_products():
    rows, queries = _unit_vectors(500, 32, 1), _unit_vectors(7, 32, 2)
    rows[17] = rows[3]  # a tie
    queries[0] = rows[3]
    found = DenseIndex(rows, IndexConfig()).search(queries, 10)
    products = queries.astype(np.int64) @ rows.astype(np.int64).T
    for ranking, row in zip(found, products, strict=True):
        assert ranking.rows.tolist() == np.lexsort((np.arange(500), -row))[:10].tolist()
    assert found[0].rows[:2].tolist() == [3, 17]


def test_dense_asks_for_more_than_there_is_returns_all():
    rows = _unit_vectors(3, 16, 3)
    assert len(DenseIndex(rows, IndexConfig()).search(rows[:1], 10)[0].rows) == 3


def test_dense_ivf_pq_above_the_limit_measures_its_recall():
    rows = _unit_vectors(4000, 32, 4)
    config = IndexConfig(exact_limit=1000, pq_bytes=16, nprobe=64)
    index = DenseIndex(rows, config)
    assert index.kind == "ivf-pq"
    assert index.recall_at_10 is not None and 0.3 < index.recall_at_10 <= 1
    assert index.search(rows[:5], 1)[0].rows.tolist() == [0]
