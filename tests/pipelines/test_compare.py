"""pipelines.compare and pipelines.show on run directories written for the purpose."""

import csv
import dataclasses
import json
import subprocess
import sys

import pytest

from kgrag_gpu.metrics import compute_metrics
from kgrag_gpu.run_dir import RunDir
from kgrag_gpu.types import (
    Answer,
    EvidencePath,
    EvidenceStep,
    GoldAnswer,
    Passage,
    Question,
    Result,
    Retrieval,
    UserError,
)
from pipelines import compare, show

PASSAGES = [Passage(f"Title {i}", f"Text {i}.") for i in range(4)]


def result(i, prediction, ranked):
    return Result(
        Question(f"q{i}", f"Question {i}?", (GoldAnswer("yes" if i % 2 else "Oslo"),), (0, 1), num_hops=2),
        Retrieval(
            ranked,
            tuple(1.0 / (1 + rank) for rank in range(len(ranked))),
            (EvidencePath((EvidenceStep("Oslo", "capital of", "Norway", "Oslo is the capital.", (0,)),), 0.5),),
            trace={"rounds": 2},
        ),
        Answer(prediction, "graph" if prediction else "none"),
        (0, 1),
    )


@pytest.fixture
def make_run(tmp_path):
    """Writes a finished run directory and returns its path."""

    def make(name, results, method="bm25", finished=True, **manifest):
        contents = {"dataset": "musique", "method": method, "num_shards": 1, "source": "file dev.jsonl", **manifest}
        run = RunDir.create(tmp_path / "runs", name, {"dataset": {"name": "musique"}}, contents)
        run.finish_shard(0, 1, results)
        run.write_rows(results, PASSAGES)
        if finished:
            run.write_metrics(compute_metrics(results, {"stages": {"search": 2.0}}, "file dev.jsonl", num_resamples=50))
        return run.path

    return make


@pytest.fixture
def two_runs(make_run):
    weak = [result(i, "Oslo" if i < 8 else "", (2, 3)) for i in range(40)]
    strong = [result(i, "yes" if i % 2 else "Oslo", (0, 1)) for i in range(40)]
    return make_run("musique-bm25-1", weak), make_run("musique-ppr-2", strong, method="ppr")


def test_compare_writes_paired_differences_with_interval_and_p(two_runs, tmp_path, capsys):
    out = tmp_path / "out"
    assert compare.main([*map(str, two_runs), "--out", str(out)]) == 0
    data = json.loads((out / "compare.json").read_text())
    assert data["baseline"] == "musique-bm25-1"
    assert data["num_questions"] == 40
    difference = data["runs"][1]["differences"]["retrieval.recall@5"]
    assert (difference["difference"], difference["low"], difference["high"]) == (1.0, 1.0, 1.0)
    assert difference["significant"] and difference["n"] == 40
    em = data["runs"][1]["differences"]["answer.em"]
    assert em["difference"] == pytest.approx(0.9)
    assert em["low"] < 0.9 < em["high"] and em["p"] < 0.01
    assert len(data["runs"][1]["gained"]) == 36 and data["runs"][1]["lost"] == []
    printed = capsys.readouterr().out
    assert "bm25" in printed and "ppr" in printed and "+1.000 [+1.000, +1.000] p=0.002 *" in printed
    rows = list(csv.DictReader((out / "compare.csv").open()))
    cell = next(row for row in rows if row["run"] == "musique-ppr-2" and row["metric"] == "recall@5")
    assert (cell["value"], cell["n"], cell["significant"]) == ("1.0", "40", "True")
    assert {row["metric"] for row in rows if row["section"] == "cost"} >= {"seconds", "llm_calls"}
    assert (out / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert "36 questions gained, 0 lost" in (out / "compare.html").read_text()


def test_compare_says_where_answers_came_from_and_which_anchors_were_given(make_run, tmp_path, capsys):
    results = [result(i, "Oslo" if i < 3 else "", (0, 1)) for i in range(10)]
    paths = make_run("a", results, method="tog", anchors="gold"), make_run("b", results, method="pog", anchors="linked")
    assert compare.main([*map(str, paths), "--out", str(tmp_path / "out")]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["Answers", "from", "the", "graph", "3", "3"] in lines
    assert ["Unanswered", "7", "7"] in lines
    assert ["tog", "(gold", "anchors)", "pog"] in lines
    assert "Answers from the model alone" in (tmp_path / "out" / "compare.html").read_text()


def test_compare_tells_a_method_from_its_form_without_the_model(make_run, tmp_path, capsys):
    results = [result(i, "Oslo", (0, 1)) for i in range(4)]
    paths = [make_run(str(used), results, method="anchorrag", use_model=used) for used in (True, False)]
    assert compare.main([*map(str, paths)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["anchorrag", "anchorrag", "(use_model", "off)"] in lines


def test_compare_equal_runs_show_no_significant_difference(make_run, tmp_path):
    results = [result(i, "Oslo", (0, 2)) for i in range(10)]
    runs = [make_run("a", results), make_run("b", results, method="ppr")]
    assert compare.main([*map(str, runs), "--out", str(tmp_path / "out")]) == 0
    differences = json.loads((tmp_path / "out" / "compare.json").read_text())["runs"][1]["differences"]
    assert all(d["difference"] == 0 and d["p"] == 1 and not d["significant"] for d in differences.values())


def test_compare_order_of_rows_in_the_shards_makes_no_difference(make_run, tmp_path):
    results = [result(i, "Oslo", (0, i % 4) if i % 4 else (0,)) for i in range(20)]
    other = [dataclasses.replace(r, answer=Answer("yes", "graph")) for r in results]
    texts = []
    for name, own in (("there", other), ("back", other[::-1])):
        runs = [make_run("base-" + name, results), make_run("run-" + name, own, method="ppr")]
        compare.main([*map(str, runs), "--out", str(tmp_path / name)])
        texts.append((tmp_path / name / "compare.csv").read_text().replace(name, ""))
    assert texts[0] == texts[1]


def test_compare_baseline_option_turns_the_sign(two_runs, tmp_path):
    compare.main([*map(str, two_runs), "--baseline", str(two_runs[1]), "--out", str(tmp_path / "out")])
    data = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert data["baseline"] == "musique-ppr-2"
    assert data["runs"][1]["differences"]["retrieval.recall@5"]["difference"] == -1.0


def test_compare_different_questions_are_refused_unless_intersected(make_run, tmp_path, capsys):
    runs = [
        make_run("a", [result(i, "Oslo", (0, 1)) for i in range(10)]),
        make_run("b", [result(i, "Oslo", (0, 1)) for i in range(4, 12)], method="ppr"),
    ]
    with pytest.raises(UserError, match=r"answered other questions.*--intersect"):
        compare.main(list(map(str, runs)))
    assert compare.main([*map(str, runs), "--intersect", "--out", str(tmp_path / "out")]) == 0
    data = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert (data["num_questions"], data["num_left_out"]) == (6, 6)
    assert data["runs"][0]["metrics"]["num_questions"] == 6
    assert "left out" in capsys.readouterr().out


def test_compare_same_ids_with_other_texts_are_other_questions(make_run):
    results = [result(i, "Oslo", (0, 1)) for i in range(3)]
    noisy = [dataclasses.replace(r, question=dataclasses.replace(r.question, text="Qeustion?")) for r in results]
    runs = [make_run("a", results), make_run("b", noisy, method="ppr")]
    with pytest.raises(UserError, match="other questions"):
        compare.main(list(map(str, runs)))
    with pytest.raises(UserError, match="no question in common"):
        compare.main([*map(str, runs), "--intersect"])


def test_compare_changed_gold_answers_are_noted(make_run, capsys):
    results = [result(i, "Oslo", (0, 1)) for i in range(3)]
    question = dataclasses.replace(results[0].question, golden_answers=(GoldAnswer("Bergen"),))
    other = [dataclasses.replace(results[0], question=question), *results[1:]]
    compare.main([str(make_run("a", results)), str(make_run("b", other, method="ppr"))])
    assert "1 questions have other gold answers" in capsys.readouterr().out


def test_compare_unusable_runs_are_refused_with_the_remedy(make_run, tmp_path):
    good = str(make_run("a", [result(0, "Oslo", (0,))]))
    unfinished = str(make_run("b", [result(0, "Oslo", (0,))], finished=False))
    with pytest.raises(UserError, match=r"not finished.*run the same batch_eval command again"):
        compare.main([good, unfinished])
    with pytest.raises(UserError, match="not a run directory"):
        compare.main([good, str(tmp_path)])
    with pytest.raises(UserError, match="two or more"):
        compare.main([good, good + "/"])


def test_compare_shards_that_disagree_with_the_metrics_are_refused(make_run, tmp_path):
    path = make_run("a", [result(i, "Oslo", (0,)) for i in range(3)])
    (path / "shards" / "00000-of-00001.parquet").unlink()
    with pytest.raises(UserError, match="hold 0 questions, its metrics 3"):
        compare.main([str(path), str(make_run("b", [result(0, "Oslo", (0,))]))])


def test_compare_user_error_is_one_line_and_exit_code_two(tmp_path):
    command = [sys.executable, "-m", "pipelines.compare", str(tmp_path / "none"), str(tmp_path / "other")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_show_prints_evidence_ranking_and_trace(two_runs, capsys):
    assert show.main([str(two_runs[1]), "q3"]) == 0
    printed = capsys.readouterr().out
    for expected in (
        "Question 3?",
        "Oslo -capital of-> Norway",
        "Oslo is the capital.",
        "Title 0",
        "gold",
        "rounds  2",
    ):
        assert expected in printed


def test_show_unknown_question_names_near_ones(two_runs):
    with pytest.raises(UserError, match=r"no question 'q33x'.*near: q33"):
        show.main([str(two_runs[0]), "q33x"])


def test_show_run_without_joined_rows_falls_back_on_numbers(two_runs, capsys):
    (two_runs[0] / "retrieval.jsonl").unlink()
    show.main([str(two_runs[0]), "q1"])
    assert "passage 2" in capsys.readouterr().out
