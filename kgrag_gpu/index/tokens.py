"""The token index: the states of every passage's word pieces, from the same pass that gives the passage's vector.

Two storage forms: `fp16` (768 bytes a token at 384 dims) and `int8` (states projected on their 128 main directions,
132 bytes a token). Both are built in shards, resumed after a kill, memory-mapped, and found again by the encoder's
revision and the hash of the texts. Knows nothing of sentences: a token knows where in its text it starts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import xxhash
from jaxtyping import Shaped
from pydantic import Field
from torch import Tensor

from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.index.encoder import Encoder, TokenStates
from kgrag_gpu.index.token_forms import Form, fit_basis, project, store_int8
from kgrag_gpu.index.token_store import TokenStore


class TokensConfig(ConfigModel):
    """How token states are stored."""

    form: Form = "int8"
    pca_dim: Annotated[int, Field(ge=1)] = 128  # int8 form: directions kept
    basis_texts: Annotated[int, Field(ge=1)] = 512  # texts, spread evenly, that the directions are taken from
    shard_texts: Annotated[int, Field(ge=1)] = 2048


@dataclass(frozen=True, eq=False)
class TokenIndex:
    """Stored token states of some texts, one text after the other.

    Attributes:
        states: int8 [tokens, directions] or float16 [tokens, dim], memory-mapped.
        scales: float32 [tokens], what an int8 row is multiplied by; None for fp16.
        starts: int32 [tokens], the character of the text that the word piece starts at.
        piece_ids: int32 [tokens], rows of the tokenizer's vocabulary.
        offsets: int64 [texts + 1].
        vectors: int16 [texts, dim], the texts' own vectors in fixed point.
        piece_texts: int32 [pieces], number of texts that hold each word piece (the vocabulary up to its largest).
        basis: int16 [directions, dim]; None for fp16.
    """

    states: np.ndarray
    scales: np.ndarray | None
    starts: np.ndarray
    piece_ids: np.ndarray
    offsets: np.ndarray
    vectors: np.ndarray
    piece_texts: np.ndarray
    basis: np.ndarray | None

    @property
    def num_texts(self) -> int:
        """Texts held."""
        return len(self.offsets) - 1

    @property
    def num_bytes(self) -> int:
        """Bytes on disk of everything that scoring reads."""
        arrays = (self.states, self.scales, self.starts, self.piece_ids, self.offsets, self.vectors)
        return sum(array.nbytes for array in arrays if array is not None)

    def question_states(self, states: np.ndarray) -> Shaped[Tensor, "tokens directions"]:
        """States of questions in the form that meets the stored ones: float16, or float64 along the basis."""
        return torch.from_numpy(states if self.basis is None else project(states, self.basis))

    def piece_weights(self, piece_ids: np.ndarray) -> np.ndarray:
        """Rarity of word pieces over the texts, `ln(1 + N / (1 + df))`, float64."""
        frequency = np.zeros(len(piece_ids))
        known = piece_ids < len(self.piece_texts)
        frequency[known] = self.piece_texts[piece_ids[known]]
        return np.log1p(self.num_texts / (1.0 + frequency))


def build_token_index(
    texts: Sequence[str],
    encoder: Encoder,
    cache_dir: Path,
    config: TokensConfig | None = None,
    worker: int = 0,
    num_workers: int = 1,
) -> TokenIndex | None:
    """Opens the token index of `texts`, and builds what of it is missing.

    Args:
        texts: in the order of their rows.
        encoder: gives states and vectors; its revision is part of the key.
        cache_dir: indexes lie in `<cache_dir>/tokens/<encoder revision>/<form>-<hash of the texts>`.
        config: storage form and shard size.
        worker: of `num_workers` processes; each builds every `num_workers`-th shard.
        num_workers: processes that share the work.

    Returns:
        The index, or None where other workers' shards are still missing (call again when they are done).

    Raises:
        UserError: the cache cannot be written, or holds a damaged index.
    """
    config = config or TokensConfig()
    num_shards = max(1, -(-len(texts) // config.shard_texts))
    store = TokenStore(cache_dir / "tokens" / encoder.revision / _key(texts, config), num_shards, config.shard_texts)
    if not store.is_joined:
        basis = _basis(texts, encoder, store, config) if config.form == "int8" else None
        for shard in range(worker, num_shards, num_workers):
            if not store.has_shard(shard):
                rows = texts[shard * config.shard_texts : (shard + 1) * config.shard_texts]
                label = f"encode tokens {shard + 1}/{num_shards}"
                store.write_shard(shard, _arrays(encoder.token_states(rows, label), basis))
        if not store.is_joined:
            if store.missing_shards():
                return None
            try:
                _join(store, config, encoder)
            except FileNotFoundError:
                if not store.is_joined:  # else another worker joined it and has removed the shards meanwhile
                    raise
    return _open(store)


def _key(texts: Sequence[str], config: TokensConfig) -> str:
    """Names what decides the stored bits; the shard size decides none."""
    digest = xxhash.xxh3_128()
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "little") + raw)
    form = f"int8-{config.pca_dim}-{config.basis_texts}" if config.form == "int8" else "fp16"
    return f"{form}-{digest.hexdigest()}"


def _basis(texts: Sequence[str], encoder: Encoder, store: TokenStore, config: TokensConfig) -> np.ndarray:
    stored = store.basis()
    if stored is not None:
        return stored
    rows = np.unique(np.linspace(0, max(0, len(texts) - 1), config.basis_texts).astype(np.int64))
    sample = encoder.token_states([str(texts[row]) for row in rows] if len(texts) else [])
    return store.put_basis(fit_basis(sample.states, min(config.pca_dim, encoder.dim)))


def _arrays(states: TokenStates, basis: np.ndarray | None) -> dict[str, np.ndarray]:
    arrays = {
        "states": states.states,
        "starts": np.ascontiguousarray(states.spans[:, 0]),
        "piece_ids": states.piece_ids,
        "counts": np.diff(states.offsets),
        "vectors": states.vectors,
    }
    if basis is not None:
        arrays["states"], arrays["scales"] = store_int8(states.states, basis)
    return arrays


def _join(store: TokenStore, config: TokensConfig, encoder: Encoder) -> None:
    pieces, counts, num_vectors = store.shard_arrays("piece_ids"), store.shard_arrays("counts"), 0
    num_pieces = max((int(part.max()) + 1 for part in pieces if len(part)), default=0)
    texts_with = np.zeros(num_pieces, dtype=np.int64)
    for part, lengths in zip(pieces, counts, strict=True):
        owners = np.repeat(np.arange(len(lengths)), lengths)
        distinct = np.unique(owners * np.int64(max(1, num_pieces)) + part) % max(1, num_pieces)
        texts_with += np.bincount(distinct, minlength=num_pieces)
        num_vectors += len(lengths)
    manifest = {
        "form": config.form,
        "encoder": encoder.description,
        "num_texts": num_vectors,
        "num_tokens": int(sum(len(part) for part in pieces)),
    }
    store.join(manifest, {"piece_texts": texts_with.astype(np.int32)})


def _open(store: TokenStore) -> TokenIndex:
    arrays = store.load()
    offsets = np.concatenate([[0], np.cumsum(arrays["counts"])]).astype(np.int64)
    return TokenIndex(
        states=arrays["states"],
        scales=arrays.get("scales"),
        starts=arrays["starts"],
        piece_ids=arrays["piece_ids"],
        offsets=offsets,
        vectors=arrays["vectors"],
        piece_texts=arrays["piece_texts"],
        basis=store.basis(),
    )
