"""HippoRAG 2: its graph, its synonyms, where a walk restarts, the model's filter, and the dense fallback."""

import numpy as np
import pytest
import torch
from anchor_rag_case import ScriptedModel, choose_with, passage_kg, question, resources_of, triple_kg

from kgrag_gpu.expansion.pagerank import fact_walk_graph
from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.methods.hippo_rag import HippoRag, HippoRagConfig, synonym_pairs
from kgrag_gpu.types import UserError

BORN = "Where was the director of Silver Harbour born?"
SHIPS = "What warns ships of rocks?"


def hippo_rag(folder, model=None, kg=None, **config) -> HippoRag:
    engine = Engine(model) if model else None
    return HippoRag(HippoRagConfig.model_validate(config), resources_of(kg or passage_kg(), folder, engine))


def weights_of(graph) -> np.ndarray:
    dense = np.zeros((graph.num_nodes, graph.num_nodes))
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.offsets.numpy()))
    dense[rows, graph.neighbours.numpy()] = graph.weights.numpy()
    return dense


def test_fact_walk_graph_is_symmetric_and_joins_passages_triples_and_synonyms():
    kg = passage_kg()
    none = np.zeros(0, dtype=np.int64)
    plain = weights_of(fact_walk_graph(kg, (none, none, np.zeros(0))))
    assert (plain == plain.T).all() and (np.diag(plain) == 0).all()
    ends = [
        (h + kg.num_passages, t + kg.num_passages) for h, t in zip(kg.heads.tolist(), kg.tails.tolist(), strict=True)
    ]
    for triple, (head, tail) in enumerate(ends):
        passages = kg.triple_passages[kg.triple_passage_offsets[triple] : kg.triple_passage_offsets[triple + 1]]
        both = sum({a, b} == {head, tail} for a, b in ends)
        assert head == tail or plain[head, tail] == both
        assert all(plain[passage, node] == 1 for passage in passages for node in (head, tail))
    unjoined = np.argwhere(plain[kg.num_passages :, kg.num_passages :] == 0)
    left, right = next((int(a), int(b)) for a, b in unjoined if a != b)
    alike = (np.array([left]), np.array([right]), np.array([0.9]))
    more = weights_of(fact_walk_graph(kg, alike)) - plain
    assert np.argwhere(more > 0).tolist() == sorted(
        [[left + kg.num_passages, right + kg.num_passages], [right + kg.num_passages, left + kg.num_passages]]
    )


def test_synonym_pairs_are_those_at_least_as_alike_as_the_threshold(tmp_path):
    resources = resources_of(passage_kg(), tmp_path)
    names = resources.vectors(["Silver Harbour", "the Silver Harbour", "Silver", "Otto Falk"])
    left, right, cosines = synonym_pairs(names, HippoRagConfig(), resources)
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == [(0, 1), (1, 0)]
    assert cosines.tolist() == pytest.approx([1.0, 1.0], abs=1e-3)
    assert len(synonym_pairs(names, HippoRagConfig(min_synonym=0.3), resources)[0]) > 2


def test_hippo_rag_restart_weighs_rare_entities_and_passages_as_the_paper_does(tmp_path):
    method = hippo_rag(tmp_path)
    cosines = np.linspace(0, 1, 8)
    facts = method._facts.search(np.array(method._resources.vectors([BORN])), 2)[0]
    restart = method._restart(facts, cosines)
    assert restart.sum() == pytest.approx(1.0)
    # Passages stand to each other as their scaled cosines, the best weighing .05 before all is divided by the sum.
    assert restart[:8] / restart[7] == pytest.approx(cosines)
    seeds = {entity for fact in facts.rows.tolist() for entity in method._facts.entities_of_fact(fact)}
    assert {int(node) - 8 for node in np.flatnonzero(restart[8:]) + 8} == seeds
    only = facts.rows[:1], facts.scores[:1]
    entity = method._facts.entities_of_fact(int(facts.rows[0]))[0]
    single = method._restart(type(facts)(*only), cosines)
    expected = float(facts.scores[0]) / method._num_passages_of[entity] / 0.05
    assert single[8 + entity] / single[7] == pytest.approx(expected)


def test_hippo_rag_mass_reaches_the_second_hop(tmp_path):
    (found,) = hippo_rag(tmp_path, num_facts=2).retrieve([question(BORN)])
    assert set(found.passage_ids[:2]) == {0, 1}
    assert found.trace["facts"] == found.trace["kept"]


def test_hippo_rag_model_keeps_facts_by_number_and_none_means_dense_retrieval(tmp_path):
    script = {"filter_facts": choose_with("keep", "Ada Lindqvist")}
    (found,) = hippo_rag(tmp_path, ScriptedModel(script)).retrieve([question(BORN)])
    assert found.trace["kept"] and all("Ada Lindqvist" in fact for fact in found.trace["kept"])
    assert len(found.trace["kept"]) < len(found.trace["facts"]) == 5
    none = hippo_rag(tmp_path, ScriptedModel({"filter_facts": lambda user: '{"keep":[]}'}))
    (found,) = none.retrieve([question(BORN)])
    dense = none._resources.base_retriever("dense").retrieve([question(BORN)])[0]
    assert (found.passage_ids, found.trace["kept"]) == (dense.passage_ids, [])


def test_hippo_rag_unreadable_reply_keeps_every_fact(tmp_path):
    (found,) = hippo_rag(tmp_path, ScriptedModel({})).retrieve([question(BORN)])
    (plain,) = hippo_rag(tmp_path).retrieve([question(BORN)])
    assert found == plain


def test_hippo_rag_batch_equals_singles(tmp_path):
    method = hippo_rag(tmp_path)
    questions = [question(BORN, 0), question(SHIPS, 1)]
    together = method.retrieve(questions)
    assert together == [method.retrieve([one])[0] for one in questions]
    assert method.retrieve(questions[::-1]) == together[::-1]


def test_hippo_rag_over_bare_triples_is_refused(tmp_path):
    with pytest.raises(UserError, match="none with a passage"):
        hippo_rag(tmp_path, kg=triple_kg())


def test_num_passages_of_counts_each_passage_once(tmp_path):
    method = hippo_rag(tmp_path)
    kg = passage_kg()
    passages = [set() for _ in range(kg.num_entities)]
    for triple in range(kg.num_triples):
        where = kg.triple_passages[kg.triple_passage_offsets[triple] : kg.triple_passage_offsets[triple + 1]]
        for end in (int(kg.heads[triple]), int(kg.tails[triple])):
            passages[end] |= set(where.tolist())
    assert torch.from_numpy(method._num_passages_of).tolist() == [max(1, len(found)) for found in passages]
