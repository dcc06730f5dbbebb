"""GeAR's graph expansion: one beam search by hand, facts of both kinds of KG, fusion, and whole batches."""

import math

import pytest
import torch
from anchor_rag_case import PASSAGES, passage_kg, question, resources_of, triple_kg

from kgrag_gpu.expansion.triple_beam import BeamConfig, FactGraph, search_beams
from kgrag_gpu.index.fuse import Ranking
from kgrag_gpu.methods.gear import Gear, GearConfig
from kgrag_gpu.methods.gear_facts import FactIndex, fact_numbers
from kgrag_gpu.ranking.passage_fusion import calibrated_fusion, evidence_ranking
from kgrag_gpu.types import UserError

BORN = "Where was the director of Silver Harbour born?"
TEXTS = (
    BORN,
    "What warns ships of rocks?",
    "Were the directors of Silver Harbour and Copper Gate born in one country?",
)


def gear(folder, kg=None, **config) -> Gear:
    return Gear(GearConfig.model_validate(config), resources_of(kg or passage_kg(), folder))


def test_beam_search_worked_example_by_hand():
    # 0: A-B, 1: B-C, 2: B-D, 3: E-F, 4: F-G. Starts 0 (.9) and 3 (.5); 0 leads to 1 and 2, 3 leads to 4.
    ends = torch.tensor([[0, 1], [1, 2], [1, 3], [4, 5], [5, 6]])
    graph = FactGraph.from_members(torch.arange(5).repeat_interleave(2), ends.flatten(), 5, 7)
    first = torch.tensor([0.9, 0.0, 0.0, 0.5, 0.0], dtype=torch.float64)
    second = torch.tensor([0.0, 0.6, 0.5, 0.0, 0.7], dtype=torch.float64)
    found = search_beams(
        graph,
        torch.zeros(2, dtype=torch.int64),
        torch.tensor([3, 0]),
        1,
        lambda rows, facts: first[facts],
        lambda rows, chains: second[chains[:, -1]],
        BeamConfig(width=2, length=2),
    )
    (beams,) = found.final()
    # Within parent 0: 1.5, then 1.4 * exp(-1/4) = 1.09; parent 3: 1.2, which overtakes the second child.
    assert beams.chains.tolist() == [[0, 1], [3, 4]]
    assert beams.scores.tolist() == pytest.approx([1.5, 1.2])
    assert 1.4 * math.exp(-1 / 4) < 1.2
    assert found.num_candidates.tolist() == [5]


def test_fact_graph_shared_pair_and_self_loop_are_counted_once():
    ends = torch.tensor([[0, 1], [1, 0], [2, 2]])
    graph = FactGraph.from_members(torch.arange(3).repeat_interleave(2), ends.flatten(), 3, 3)
    owners, found = graph.neighbours(torch.tensor([0, 2]))
    assert (owners.tolist(), found.tolist()) == ([0], [1])


def test_facts_mentions_edges_of_one_sentence_are_one_fact(tmp_path):
    kg = passage_kg()
    facts, firsts = fact_numbers(kg)
    keys = {(int(kg.heads[e]), str(kg.triple_texts[e])) for e in range(kg.num_triples)}
    assert len(firsts) == len(keys) < kg.num_triples or len(firsts) == kg.num_triples
    index = FactIndex(resources_of(kg, tmp_path), 320)
    fact = int(facts[0])
    assert index.texts[fact] == f"{kg.entity_names[kg.heads[0]]}: {kg.triple_texts[0]}"
    assert fact in index.facts_of_passage(index.passages_of_fact(fact)[0])


def test_gear_over_bare_triples_is_refused_with_the_way_out(tmp_path):
    with pytest.raises(UserError, match="use anchorrag"):
        gear(tmp_path, triple_kg())


@pytest.mark.parametrize(
    ("config", "message"),
    [({"base": "nowhere"}, "no method named nowhere"), ({"base": "ppr", "base_config": {"dampin": 1}}, "dampin")],
)
def test_gear_wrong_base_is_a_user_error(tmp_path, config, message):
    with pytest.raises(UserError, match=message):
        gear(tmp_path, **config)


def test_gear_lifts_the_passage_that_the_best_one_leads_to(tmp_path):
    asked = question("Which film was shot in Bergen?")
    ada = [p.title for p in PASSAGES].index("Ada Lindqvist")
    method = gear(tmp_path, base="bm25", num_base=1, num_nearest=0)
    (found,) = method.retrieve([asked])
    (alone,) = resources_of(passage_kg(), tmp_path).base_retriever("bm25").retrieve([asked])
    assert ada not in alone.passage_ids
    assert ada in found.passage_ids
    assert any(len(path.steps) == 2 and ada in path.steps[1].passage_ids for path in found.evidence)
    assert all(step.passage_ids and step.edge_id >= 0 for path in found.evidence for step in path.steps)
    assert len(found.passage_ids) == len(set(found.passage_ids))


@pytest.mark.parametrize("fusion", ["rrf", "calibrated"])
@pytest.mark.parametrize("base", ["bm25", "dense", "hybrid", "ppr"])
def test_gear_batch_equals_singles_in_any_order_over_every_base(tmp_path, base, fusion):
    method = gear(tmp_path, base=base, fusion=fusion)
    questions = [question(text, number) for number, text in enumerate(TEXTS)]
    together = method.retrieve(questions)
    assert [method.retrieve([q])[0] for q in questions] == together
    assert method.retrieve(questions[::-1]) == together[::-1]
    assert all(list(r.passage_scores) == sorted(r.passage_scores, reverse=True) for r in together)


def test_gear_equal_chains_are_encoded_once(tmp_path):
    method = gear(tmp_path, base="bm25", num_base=1, num_nearest=0)
    method.retrieve([question(BORN, 0), question(BORN + " ", 1)])
    assert 0 < method.facts.num_chains_encoded <= method.facts.num_chains_scored / 2


def test_gear_no_question_is_no_retrieval(tmp_path):
    assert gear(tmp_path).retrieve([]) == []


def test_evidence_ranking_keeps_first_place_and_best_score():
    ranking = evidence_ranking([4, 2, 4], [0.5, 0.7, 0.9])
    assert (ranking.rows.tolist(), ranking.scores.tolist()) == ([4, 2], [0.9, 0.7])


def test_calibrated_fusion_sure_graph_lifts_and_weight_zero_keeps_the_base():
    base = Ranking(torch.tensor([7, 8, 9]).numpy(), torch.tensor([3.0, 2.0, 1.0]).double().numpy())
    graph = evidence_ranking([5, 9], [2.0, 1.5])
    # 7: .5, 8: .25, 9: 0 + .25 (half way from half the best to the best), 5: .5; ties go to the lower row.
    fused = calibrated_fusion(base, graph, 10, 0.5, 3)
    assert (fused.rows.tolist(), fused.scores.tolist()) == ([5, 7, 8, 9], [0.5, 0.5, 0.25, 0.25])
    assert calibrated_fusion(base, graph, 3, 0.0, 3).rows.tolist()[:2] == [7, 8]


@pytest.mark.parametrize(("base", "has_evidence"), [("dense", False), ("hybrid", False), ("gear", True)])
def test_gear_base_that_walked_the_graph_itself_is_trusted_more(tmp_path, base, has_evidence):
    found = gear(tmp_path, base=base, fusion="calibrated").find_base([question(BORN)])
    assert [one.has_evidence for one in found] == [has_evidence]
    sure = gear(tmp_path, base=base, fusion="calibrated", graph_weight=0.0, evidence_weight=0.0)
    unsure = gear(tmp_path, base=base, fusion="calibrated", graph_weight=0.0, evidence_weight=1.0)
    same = sure.retrieve([question(BORN)]) == unsure.retrieve([question(BORN)])
    assert same == (not has_evidence)
