"""The table at the end of a run, as text."""

import io

from rich.console import Console

from kgrag_gpu.report import print_metrics
from kgrag_gpu.report.question_tree import question_tree
from kgrag_gpu.report.wording import bytes_text, interval_text, score_text, seconds_text


def printed(metrics, manifest):
    buffer = io.StringIO()
    print_metrics(metrics, manifest, Console(file=buffer, width=160))
    return buffer.getvalue()


def test_print_metrics_shows_value_interval_and_n_overall_and_by_hop(make_run):
    _, metrics, manifest = make_run()
    text = printed(metrics, manifest)
    interval = metrics["intervals"]["answer"]["f1"]
    assert f"{metrics['answer']['f1']:.3f} {interval_text(interval['low'], interval['high'])}" in text
    assert "all (n=8)" in text
    assert "2 hops (n=4)" in text and "3 hops (n=4)" in text
    assert "1 failed (see errors.jsonl)" in text
    assert "embedded sample" not in text


def test_print_metrics_model_asked_shows_calls_and_tokens_by_prompt_and_stage(make_run):
    _, metrics, manifest = make_run()
    text = printed(metrics, manifest)
    assert "stage read" in text
    assert "1,234" in text


def test_print_metrics_sample_is_announced_first(make_run):
    _, metrics, manifest = make_run(source="embedded sample, 8 questions, not MuSiQue", is_sample=True)
    assert printed(metrics, manifest).startswith("embedded sample, no benchmark result")


def test_print_metrics_square_brackets_in_names_are_printed_as_they_are(make_run):
    _, metrics, manifest = make_run()
    assert "[bold]x[/]" in printed(metrics, manifest | {"method": "[bold]x[/]"})


def test_question_tree_shows_evidence_ranking_gold_and_trace(make_run):
    results, _, _ = make_run()
    buffer = io.StringIO()
    Console(file=buffer, width=200).print(question_tree(results[2], {0: "Aino", 1: "Oulu", 2: "[red]", 3: "北京"}))
    text = buffer.getvalue()
    assert "Aino -born in-> Oulu" in text
    assert "1  Aino  0.9 gold" in text
    assert "2  [red]  0.8" in text
    assert "5  passage 4" in text
    assert "1 gold passages are not in the KG" in text
    assert "gold  Oulujoki / Ule älv" in text


def test_question_tree_of_a_failed_question_shows_the_reason(make_run):
    results, _, _ = make_run()
    buffer = io.StringIO()
    Console(file=buffer, width=200).print(question_tree(results[1], {}))
    assert "failed: RuntimeError" in buffer.getvalue()


def test_wording_by_hand():
    assert [score_text(None), score_text(0.12345)] == ["–", "0.123"]
    assert [seconds_text(s) for s in (0.0123, 5, 300, 7200, None)] == ["12 ms", "5.0 s", "5.0 min", "2.0 h", "–"]
    assert [bytes_text(b) for b in (0, 512, 3 << 20, 5 << 40)] == ["–", "512 B", "3.0 MiB", "5120.0 GiB"]
