"""Connected coverage against its definition, and the promises about batches, seeds and evidence."""

import numpy as np
import pytest
import torch
from cover_case import Corpus, Oracle

from kgrag_gpu.ranking.coverage import CoverageConfig
from kgrag_gpu.ranking.coverage_paths import JOIN
from kgrag_gpu.types import Passage

PASSAGES = [
    Passage("Alda", "Alda was born in Cavel. Alda painted boats."),
    Passage("Cavel", "Cavel is a port on the river Dorma. It has a fish market."),
    Passage("Dorma", "The river Dorma ends in the Grey Gulf. Otters live there."),
    Passage("Borin", "Borin mends nets in Cavel. He sings."),
    Passage("Elvan (town)", "Elvan lies far from Cavel. A mayor rules."),
    Passage("Elvan (poet)", "Elvan wrote about otters. His mother was Alda."),
    Passage("", "Fendal sells boats to Borin. Nobody knows why."),
    Passage("Grey Gulf", "Ships leave the Grey Gulf at dawn."),
]
QUESTIONS = [
    "Which gulf does the river of the town where Alda was born end in?",
    "Who mends nets in the port on the Dorma?",
    "Were Alda and Borin both born in the same port?",
    "otters",
    "what did elvan write about",
]
ALL_GROW = {"num_grown_pairs": 5000, "num_grown_sets": 5000}


def config(**sets) -> CoverageConfig:
    return CoverageConfig.model_validate({"sets": {**ALL_GROW, **sets}})


def assert_close(found, expected, tolerance=1e-5):
    assert found.keys() == expected.keys()
    for unit, score in expected.items():
        assert found[unit] == pytest.approx(score, abs=tolerance), unit


@pytest.mark.parametrize("max_sentences", [1, 2, 3, 4])
def test_rank_exact_form_equals_the_oracle(tmp_path, max_sentences):
    corpus = Corpus(PASSAGES, tmp_path)
    constants = config(max_sentences=max_sentences)
    oracle = Oracle(corpus, constants)
    for question, found in zip(QUESTIONS, corpus.scores(QUESTIONS, constants), strict=True):
        assert_close(found, oracle.scores(question))


def test_rank_pruned_form_equals_the_oracle_of_the_same_seeds(tmp_path):
    corpus = Corpus(PASSAGES, tmp_path)
    oracle = Oracle(corpus, config())
    seeds = [np.array([1]), np.array([0, 6]), np.array([], dtype=np.int64), np.array([2]), np.array([7, 0])]
    for question, rows, found in zip(QUESTIONS, seeds, corpus.scores(QUESTIONS, config(), seeds), strict=True):
        assert_close(found, oracle.scores(question, rows.tolist()))


def test_rank_without_unit_share_equals_the_oracle(tmp_path):
    corpus = Corpus(PASSAGES, tmp_path)
    constants = CoverageConfig.model_validate({"tokens": {"unit_share": 0.0}, "sets": ALL_GROW})
    oracle = Oracle(corpus, constants)
    for question, found in zip(QUESTIONS, corpus.scores(QUESTIONS, constants), strict=True):
        assert_close(found, oracle.scores(question))


def test_rank_neighbours_join_only_from_near_units(tmp_path):
    corpus = Corpus(PASSAGES, tmp_path)
    seeds = [np.array([i]) for i in range(len(QUESTIONS))]
    everything = [np.arange(len(PASSAGES))] * len(QUESTIONS)
    free = corpus.rank(QUESTIONS, config(), seeds)
    assert [r.sets for r in corpus.rank(QUESTIONS, config(), seeds, everything)] == [r.sets for r in free]
    near = [np.array([(i + 1) % len(PASSAGES)]) for i in range(len(QUESTIONS))]
    num_fewer = 0
    for i, result in enumerate(corpus.rank(QUESTIONS, config(), seeds, near)):
        allowed = {*seeds[i].tolist(), *near[i].tolist(), *result.named.tolist()}
        assert set(result.ranking.rows.tolist()) <= allowed
        num_fewer += len(free[i].ranking.rows) - len(result.ranking.rows)
    assert num_fewer > 0


@pytest.mark.parametrize("form", ["fp16", "int8"])
def test_rank_batch_equals_batches_of_one_bit_by_bit(tmp_path, form):
    corpus = Corpus(PASSAGES, tmp_path, form)
    seeds = [np.array([i]) for i in range(len(QUESTIONS))]
    together = corpus.rank(QUESTIONS, config(), seeds)
    for i, question in enumerate(QUESTIONS):
        (alone,) = corpus.rank([question], config(), [seeds[i]])
        assert alone.ranking.rows.tolist() == together[i].ranking.rows.tolist()
        assert alone.ranking.scores.tolist() == together[i].ranking.scores.tolist()
        assert alone.sets == together[i].sets
    backwards = corpus.rank(QUESTIONS[::-1], config(), seeds[::-1])[::-1]
    assert [r.sets for r in backwards] == [r.sets for r in together]


def test_rank_split_into_parts_changes_nothing(tmp_path, monkeypatch):
    corpus = Corpus(PASSAGES, tmp_path)
    whole = corpus.scores(QUESTIONS, config())
    monkeypatch.setattr("kgrag_gpu.ranking.coverage._MAX_PAIRS", 1)
    monkeypatch.setattr("kgrag_gpu.ranking.coverage_sets._BLOCK_ROWS", 3)
    assert corpus.scores(QUESTIONS, config()) == whole


def test_rank_listed_and_dense_products_agree(tmp_path, monkeypatch):
    for form in ("fp16", "int8"):
        corpus = Corpus(PASSAGES, tmp_path, form)
        monkeypatch.setattr("kgrag_gpu.ranking.coverage_tokens._ALL_SENTENCES_SHARE", 0.0)
        dense = corpus.scores(QUESTIONS, config())
        monkeypatch.setattr("kgrag_gpu.ranking.coverage_tokens._ALL_SENTENCES_SHARE", 2.0)
        assert corpus.scores(QUESTIONS, config()) == dense


def test_rank_int8_form_stays_near_the_definition(tmp_path):
    corpus = Corpus(PASSAGES, tmp_path, "int8")  # 16 of 24 directions
    oracle = Oracle(corpus, config())
    for question, found in zip(QUESTIONS, corpus.scores(QUESTIONS, config()), strict=True):
        expected = oracle.scores(question)
        assert found.keys() == expected.keys()
        assert max(abs(found[unit] - expected[unit]) for unit in found) < 0.15


def test_rank_evidence_shows_the_chain_and_its_words(tmp_path):
    corpus = Corpus(PASSAGES, tmp_path)
    result = corpus.rank(QUESTIONS[:1], config())[0]
    best = result.sets[0]
    texts = [corpus.graph.texts[s] for s in best.sentence_ids]
    assert "Alda was born in Cavel." in texts
    words = {word for row in best.covered for word in row}
    assert {"Alda", "born", "river"} <= words
    assert not words & set(best.missed)
    assert len(best.link_entities) == len(best.sentence_ids) - 1
    assert [s.worth for s in result.sets] == sorted((s.worth for s in result.sets), reverse=True)


def test_rank_two_named_titles_are_joined_without_an_entity(tmp_path):
    passages = [Passage("Alda", "She paints."), Passage("Borin", "He mends nets.")]
    result = Corpus(passages, tmp_path).rank(["Alda and Borin mends nets"], config())[0]
    assert [s.link_entities for s in result.sets] == [(JOIN,)]
    assert result.named.tolist() == [0, 1]


def test_rank_ties_go_to_the_lowest_row(tmp_path):
    passages = [
        Passage("", "One red boat sails."),
        Passage("", "One red boat sails!"),
        Passage("", "One red boat sails."),
    ]
    result = Corpus([passages[0], passages[1], Passage("", "Zzz.")], tmp_path).rank(["red boat"], config())[0]
    assert result.ranking.rows.tolist() == [0, 1, 2]
    assert result.ranking.scores[0] == result.ranking.scores[1]


def test_rank_no_questions_and_no_passages_give_nothing(tmp_path):
    assert Corpus(PASSAGES, tmp_path / "a").rank([], config()) == []
    empty = Corpus([], tmp_path / "b").rank(["Who?"], config())
    assert empty[0].ranking.rows.tolist() == []
    blank = Corpus([Passage("", "")], tmp_path / "c").rank(["Who?", ""], config())
    assert [r.ranking.rows.tolist() for r in blank] == [[], []]


def test_question_tokens_coverage_sums_to_what_sets_are_worth(tmp_path):
    corpus = Corpus(PASSAGES, tmp_path)
    coverage = corpus.coverage(config())
    tokens = coverage.question_tokens(QUESTIONS, corpus.encoder)
    result = corpus.rank(QUESTIONS, config())[0].sets[0]
    members = torch.tensor(result.sentence_ids)
    rows = tokens.coverage(torch.zeros_like(members), members)
    assert rows.shape == (len(members), tokens.width)
    alone = tokens.coverage(torch.tensor([3, 0]), torch.tensor([0, 0]))
    assert (alone[1] == tokens.coverage(torch.tensor([0]), torch.tensor([0]))[0]).all()
    assert int(alone[0, 1:].sum()) == 0  # the fourth question has one word
    assert 0 < int(rows.amax(0).sum()) <= 2**30 + tokens.width


def test_rank_evidence_begins_where_the_question_begins(tmp_path):
    corpus = Corpus(PASSAGES, tmp_path)
    best = corpus.rank(["Where was the painter Alda born, a town with a fish market?"], config())[0].sets[0]
    assert corpus.graph.texts[best.sentence_ids[0]].startswith("Alda")
    assert {"Alda", "born"} <= set(best.covered[0])
