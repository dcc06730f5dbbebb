"""The block that becomes metrics.json: its keys, its denominators, its independence of order."""

import json

import pytest

from kgrag_gpu.metrics import compute_metrics

ANSWER_KEYS = ["em", "f1", "hit@1", "hit@1_lenient", "acc", "num_from_graph", "num_from_cot", "num_unanswered"]
RETRIEVAL_KEYS = ["recall@2", "recall@5", "recall@10", "recall@15", "all_recall@5", "all_recall@10"]


@pytest.fixture
def four_results(make_result):
    x = [("X",)]
    two, three = {"hops": 2, "type": "bridge"}, {"hops": 3, "type": "compare", "error": "boom", "source": "none"}
    return [
        make_result("Oulu", ["Oulu"], id="a", ranked=(1, 2), gold_rows=(1, 2), topics=x, anchors=x, **two),
        make_result("Oulu city", ["Oulu"], id="b", source="cot", ranked=(3, 1), gold_rows=(1, 2), topics=x, **two),
        make_result("", ["Oulu"], id="c", gold_rows=(4, -1), topics=x, **three),
        make_result(
            "Oulu", ["Oulu", "Rome"], id="d", hops=10, source="passages", ranked=(9, 4), gold_rows=(4,), topics=x
        ),
    ]


def test_compute_metrics_has_exactly_the_published_keys(four_results):
    metrics = compute_metrics(four_results, {}, "file dev.jsonl")
    assert list(metrics) == [
        "num_questions", "num_errors", "source", "answer", "retrieval", "anchors", "by_hop", "by_type", "cost",
        "intervals", "supplementary",
    ]  # fmt: skip
    assert list(metrics["answer"]) == ANSWER_KEYS
    assert list(metrics["retrieval"]) == RETRIEVAL_KEYS
    assert list(metrics["anchors"]) == ["top1", "top3", "recall"]
    assert list(metrics["by_hop"]) == ["2", "3", "10"]
    assert list(metrics["by_type"]) == ["bridge", "compare"]
    assert list(metrics["by_hop"]["2"]) == ["num_questions", "num_errors", "answer", "retrieval", "anchors"]
    assert list(metrics["by_hop"]["2"]["answer"]) == ANSWER_KEYS
    json.dumps(metrics, allow_nan=False)


def test_compute_metrics_values_by_hand(four_results):
    metrics = compute_metrics(four_results, {}, "s")
    assert (metrics["num_questions"], metrics["num_errors"], metrics["source"]) == (4, 1, "s")
    answer = metrics["answer"]
    assert answer["em"] == answer["hit@1"] == 0.5
    assert answer["f1"] == pytest.approx((1 + 2 / 3 + 0 + 1) / 4)
    assert answer["hit@1_lenient"] == 0.75
    assert answer["acc"] == pytest.approx((1 + 1 + 0 + 0.5) / 4)
    assert (answer["num_from_graph"], answer["num_from_cot"], answer["num_unanswered"]) == (1, 1, 1)
    assert metrics["supplementary"]["num_from_passages"] == 1
    assert metrics["retrieval"]["recall@2"] == pytest.approx((1 + 0.5 + 0 + 1) / 4)
    assert metrics["retrieval"]["all_recall@5"] == 0.5
    assert metrics["anchors"] == {"top1": 0.25, "top3": 0.25, "recall": 0.25}
    assert metrics["by_hop"]["3"]["answer"]["em"] == 0.0
    assert metrics["by_hop"]["3"]["num_errors"] == 1


def test_compute_metrics_intervals_stand_in_the_same_nesting(four_results):
    metrics = compute_metrics(four_results, {}, "s")
    intervals = metrics["intervals"]
    assert (intervals["confidence"], intervals["num_resamples"], intervals["seed"]) == (0.95, 1000, 0)
    for name, value in metrics["retrieval"].items():
        interval = intervals["retrieval"][name]
        assert interval["low"] <= value <= interval["high"]
        assert interval["n"] == 4
    assert intervals["by_hop"]["2"]["answer"]["f1"]["n"] == 2


def test_compute_metrics_order_of_results_makes_no_difference(four_results):
    forward = compute_metrics(four_results, {}, "s")
    backward = compute_metrics(four_results[::-1], {}, "s")
    assert json.dumps(forward) == json.dumps(backward)


def test_compute_metrics_failed_question_with_a_matching_empty_answer_scores_zero(make_result):
    metrics = compute_metrics([make_result("", ["The"], error="boom")], {}, "s")
    assert metrics["answer"]["em"] == metrics["answer"]["f1"] == 0.0


def test_compute_metrics_without_gold_passages_reports_answer_coverage(make_result):
    results = [make_result("", ["Oslo"], id="1", evidence_entities=[("oslo!",)]), make_result("Oslo", ["Oslo"], id="2")]
    assert compute_metrics(results, {}, "s")["retrieval"] == {"answer_coverage": 0.5}


def test_compute_metrics_without_any_gold_has_no_values_and_does_not_fail(make_result):
    metrics = compute_metrics([make_result("A", (), id="1")], {"llm_calls": 3}, "own")
    assert metrics["answer"]["em"] is None
    assert metrics["answer"]["num_from_graph"] == 1
    assert metrics["retrieval"] == metrics["anchors"] == {}
    assert metrics["cost"]["llm_calls"] == 3


def test_compute_metrics_no_results_at_all_does_not_fail():
    metrics = compute_metrics([], {}, "s")
    assert metrics["num_questions"] == 0
    assert metrics["answer"]["em"] is None


def test_compute_metrics_question_without_gold_leaves_the_mean(make_result):
    metrics = compute_metrics([make_result("A", ["A"], id="1"), make_result("B", (), id="2")], {}, "s")
    assert metrics["answer"]["em"] == 1.0
    assert metrics["intervals"]["answer"]["em"]["n"] == 1


@pytest.mark.parametrize(("dataset", "f1"), [("hotpotqa", 0.0), ("2wikimultihopqa", 0.0), ("musique", 2 / 3)])
def test_compute_metrics_yes_no_rule_belongs_to_two_data_sets(make_result, dataset, f1):
    metrics = compute_metrics([make_result("yes indeed", ["yes"])], {}, "s", dataset=dataset)
    assert metrics["answer"]["f1"] == pytest.approx(f1)


def test_compute_metrics_compat_mode_lets_an_empty_prediction_hit_leniently(make_result):
    results = [make_result("", ["Oslo"])]
    assert compute_metrics(results, {}, "s")["answer"]["hit@1_lenient"] == 0.0
    compat = compute_metrics(results, {}, "s", compat_empty_hits=True)["answer"]
    assert (compat["hit@1_lenient"], compat["hit@1"]) == (1.0, 0.0)


def test_compute_metrics_unanswerable_twins_are_scored_as_groups(make_result):
    results = [
        make_result("A", ["A"], id="q"),
        make_result("", (), id="q#unanswerable", answerable=False, source="none", extra={"original_id": "q"}),
    ]
    block = compute_metrics(results, {}, "s")["supplementary"]
    assert block["group_sufficiency"] == {"num_groups": 1, "em": 1.0, "f1": 1.0, "sufficiency": 1.0}
    assert block["answerable_em"] == 1.0


def test_compute_metrics_support_f1_only_where_evidence_was_given(make_result):
    assert "support_f1" not in compute_metrics([make_result("A", gold_rows=(1,))], {}, "s")["supplementary"]
    block = compute_metrics([make_result("A", gold_rows=(1,), support=[(1, "")])], {}, "s")["supplementary"]
    assert block["support_f1"] == 1.0
