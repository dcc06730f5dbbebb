"""Shard rows come back as they went in, and public rows are deterministic."""

import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgrag_gpu.results import (
    RESULT_SCHEMA,
    json_line,
    path_text,
    prediction_row,
    read_results,
    result_to_row,
    results_to_table,
    retrieval_row,
    row_to_result,
)
from kgrag_gpu.types import (
    Answer,
    EntityRef,
    EvidencePath,
    EvidenceStep,
    GoldAnswer,
    Passage,
    Question,
    Result,
    Retrieval,
    UserError,
)

PASSAGES = [Passage("Aino", "Aino was born in Oulu."), Passage("Oulu", "Oulu is a city."), Passage("北京", "首都")]


def _full_result() -> Result:
    step = EvidenceStep("Aino", "born_in", "Oulu", "Aino was born in Oulu.", (0,), 7)
    back = EvidenceStep("Finland", "contains", "Oulu", "Oulu lies in Finland.", (1, 2), 9, True)
    return Result(
        Question(
            "q1",
            "Where was Aino born? 北京",
            (GoldAnswer("Oulu", ("Uleåborg",), "Q1"), GoldAnswer("Finland")),
            gold_passage_ids=(4, 5),
            context_passage_ids=(4, 5, 6),
            supporting_facts=((4, 0), (5, 2)),
            topic_entities=(EntityRef("Aino", "Q2"),),
            num_hops=2,
            type="bridge",
            answerable=False,
            extra={"level": "hard", "nested": {"a": [1, 2.5, None]}},
        ),
        Retrieval(
            (1, 0, 2),
            (0.1 + 0.2, 1 / 3, -1e-300),
            (EvidencePath((step, back), 2 / 3, {"round": 1, "words_covered": ["born"]}),),
            (EntityRef("Aino", "m.1"),),
            (EntityRef("Oulu"),),
            Answer("Oulu", "graph", ("Oulu",), "", 0.1),
            {"rounds": [{"kept": 3}]},
        ),
        Answer("Oulu", "graph", ("Oulu", "Finland"), "full reply", 0.30000000000000004),
        (0, -1),
        "",
    )


def test_row_full_result_comes_back_equal():
    result = _full_result()
    assert row_to_result(result_to_row(result)) == result


def test_row_bare_failed_result_comes_back_equal():
    result = Result(Question("x", ""), Retrieval(), Answer("", "none"), (), "ValueError: prompt too long")
    assert row_to_result(result_to_row(result)) == result


def test_shard_through_parquet_comes_back_equal(tmp_path):
    results = [_full_result(), Result(Question("x", "?"), Retrieval(), Answer("", "none"), error="boom")]
    pq.write_table(results_to_table(results), tmp_path / "shard.parquet")
    assert read_results([tmp_path / "shard.parquet"]) == results
    assert pq.read_schema(tmp_path / "shard.parquet").equals(RESULT_SCHEMA)


@given(
    st.lists(st.floats(allow_nan=False), max_size=5), st.text(), st.dictionaries(st.text(), st.floats(allow_nan=False))
)
def test_row_any_floats_and_text_come_back_exactly(scores, text, trace):
    result = Result(
        Question("q", text),
        Retrieval(tuple(range(len(scores))), tuple(scores), trace=trace),
        Answer(text, "passages", (text,)),
    )
    table = results_to_table([result])
    assert row_to_result(table.to_pylist()[0]) == result


def test_row_lone_surrogate_is_stored_with_a_replacement():
    result = Result(Question("q", "bad \ud800 text"), Retrieval(trace={"raw": "\ud800"}), Answer("", "none"))
    back = row_to_result(results_to_table([result]).to_pylist()[0])
    assert back.question.text == "bad ? text"
    assert back.retrieval.trace == {"raw": "\ud800"}
    json_line(prediction_row(result)).encode("utf-8")


def test_row_numpy_values_become_plain_numbers():
    trace = {"scores": np.array([0.5, 0.25]), "n": np.int64(3), "seen": {"b", "a"}}
    result = Result(Question("q", "?"), Retrieval((np.int64(2),), (np.float64(0.5),), trace=trace), Answer("", "none"))
    back = row_to_result(result_to_row(result))
    assert back.retrieval.trace == {"scores": [0.5, 0.25], "n": 3, "seen": ["a", "b"]}
    assert back.retrieval.passage_ids == (2,)


def test_row_unknown_object_in_the_trace_is_refused():
    result = Result(Question("q", "?"), Retrieval(trace={"x": object()}), Answer("", "none"))
    with pytest.raises(TypeError, match="cannot hold a object"):
        result_to_row(result)


def test_prediction_row_has_rounded_confidence_and_paths():
    row = prediction_row(_full_result())
    assert row == {
        "id": "q1",
        "question": "Where was Aino born? 北京",
        "prediction": "Oulu",
        "answers": ["Oulu", "Finland"],
        "source": "graph",
        "confidence": 0.3,
        "golden_answers": [["Oulu", "Uleåborg"], ["Finland"]],
        "evidence": ["Aino -born_in-> Oulu <-contains- Finland"],
        "error": "",
    }
    assert json.loads(json_line(row)) == row
    assert "北京" in json_line(row)


def test_retrieval_row_marks_gold_and_missing_gold():
    row = retrieval_row(_full_result(), PASSAGES)
    assert row["passages"] == [
        {"rank": 1, "id": 1, "title": "Oulu", "score": 0.3, "gold": False},
        {"rank": 2, "id": 0, "title": "Aino", "score": 0.333333, "gold": True},
        {"rank": 3, "id": 2, "title": "北京", "score": 0.0, "gold": False},
    ]
    assert math.copysign(1.0, row["passages"][2]["score"]) == 1.0
    assert row["gold"] == [{"id": 0, "title": "Aino"}, {"id": -1, "title": None}]
    assert row["anchors"] == [{"name": "Aino", "id": "m.1"}]


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([("A", "r", "B", False), ("B", "s", "C", False)], "A -r-> B -s-> C"),
        ([("A", "r", "B", True), ("A", "s", "C", False)], "B <-r- A -s-> C"),
        ([("A", "r", "B", False), ("A", "s", "C", False)], "B <-r- A -s-> C"),
        ([("A", "r", "B", False), ("C", "s", "D", False)], "A -r-> B; C -s-> D"),
        ([("A", "r", "A", False), ("A", "s", "B", False)], "A -r-> A -s-> B"),
        ([], ""),
    ],
)
def test_path_text_joins_steps_in_walking_order(steps, text):
    path = EvidencePath(tuple(EvidenceStep(h, r, t, "", (), -1, inverse) for h, r, t, inverse in steps), 1.0)
    assert path_text(path) == text


def test_read_results_not_a_shard_raises_user_error(tmp_path):
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"cut\.parquet is not a readable shard"):
        read_results([tmp_path / "cut.parquet"])
