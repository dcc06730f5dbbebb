"""The public files where they are at hand: counts that are known from outside this code."""

import os
from pathlib import Path

import pytest

from kgrag_gpu.config.schema import DatasetConfig
from kgrag_gpu.data.registry import load_questions

DATA = os.environ.get("KGRAG_DATA")

pytestmark = pytest.mark.skipif(not DATA, reason="KGRAG_DATA is not set: the public files are not at hand")


def load(name: str, path: str):
    full = Path(DATA or "") / path
    if not full.exists():
        pytest.skip(f"{full} is not there")
    return load_questions(DatasetConfig(name=name, data=str(full)))


@pytest.mark.parametrize(
    ("name", "path", "num_questions", "num_passages"),
    [
        ("musique", "musique", 105, 1804),
        ("musique", "musique_hipporag", 100, 1890),
        ("hotpotqa", "hotpotqa", 101, 998),
        ("ircot", "hotpotqa/ircot_dev_subsampled.jsonl", 249, None),
        ("2wikimultihopqa", "2wikimultihopqa", 75, 637),
        ("2wikimultihopqa", "2wikimultihopqa/train.json", 278, None),
    ],
)
def test_public_file_has_its_known_counts(name, path, num_questions, num_passages):
    found = load(name, path)
    assert len(found.questions) == num_questions
    assert num_passages is None or len(found.passages) == num_passages
    assert found.rejected == ()
    assert all(q.golden_answers and len(q.gold_passage_ids) >= 2 for q in found.questions)


def test_musique_gold_passages_are_as_many_as_hops():
    assert all(len(q.gold_passage_ids) == q.num_hops for q in load("musique", "musique").questions)


@pytest.mark.parametrize(("name", "path"), [("hotpotqa", "hotpotqa"), ("2wikimultihopqa", "2wikimultihopqa")])
def test_supporting_facts_point_at_sentences_of_their_passages(name, path):
    found = load(name, path)
    assert found.passage_sentences is not None
    for question in found.questions:
        assert {row for row, _ in question.supporting_facts} <= set(question.gold_passage_ids)
        for row, number in question.supporting_facts:
            assert found.passage_sentences[row][number] in found.passages[row].text
