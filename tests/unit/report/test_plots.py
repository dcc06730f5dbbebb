"""The recall curve equals the metric at every depth; plots without data are left out."""

import pytest

from kgrag_gpu.metrics import compute_metrics
from kgrag_gpu.report.plots import (
    DARK,
    LIGHT,
    differences_plot,
    groups_plot,
    recall_curve_plot,
    recall_curves,
    stages_plot,
)


def test_recall_curves_equal_the_metrics_with_their_intervals(make_run):
    results, _, _ = make_run()
    metrics = compute_metrics(results, {}, "s")  # with the plot's own number of resamples
    recall, complete = recall_curves(results)
    for curve, name in ((recall, "recall"), (complete, "all_recall")):
        for k in (5, 10):
            interval = metrics["intervals"]["retrieval"][f"{name}@{k}"]
            assert curve[k - 1].mean == pytest.approx(metrics["retrieval"][f"{name}@{k}"])
            assert (curve[k - 1].low, curve[k - 1].high) == pytest.approx((interval["low"], interval["high"]))
            assert curve[k - 1].n == interval["n"]


def test_plots_light_and_dark_differ(make_run):
    results, metrics, _ = make_run()
    curves = recall_curves(results)
    assert recall_curve_plot(curves, LIGHT) != recall_curve_plot(curves, DARK)
    assert groups_plot(metrics, LIGHT) != groups_plot(metrics, DARK)


def test_plots_many_stages_and_formula_signs_are_drawn():
    image = stages_plot({f"stage ${i}_{{x$" * 8: 1.0 + i for i in range(40)}, LIGHT)
    assert image is not None and image.startswith(b"\x89PNG")


def test_plots_without_data_are_none(make_run):
    assert recall_curve_plot(recall_curves([]), LIGHT) is None
    assert stages_plot({}, LIGHT) is None
    assert stages_plot({"search": 0.0}, LIGHT) is None
    assert differences_plot([], "base", LIGHT) is None
    assert groups_plot(compute_metrics([], {}, "s"), LIGHT) is None
