"""AnchorRAG on random small worlds: a batch is the sum of its questions, whatever their order."""

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "unit" / "methods"))
from anchor_rag_case import anchor_rag, passage_kg, question, triple_kg

from kgrag_gpu.types import Passage

NAMES = ["Arbo", "Brunn", "Calder", "Dorst", "Elmet", "Farne"]
VERBS = ["built", "borders", "praised", "bought", "crossed"]

sentences = st.tuples(st.sampled_from(NAMES), st.sampled_from(VERBS), st.sampled_from(NAMES)).map(" ".join)
texts = st.lists(sentences, min_size=1, max_size=3).map(lambda parts: ". ".join(parts) + ".")
passages = st.lists(st.builds(Passage, st.sampled_from(["", *NAMES]), texts), min_size=1, max_size=6, unique=True)
triples = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(VERBS), st.sampled_from(NAMES)),
    min_size=1, max_size=10, unique=True,
)  # fmt: skip
asked = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(VERBS)).map(lambda p: f"Who {p[1]} what {p[0]} {p[1]}?"),
    min_size=1, max_size=4,
)  # fmt: skip

relaxed = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def same_in_any_company(method, wanted: list[str]) -> None:
    questions = [question(text, number) for number, text in enumerate(wanted)]
    together = method.retrieve(questions)
    assert together == [method.retrieve([q])[0] for q in questions]
    assert together == method.retrieve(questions[::-1])[::-1]


@relaxed
@given(passages, asked)
def test_anchor_rag_over_passages_batch_equals_single_questions(tmp_path, found, wanted):
    same_in_any_company(anchor_rag(passage_kg(found), tmp_path), wanted)


@relaxed
@given(triples, asked, st.booleans())
def test_anchor_rag_over_triples_batch_equals_single_questions(tmp_path, found, wanted, whole):
    same_in_any_company(anchor_rag(triple_kg(found), tmp_path, triples={"whole_paths": whole}), wanted)


@relaxed
@given(passages, asked)
def test_anchor_rag_ranks_every_passage_at_most_once(tmp_path, found, wanted):
    for retrieval in anchor_rag(passage_kg(found), tmp_path).retrieve([question(text) for text in wanted]):
        assert len(set(retrieval.passage_ids)) == len(retrieval.passage_ids)
        assert all(a >= b for a, b in zip(retrieval.passage_scores, retrieval.passage_scores[1:], strict=False))
        for path in retrieval.evidence:
            walked = [step.passage_ids for step in path.steps]
            assert len(set(walked)) == len(walked), "a path reads no passage twice"


@pytest.mark.parametrize("triple", [("Arbo", "built", "Arbo")])
def test_anchor_rag_self_loop_is_walked_once(tmp_path, triple):
    method = anchor_rag(triple_kg([triple]), tmp_path, triples={"whole_paths": False})
    (found,) = method.retrieve([question("What did Arbo built?")])
    assert [len(path.steps) for path in found.evidence] == [1]
