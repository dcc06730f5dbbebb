"""The steps of AnchorRAG, one by one, on graphs and numbers small enough to check by hand."""

import numpy as np
import pytest
import torch
from anchor_rag_case import word_vectors

from kgrag_gpu.answer.memory import Memory, concat_steps, first_of_best, start_steps
from kgrag_gpu.answer.sufficiency import best_by, promising_agents
from kgrag_gpu.expansion.neighbours import WalkTable, sample_hubs
from kgrag_gpu.ranking.entities import rarity, widest_frontier
from kgrag_gpu.ranking.evidence_passages import (
    PathConfig,
    Paths,
    best_per_key,
    edge_term,
    sentence_credits,
    step_terms,
    summed,
)
from kgrag_gpu.ranking.question_units import (
    UNIT_SCALE,
    CoverTable,
    QuestionUnits,
    UnitConfig,
    WordWeights,
    cut_question,
    pair_cosines,
)
from kgrag_gpu.ranking.relations import fuse_ranks, keep_best, segment_ranks
from kgrag_gpu.tensors.csr_graph import CsrGraph
from kgrag_gpu.tensors.fixed_point import exact_dot


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


def floats(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_walk_table_from_graph_groups_slots_by_directed_relation():
    # 0 -r0-> 1, 0 -r0-> 2, 2 -r0-> 0, 0 -r1-> 0 (a loop)
    graph = CsrGraph.from_triples(ints(0, 0, 2, 0), ints(0, 0, 0, 1), ints(1, 2, 0, 0), 3)
    walk = WalkTable.from_graph(graph)
    assert walk.num_links(ints(0, 1, 2)).tolist() == [3, 1, 2]
    owners, links = walk.links_of(ints(0, 2))
    assert owners.tolist() == [0, 0, 0, 1, 1]
    assert walk.link_texts[links].tolist() == [0, 1, 2, 0, 1]
    owners, members = walk.members_of(links, ints(0, 0, 0, 2, 2))
    assert owners.tolist() == [0, 0, 1, 2, 3, 4]
    assert walk.member_entities[members].tolist() == [1, 2, 2, 0, 0, 0]
    assert walk.member_edge_ids[members].tolist() == [0, 1, 2, 3, 2, 1]


def test_walk_table_from_memberships_ties_all_entities_of_a_text():
    # text 0 holds entities 1, 2 (2 twice, one time as edge 7); text 1 holds 2 alone
    walk = WalkTable.from_memberships(ints(0, 0, 0, 1), ints(2, 1, 2, 2), ints(-1, -1, 7, -1), 2, 4)
    owners, links = walk.links_of(ints(2, 0, 3))
    assert owners.tolist() == [0, 0]
    assert walk.link_texts[links].tolist() == [0, 1]
    owners, members = walk.members_of(links, ints(2, 2))
    assert owners.tolist() == [0, 1]  # the lonely entity of text 1 stays as a self-loop
    assert walk.member_entities[members].tolist() == [1, 2]
    _, members = walk.members_of(walk.links_of(ints(1)).rows, ints(1))
    assert walk.member_edge_ids[members].tolist() == [7]


def test_walk_table_of_nothing_has_no_links():
    none = torch.zeros(0, dtype=torch.int64)
    walk = WalkTable.from_memberships(none, none, none, 0, 3)
    assert walk.links_of(ints(0, 2)).rows.tolist() == []
    assert WalkTable.from_graph(CsrGraph.from_triples(none, none, none, 2)).num_links(ints(0, 1)).tolist() == [0, 0]


def test_sample_hubs_keeps_the_limit_of_each_owner_and_the_same_items_in_any_batch():
    owners, keys = torch.tensor([0] * 9 + [1] * 3 + [3] * 6), torch.arange(18) + 40
    kept = sample_hubs(owners, keys, 4, seed=0)
    assert torch.bincount(owners[kept], minlength=4).tolist() == [4, 3, 0, 4]
    alone = sample_hubs(torch.zeros(6, dtype=torch.int64), keys[12:], 4, seed=0)
    assert alone.tolist() == kept[12:].tolist()
    draws = {tuple(sample_hubs(owners, keys, 4, seed).tolist()) for seed in range(8)}
    assert len(draws) > 1


def test_segment_ranks_ties_go_to_the_lowest_position():
    ranks = segment_ranks(floats(1, 3, 3, 5, 0, 0), ints(0, 0, 0, 2, 2, 2))
    assert ranks.tolist() == [3, 1, 2, 1, 2, 3]
    assert segment_ranks(floats(), ints()).tolist() == []


def test_fuse_ranks_is_reciprocal_rank_fusion_within_an_owner():
    fused = fuse_ranks([floats(1, 2, 9), floats(5, 4, 0)], ints(0, 0, 1), constant=60)
    assert fused.tolist() == [1 / 62 + 1 / 61, 1 / 61 + 1 / 62, 2 / 61]
    assert keep_best(fused, ints(0, 0, 1), 1).tolist() == [0, 2]


def test_widest_frontier_keeps_each_agents_best_sorted_by_agent():
    kept = widest_frontier(ints(1, 0, 1, 1, 0), floats(1, 2, 3, 1, 5), 2)
    assert kept.tolist() == [1, 4, 0, 2]
    assert rarity(ints(0, 2, 8)).tolist() == [-1, -1, -3]


def test_first_of_best_takes_the_highest_and_then_the_first():
    assert first_of_best(ints(7, 5, 7, 5), floats(1, 4, 2, 4)).tolist() == [1, 2]


def test_memory_stores_a_fact_once_and_remembers_what_an_agent_expanded():
    start = start_steps(ints(0, 1), ints(10, 11), depth=2)
    memory = Memory(start, num_entities=20)
    memory.mark_expanded(start)
    step = start.at(ints(0)).with_columns(path_texts=torch.tensor([[5, -1]]), lengths=ints(1), scores=floats(0.5))
    step = step.reaching(ints(12), ints(3))
    better = step.with_columns(scores=floats(0.7))
    added = memory.add(concat_steps([step, better]))
    assert added.rows.tolist() == [0] and added.scores.tolist() == [0.7]
    assert added.path_entities.tolist() == [[12, -1]] and added.path_edges.tolist() == [[3, -1]]
    assert memory.is_new(added).tolist() == [True]
    memory.mark_expanded(added)
    assert memory.is_new(added).tolist() == [False]
    other_agent = added.with_columns(agent_ids=ints(1))
    assert memory.is_new(other_agent).tolist() == [True]


def test_promising_agents_stop_behind_the_margin_and_when_a_question_is_done():
    questions = ints(0, 0, 0, 1)
    active = promising_agents(floats(0.9, 0.5, -torch.inf, 1.2), questions, 2, margin=0.3, enough=1.0)
    assert active.tolist() == [True, False, False, False]
    assert best_by(ints(0, 2, 0), floats(1, 3, 2), 4).tolist() == [2, -torch.inf, 3, -torch.inf]


def test_cut_question_weighs_windows_by_rarity_and_sums_to_one():
    weigh = WordWeights(["the red lighthouse", "a red boat", "red"])
    parts = cut_question("Who painted the red lighthouse?", weigh, UnitConfig(window_words=(1, 2), whole_weight=0.4))
    assert [text for text, _ in parts] == [
        "Who painted the red lighthouse?", "painted", "red", "lighthouse", "painted the red", "red lighthouse",
    ]  # fmt: skip
    weights = dict(parts)
    assert sum(weights.values()) == pytest.approx(1)
    assert weights["Who painted the red lighthouse?"] == 0.4
    assert weights["painted"] > weights["lighthouse"] > weights["red"]
    assert cut_question("who?", weigh, UnitConfig()) == [("who?", 1.0)]


def test_question_units_cover_is_exact_and_padded_with_zeros():
    sentences = word_vectors(["red boat", "grey stone", "red lighthouse"])
    config = UnitConfig(window_words=(1,), whole_weight=0.5)
    units = QuestionUnits(
        ["red lighthouse", "boat"], word_vectors, WordWeights(["red"]), sentences, config, torch.device("cpu")
    )
    cover = units.coverage(ints(0, 1, 0), ints(2, 0, 1))
    assert cover.shape == (3, 3) and cover.dtype == torch.int32
    assert cover[1, 1:].tolist() == [0, 0]
    assert cover[0, 0] / UNIT_SCALE == pytest.approx(0.5, abs=1e-3)  # half of the weight, a cosine of 1
    assert cover[0].sum() > cover[2].sum()
    table = CoverTable(units, 3, torch.device("cpu"))
    first = table(ints(0), ints(1))
    assert torch.equal(table(ints(0, 1, 0), ints(2, 0, 1)), cover)
    assert torch.equal(table(ints(0), ints(1)), first)
    assert table(torch.tensor([[0, 0]]), torch.tensor([[2, -1]]))[0, 1].tolist() == [0, 0, 0]


def test_pair_cosines_by_matrix_and_by_pairs_have_the_same_bits():
    left, right = torch.from_numpy(word_vectors([f"w{i}" for i in range(50)])), word_vectors(list("abcdefgh"))
    every = torch.cartesian_prod(torch.arange(50), torch.arange(8))
    whole = exact_dot(left, torch.from_numpy(right))[every[:, 0], every[:, 1]]
    assert torch.equal(pair_cosines(left, right, every[:, 0], every[:, 1]), whole)
    assert torch.equal(pair_cosines(left, right, every[3:4, 0], every[3:4, 1]), whole[3:4])
    assert pair_cosines(left, right, ints(), ints()).tolist() == []


def test_path_terms_follow_the_lengths():
    config = PathConfig()
    terms = step_terms(config, floats(0, 0.1, 0.2), ints(0, 1, 2), floats(9, 0.05, 0.05), floats(1, 1, 0))
    assert terms.tolist() == pytest.approx([0.15, 0.05 + 0.15, 0.5 * (0.2 + 0.05) - 0.10])
    edge = edge_term(config, torch.tensor([True, False]), ints(1, 16), torch.tensor([False, True]))
    assert edge.tolist() == pytest.approx([0.06 - 0.015, -4 * 0.015 - 0.05])


def test_sentence_credits_reward_what_a_path_would_lose():
    config = PathConfig()
    one = int(UNIT_SCALE)
    # path 0: two sentences that cover 0.5 and 0.25, disjoint; path 1: one sentence that covers 0.5
    cover = torch.tensor([[[one // 2, 0], [0, one // 4]], [[one // 2, 0], [0, 0]]], dtype=torch.int32)
    paths = Paths(cover, ints(2, 1), torch.tensor([[1.0, 0.0], [1.0, 0.0]], dtype=torch.float64), floats(0.2, 0.15))
    credits = sentence_credits(config, paths)
    worth = 0.75 + 0.2
    assert credits[0].tolist() == pytest.approx(
        [worth + 0.05 * (0.5 + 0.15) + 0.25 * 0.5, worth + 0.05 * 0.25 + 0.25 * 0.25]
    )
    assert credits[1].tolist() == pytest.approx([1.2 * 0.5 + 0.18 - 0.02, -np.inf])
    assert summed(cover[0]).tolist() == [0.5, 0.25]


def test_best_per_key_keeps_the_maximum():
    keys, best = best_per_key(ints(4, 1, 4), floats(1, 2, 3))
    assert (keys.tolist(), best.tolist()) == ([1, 4], [2, 3])
