"""Caches on node-local storage: copied there and back, whole or not at all, nothing replaced."""

import os

import numpy as np
import pytest

from kgrag_gpu import node_scratch
from kgrag_gpu.node_scratch import local_cache
from kgrag_gpu.types import UserError


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _tree(folder):
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def scratch(tmp_path):
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def test_local_cache_copies_there_and_new_files_back_and_cleans_up(tmp_path, scratch):
    shared = tmp_path / "cache"
    _write(shared / "embeddings/r/a.keys.npy", "a")
    with local_cache(shared, scratch, print) as folder:
        assert folder.is_relative_to(scratch) and _tree(folder) == {"embeddings/r/a.keys.npy": "a"}
        _write(folder / "embeddings/r/b.keys.npy", "b")
        _write(folder / "kg/k1/manifest.json", "k")
        _write(folder / "kg/.k2.tmp/half", "half")
        assert set(_tree(shared)) == {"embeddings/r/a.keys.npy"}
    assert _tree(shared) == {"embeddings/r/a.keys.npy": "a", "embeddings/r/b.keys.npy": "b", "kg/k1/manifest.json": "k"}
    assert list(scratch.iterdir()) == []


def test_local_cache_without_a_shared_one_yet_makes_it(tmp_path, scratch):
    with local_cache(tmp_path / "new" / "cache", scratch, print) as folder:
        _write(folder / "x/y", "1")
    assert _tree(tmp_path / "new" / "cache") == {"x/y": "1"}


def test_local_cache_replaces_nothing_that_another_task_wrote(tmp_path, scratch):
    shared = tmp_path / "cache"
    with local_cache(shared, scratch, print) as folder:
        _write(folder / "kg/k/manifest.json", "mine")
        _write(folder / "kg/k/more", "mine")
        _write(shared / "kg/k/manifest.json", "theirs")
    assert _tree(shared) == {"kg/k/manifest.json": "theirs", "kg/k/more": "mine"}


def test_local_cache_copies_back_after_an_error(tmp_path, scratch):
    with pytest.raises(ValueError, match="boom"), local_cache(tmp_path / "cache", scratch, print) as folder:
        _write(folder / "x", "1")
        raise ValueError("boom")
    assert _tree(tmp_path / "cache") == {"x": "1"} and list(scratch.iterdir()) == []


def test_local_cache_copies_back_in_the_order_of_writing_and_leaves_no_half_file(tmp_path, scratch, monkeypatch):
    shared, copied = tmp_path / "cache", []
    (shared / "e").mkdir(parents=True)
    copy = node_scratch._copy

    def fail_at_the_third(source, target):
        if len(copied) == 2:
            target.write_text("half")
            raise OSError(28, "No space left on device")
        copied.append(source.name)
        copy(source, target)

    with pytest.raises(OSError, match="No space left"), local_cache(shared, scratch, print) as folder:
        for number, name in enumerate(["b.vectors.npy", "b.keys.npy", "a.vectors.npy", "a.keys.npy"]):
            _write(folder / "e" / name, name)
            os.utime(folder / "e" / name, (100, 100 + number // 2))  # the clock does not tell a pair apart
        monkeypatch.setattr(node_scratch, "_copy", fail_at_the_third)
    assert copied == ["b.vectors.npy", "b.keys.npy"]
    assert set(_tree(shared)) == {"e/b.vectors.npy", "e/b.keys.npy"}


def test_local_cache_too_large_for_the_node_stays_where_it_is(tmp_path, scratch, monkeypatch):
    shared, said = tmp_path / "cache", []
    _write(shared / "x", "12345")
    monkeypatch.setattr(node_scratch.shutil, "disk_usage", lambda path: _Usage)
    with local_cache(shared, scratch, said.append) as folder:
        assert folder == shared
    assert "used where it is" in said[0] and _tree(shared) == {"x": "12345"}


class _Usage:
    free = 9  # bytes; twice the cache are wanted


def test_local_cache_missing_scratch_is_one_line(tmp_path):
    with pytest.raises(UserError, match="no such folder on"), local_cache(tmp_path, tmp_path / "gone", print):
        pass


def test_local_cache_vectors_encoded_on_the_node_are_found_in_the_shared_cache(tmp_path, scratch):
    from kgrag_gpu.index.embeddings import EmbeddingCache

    class Counting:
        revision, dim, num_texts = "r", 2, 0

        def encode(self, texts, progress=None):
            self.num_texts += len(texts)
            return np.array([[len(text), 1] for text in texts], dtype=np.int16)

    encoder = Counting()
    with local_cache(tmp_path / "cache", scratch, print) as folder:
        EmbeddingCache(folder / "embeddings", encoder).vectors(["one", "three"])
    again = EmbeddingCache(tmp_path / "cache" / "embeddings", encoder).vectors(["one", "three"])
    assert encoder.num_texts == 2 and again.tolist() == [[3, 1], [5, 1]]
