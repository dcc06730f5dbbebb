"""Answers over the public KGQA files with the real encoder: no topic entity, no number of hops, both directions.

Thresholds lie some points under what the whole files reach, so that a sample of them passes and a broken part does not.
"""

import os
from pathlib import Path

import pytest

from kgrag_gpu.config.schema import DatasetConfig, RunConfig
from kgrag_gpu.data.noise import misspelt
from kgrag_gpu.data.registry import load_questions
from kgrag_gpu.kg.triples_kg import import_triples
from kgrag_gpu.methods.path_answers import PathAnswerConfig, PathAnswerer
from kgrag_gpu.methods.path_floor import floor_of_questions
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.metrics.answer import exact_match
from kgrag_gpu.types import Question

DATA = os.environ.get("KGRAG_DATA")
NUM_QUESTIONS = 120

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA, reason="KGRAG_DATA is not set: the public files are not at hand"),
]

SETS = {
    "PQ-2H": ("pathquestion", "pathquestion/PQ-2H.txt", "pathquestion/2H-kb.txt"),
    "PQ-3H": ("pathquestion", "pathquestion/PQ-3H.txt", "pathquestion/3H-kb.txt"),
    "MetaQA-2": ("metaqa", "metaqa/qa_2hop_dev.tsv", "metaqa/kb.txt"),
    "MetaQA-3": ("metaqa", "metaqa/qa_3hop_dev.tsv", "metaqa/kb.txt"),
}


@pytest.fixture(scope="module")
def answerers(tmp_path_factory):
    """Answerers by KB file, built once."""
    built: dict[str, PathAnswerer] = {}

    def get(kb: str) -> PathAnswerer:
        if kb not in built:
            path = existing(kb)
            config = RunConfig(dataset=DatasetConfig(name="jsonl"), method=PathAnswerConfig(), method_name="none")
            built[kb] = PathAnswerer(Resources(config, import_triples(path), tmp_path_factory.mktemp("cache")))
        return built[kb]

    return get


def existing(path: str) -> Path:
    full = Path(DATA or "") / path
    if not full.exists():
        pytest.skip(f"{full} is not there")
    return full


def sample(dataset: str, path: str) -> list[Question]:
    questions = load_questions(DatasetConfig(name=dataset, data=str(existing(path)))).questions
    return list(questions[:: max(1, len(questions) // NUM_QUESTIONS)])


@pytest.mark.parametrize(
    ("name", "is_noisy", "least_hit", "least_top3"),
    [
        ("PQ-2H", False, 0.86, 0.99),
        ("PQ-2H", True, 0.82, 0.95),
        ("PQ-3H", False, 0.86, 0.99),
        ("PQ-3H", True, 0.78, 0.95),
        ("MetaQA-2", False, 0.86, 0.99),
        ("MetaQA-2", True, 0.80, 0.95),
        ("MetaQA-3", False, 0.78, 0.99),
        ("MetaQA-3", True, 0.70, 0.95),
    ],
)
def test_real_questions_are_answered_and_their_anchors_found(answerers, name, is_noisy, least_hit, least_top3):
    dataset, path, kb = SETS[name]
    questions, answerer = sample(dataset, path), answerers(kb)
    texts = [misspelt(q.text, q.id).lower() if is_noisy else q.text for q in questions]
    anchors = answerer.anchors(texts)
    answers = answerer.answer(texts, anchors)
    kg_names = answerer.kg.entity_names
    hits, found = 0.0, 0
    for q, (question, answer) in enumerate(zip(questions, answers, strict=True)):
        hits += exact_match(kg_names[answer.entities[0]], question.golden_answers) if answer.entities else 0.0
        first = anchors.entity_ids[anchors.offsets[q] : anchors.offsets[q + 1]][:3]
        found += question.topic_entities[0].name in [kg_names[entity] for entity in first]
    assert found / len(questions) >= least_top3
    assert hits / len(questions) >= least_hit


def test_real_batch_equals_single_questions(answerers):
    dataset, path, kb = SETS["PQ-3H"]
    texts = [q.text for q in sample(dataset, path)[:12]]
    texts[3] = misspelt(texts[3], "x").lower()
    together = answerers(kb).answer(texts)
    assert together == [answerers(kb).answer([text])[0] for text in texts]


def test_real_floor_lies_far_below_the_answers(answerers):
    dataset, path, kb = SETS["PQ-3H"]
    floor = floor_of_questions(answerers(kb).kg, sample(dataset, path))
    assert floor is not None
    assert floor.num_questions >= NUM_QUESTIONS
    assert 0.05 < floor.hit < 0.4
