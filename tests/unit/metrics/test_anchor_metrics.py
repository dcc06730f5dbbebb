"""Anchor metrics on anchors listed by hand."""

import pytest

from kgrag_gpu.metrics.anchors import anchor_hit, anchor_recall


def test_anchor_hit_depends_on_the_rank_of_the_first_gold_entity(make_result):
    result = make_result(topics=[("Aino", "m.1"), ("Oulu", "m.2")], anchors=[("X", "m.9"), ("Aino", "m.1")])
    assert anchor_hit(result, 1) == 0.0
    assert anchor_hit(result, 3) == 1.0
    assert anchor_recall(result) == 0.5


def test_anchor_recall_counts_a_gold_entity_once(make_result):
    result = make_result(topics=[("Aino",), ("Aino",), ("Oulu",)], anchors=[("aino",), ("Aino",)])
    assert anchor_recall(result) == pytest.approx(0.5)


def test_anchor_homonym_with_another_id_is_no_hit(make_result):
    result = make_result(topics=[("Aino", "m.1")], anchors=[("Aino", "m.7")])
    assert anchor_hit(result, 3) == 0.0


def test_anchor_metrics_without_gold_are_none(make_result):
    assert anchor_hit(make_result(anchors=[("Aino",)]), 1) is None
    assert anchor_recall(make_result()) is None


def test_anchor_metrics_without_anchors_are_zero(make_result):
    assert anchor_hit(make_result(topics=[("Aino",)]), 3) == 0.0
    assert anchor_recall(make_result(topics=[("Aino",)])) == 0.0
