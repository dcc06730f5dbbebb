"""Recall against ranx, and the rules that ranx does not know: missing gold, evidence, support."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgrag_gpu.metrics.retrieval import all_recall_at, answer_coverage, recall_at, support_f1, support_of
from kgrag_gpu.types import Answer, GoldAnswer, Question, Result, Retrieval


def test_recall_by_hand(make_result):
    result = make_result(ranked=(5, 1, 7, 2), gold_rows=(1, 2))
    assert [recall_at(result, k) for k in (1, 2, 3, 4, 100)] == [0.0, 0.5, 0.5, 1.0, 1.0]
    assert [all_recall_at(result, k) for k in (3, 4)] == [0.0, 1.0]


def test_recall_gold_missing_from_the_kg_stays_in_the_denominator(make_result):
    result = make_result(ranked=(1, 2), gold_rows=(1, -1, -1))
    assert recall_at(result, 10) == pytest.approx(1 / 3)
    assert all_recall_at(result, 10) == 0.0


def test_recall_same_gold_twice_counts_once(make_result):
    assert recall_at(make_result(ranked=(1,), gold_rows=(1, 1, 2), asked_rows=(0, 1, 2)), 5) == 0.5
    assert recall_at(make_result(ranked=(1,), gold_rows=(1, -1, -1), asked_rows=(0, 4, 4)), 5) == 0.5


def test_recall_result_without_gold_rows_counts_the_questions_gold_as_missing(make_result):
    assert recall_at(make_result(ranked=(0, 1), gold_rows=(), asked_rows=(0, 1)), 5) == 0.0


def test_recall_without_gold_is_none(make_result):
    assert recall_at(make_result(ranked=(1,)), 5) is None
    assert all_recall_at(make_result(ranked=(1,)), 5) is None


rankings = st.lists(st.integers(0, 19), unique=True, min_size=1, max_size=12)
golds = st.sets(st.integers(0, 19), min_size=1, max_size=4)


@pytest.mark.slow  # ranx compiles its metrics first
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(rankings, golds), min_size=1, max_size=5))
def test_recall_equals_ranx(pairs):
    ranx = pytest.importorskip("ranx")
    results = [
        Result(Question(f"q{i}", "?"), Retrieval(tuple(ranked), (0.0,) * len(ranked)), Answer("", "none"), tuple(gold))
        for i, (ranked, gold) in enumerate(pairs)
    ]
    qrels = ranx.Qrels({f"q{i}": {f"p{row}": 1 for row in gold} for i, (_, gold) in enumerate(pairs)})
    run = ranx.Run(
        {
            f"q{i}": {f"p{row}": 1.0 / (1 + rank) for rank, row in enumerate(ranked)}
            for i, (ranked, _) in enumerate(pairs)
        }
    )
    for k in (1, 2, 5, 10):
        expected = ranx.evaluate(qrels, run, f"recall@{k}", make_comparable=True)
        assert np.mean([recall_at(result, k) for result in results]) == pytest.approx(expected)


def test_answer_coverage_by_id_keeps_homonyms_apart(make_result):
    gold = [GoldAnswer("Paris", (), "Q90")]
    assert answer_coverage(make_result(gold=gold, evidence_entities=[("Paris", "Q90")])) == 1.0
    assert answer_coverage(make_result(gold=gold, evidence_entities=[("Paree", "Q90")])) == 1.0
    assert answer_coverage(make_result(gold=gold, evidence_entities=[("Paris", "Q167646")])) == 0.0


def test_answer_coverage_falls_back_on_names_where_an_id_is_missing(make_result):
    assert answer_coverage(make_result(gold=[GoldAnswer("Paris", (), "Q90")], evidence_entities=[("paris",)])) == 1.0
    aliased = [GoldAnswer("Rome", ("The Eternal City",))]
    assert answer_coverage(make_result(gold=aliased, evidence_entities=[("Eternal City", "Q220")])) == 1.0
    assert answer_coverage(make_result(gold=aliased, evidence_entities=[("Roman", "")])) == 0.0


def test_answer_coverage_empty_names_never_match(make_result):
    assert answer_coverage(make_result(gold=["The"], evidence_entities=[("a",)])) == 0.0
    assert answer_coverage(make_result(gold=())) is None


@pytest.mark.parametrize(
    ("predicted", "gold", "f1"),
    [({1, 2}, {1, 2}, 1.0), ({1, 3, 4}, {1, 2}, 0.4), (set(), {1}, 0.0), ({1}, set(), 0.0), (set(), set(), 1.0)],
)
def test_support_f1_by_hand(predicted, gold, f1):
    assert support_f1(predicted, gold) == pytest.approx(f1)


def test_support_of_passages_counts_missing_gold(make_result):
    result = make_result(support=[(3, ""), (4, "")], gold_rows=(3, -1))
    assert support_of(result) == pytest.approx(2 * 1 / (2 + 2))


def test_support_of_sentences_needs_the_data_sets_own_cut(make_result):
    result = make_result(
        support=[(7, "Aino was born in Oulu.")], gold_rows=(7, 8), asked_rows=(0, 1), facts=[(0, 1), (1, 0)]
    )
    assert support_of(result) is None
    sentences = {7: ["She sings.", "Aino was born in Oulu. "], 8: ["Oulu is a city."]}
    assert support_of(result, sentences) == pytest.approx(2 * 1 / (1 + 2))
