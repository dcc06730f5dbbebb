"""A corpus as large as asked for, without encoding all of it: passages put together from sentences already encoded.

A distractor has a title of its own and one to six sentences of passages that no question came with: no gold sentence is
copied.
Its token states are those that the sentences had where they stood: right in kind and number for time and memory, not
what the encoder would give for the new text.
"""

import itertools
import random
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kgrag_gpu.index.sentence_graph import SentenceGraph
from kgrag_gpu.index.tokens import TokenIndex
from kgrag_gpu.ranking.coverage_tokens import sentence_token_ranges
from kgrag_gpu.types import Passage

_SEED = 0
_MAX_SENTENCES = 6


def add_distractors(
    passages: Sequence[Passage],
    tokens: TokenIndex,
    graph: SentenceGraph,
    is_source: np.ndarray,
    num_passages: int,
    directory: Path,
) -> tuple[list[Passage], TokenIndex]:
    """The passages and their index, with distractors up to `num_passages`.

    Args:
        passages: encoded ones, rows of `tokens` and units of `graph`.
        tokens: their token index.
        graph: their sentences.
        is_source: bool [passages], whether distractors may take sentences from it.
        num_passages: wanted in all.
        directory: gets the states, as a memory map.
    """
    chance = random.Random(_SEED)
    titles = np.array([len(p.title) for p in passages], dtype=np.int64)
    runs = sentence_token_ranges(tokens, graph, titles)
    sources = np.flatnonzero(is_source[graph.unit_ids] & (runs[:, 1, 1] > runs[:, 1, 0])).tolist()
    words = sorted({w for p in passages for w in re.findall(r"[A-Z][a-z]{3,}", p.title)})
    extended = list(passages)
    parts: list[np.ndarray] = [np.arange(len(tokens.states))]
    starts: list[np.ndarray] = [np.asarray(tokens.starts)]
    counts = np.diff(tokens.offsets).tolist()
    vector_rows = list(range(len(passages)))
    while len(extended) < num_passages:
        chosen = [chance.choice(sources) for _ in range(chance.randint(1, _MAX_SENTENCES))]
        title = f"{chance.choice(words)} {chance.choice(words)} {len(extended)}"
        rows, places, text = _assembled(chosen, title, runs, tokens, graph, titles)
        extended.append(Passage(title, text))
        parts.append(rows)
        starts.append(places)
        counts.append(len(rows))
        vector_rows.append(int(graph.unit_ids[chosen[0]]))
    directory.mkdir(parents=True, exist_ok=True)
    order = np.concatenate(parts)
    vectors = _distinct_vectors(np.asarray(tokens.vectors)[vector_rows], len(passages))
    return extended, TokenIndex(
        states=_gathered(tokens.states, order, directory / "states.npy"),
        scales=None if tokens.scales is None else np.asarray(tokens.scales)[order],
        starts=np.concatenate(starts),
        piece_ids=np.asarray(tokens.piece_ids)[order],
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        vectors=vectors,
        piece_texts=np.asarray(tokens.piece_texts) * (num_passages // max(1, len(passages))),
        basis=tokens.basis,
    )


def _assembled(chosen, title, runs, tokens, graph, titles) -> tuple[np.ndarray, np.ndarray, str]:
    """(token rows, the characters they start at, text) of one distractor; its title borrows another's states."""
    first_title = np.arange(*runs[chosen[0], 0])
    rows = [first_title]
    places = [np.minimum(np.arange(len(first_title)), len(title) - 1)]
    text = ""
    for sentence in chosen:
        own = np.arange(*runs[sentence, 1])
        unit = graph.unit_ids[sentence]
        base = (titles[unit] + 2 if titles[unit] else 0) + graph.spans[sentence, 0]
        text += " " if text else ""
        rows.append(own)
        places.append(np.asarray(tokens.starts)[own] - base + len(title) + 2 + len(text))
        text += graph.texts[sentence]
    return np.concatenate(rows), np.concatenate(places).astype(np.int32), text


def _gathered(states: np.ndarray, order: np.ndarray, path: Path, block: int = 1 << 20) -> np.ndarray:
    out = np.lib.format.open_memmap(path, mode="w+", dtype=states.dtype, shape=(len(order), states.shape[1]))
    for start in range(0, len(order), block):
        out[start : start + block] = states[order[start : start + block]]
    out.flush()
    return np.load(path, mmap_mode="c")


def _distinct_vectors(vectors: np.ndarray, num_real: int) -> np.ndarray:
    """Copies of vectors moved a little at random, so that the dense index does not see the same one many times."""
    generator = np.random.default_rng(_SEED)
    out = vectors.astype(np.int32)
    for start, stop in itertools.pairwise([*range(num_real, len(out), 8192), len(out)]):
        out[start:stop] += generator.normal(0, 500, out[start:stop].shape).astype(np.int32)
    return np.clip(out, -32767, 32767).astype(np.int16)
