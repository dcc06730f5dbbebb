"""BubbleRAG's steps on small inputs, and the whole method over passages and over triples."""

import numpy as np
import pytest
import torch

from kgrag_gpu.anchors.group import GroupConfig, Part, QuestionParts, kind_weights, level_texts
from kgrag_gpu.config.schema import DatasetConfig, RunConfig
from kgrag_gpu.expansion.bubble import bubble_graph
from kgrag_gpu.kg.mentions import build_mentions_kg
from kgrag_gpu.kg.triples_kg import import_triples
from kgrag_gpu.methods.bubble_rag import BubbleRag, BubbleRagConfig
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.ranking.subgraphs import SubgraphConfig, composite_scores, keep_dense
from kgrag_gpu.tensors.csr_graph import CsrGraph
from kgrag_gpu.types import Passage, Question

PASSAGES = [
    Passage("Polonium", "Polonium was announced by Marie Curie in 1898."),
    Passage("Marie Curie", "Marie Curie was born in Warsaw and worked in Paris."),
    Passage("Warsaw", "Warsaw was rebuilt with the help of views by Bernardo Bellotto."),
    Passage("Paris", "Paris lies on the Seine."),
    Passage("Seine", "The Seine flows through Paris to the sea."),
]
QUESTIONS = [
    Question("a", "Who helped to rebuild the native city of the woman who announced Polonium?"),
    Question("b", "Which river runs through the town where Marie Curie worked?"),
    Question("c", "What is the sea?"),
]


def method_over(kg, tmp_path, **values) -> BubbleRag:
    config = BubbleRagConfig(**values)
    run = RunConfig(dataset=DatasetConfig(name="jsonl"), method=config, method_name="bubblerag")
    return BubbleRag(config, Resources(run, kg, tmp_path))


def test_parts_are_names_then_runs_of_content_words():
    parts = QuestionParts(build_mentions_kg(PASSAGES)).read([QUESTIONS[1].text, QUESTIONS[2].text], True)
    assert [(p.text, p.kind) for p in parts[0]] == [
        ("Marie Curie", "entity"),
        ("river runs", "relation"),
        ("town", "relation"),
        ("worked", "relation"),
    ]
    assert parts[0][1].specific == "river runs Marie Curie"
    assert [(p.text, p.kind, p.specific) for p in parts[1]] == [("sea", "relation", "sea")]


def test_part_is_relaxed_by_dropping_modifiers_then_by_meaning():
    part = Part("second marriage", "relation", "second marriage of Ada")
    assert [level_texts(part, level) for level in range(3)] == ["second marriage of Ada", "marriage", "second marriage"]


def test_weights_are_shared_within_a_kind_and_sum_to_one():
    parts = [
        [Part("A", "entity", "A"), Part("B", "entity", "B"), Part("r", "relation", "r"), Part("s", "relation", "s")]
    ]
    weights = kind_weights(parts, [[True, True, True, False]], GroupConfig())
    assert weights.tolist() == pytest.approx([0.25 / 0.8, 0.25 / 0.8, 0.3 / 0.8, 0.0])
    assert kind_weights(parts, [[False] * 4], GroupConfig()).tolist() == [0.0] * 4


def test_score_terms_by_hand():
    covered = torch.tensor([[True, True], [True, False], [True, True]])
    weights = torch.tensor([[0.6, 0.4]] * 3, dtype=torch.float64)
    scores, terms = composite_scores(
        torch.tensor([0, 0, 0]), covered, weights, torch.tensor([2, 1, 4]), torch.tensor([2, 4, 4]),
        torch.tensor([0.5, 0.4, 0.3], dtype=torch.float64), SubgraphConfig(),
    )  # fmt: skip
    assert terms["coverage"].tolist() == pytest.approx([1.0, 0.6, 1.0])
    assert terms["structure"].tolist() == pytest.approx([0.5, 0.5, 0.25])
    # The first is taken first; what it covers counts half for the next, and a quarter where both did.
    assert terms["diversity"].tolist() == pytest.approx([1.0, 0.25, 0.5])
    assert scores.tolist() == pytest.approx(
        [0.5 + 0.05 + 0.15 + 0.1, 0.3 + 0.05 + 0.12 + 0.025, 0.5 + 0.025 + 0.09 + 0.05]
    )


def test_sparse_candidates_are_dropped_but_never_all_of_a_question():
    kept = keep_dense(torch.tensor([0, 0, 1, 1]), torch.tensor([0.5, 0.1, 0.2, 0.1], dtype=torch.float64), 0.3)
    assert kept.tolist() == [True, False, True, False]


def test_hub_keeps_a_seeded_sample_of_its_edges():
    tails = np.arange(1, 101)
    graph = CsrGraph.from_triples(np.zeros(100, np.int64), np.zeros(100, np.int64), tails, 101)
    sampled = bubble_graph(graph, 10, seed=1)
    assert sampled.num_dropped.tolist() == [90] + [0] * 100
    own = sampled.relax.neighbours[: int(sampled.relax.offsets[1])].tolist()
    assert len(own) == 10
    assert own == bubble_graph(graph, 10, seed=1).relax.neighbours[:10].tolist()
    assert own != bubble_graph(graph, 10, seed=2).relax.neighbours[:10].tolist()


@pytest.mark.parametrize("coverage", ["groups", "tokens"])
def test_batch_equals_single_questions(tmp_path, coverage):
    method = method_over(build_mentions_kg(PASSAGES), tmp_path, coverage=coverage)
    together = method.retrieve(QUESTIONS)
    assert [method.retrieve([question])[0] for question in QUESTIONS] == together
    assert method.retrieve(QUESTIONS[::-1])[::-1] == together


def test_bubbles_tie_the_chain_together(tmp_path):
    kg = build_mentions_kg(PASSAGES)
    found = method_over(kg, tmp_path, coverage="groups", num_base=0).retrieve(QUESTIONS[:1])[0]
    assert {kg.passages[row].title for row in found.passage_ids[:3]} == {"Polonium", "Marie Curie", "Warsaw"}
    assert [ref.name for ref in found.anchors] == ["Polonium"]
    assert found.trace["meetings"] > 0
    assert found.evidence


def test_triples_are_answered_by_the_far_end(tmp_path):
    file = tmp_path / "kb.tsv"
    file.write_text("Anna\tmother\tBerta\nBerta\tborn in\tGraz\nAnna\tfriend\tCarl\nCarl\tborn in\tLinz\n")
    kg = import_triples(file)
    found = method_over(kg, tmp_path).retrieve([Question("q", "In which city was the mother of Anna born?")])[0]
    assert found.answer is not None
    assert found.answer.source == "graph"
    assert found.answer.text in {"Graz", "Berta"}
    assert "Graz" in {ref.name for ref in found.evidence_entities}
    assert found.passage_ids == ()
    nothing = method_over(kg, tmp_path).retrieve([Question("q", "?")])[0]
    assert nothing.answer is not None
    assert nothing.answer.source == "none"
