"""Alignment of questions and paths against brute force, and whole answers with an encoder of plain words."""

import itertools
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from kgrag_gpu.kg.store import Kg, make_kg
from kgrag_gpu.methods.path_answers import PathAnswer, PathAnswerConfig, PathAnswerer
from kgrag_gpu.methods.path_floor import floor_of_questions, random_path_floor
from kgrag_gpu.ranking.paths_align import (
    Likeness,
    Sheet,
    first_sums,
    last_sums,
    next_sums,
    spent,
)
from kgrag_gpu.ranking.paths_question import PathQuestion, Reading
from kgrag_gpu.tensors.csr_graph import CsrGraph
from kgrag_gpu.tensors.fixed_point import to_fixed
from kgrag_gpu.types import EntityRef, GoldAnswer, Question

DIM = 64


class PlainWords:
    """Stands in for the shared resources: a text's vector is the sum of its words' random vectors."""

    device = torch.device("cpu")

    def __init__(self, kg: Kg):
        self.kg = kg
        self.graph = CsrGraph.from_triples(kg.heads, kg.relations, kg.tails, kg.num_entities)

    def stage(self, name: str):
        return nullcontext()

    def vectors(self, texts, progress=None) -> np.ndarray:
        rows = np.zeros((len(texts), DIM))
        for row, text in enumerate(texts):
            for word in text.lower().split():
                rows[row] += np.random.default_rng(list(word.encode())).normal(size=DIM)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return to_fixed(np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0))


def question_of(num_words: int, **fields) -> PathQuestion:
    words = tuple(f"w{i}" for i in range(num_words))
    reading = Reading(tuple(range(num_words)), 1, 3)
    values = {"readings": (reading,), "asked": "", "noun": "", "is_shared": False} | fields
    return PathQuestion(("anchor", *words), 0, 0, (-1,) * (num_words + 1), **values)


@pytest.mark.parametrize("num_words", [1, 2, 5, 8])
def test_alignment_equals_the_best_over_all_splits(num_words):
    rng = np.random.default_rng(num_words)
    sheet = Sheet.of([question_of(num_words)], 3, torch.device("cpu"))
    table = torch.from_numpy(np.vstack([rng.normal(size=(len(sheet.phrases), 4)), np.full((1, 4), -9.0)]))
    like = Likeness(table, 0.1, 0.0)
    paths = torch.tensor(list(itertools.product(range(4), repeat=3)))
    agents, rows = torch.zeros(len(paths), dtype=torch.int64), torch.arange(len(paths))
    one = first_sums(sheet, like, agents, paths[:, 0])
    two = next_sums(sheet, like, agents, paths[:, 1], one, rows)
    three = last_sums(sheet, like, agents, paths[:, 2], two, rows)
    ids = sheet.segment_ids[0, 0]

    def best(path: list[int]) -> float:
        sums = []
        for cuts in itertools.combinations_with_replacement(range(num_words + 1), len(path) - 1):
            bounds = [0, *cuts, num_words]
            spans = zip(itertools.pairwise(bounds), path, strict=True)
            sums.append(sum(0.1 if i == j else float(table[ids[i, j], step]) for (i, j), step in spans))
        return max(sums)

    for row, path in enumerate(paths.tolist()):
        assert float(spent(sheet, one, agents)[row, 0]) == pytest.approx(best(path[:1]))
        assert float(spent(sheet, two, agents)[row, 0]) == pytest.approx(best(path[:2]))
        assert float(three[row, 0]) == pytest.approx(best(path))


def test_segments_across_possessives_cost_more():
    sheet = Sheet.of([question_of(2)], 3, torch.device("cpu"))
    sheet.bounds[0, 0, 0, 2] = 1
    table = torch.zeros(len(sheet.phrases) + 1, 1, dtype=torch.float64)
    sums = first_sums(sheet, Likeness(table, 0.1, 0.3), torch.tensor([0]), torch.tensor([0]))
    assert sums[0, 0, :3].tolist() == pytest.approx([0.1, 0.0, -0.3])


FAMILY = [
    ("Anna Berg", "mother", "Bruno Berg"),
    ("Bruno Berg", "employer", "Volt Works"),
    ("Bruno Berg", "birthplace", "Graz"),
    ("Carla Moor", "mother", "Dora Moor"),
    ("Dora Moor", "birthplace", "Linz"),
    ("Anna Berg", "birthplace", "Linz"),
    ("Eva Moor", "mother", "Dora Moor"),
    ("Anna Berg", "friend", "Carla Moor"),
]


def family_kg() -> Kg:
    names = sorted({n for h, _, t in FAMILY for n in (h, t)})
    relations = sorted({r for _, r, _ in FAMILY})
    rows = np.array([(names.index(h), relations.index(r), names.index(t)) for h, r, t in FAMILY])
    return make_kg(
        entity_names=names,
        relation_names=relations,
        heads=rows[:, 0],
        relations=rows[:, 1],
        tails=rows[:, 2],
        triple_texts=[" ".join(t) for t in FAMILY],
        kind="triples",
    )


@pytest.fixture(scope="module")
def family() -> PathAnswerer:
    return PathAnswerer(PlainWords(family_kg()), PathAnswerConfig())  # type: ignore[arg-type]


def names(family: PathAnswerer, answer: PathAnswer) -> list[str]:
    return [family_kg().entity_names[entity] for entity in answer.entities]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what is the birthplace of Anna Berg 's mother", ["Graz"]),
        ("the employer of mother of anna brg", ["Volt Works"]),
        ("birthplace of mother of friend of Anna Berg", ["Linz"]),
        ("who is the mother of Eva Moor", ["Dora Moor"]),
    ],
)
def test_answers_follow_the_question_without_topic_hops_or_case(family, text, expected):
    answer = family.answer([text])[0]
    assert names(family, answer) == expected
    assert answer.paths[answer.chosen].score == max(p.score for p in answer.paths)


def test_answer_comes_with_the_triples_that_lead_to_it(family):
    answer = family.answer(["what is the birthplace of Anna Berg 's mother"])[0]
    assert [[FAMILY[e] for e in edges] for edges in answer.edges] == [[FAMILY[0], FAMILY[2]]]
    assert answer.shortfall == 0.0


def test_missing_triple_shows_as_a_shortfall(family):
    answer = family.answer(["what is the employer of Eva Moor 's mother"])[0]  # no employer of Dora is known
    assert answer.shortfall > 0.1


def test_question_without_anchor_or_empty_gets_an_empty_answer(family):
    for answer in family.answer(["what is the meaning of life", "", "?"]):
        assert (answer.chosen, answer.entities, answer.paths) == (-1, (), ())
    assert family.answer([]) == []


def test_batch_equals_single_questions_in_any_order(family):
    texts = [
        "what is the birthplace of Anna Berg 's mother",
        "the employer of mother of anna brg",
        "nothing at all",
        "who is the mother of Eva Moor and Carla Moor",
        "wht is teh birthplce of carla mor",
        "which friend of Anna Berg has the same birthplace",
    ]
    alone = [family.answer([text])[0] for text in texts]
    assert family.answer(texts) == alone
    assert family.answer(texts[::-1]) == alone[::-1]


def test_floor_walks_random_paths_of_the_gold_length(family):
    gold = Question("q", "?", (GoldAnswer("Graz"),), topic_entities=(EntityRef("Anna Berg"),), num_hops=2)
    other = Question("r", "?", (GoldAnswer("Graz"),), topic_entities=(EntityRef("Nobody"),), num_hops=2)
    floor = random_path_floor(family.steps, family.config.max_ends, family_kg(), [gold, other], num_samples=1000)
    # From Anna, two steps: mother-(employer, birthplace, mother^-1), birthplace-(birthplace^-1), friend-(mother,
    # friend^-1); those that only lead back to Anna end nowhere.
    assert floor.num_questions == 1
    assert floor.hit == pytest.approx(1 / 6)
    again = random_path_floor(family.steps, family.config.max_ends, family_kg(), [other, gold], num_samples=1000)
    assert floor == again
    assert floor_of_questions(family_kg(), [other]) is None
