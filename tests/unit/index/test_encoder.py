"""The real encoder (MiniLM from its wheel): bits do not depend on the batch, bf16 stays near fp32."""

import numpy as np
import pytest
import torch

from kgrag_gpu.config.schema import EncoderConfig
from kgrag_gpu.index.embeddings import EmbeddingCache
from kgrag_gpu.index.encoder import Encoder
from kgrag_gpu.tensors.fixed_point import SCALE, exact_dot, to_fixed
from kgrag_gpu.types import UserError

TEXTS = [
    "Wien",
    "Which river flows through the capital of Austria?",
    "名古屋はどこにありますか",
    "",
    "The bridge was opened in 1932. " * 12,
    "a",
]


@pytest.fixture(scope="module", params=["float32", "auto"])
def encoder(request):
    return Encoder(EncoderConfig(dtype=request.param))


def test_encode_any_batch_gives_the_same_bits(encoder):
    together = encoder.encode(TEXTS)
    alone = np.concatenate([encoder.encode([text]) for text in TEXTS])
    backwards = encoder.encode(TEXTS[::-1])[::-1]
    assert (together == alone).all()
    assert (together == backwards).all()


def test_token_states_share_the_pass_of_the_vectors(encoder):
    found = encoder.token_states(TEXTS)
    assert (found.vectors == encoder.encode(TEXTS)).all()
    assert found.offsets[-1] == len(found.states) == len(found.piece_ids) == len(found.spans)
    assert np.allclose(np.linalg.norm(found.states.astype(np.float32), axis=1), 1, atol=2e-3)
    first = TEXTS[1]
    start, end = found.offsets[1], found.offsets[2]
    assert first[slice(*found.spans[start])] == "Which"
    assert first[slice(*found.spans[end - 1])] == "?"


def test_encode_auto_dtype_stays_near_fp32():
    exact = Encoder(EncoderConfig(dtype="float32")).encode(TEXTS).astype(float)
    chosen = Encoder(EncoderConfig(dtype="auto")).encode(TEXTS).astype(float)
    cosine = (exact * chosen).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(chosen, axis=1)
    assert cosine.min() > 0.999


def test_encode_nothing_gives_no_rows(encoder):
    assert encoder.encode([]).shape == (0, 384)


def test_encoder_unknown_folder_is_a_user_error():
    with pytest.raises(UserError, match="no folder"):
        Encoder(EncoderConfig(model="/no/such/folder"))


def test_encoder_offline_unknown_hub_id_is_a_user_error(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match="HF_HUB_OFFLINE=1 forbids"):
        Encoder(EncoderConfig(model="nobody/no-such-model"))


def test_cache_encodes_each_text_once_and_survives_a_new_process(encoder, tmp_path):
    cache = EmbeddingCache(tmp_path, encoder)
    first = cache.vectors(TEXTS)
    assert cache.num_encoded == len(TEXTS)
    again = EmbeddingCache(tmp_path, encoder)
    assert (again.vectors(TEXTS) == first).all()
    assert isinstance(again.vectors(TEXTS), np.memmap)
    assert (again.vectors([TEXTS[4], "new", TEXTS[0]])[[0, 2]] == first[[4, 0]]).all()
    assert again.num_encoded == 1
    again.flush()
    third = EmbeddingCache(tmp_path, encoder)
    third.vectors(["new", *TEXTS])
    assert third.num_encoded == 0


def test_cache_half_written_segment_is_ignored(encoder, tmp_path):
    cache = EmbeddingCache(tmp_path, encoder)
    cache.vectors(["a", "b"])
    folder = tmp_path / encoder.revision
    (folder / "dead.vectors.npy").write_bytes(b"\x93NUMPY half")
    assert len(EmbeddingCache(tmp_path, encoder).vectors(["a", "b"])) == 2


def test_exact_dot_does_not_depend_on_blocks_or_batch():
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(257, 384))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    fixed = torch.from_numpy(to_fixed(rows))
    whole = exact_dot(fixed[:63], fixed)
    assert torch.equal(whole, exact_dot(fixed[:63], fixed, block_rows=10))
    assert torch.equal(whole[5:6], exact_dot(fixed[5:6], fixed))
    by_integers = (fixed[:63].long() @ fixed.long().T).double() * SCALE * SCALE
    assert torch.equal(whole, by_integers)
    assert (whole - torch.from_numpy(rows[:63] @ rows.T)).abs().max() < 1e-3
