"""The HTML report: complete, safe against hostile names, self-contained, and bounded in size."""

import re
from html.parser import HTMLParser

import pytest
from PIL import Image

from kgrag_gpu.report import write_report
from kgrag_gpu.report.cards import choose_results
from kgrag_gpu.report.page import MAX_CARDS


class Elements(HTMLParser):
    """Collects what a browser would build: tags with attributes, the text of scripts, and all other text."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.scripts, self.text = [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        inside = next((tag for tag, _ in reversed(self.tags)), "")
        (self.scripts if inside == "script" else self.text).append(data)


@pytest.fixture
def page(tmp_path, make_run, passages):
    """Writes a report and reads it back."""

    def write(**options):
        results, metrics, manifest = make_run(**options)
        write_report(tmp_path, results, metrics, manifest, passages)
        return (tmp_path / "report.html").read_text(encoding="utf-8")

    return write


def test_report_hostile_names_stay_text(page):
    html = page()
    elements = Elements(html)
    assert sum(tag == "script" for tag, _ in elements.tags) == 1
    assert not any(name.startswith("on") for _, attributes in elements.tags for name in attributes)
    assert "alert" not in "".join(elements.scripts)
    assert "<script>alert('x')</script>" in "".join(elements.text)
    assert all(
        attributes["src"].startswith("data:image/png;base64,") for tag, attributes in elements.tags if tag == "img"
    )


def test_report_asks_nothing_of_the_network(page):
    elements = Elements(page())
    assert not any(tag in ("link", "iframe", "object", "embed") for tag, _ in elements.tags)
    for tag, attributes in elements.tags:
        for name in ("src", "href", "srcset", "action"):
            assert attributes.get(name, "data:").startswith("data:"), (tag, attributes)
    policy = next(a["content"] for t, a in elements.tags if t == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'")


def test_report_says_what_ran_and_what_came_out(page):
    text = "".join(Elements(page()).text)
    for expected in ("musique · ppr", "file dev.jsonl", "abcd1234", "RuntimeError", "北京", "Ule älv", "not in the KG"):
        assert expected in text
    assert re.search(r"95 % bootstrap \(100 resamples, seed 0\)", text)


def test_report_banner_only_for_the_embedded_sample(page):
    assert "not a benchmark result" in page(source="embedded sample, 8 questions, not MuSiQue", is_sample=True)
    assert "not a benchmark result" not in page()


def test_report_gold_passages_are_marked(page):
    html = page()
    assert '<li class="gold"><span class="soft num">1</span><b>Aino</b>' in html
    assert '<li><span class="soft num">4</span><b>北京</b>' in html


def test_report_covered_words_are_marked(page):
    assert "<mark>river</mark>" in page()


def test_report_ten_thousand_questions_stay_small_and_failures_come_first(tmp_path, make_run, passages):
    results, metrics, manifest = make_run(num=10_000)
    write_report(tmp_path, results, metrics, manifest, passages)
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert len(html) < 4_000_000
    assert html.count('<details class="q"') == MAX_CARDS
    assert "200 of 10,000 questions" in html
    assert html.index('data-outcome="failed"') < html.index('data-outcome="right"')


def test_report_plots_are_real_images(page, tmp_path):
    page()
    names = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert names == ["groups.png", "retrieval.png", "stages.png"]
    for name in names:
        with Image.open(tmp_path / "plots" / name) as image:
            assert image.width > 600
            assert len(image.convert("RGB").getcolors(1 << 24)) > 10


def test_report_without_gold_evidence_or_stages_is_written(tmp_path):
    from kgrag_gpu.metrics import compute_metrics
    from kgrag_gpu.types import Answer, Question, Result, Retrieval

    results = [Result(Question("1", "?"), Retrieval(), Answer("A", "cot"))]
    write_report(tmp_path, results, compute_metrics(results, {}, "own"), {}, [])
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "nothing to score" in html
    assert not (tmp_path / "plots").exists()


def test_report_is_the_same_bytes_for_any_order_of_results(tmp_path, make_run, passages):
    results, metrics, manifest = make_run()
    written = []
    for order in (results, results[::-1]):
        write_report(tmp_path, order, metrics, manifest, passages)
        written.append((tmp_path / "report.html").read_bytes())
    assert written[0] == written[1]


def test_choose_results_takes_failures_first_then_spreads_evenly(make_run):
    results, _, _ = make_run(num=100)
    chosen = [result.question.id for result in choose_results(results, 4)]
    assert chosen == ["q00001", "q00000", "q00034", "q00067"]
    assert len(choose_results(results, 500)) == 100
    assert choose_results([], 5) == []
