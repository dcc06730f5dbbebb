"""The token index: stored forms, sharded building, resuming, and what a damaged one says."""

import numpy as np
import pytest
from cover_case import DIM, WordEncoder, piece_id

from kgrag_gpu.index.token_forms import fit_basis, project, store_int8, to_int8
from kgrag_gpu.index.tokens import TokensConfig, build_token_index
from kgrag_gpu.types import UserError

TEXTS = ["Alda. Alda sails north.", "", "Borin mends nets.", "Cavel is a port. It is old.", "Dorma"]


def build(cache_dir, encoder=None, texts=TEXTS, **config):
    return build_token_index(
        texts, encoder or WordEncoder(), cache_dir, TokensConfig(pca_dim=8, shard_texts=2, **config)
    )


def test_build_token_index_fp16_holds_the_encoders_states(tmp_path):
    index = build(tmp_path, form="fp16")
    expected = WordEncoder().token_states(TEXTS)
    assert index.offsets.tolist() == expected.offsets.tolist()
    assert (index.states == expected.states).all()
    assert (index.vectors == expected.vectors).all()
    assert index.starts.tolist() == expected.spans[:, 0].tolist()
    assert isinstance(index.states, np.memmap)


def test_build_token_index_counts_texts_for_each_piece(tmp_path):
    index = build(tmp_path)
    assert index.piece_texts[piece_id("alda")] == 1  # twice in one text
    assert index.piece_texts[piece_id(".")] == 3
    weights = index.piece_weights(np.array([piece_id("alda"), 10**6]))
    assert weights.tolist() == [np.log1p(5 / 2), np.log1p(5 / 1)]


def test_build_token_index_second_call_encodes_nothing(tmp_path):
    build(tmp_path)
    encoder = WordEncoder()
    build(tmp_path, encoder)
    assert encoder.num_texts == 0


def test_build_token_index_other_texts_or_form_is_another_index(tmp_path):
    first = build(tmp_path)
    assert build(tmp_path, texts=TEXTS[:-1]).num_texts == 4
    assert build(tmp_path, form="fp16").states.dtype == np.float16
    assert (build(tmp_path).states == first.states).all()


def test_build_token_index_two_workers_give_the_bits_of_one(tmp_path):
    alone = build(tmp_path / "one")
    config = TokensConfig(pca_dim=8, shard_texts=2)
    assert build_token_index(TEXTS, WordEncoder(), tmp_path / "two", config, worker=1, num_workers=2) is None
    shared = build_token_index(TEXTS, WordEncoder(), tmp_path / "two", config, worker=0, num_workers=2)
    for name in ("states", "scales", "starts", "piece_ids", "vectors", "piece_texts", "basis"):
        assert (getattr(alone, name) == getattr(shared, name)).all(), name


def test_build_token_index_after_a_kill_encodes_only_missing_shards(tmp_path):
    class Dying(WordEncoder):
        def token_states(self, texts, progress=None):
            if "Dorma" in texts and len(texts) == 1:
                raise KeyboardInterrupt
            return super().token_states(texts, progress)

    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, Dying(), form="fp16")
    encoder = WordEncoder()
    index = build(tmp_path, encoder, form="fp16")
    assert encoder.num_texts == 1
    assert (index.states == WordEncoder().token_states(TEXTS).states).all()


def test_build_token_index_no_texts_is_empty(tmp_path):
    index = build(tmp_path, texts=[])
    assert index.num_texts == 0
    assert len(index.states) == 0


def test_build_token_index_damaged_is_a_user_error(tmp_path):
    build(tmp_path)
    next(tmp_path.rglob("index/states.npy")).write_bytes(b"broken")
    with pytest.raises(UserError, match=r"damaged token index.*delete the folder"):
        build(tmp_path)


def test_project_does_not_depend_on_the_batch():
    states = WordEncoder().token_states(TEXTS).states
    basis = fit_basis(states, 8)
    together = project(states, basis)
    assert all((project(states[i : i + 1], basis) == together[i]).all() for i in range(len(states)))
    assert np.allclose(np.linalg.norm(together, axis=1), 1)


def test_fit_basis_all_directions_keep_inner_products():
    states = WordEncoder().token_states(TEXTS).states
    components = project(states, fit_basis(states, DIM))
    assert np.allclose(components @ components.T, states.astype(float) @ states.astype(float).T, atol=2e-3)


def test_to_int8_rounds_to_the_largest_component():
    rounded, scales = to_int8(np.array([[0.5, -0.25, 0.001], [0.0, 0.0, 0.0]]))
    assert rounded.tolist() == [[127, -64, 0], [0, 0, 0]]
    assert scales[1] == 0


def test_store_int8_blocks_equal_one_pass(monkeypatch):
    states = WordEncoder().token_states(TEXTS).states
    basis = fit_basis(states, 8)
    whole = store_int8(states, basis)
    monkeypatch.setattr("kgrag_gpu.index.token_forms._BLOCK_ROWS", 3)
    blocks = store_int8(states, basis)
    assert all((a == b).all() for a, b in zip(whole, blocks, strict=True))
