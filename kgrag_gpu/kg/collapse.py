"""Exact duplicate triples collapse once, with their passages merged. Vectorised: 10^7 triples are no Python loop."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Collapsed:
    """Distinct triples in first-seen order.

    `rows` int64 [triples]: the raw row that each distinct triple is taken from (its first). `offsets` int64
    [triples + 1] and `passages` int32: the distinct passages of each, ascending.
    """

    rows: np.ndarray
    offsets: np.ndarray
    passages: np.ndarray


def group_rows(columns: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Number equal rows alike, in first-seen order.

    Args:
        columns: integer arrays [rows], none negative.

    Returns:
        (first raw row of each group int64 [groups], group of each row int64 [rows]).
    """
    keys = _packed(columns)
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return first[order].astype(np.int64), rank[inverse.reshape(-1)]


def first_rows(columns: list[np.ndarray], bucket_rows: int = 1 << 18) -> np.ndarray:
    """The first of every set of equal rows, ascending: int64 [distinct].

    Equal rows share a bucket of about `bucket_rows`, so that sorting stays in the processor's cache and needs little
    memory beside the keys.
    """
    keys = _packed(columns)
    num_buckets = min(1 << 15, -(-len(keys) // bucket_rows))
    if num_buckets < 2:
        return np.sort(np.unique(keys, return_index=True)[1]).astype(np.int64)
    mixed = (keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(48)
    buckets = (mixed * np.uint64(num_buckets) >> np.uint64(16)).astype(np.uint16)
    del mixed
    order = np.argsort(buckets, kind="stable")  # a radix sort for 16 bits
    bounds = np.concatenate([[0], np.cumsum(np.bincount(buckets, minlength=num_buckets))])
    is_first = np.zeros(len(keys), dtype=bool)
    for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        rows = order[start:end]
        is_first[rows[np.unique(keys[rows], return_index=True)[1]]] = True
    return np.flatnonzero(is_first)


def _packed(columns: list[np.ndarray]) -> np.ndarray:
    """One int64 key per row. Where the product of the ranges outgrows int64, pairs are numbered first."""
    key = np.asarray(columns[0], dtype=np.int64)
    for column in columns[1:]:
        column = np.asarray(column, dtype=np.int64)
        size = int(column.max()) + 1 if len(column) else 1
        if len(key) and (int(key.max()) + 1) * size >= 2**63:
            key = np.unique(key, return_inverse=True)[1].reshape(-1).astype(np.int64)
        key = key * size + column
    return key


def collapse_triples(
    heads: np.ndarray,
    relations: np.ndarray,
    tails: np.ndarray,
    passages: np.ndarray | None = None,
    text_ids: np.ndarray | None = None,
) -> Collapsed:
    """Distinct triples of the raw rows.

    Args:
        heads, relations, tails: row numbers [rows].
        passages: passage of each raw row, -1 where none [rows]; None where no row has one.
        text_ids: where given, triples with different texts are different edges (the sentences of a mention graph).
    """
    columns = [heads, relations, tails] + ([] if text_ids is None else [text_ids])
    if passages is None:
        first = first_rows(columns)
        return Collapsed(first, np.zeros(len(first) + 1, dtype=np.int64), np.zeros(0, dtype=np.int32))
    first, groups = group_rows(columns)
    has_passage = passages >= 0
    pairs = groups[has_passage] * (int(passages.max(initial=0)) + 1) + passages[has_passage]
    pairs = np.unique(pairs)
    width = int(passages.max(initial=0)) + 1
    counts = np.bincount(pairs // width, minlength=len(first))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Collapsed(first, offsets, (pairs % width).astype(np.int32))
