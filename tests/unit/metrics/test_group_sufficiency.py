"""Group sufficiency: both twins must be judged rightly before the answer counts."""

import pytest

from kgrag_gpu.metrics.groups import group_sufficiency


@pytest.fixture
def twins(make_result):
    """An answerable question and its twin; the twin's outcome is given."""

    def make(prediction, source, twin_prediction, twin_source, id="q"):
        return [
            make_result(prediction, gold=["big red fox"], id=id, source=source),
            make_result(
                twin_prediction, gold=(), id=f"{id}#unanswerable", source=twin_source, answerable=False,
                extra={"original_id": id},
            ),
        ]  # fmt: skip

    return make


def test_group_sufficiency_right_twins_score_the_answer(twins):
    assert group_sufficiency(twins("red fox", "graph", "", "none")) == {
        "num_groups": 1,
        "em": 0.0,
        "f1": pytest.approx(0.8),
        "sufficiency": 1.0,
    }


@pytest.mark.parametrize(
    ("twin_prediction", "twin_source", "sufficiency"),
    [("fox", "graph", 0.0), ("fox", "passages", 0.0), ("fox", "cot", 1.0), ("", "none", 1.0), ("", "graph", 1.0)],
)
def test_group_sufficiency_claimed_evidence_for_the_twin_loses_the_group(
    twins, twin_prediction, twin_source, sufficiency
):
    scores = group_sufficiency(twins("big red fox", "graph", twin_prediction, twin_source))
    assert scores is not None
    assert (scores["em"], scores["sufficiency"]) == (sufficiency, sufficiency)


def test_group_sufficiency_unanswered_answerable_question_loses_the_group(twins):
    scores = group_sufficiency(twins("", "none", "", "none") + twins("big red fox", "graph", "", "none", id="r"))
    assert scores is not None
    assert (scores["num_groups"], scores["em"]) == (2, 0.5)


def test_group_sufficiency_without_twins_is_none(make_result):
    assert group_sufficiency([make_result("A", id="1"), make_result("A", id="2")]) is None
    assert group_sufficiency([make_result("A", id="1", answerable=False)]) is None
