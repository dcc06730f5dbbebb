"""Random corpora: the definition, batches, seeds, and more seeds never lower a score."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from cover_case import Corpus, Oracle
from hypothesis import given, settings
from hypothesis import strategies as st

from kgrag_gpu.index.sentence_graph import SentenceGraphConfig
from kgrag_gpu.ranking.coverage import CoverageConfig
from kgrag_gpu.types import Passage

NAMES = ["Alda", "Borin", "Cavel", "Dorma", "Elvan"]
WORDS = ["sails", "to", "old", "port", "with", "red", "boats", "and", "sings"]
FEW = settings(max_examples=20, deadline=None)

# Commas keep two names from becoming one longer name, which the oracle does not look for.
words = st.sampled_from(WORDS + NAMES * 2)
sentences = st.lists(words, min_size=1, max_size=5).map(lambda found: "It saw " + ", ".join(found) + ".")
passages = st.builds(
    Passage, st.sampled_from([*NAMES, "Fendal (town)", ""]), st.lists(sentences, max_size=2).map(" ".join)
)
corpora = st.lists(passages, min_size=0, max_size=6)
questions = st.lists(words, min_size=0, max_size=6).map(" ".join)
hubs = st.sampled_from([SentenceGraphConfig(), SentenceGraphConfig(min_hub_units=2, max_hub_share=0.0)])


def config(max_sentences: int) -> CoverageConfig:
    sets = {"max_sentences": max_sentences, "num_grown_pairs": 100_000, "num_grown_sets": 100_000}
    return CoverageConfig.model_validate({"sets": sets})


def scores(corpus: Corpus, asked, constants, seeds=None):
    return corpus.scores(asked, constants, seeds)


@FEW
@given(corpora, st.lists(questions, min_size=1, max_size=3), hubs, st.integers(1, 3), st.data())
def test_rank_equals_the_oracle_with_and_without_seeds(found, asked, hub, max_sentences, data):
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus(found, Path(folder), graph=hub)
    oracle = Oracle(corpus, config(max_sentences))
    rows = st.lists(st.integers(0, len(found) - 1), max_size=3, unique=True) if found else st.just([])
    seeds = [data.draw(rows) for _ in asked]
    exact = scores(corpus, asked, config(max_sentences))
    pruned = scores(corpus, asked, config(max_sentences), [np.array(s, dtype=np.int64) for s in seeds])
    for i, question in enumerate(asked):
        for got, expected in ((exact[i], oracle.scores(question)), (pruned[i], oracle.scores(question, seeds[i]))):
            assert got.keys() == expected.keys()
            assert all(got[unit] == pytest.approx(expected[unit], abs=1e-5) for unit in got)


@FEW
@given(corpora, st.lists(questions, min_size=1, max_size=4), st.sampled_from(["fp16", "int8"]))
def test_rank_batch_equals_batches_of_one(found, asked, form):
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus(found, Path(folder), form)
    together = corpus.rank(asked, CoverageConfig())
    for question, expected in zip(asked, together, strict=True):
        (alone,) = corpus.rank([question], CoverageConfig())
        assert alone.ranking.rows.tolist() == expected.ranking.rows.tolist()
        assert alone.ranking.scores.tolist() == expected.ranking.scores.tolist()
        assert alone.sets == expected.sets


@FEW
@given(corpora.filter(bool), questions, st.data())
def test_rank_more_seeds_never_lower_a_pair_score(found, question, data):
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus(found, Path(folder))
    few = data.draw(st.lists(st.integers(0, len(found) - 1), max_size=2, unique=True))
    (pruned,) = scores(corpus, [question], config(2), [np.array(few, dtype=np.int64)])
    (exact,) = scores(corpus, [question], config(2))
    assert pruned.keys() <= exact.keys()
    assert all(pruned[unit] <= exact[unit] for unit in pruned)


@FEW
@given(corpora.filter(bool), questions)
def test_rank_evidence_sets_are_connected_and_lie_in_units_of_their_own(found, question):
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus(found, Path(folder))
    graph = corpus.graph
    for found_set in corpus.rank([question], CoverageConfig())[0].sets:
        units = [int(graph.unit_ids[s]) for s in found_set.sentence_ids]
        assert len(set(units)) == len(units)
        for place, link in enumerate(found_set.link_entities):
            if link < 0:
                continue
            new = found_set.sentence_ids[place + 1]
            earlier = found_set.sentence_ids[: place + 1]
            slots = range(graph.offsets[new], graph.offsets[new + 1])
            assert any(graph.neighbours[i] in earlier and graph.entity_ids[i] == link for i in slots)
