"""The batched beam search equals a loop that follows the paper's words, on random sets of triples with many ties."""

import math

import numpy as np
import torch

from kgrag_gpu.expansion.triple_beam import BeamConfig, FactGraph, search_beams

NUM_SETS = 500


def direct_loop(ends, starts, fact_score, chain_score, width, length, limit, gamma):
    """One question: [(chain, score)] of the last step that has any beam."""

    def rounded(value):
        return float(np.float32(value))

    beams = sorted((((t,), rounded(fact_score[t])) for t in sorted(set(starts))), key=lambda b: -b[1])[:width]
    for _ in range(1, length):
        standing = {t for chain, _ in beams for t in chain}
        grown = []
        for chain, score in beams:
            near = [t for t in range(len(ends)) if set(ends[t]) & set(ends[chain[-1]]) and t not in standing]
            near = sorted(sorted(near, key=lambda t: -fact_score[t])[:limit])
            own = [((*chain, t), rounded(score + chain_score[t, len(chain)])) for t in near]
            for n, (longer, value) in enumerate(sorted(own, key=lambda row: -row[1])):
                grown.append((longer, rounded(value * math.exp(-min(n, gamma) / gamma))))
        # Equal products: the better parent first, then the lower triple.
        place = {chain: i for i, (chain, _) in enumerate(beams)}
        grown.sort(key=lambda row: (-row[1], place[row[0][:-1]], row[0][-1]))
        if not grown:
            break
        beams = grown[:width]
    return beams


def random_case(seed):
    draw = np.random.default_rng(seed)
    num_entities, num_triples, num_questions = draw.integers(1, 9), draw.integers(1, 25), draw.integers(1, 4)
    ends = draw.integers(0, num_entities, (num_triples, 2))
    # Scores in quarters: ties everywhere, sums exact.
    fact_scores = draw.integers(0, 5, (num_questions, num_triples)) / 4
    chain_scores = draw.integers(0, 5, (num_questions, num_triples, 4)) / 4
    starts = [draw.integers(0, num_triples, draw.integers(0, 7)).tolist() for _ in range(num_questions)]
    return ends.tolist(), int(num_entities), fact_scores, chain_scores, starts, draw


def batched(ends, num_entities, fact_scores, chain_scores, starts, config):
    facts = torch.arange(len(ends)).repeat_interleave(2)
    graph = FactGraph.from_members(facts, torch.tensor(ends).flatten(), len(ends), num_entities)
    facts_of, chains_of = torch.from_numpy(fact_scores), torch.from_numpy(chain_scores)
    owners = torch.tensor([q for q, row in enumerate(starts) for _ in row], dtype=torch.int64)
    found = search_beams(
        graph,
        owners,
        torch.tensor([t for row in starts for t in row], dtype=torch.int64),
        len(starts),
        lambda rows, tail: facts_of[rows, tail],
        lambda rows, chains: chains_of[rows, chains[:, -1], chains.shape[1] - 1],
        config,
    )
    return [list(zip(map(tuple, b.chains.tolist()), b.scores.tolist(), strict=True)) for b in found.final()]


def test_beam_search_random_triple_sets_equal_the_direct_loop():
    num_extended = 0
    for seed in range(NUM_SETS):
        ends, num_entities, fact_scores, chain_scores, starts, draw = random_case(seed)
        width, length, limit = (int(draw.integers(1, high)) for high in (5, 4, 6))
        diverse = bool(draw.integers(2))
        config = BeamConfig(width=width, length=length, max_neighbours=limit, diverse=diverse)
        found = batched(ends, num_entities, fact_scores, chain_scores, starts, config)
        gamma = 2 * width if diverse else math.inf
        for row, own in enumerate(starts):
            expected = direct_loop(ends, own, fact_scores[row], chain_scores[row], width, length, limit, gamma)
            assert [c for c, _ in found[row]] == [c for c, _ in expected], (seed, row)
            assert np.allclose([s for _, s in found[row]], [s for _, s in expected], rtol=3e-7), (seed, row)
            num_extended += any(len(chain) > 1 for chain, _ in found[row])
    assert num_extended > NUM_SETS // 4


def test_beam_search_batch_equals_singles():
    for seed in range(0, NUM_SETS, 10):
        ends, num_entities, fact_scores, chain_scores, starts, _ = random_case(seed)
        config = BeamConfig(width=3, length=3, max_neighbours=2, neighbour_policy="sample")
        together = batched(ends, num_entities, fact_scores, chain_scores, starts, config)
        alone = [
            batched(ends, num_entities, fact_scores[q : q + 1], chain_scores[q : q + 1], starts[q : q + 1], config)[0]
            for q in range(len(starts))
        ]
        assert together == alone, seed
