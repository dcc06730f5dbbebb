"""The runner with made-up methods: a failing question is isolated, recorded and counted."""

import pytest

from kgrag_gpu.config.load import load_run_config
from kgrag_gpu.runner import answer_batch, shard_of
from kgrag_gpu.types import Answer, Question, Retrieval, UserError


class _Method:
    """Fails on questions whose text says so, and on batches larger than `limit`."""

    def __init__(self, limit: int = 1000, error: type[Exception] = ValueError):
        self.limit, self.error, self.calls = limit, error, 0

    def retrieve(self, questions):
        self.calls += 1
        if len(questions) > self.limit:
            raise MemoryError("too many questions at once")
        if any(q.text == "bad" for q in questions):
            raise self.error("cannot read this")
        return [Retrieval(passage_ids=(int(q.id),)) for q in questions]


def _reader(questions, retrievals):
    return [Answer(q.text.upper(), "passages") for q in questions]


def _questions(*texts: str) -> list[Question]:
    return [Question(str(i), text) for i, text in enumerate(texts)]


def test_answer_batch_one_bad_question_fails_alone():
    results = answer_batch(_questions("a", "b", "bad", "d", "e"), _Method(), _reader)
    assert [r.error for r in results] == ["", "", "ValueError: cannot read this", "", ""]
    assert [r.answer.text for r in results] == ["A", "B", "", "D", "E"]
    assert [r.retrieval.passage_ids for r in results] == [(0,), (1,), (), (3,), (4,)]


def test_answer_batch_out_of_memory_heals_by_halving():
    results = answer_batch(_questions(*"abcdefgh"), _Method(limit=2), _reader)
    assert [r.error for r in results] == [""] * 8


def test_answer_batch_user_error_ends_the_run():
    with pytest.raises(UserError):
        answer_batch(_questions("a", "bad"), _Method(error=UserError), _reader)


def test_shard_of_spreads_and_never_moves():
    shards = [shard_of(f"question {i}", 7) for i in range(700)]
    assert shards == [shard_of(f"question {i}", 7) for i in range(700)]
    counts = [shards.count(shard) for shard in range(7)]
    assert min(counts) > 60 and sum(counts) == 700
    assert {shard_of("x", 1)} == {0}


def test_load_run_config_gives_the_runner_a_batch_size():
    assert load_run_config("musique", "bm25").execution.batch_size == 64
