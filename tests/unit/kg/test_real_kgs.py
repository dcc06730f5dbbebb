"""The public graphs and corpora where they are at hand: counts that are known from outside this code."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from kgrag_gpu.config.schema import DatasetConfig, KgConfig
from kgrag_gpu.data.passages import load_passages
from kgrag_gpu.data.registry import load_questions
from kgrag_gpu.kg.build import kg_from_file
from kgrag_gpu.kg.mentions import build_mentions_kg

DATA = os.environ.get("KGRAG_DATA")

pytestmark = pytest.mark.skipif(not DATA, reason="KGRAG_DATA is not set: the public files are not at hand")


def at(path: str) -> Path:
    full = Path(DATA or "") / path
    if not full.exists():
        pytest.skip(f"{full} is not there")
    return full


@pytest.mark.parametrize(
    ("path", "num_entities", "num_relations", "num_triples"),
    [
        ("metaqa/kb.txt", 42874, 9, 130425),
        ("pathquestion/2H-kb.txt", None, 13, 1211),
        ("pathquestion/3H-kb.txt", None, 13, 2839),
        # One of the slice's 39,224 names stands both with and without a blank behind it: 39,223.
        ("freebase_slice/triples.tsv", 39223, 2729, 70288),
        ("fb15k237/train.txt.gz", 14505, 237, 272115),
    ],
)
def test_public_graph_has_its_known_counts(path, num_entities, num_relations, num_triples):
    kg = kg_from_file(at(path), KgConfig())
    assert num_entities is None or kg.num_entities == num_entities
    assert (kg.num_relations, kg.num_triples, kg.rejected) == (num_relations, num_triples, ())


def test_every_mid_of_fb15k237_is_named():
    names = str(at("fb15k237/entities.tsv"))
    kg = kg_from_file(at("fb15k237/train.txt.gz"), KgConfig(names_path=names))
    assert kg.manifest["notes"]["num_unnamed_entities"] == 0
    row = kg.entity_external_ids.index("/m/0f8l9c")
    assert kg.entity_names[row] == "France"


def test_openie_file_has_185_rejects_and_keeps_the_rest():
    path = at("musique_hipporag/openie_1890.json")
    kg = kg_from_file(path, KgConfig())
    rows = [row for doc in json.loads(path.read_text())["docs"] for row in doc["extracted_triples"]]
    assert len(rows) == 17419
    assert len(kg.rejected) == 185 == sum(len(row) != 3 for row in rows)
    assert kg.manifest["notes"]["num_rows"] == 17419 - 185
    assert kg.num_passages == 1890


def test_openie_passages_are_the_question_files_passages():
    questions = load_questions(DatasetConfig(name="musique", data=str(at("musique_hipporag"))))
    kg = kg_from_file(at("musique_hipporag/openie_1890.json"), KgConfig())
    held = {(p.title, p.text) for p in kg.passages}
    assert all((p.title, p.text) in held for p in questions.passages)


def test_mentions_link_most_gold_passages_of_musique():
    questions = load_questions(DatasetConfig(name="musique", data=str(at("musique"))))
    kg = build_mentions_kg(questions.passages)
    owners = np.repeat(np.arange(kg.num_triples), np.diff(kg.triple_passage_offsets))
    linked = set(zip(kg.triple_passages.tolist(), kg.tails[owners].tolist(), strict=True))
    steps = 0
    reached = 0
    for question in questions.questions:
        for gold in question.gold_passage_ids:
            others = [o for o in question.gold_passage_ids if o != gold]
            steps += 1
            title = int(kg.passage_entities[gold])
            mentioned = {t for p, t in linked if p == gold}
            neighbours = any((o, title) in linked or int(kg.passage_entities[o]) in mentioned for o in others)
            shared = any(mentioned & {t for p, t in linked if p == o} for o in others)
            reached += neighbours or shared
    assert reached / steps > 0.85


def test_corpus_of_6119_passages_is_read_whole():
    passages, rejected = load_passages(at("2wikimultihopqa/corpus_6119.json"))
    assert (len(passages), rejected) == (6119, [])
