"""Steps, listed paths and exact walks on tiny graphs, against plain loops."""

import itertools
from collections import Counter

import numpy as np
import pytest
import torch

from kgrag_gpu.expansion.relation_paths import StepGraph, first_level, next_level
from kgrag_gpu.expansion.relation_walks import walk_paths
from kgrag_gpu.tensors.csr_graph import CsrGraph

# 0 -directed-> 1, 2 -directed-> 1, 2 -directed-> 3, 0 -genre-> 4, 2 -genre-> 4, 5 alone
FILMS = [(0, 0, 1), (2, 0, 1), (2, 0, 3), (0, 1, 4), (2, 1, 4)]


def graph(triples, num_entities: int, num_relations: int, **options) -> StepGraph:
    table = np.array(triples, dtype=np.int64).reshape(-1, 3)
    csr = CsrGraph.from_triples(table[:, 0], table[:, 1], table[:, 2], num_entities)
    return StepGraph.from_graph(csr, num_relations, **options)


def listed(steps: StepGraph, anchor: int, depth: int, max_ends: int = 100) -> set[tuple[int, ...]]:
    level = first_level(steps, torch.tensor([anchor]), max_ends)
    paths = level.steps[:, None]
    found = {tuple(p) for p in paths.tolist()}
    for length in range(2, depth + 1):
        level = next_level(steps, level, max_ends if length < depth else 0)
        paths = torch.cat([paths[level.parents], level.steps[:, None]], 1)
        found |= {tuple(p) for p in paths.tolist()}
    return found


def ends(steps: StepGraph, anchor: int, path: list[int]) -> list[tuple[int, float]]:
    found = walk_paths(steps, torch.tensor([anchor]), torch.tensor([path]))
    return list(zip(found.entities.tolist(), found.support.tolist(), strict=True))


def test_steps_without_aliases_are_the_directed_relations():
    steps = graph(FILMS, 6, 2)
    assert steps.step_of.tolist() == [0, 1, 2, 3]
    assert steps.inverse.tolist() == [1, 0, 3, 2]
    assert steps.is_backward.tolist() == [False, True, False, True]


def test_steps_merge_a_relation_with_the_inverse_that_says_the_same():
    # children (0) and parents (1), each stored for the same three pairs; likes (2) is its own
    pairs = [(0, 1), (2, 3), (4, 5)]
    triples = [(a, 0, b) for a, b in pairs] + [(b, 1, a) for a, b in pairs] + [(0, 2, 1)]
    steps = graph(triples, 6, 3)
    assert steps.step_of.tolist() == [0, 1, 1, 0, 2, 3]
    assert steps.inverse.tolist() == [1, 0, 3, 2]
    assert steps.is_backward.tolist() == [False, False, False, True]


def test_steps_merge_a_symmetric_relation_with_its_own_inverse():
    triples = [(a, 0, b) for a, b in itertools.permutations(range(3), 2)]
    steps = graph(triples, 3, 1)
    assert (steps.step_of.tolist(), steps.inverse.tolist()) == ([0, 0], [0])


def test_steps_too_few_shared_pairs_do_not_merge():
    triples = [(0, 0, 1), (1, 1, 0), (2, 0, 3), (3, 1, 2)]
    assert graph(triples, 4, 2, min_alias_pairs=3).num_steps == 4
    assert graph(triples, 4, 2, min_alias_pairs=2).num_steps == 2


def test_sharing_counts_entities_that_have_both_steps():
    counts = graph(FILMS, 6, 2).sharing().toarray()
    assert counts.tolist() == [[2, 0, 2, 0], [0, 2, 0, 0], [2, 0, 2, 0], [0, 0, 0, 1]]


def test_sample_ends_are_distinct_ends_of_each_step():
    found, offsets = graph(FILMS, 6, 2).sample_ends(10)
    parts = [sorted(found[a:b].tolist()) for a, b in itertools.pairwise(offsets.tolist())]
    assert parts == [[1, 3], [0, 2], [4], [0, 2]]
    assert graph(FILMS, 6, 2).sample_ends(1)[1].tolist() == [0, 1, 2, 3, 4]


def test_listed_paths_are_those_that_a_walk_can_take():
    assert listed(graph(FILMS, 6, 2), 1, 2) == {(1,), (1, 0), (1, 2)}
    assert listed(graph(FILMS, 6, 2), 5, 3) == set()


def test_walk_does_not_go_straight_back_over_its_triple():
    steps = graph(FILMS, 6, 2)
    assert ends(steps, 0, [0, 1]) == [(2, 0.5)]  # films with the same director: not 0 itself
    assert ends(steps, 0, [2, 3]) == [(2, 0.5)]


def test_walk_may_come_home_over_another_triple():
    mutual = [(0, 0, 1), (1, 0, 0), (2, 0, 3), (3, 0, 2), (4, 0, 5), (5, 0, 4)]
    steps = graph(mutual, 6, 1)
    assert steps.num_steps == 1
    # forward there and forward back; the two triples' inverses likewise: 1*1 + 0.5*0.5
    assert ends(steps, 0, [0, 0]) == [(0, 1.25)]


def test_walk_counts_ways_and_ranks_by_them():
    triples = [(0, 0, 1), (0, 0, 2), (1, 1, 4), (2, 1, 4), (1, 1, 3)]
    assert ends(graph(triples, 5, 2), 0, [0, 2]) == [(4, 2.0), (3, 1.0)]


def test_walk_gives_the_triples_of_one_way():
    triples = [(0, 0, 1), (0, 0, 2), (1, 1, 4), (2, 1, 4)]
    found = walk_paths(graph(triples, 5, 2), torch.tensor([0, 0]), torch.tensor([[0, 2, -1], [0, -1, -1]]))
    assert found.offsets.tolist() == [0, 1, 3]
    assert found.edge_ids.tolist() == [[0, 2, -1], [0, -1, -1], [1, -1, -1]]


def test_walk_self_loop_is_walked_once():
    assert ends(graph([(0, 0, 0)], 1, 1), 0, [0]) == [(0, 1.0)]


def test_walk_of_a_step_that_the_anchor_lacks_has_no_end():
    found = walk_paths(graph(FILMS, 6, 2), torch.tensor([5, 1]), torch.tensor([[0], [0]]))
    assert found.offsets.tolist() == [0, 0, 0]


def test_no_walks_give_no_ends():
    found = walk_paths(graph(FILMS, 6, 2), torch.zeros(0, dtype=torch.int64), torch.zeros(0, 3, dtype=torch.int64))
    assert found.offsets.tolist() == [0]


@pytest.mark.parametrize("seed", range(5))
def test_walks_on_random_graphs_equal_plain_loops_however_they_are_split(seed):
    rng = np.random.default_rng(seed)
    triples = sorted({tuple(t) for t in rng.integers(0, [12, 3, 12], (60, 3)).tolist()})
    steps = graph(triples, 12, 3, min_alias_pairs=2, alias_share=0.2)
    anchors = torch.from_numpy(rng.integers(0, 12, 20))
    paths = torch.from_numpy(rng.integers(0, steps.num_steps, (20, 3)))
    paths[::4, 2] = -1
    whole = walk_paths(steps, anchors, paths)
    split = walk_paths(steps, anchors, paths, max_slots=8)
    assert whole.entities.tolist() == split.entities.tolist()
    assert whole.support.tolist() == split.support.tolist()
    for walk, (anchor, path) in enumerate(zip(anchors.tolist(), paths.tolist(), strict=True)):
        part = slice(int(whole.offsets[walk]), int(whole.offsets[walk + 1]))
        got = dict(zip(whole.entities[part].tolist(), whole.support[part].tolist(), strict=True))
        assert got == plain_walk(triples, steps, anchor, [s for s in path if s >= 0])


def plain_walk(triples, steps: StepGraph, anchor: int, path: list[int]) -> dict[int, float]:
    states = {(anchor, -1): 1.0}
    for step in path:
        ahead: Counter = Counter()
        for (entity, came_by), ways in states.items():
            for edge, (head, relation, tail) in enumerate(triples):
                if edge == came_by:
                    continue
                if head == entity and int(steps.step_of[2 * relation]) == step:
                    ahead[tail, edge] += ways
                if tail == entity and head != tail and int(steps.step_of[2 * relation + 1]) == step:
                    ahead[head, edge] += ways * 0.5
        states = dict(ahead)
    found: Counter = Counter()
    for (entity, _), ways in states.items():
        found[entity] += ways
    return dict(found)


def test_ends_away_from_their_anchor_leave_it_out_unless_it_is_the_only_one():
    # 0 directed 1 and 2; 0 wrote 1 and 3 wrote 1: who wrote what 0 directed?
    steps = graph([(0, 0, 1), (0, 0, 2), (0, 1, 1), (3, 1, 1), (4, 0, 5), (4, 1, 5)], 6, 2)
    anchors, path = torch.tensor([0, 4]), torch.tensor([[0, 3], [0, 3]])
    found = walk_paths(steps, anchors, path)
    assert found.entities.tolist() == [0, 3, 4]
    away = found.away_from(anchors)
    assert (away.offsets.tolist(), away.entities.tolist()) == ([0, 1, 2], [3, 4])
    assert away.edge_ids.tolist() == [[0, 3], [4, 5]]


@pytest.mark.parametrize("is_mutual", [False, True])
def test_steps_built_by_runs_of_entities_are_the_same(is_mutual):
    generator = np.random.default_rng(5)
    table = np.stack([generator.integers(0, high, 400) for high in (200, 6, 200)], axis=1)
    table[:80, 0] = 3  # a hub
    if is_mutual:  # relation 6 says of every pair of relation 2 the same from the other side
        same = table[table[:, 1] == 2][:, ::-1].copy()
        same[:, 1] = 6
        table = np.concatenate([table, same])
    triples = np.unique(table, axis=0)
    whole = graph(triples, 203, 7)
    assert (whole.num_steps < 14) == is_mutual
    parts = graph(triples, 203, 7, block_slots=40)
    for name in ("step_of", "inverse", "group_offsets", "group_steps", "slot_offsets", "neighbours", "edge_ids"):
        assert torch.equal(getattr(parts, name), getattr(whole, name)), name
    slots = torch.arange(len(whole.neighbours))
    assert torch.equal(parts.is_forward(slots), whole.is_forward(slots))
    for one, two in zip(whole.sample_ends(4), parts.sample_ends(4, block_groups=20), strict=True):
        assert torch.equal(one, two)
    entities, steps = (grid.flatten() for grid in torch.meshgrid(torch.arange(203), torch.arange(14), indexing="ij"))
    groups, found = parts.find_groups(entities, steps % parts.num_steps)
    offsets, held = parts.group_offsets.tolist(), parts.group_steps.tolist()
    expected = [
        next((g for g in range(offsets[e], offsets[e + 1]) if held[g] == s), -1)
        for e, s in zip(entities.tolist(), (steps % parts.num_steps).tolist(), strict=True)
    ]
    assert found.tolist() == [g >= 0 for g in expected] and groups.tolist() == [g for g in expected if g >= 0]
