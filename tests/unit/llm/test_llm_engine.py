"""The engine over a scripted backend: cache, retry, failures, lengths, order and accounting."""

import pytest

from kgrag_gpu.llm.cache import ReplyCache
from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.llm.records import Completion, Sampling
from kgrag_gpu.prompts.schemas import Entities, Keep

SAMPLING = Sampling(max_tokens=16)


def test_generate_returns_replies_in_request_order(scripted, ask):
    backend = scripted({"b": ["two"], "a": ["one"], "c": ["three"]})
    replies = Engine(backend).generate([ask("b"), ask("a"), ask("c")], SAMPLING)
    assert [reply.text for reply in replies] == ["two", "one", "three"]
    assert backend.batches == [["a", "b", "c"]]


def test_generate_equal_requests_are_asked_once(scripted, ask):
    backend = scripted({"a": ["one"]})
    engine = Engine(backend)
    replies = engine.generate([ask("a", question_id="q1"), ask("a", question_id="q2")], SAMPLING)
    assert [reply.text for reply in replies] == ["one", "one"]
    assert backend.asked == ["a"]
    assert engine.usage.total.llm_calls == 1


def test_generate_second_time_replays_from_disk(scripted, ask, tmp_path):
    with Engine(scripted({"a": ['{"entities": ["x"]}']}), ReplyCache(tmp_path)) as engine:
        first = engine.generate([ask("a", Entities)], SAMPLING)[0]
    backend = scripted({})
    engine = Engine(backend, ReplyCache(tmp_path))
    second = engine.generate([ask("a", Entities)], SAMPLING)[0]
    assert second.parsed == first.parsed == Entities(entities=["x"])
    assert second.cached
    assert not first.cached
    assert backend.asked == []
    total = engine.usage.total
    assert (total.llm_calls, total.cached_calls, total.prompt_tokens, total.cached_prompt_tokens) == (0, 1, 0, 1)


def test_generate_other_sampling_or_model_is_asked_again(scripted, ask, tmp_path):
    for sampling, revision in ((SAMPLING, "r1"), (Sampling(max_tokens=17), "r1"), (SAMPLING, "r2")):
        backend = scripted({"a": ["one"]}, revision=revision)
        Engine(backend, ReplyCache(tmp_path)).generate([ask("a")], sampling)
        assert backend.asked == ["a"]


def test_generate_bad_reply_is_asked_once_more_with_the_reason(scripted, ask):
    backend = scripted({"a": ["no idea", '{"entities": ["x"]}']})
    engine = Engine(backend)
    reply = engine.generate([ask("a", Entities)], SAMPLING)[0]
    assert reply.ok
    assert reply.parsed == Entities(entities=["x"])
    assert "no JSON in the reply" in backend.batches[1][0]
    assert "no idea" in backend.batches[1][0]
    assert (engine.usage.total.llm_calls, engine.usage.total.retries) == (2, 1)
    assert engine.take_failures() == []


def test_generate_reply_mended_by_retry_is_cached_for_the_first_prompt(scripted, ask, tmp_path):
    Engine(scripted({"a": ["no", '["x"]']}), ReplyCache(tmp_path)).generate([ask("a", Entities)], SAMPLING)
    reply = Engine(scripted({}), ReplyCache(tmp_path)).generate([ask("a", Entities)], SAMPLING)[0]
    assert reply.parsed == Entities(entities=["x"])


def test_generate_twice_bad_is_a_failure_with_both_reasons_and_is_not_cached(scripted, ask, tmp_path):
    backend = scripted({"a": ["no idea", '{"entities": 5.5}'], "b": ["fine"]})
    engine = Engine(backend, ReplyCache(tmp_path))
    bad, good = engine.generate([ask("a", Entities, question_id="q7"), ask("b")], SAMPLING)
    assert not bad.ok
    assert good.ok
    (failure,) = engine.take_failures()
    assert (failure.question_id, failure.kind) == ("q7", "test")
    assert "no JSON in the reply" in failure.reason
    assert "asked again" in failure.reason
    assert engine.take_failures() == []
    assert len(ReplyCache(tmp_path)) == 1


def test_generate_transport_error_fails_without_a_retry_of_ours(scripted, ask):
    error = Completion("", 0, 0, "error", error="server said 500")
    backend = scripted({"a": [error], "b": ["fine"]})
    engine = Engine(backend)
    replies = engine.generate([ask("a", question_id="q1"), ask("b")], SAMPLING)
    assert [reply.ok for reply in replies] == [False, True]
    assert backend.asked.count("a") == 1
    assert engine.take_failures()[0].reason == "server said 500"


def test_generate_over_long_prompt_fails_alone_before_submission(scripted, ask):
    backend = scripted({"short": ["fine"]}, max_context_tokens=20)
    engine = Engine(backend)
    long, short = engine.generate([ask("word " * 5, question_id="q1"), ask("short")], SAMPLING)
    assert not long.ok
    assert long.reason == "prompt of 5 tokens, room for 4 (20 with the reply)"
    assert short.ok
    assert backend.asked == ["short"]


def test_generate_thoughts_and_blanks_are_no_reply(scripted, ask):
    backend = scripted({"a": ["<think>Rome?</think> Rome"], "b": ["   ", "<think>never"]})
    engine = Engine(backend)
    good, bad = engine.generate([ask("a"), ask("b")], SAMPLING)
    assert good.text == "Rome"
    assert not bad.ok
    assert "empty reply" in bad.reason


def test_generate_cut_off_reply_says_so(scripted, ask):
    cut = Completion('{"entities":["Par', 3, 16, "length")
    engine = Engine(scripted({"a": [cut]}))
    reply = engine.generate([ask("a", Entities)], SAMPLING)[0]
    assert not reply.ok
    assert "cut off at the reply limit of 16 tokens" in reply.reason


def test_generate_stored_reply_that_no_longer_fits_is_asked_anew(scripted, ask, tmp_path):
    cache = ReplyCache(tmp_path)
    Engine(scripted({"a": ['{"keep": [5]}']}), cache).generate([ask("a", Keep, num_options=5)], SAMPLING)
    backend = scripted({"a": ['{"keep": [1]}']})
    reply = Engine(backend, ReplyCache(tmp_path)).generate([ask("a", Keep, num_options=2)], SAMPLING)[0]
    assert reply.parsed == Keep(keep=[1])
    assert backend.asked == ["a"]


def test_generate_request_order_and_batch_cuts_do_not_matter(scripted, ask):
    texts = [f"q{number}" for number in range(7)]
    script = {text: [text.upper()] for text in texts}
    whole = Engine(scripted(dict(script))).generate([ask(text) for text in texts], SAMPLING)
    engine = Engine(scripted(dict(script)))
    cut = [engine.generate([ask(text)], SAMPLING)[0] for text in reversed(texts)]
    assert [reply.text for reply in whole] == [reply.text for reply in reversed(cut)]


def test_generate_interrupted_batch_keeps_what_came(scripted, ask, tmp_path):
    dying = scripted({"b": ["two"]})  # answers "b" first, then dies on "a"
    with pytest.raises(KeyError):
        Engine(dying, ReplyCache(tmp_path)).generate([ask("a"), ask("b")], SAMPLING)
    backend = scripted({"a": ["one"]})
    replies = Engine(backend, ReplyCache(tmp_path)).generate([ask("a"), ask("b")], SAMPLING)
    assert [reply.text for reply in replies] == ["one", "two"]
    assert backend.asked == ["a"]


def test_score_choices_caches_and_counts(scripted, ask, tmp_path):
    backend = scripted({}, choice_scores={"p1": [-0.5, -2.0], "p2": [-3.0]})
    engine = Engine(backend, ReplyCache(tmp_path))
    assert engine.score_choices([ask("p2"), ask("p1")], [["x"], ["Yes", "No"]]) == [[-3.0], [-0.5, -2.0]]
    assert (engine.usage.total.llm_calls, engine.usage.total.prompt_tokens) == (2, 14)
    again = Engine(scripted({}), ReplyCache(tmp_path))
    assert again.score_choices([ask("p1")], [["Yes", "No"]]) == [[-0.5, -2.0]]
    assert again.usage.total.cached_calls == 1


def test_score_choices_too_long_is_minus_infinity_and_a_failure(scripted, ask):
    engine = Engine(scripted({}, max_context_tokens=3))
    assert engine.score_choices([ask("a b c", question_id="q1")], [["x"]]) == [[float("-inf")]]
    assert "prompt of 3 tokens" in engine.take_failures()[0].reason


def test_usage_is_booked_by_stage_and_kind(scripted, ask):
    engine = Engine(scripted({"a": ["one two"], "b": ["three"]}))
    with engine.usage.stage("round 1"):
        engine.generate([ask("a", kind="rank")], SAMPLING)
    engine.generate([ask("b", kind="answer")], SAMPLING)
    usage = engine.usage.as_dict()
    assert usage["completion_tokens"] == 3
    assert usage["by_stage"]["round 1"]["completion_tokens"] == 2
    assert usage["by_kind"]["answer"]["llm_calls"] == 1
    assert usage["by_stage"]["other"]["llm_calls"] == 1
    other = type(engine.usage)()
    other.add_rows(engine.usage.rows())
    other.add_rows(engine.usage.rows())
    assert other.total.completion_tokens == 6


def test_engine_context_manager_closes_the_backend(scripted):
    backend = scripted({})
    with Engine(backend):
        pass
    assert backend.asked == ["closed"]
