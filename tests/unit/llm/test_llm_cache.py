"""The reply cache: several processes, kills, and what its keys depend on."""

import json
import multiprocessing
from pathlib import Path

import pytest

from kgrag_gpu.llm.cache import CachedReply, ReplyCache, choices_key, reply_key
from kgrag_gpu.llm.records import Sampling
from kgrag_gpu.types import UserError


def _write(directory: str, start: int, count: int) -> None:
    cache = ReplyCache(Path(directory))
    for number in range(start, start + count):
        cache.put(CachedReply(f"k{number}", "test", text=f"reply {number}"))
    cache.close()


def test_cache_written_by_two_processes_at_once_is_whole(tmp_path):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(str(tmp_path), start, 300)) for start in (0, 200)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = ReplyCache(tmp_path).get_many([f"k{number}" for number in range(500)])
    assert len(found) == 500
    assert found["k250"].text == "reply 250"


def test_cache_sees_what_another_process_wrote_since(tmp_path):
    reader = ReplyCache(tmp_path)
    assert reader.get_many(["k1"]) == {}
    _write(str(tmp_path), 1, 1)
    assert reader.get_many(["k1"])["k1"].text == "reply 1"


def test_cache_torn_last_line_is_skipped_and_the_rest_kept(tmp_path):
    _write(str(tmp_path), 0, 3)
    (segment,) = tmp_path.glob("*.jsonl")
    segment.write_bytes(segment.read_bytes()[:-5] + b"")
    cache = ReplyCache(tmp_path)
    assert sorted(cache.get_many(["k0", "k1", "k2"])) == ["k0", "k1"]


def test_cache_line_of_nonsense_is_counted(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"key": "k", "kind": "t", "text": "x"}\nnonsense\n{"other": 1}\n')
    cache = ReplyCache(tmp_path)
    assert len(cache) == 1
    assert cache.num_bad_lines == 2


def test_cache_first_reply_stays(tmp_path):
    cache = ReplyCache(tmp_path)
    cache.put(CachedReply("k", "test", text="first"))
    cache.put(CachedReply("k", "test", text="second"))
    assert ReplyCache(tmp_path).get_many(["k"])["k"].text == "first"


def test_cache_stored_line_is_readable_json_with_scores(tmp_path):
    cache = ReplyCache(tmp_path)
    cache.put(CachedReply("k", "test", scores=(-0.5, -1.25)))
    (segment,) = tmp_path.glob("*.jsonl")
    assert json.loads(segment.read_text())["scores"] == [-0.5, -1.25]
    assert ReplyCache(tmp_path).get_many(["k"])["k"].scores == (-0.5, -1.25)


def test_cache_unwritable_folder_is_the_users_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot make the reply cache"):
        ReplyCache(tmp_path / "file" / "cache")


def test_reply_key_changes_with_every_part():
    base = ("text", "model", "rev", Sampling(), None)
    keys = {
        reply_key(*base),
        reply_key("text2", *base[1:]),
        reply_key("text", "model2", *base[2:]),
        reply_key("text", "model", "rev2", *base[3:]),
        reply_key("text", "model", "rev", Sampling(seed=1), None),
        reply_key("text", "model", "rev", Sampling(), "{}"),
        choices_key("text", "model", "rev", ["a"]),
        choices_key("text", "model", "rev", ["a", "b"]),
    }
    assert len(keys) == 8
