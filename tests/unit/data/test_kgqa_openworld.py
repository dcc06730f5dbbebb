"""Misspelt and unanswerable twins."""

import re

import numpy as np

from kgrag_gpu.data.noise import misspelt
from kgrag_gpu.data.unanswerable import remove_answers
from kgrag_gpu.kg.store import make_kg
from kgrag_gpu.types import EntityRef, GoldAnswer, Question


def test_misspelt_is_the_same_for_the_same_seed_and_differs_for_another():
    text = "who is the mother of somebody famous"
    assert misspelt(text, "a") == misspelt(text, "a")
    assert len({misspelt(text, str(i)) for i in range(20)}) > 10


def test_misspelt_edits_every_longer_word_at_most_once_and_no_short_one():
    from rapidfuzz.distance import OSA

    text = "the father of king henry"
    for seed in range(50):
        words = misspelt(text, str(seed)).split(" ")
        assert words[0] == "the" and words[2] == "of"
        assert all(OSA.distance(a, b) <= 1 for a, b in zip(words, text.split(), strict=True))


def test_misspelt_never_touches_numbers_or_words_with_digits():
    text = "films from 1994 or the 1990s with B52s and 12345678"
    for seed in range(50):
        assert re.findall(r"\w*\d\w*", misspelt(text, str(seed))) == ["1994", "1990s", "B52s", "12345678"]


def test_misspelt_rate_zero_point_five_leaves_some_words():
    text = " ".join(["father"] * 400)
    kept = misspelt(text, "x", rate=0.5).split().count("father")
    assert 150 < kept < 260


def test_misspelt_works_in_scripts_without_a_keyboard_row():
    assert misspelt("Фёдор Достоевский", "3") != ""
    assert misspelt("北京大学的校长", "3", min_letters=2) != ""


def kg(triples):
    names = sorted({n for h, _, t in triples for n in (h, t)})
    relations = sorted({r for _, r, _ in triples})
    rows = np.array([(names.index(h), relations.index(r), names.index(t)) for h, r, t in triples])
    return make_kg(
        entity_names=names,
        relation_names=relations,
        heads=rows[:, 0],
        relations=rows[:, 1],
        tails=rows[:, 2],
        triple_texts=["x"] * len(triples),
        kind="triples",
    )


def question(answer: str, topic: str = "a", hops: int | None = 2) -> Question:
    topics = (EntityRef(topic),) if topic else ()
    return Question("q", "?", (GoldAnswer(answer),), topic_entities=topics, num_hops=hops)


TRIPLES = [("a", "child", "b"), ("b", "sex", "male"), ("c", "sex", "male"), ("b", "sex", "female")]


def test_remove_answers_takes_only_the_triples_within_reach_of_the_topic():
    removal = remove_answers(kg(TRIPLES), [question("male")], 1.0, 0)
    assert removal.question_ids == (0,)
    assert removal.edge_ids == (1,)  # c's stays: c is not reached from a


def test_remove_answers_without_topic_takes_all_of_the_answers_triples():
    assert remove_answers(kg(TRIPLES), [question("male", topic="")], 1.0, 0).edge_ids == (1, 2)


def test_remove_answers_counts_questions_without_a_gold_answer_in_the_graph():
    removal = remove_answers(kg(TRIPLES), [question("unknown"), question("female")], 1.0, 0)
    assert (removal.question_ids, removal.num_unreachable) == ((1,), 1)


def test_remove_answers_draws_the_same_share_for_the_same_seed():
    questions = [question("male")] * 40
    one = remove_answers(kg(TRIPLES), questions, 0.25, 7)
    assert len(one.question_ids) == 10
    assert one == remove_answers(kg(TRIPLES), questions, 0.25, 7)
    assert one.question_ids != remove_answers(kg(TRIPLES), questions, 0.25, 8).question_ids
