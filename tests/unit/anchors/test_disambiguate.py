"""Anchors among linked entities."""

import numpy as np
import pytest
import torch

from kgrag_gpu.anchors.disambiguate import (
    DisambiguationConfig,
    EntityRelations,
    choose_anchors,
    mention_ids,
    relation_scores,
)
from kgrag_gpu.anchors.link import Links


def links(*questions: list[tuple[int, float, int, int]]) -> Links:
    """Links of each question as (entity, score, start, end), best first."""
    rows = [row for question in questions for row in question]
    offsets = np.concatenate([[0], np.cumsum([len(q) for q in questions])]).astype(np.int64)
    entities, scores, starts, ends = (np.array(c) for c in zip(*rows, strict=True)) if rows else [np.zeros(0)] * 4
    return Links(
        offsets,
        entities.astype(np.int64),
        scores.astype(np.float64),
        starts.astype(np.int64),
        ends.astype(np.int64),
        np.zeros(len(rows), np.int64),
        [[]] * len(questions),
    )


def chosen(found: Links, scores: list[float], **config) -> list[int]:
    return choose_anchors(found, np.array(scores), DisambiguationConfig(**config)).entity_ids.tolist()


def test_relation_score_is_the_mean_of_the_best_k_cosines():
    relations = EntityRelations(torch.tensor([0, 3, 3, 4]), torch.tensor([0, 1, 2, 1]))
    cosines = torch.tensor([[0.5, 0.1, 0.3], [0.0, 0.8, 0.2]], dtype=torch.float64)
    found = links([(0, 1.0, 0, 1), (1, 1.0, 1, 2)], [(2, 1.0, 0, 1)])
    assert relation_scores(found, relations, cosines, 2).tolist() == pytest.approx([0.4, -1.0, 0.8])
    assert relation_scores(found, relations, cosines, 5)[0].item() == pytest.approx(0.3)


NEAR_EQUAL = [(5, 4.0, 0, 2), (6, 3.9, 0, 2), (7, 2.0, 0, 1), (8, 1.5, 4, 5)]


def test_tie_break_lets_relations_decide_among_near_equal_names_only():
    assert chosen(links(NEAR_EQUAL), [0.1, 0.3, 0.9, 0.9], scope="global") == [6, 5, 7]


def test_per_mention_puts_the_best_of_each_strong_mention_first():
    strong = [(5, 4.0, 0, 2), (6, 3.9, 0, 2), (8, 2.5, 4, 5)]
    assert chosen(links(strong), [0.1, 0.3, 0.0], scope="per_mention") == [6, 8, 5]
    assert chosen(links(strong), [0.1, 0.3, 0.0], scope="global") == [6, 5, 8]


def test_per_mention_weak_mention_waits_behind_homonyms():
    assert chosen(links(NEAR_EQUAL), [0.1, 0.3, 0.9, 0.9], scope="per_mention") == [6, 5, 7]


def test_relations_only_forgets_the_names():
    assert chosen(links(NEAR_EQUAL), [0.1, 0.3, 0.9, 0.8], mode="relations_only", scope="global") == [7, 8, 6]


def test_blend_adds_z_scores():
    two = [(5, 4.0, 0, 2), (6, 1.0, 0, 2)]
    assert chosen(links(two), [0.0, 0.9], mode="blend", blend_weight=0.4) == [5, 6]
    assert chosen(links(two), [0.0, 0.9], mode="blend", blend_weight=0.6) == [6, 5]
    assert chosen(links(two), [0.5, 0.5], mode="blend", blend_weight=0.9) == [5, 6]


def test_num_anchors_and_empty_questions():
    found = links([], NEAR_EQUAL, [])
    picked = choose_anchors(found, np.array([0.1, 0.3, 0.9, 0.9]), DisambiguationConfig(num_anchors=2))
    assert picked.offsets.tolist() == [0, 0, 2, 2]


def test_mentions_are_windows_that_overlap():
    assert mention_ids(links([(1, 3.0, 0, 2), (2, 2.0, 1, 3), (3, 1.0, 2, 4)], [(1, 3.0, 0, 2)])).tolist() == [
        0,
        0,
        2,
        3,
    ]


def test_batch_equals_single_questions():
    one, two = NEAR_EQUAL, [(9, 2.0, 0, 1), (3, 2.0, 2, 3), (4, 1.9, 2, 3)]
    scores = np.array([0.1, 0.3, 0.9, 0.9, 0.2, 0.1, 0.7])
    for mode in ("tie_break", "blend", "relations_only"):
        config = DisambiguationConfig(mode=mode)
        both = choose_anchors(links(one, two), scores, config).entity_ids.tolist()
        parts = [choose_anchors(links(one), scores[:4], config), choose_anchors(links(two), scores[4:], config)]
        assert both == [e for part in parts for e in part.entity_ids.tolist()]
