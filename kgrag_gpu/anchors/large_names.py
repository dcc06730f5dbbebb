"""Linking over more names than can be compared with every question: 10^7 entities.

A question's words first choose some hundred names: those that it says in full (by the hash of every run of its words),
and those that share its telling words, misspelt by at most one edit (by each word's list of names). link.py then
weighs these as it weighs a small graph's names. What the character trigrams find in a small graph, a name of which
every word is misspelt or run together, is not found here.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from kgrag_gpu.anchors.keywords import MentionCosts
from kgrag_gpu.anchors.link import LinkConfig, Links, NameIndex, folded_name
from kgrag_gpu.anchors.spelling import WordIndex
from kgrag_gpu.kg import arrow_ops as ops
from kgrag_gpu.kg.text_column import TextColumn, TextLists, take_texts
from kgrag_gpu.words import FUNCTION_WORDS, fold, split_words

LISTED_NAMES = 300_000  # up to so many entities every name is compared (link.py)
EDITED_WORDS = 300_000  # of the names' words, the commonest: only these are found when misspelt
MAX_POSTINGS = 200_000  # names looked at, a question; its words with the fewest names go first
_MAX_WORDS = 16  # of a name that is found by its hash
_BLOCK_ROWS = 1 << 20


def name_index(
    names: Sequence[str],
    aliases: Sequence[Sequence[str]],
    costs: MentionCosts,
    config: LinkConfig,
    num_edges: np.ndarray,
) -> "NameIndex | LargeNameIndex":
    """The index that suits the number of entities."""
    kind = NameIndex if len(names) <= LISTED_NAMES else LargeNameIndex
    return kind(names, aliases, costs, config, num_edges)


class LargeNameIndex:
    """Names and aliases of a large graph's entities, prepared for search; some 60 bytes a name and its words."""

    def __init__(
        self,
        names: Sequence[str],
        aliases: Sequence[Sequence[str]],
        costs: MentionCosts,
        config: LinkConfig | None = None,
        num_edges: np.ndarray | None = None,
    ):
        """`num_edges` of each entity (default: all alike): of equal names those with more come first."""
        self.config = config or LinkConfig()
        self._names, self._aliases, self._costs = names, aliases, costs
        self._num_edges = np.zeros(len(names), np.int64) if num_edges is None else np.asarray(num_edges)
        spelled, self._owners = _spellings(names, aliases)
        self._index_words(spelled)

    def link(self, texts: Sequence[str]) -> Links:
        """The entities that each text may name, best first; equal scores by entity row."""
        found = [self._link_one(text) for text in texts]
        counts = [len(links.entity_ids) for links in found]
        join = [np.concatenate([getattr(links, name) for links in found] or [np.zeros(0, np.int64)])
                for name in ("entity_ids", "scores", "starts", "ends", "num_edits")]  # fmt: skip
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return Links(offsets, *join, words=[words for links in found for words in links.words])

    def _link_one(self, text: str) -> Links:
        entities = np.unique(self._owners[self._candidates(text)])
        names = take_texts(self._names, entities)
        aliases = [self._aliases[int(entity)] for entity in entities]
        links = NameIndex(names, aliases, self._costs, self.config, self._num_edges[entities]).link([text])
        return Links(
            links.offsets, entities[links.entity_ids], links.scores, links.starts, links.ends, links.num_edits,
            links.words,
        )  # fmt: skip

    def _candidates(self, text: str) -> np.ndarray:
        """Rows of the spellings that are worth weighing."""
        words = split_words(text)
        return np.concatenate([self._said_in_full(text, words), self._sharing_words(words)])

    def _said_in_full(self, text: str, words: list[str]) -> np.ndarray:
        runs = {
            " ".join(words[start:end])
            for start in range(len(words))
            for end in range(start + 1, min(len(words), start + _MAX_WORDS) + 1)
        }
        runs |= {piece for piece in fold(text).split() if not split_words(piece)}  # a name of symbols alone: "$"
        keys = np.array([xxhash.xxh3_64_intdigest(run.encode()) for run in sorted(runs)], dtype=np.uint64)
        first, last = (np.searchsorted(self._hashes, keys, side) for side in ("left", "right"))
        bearers = [self._hash_rows[a:b] for a, b in zip(first.tolist(), last.tolist(), strict=True) if b > a]
        most = [rows[self._best(np.zeros(len(rows)), rows)] for rows in bearers]
        return np.concatenate([np.zeros(0, np.int64), *most])

    def _sharing_words(self, words: list[str]) -> np.ndarray:
        """As link.py's first search: what the shared words are worth, less what is missing of the name."""
        worth: dict[int, float] = {}
        for word in words:
            for row, edits in self._near(word):
                value = self._costs.cost(word) - self._costs.config.edit_cost * edits
                worth[row] = max(worth.get(row, value), value)
        sizes = self._posting_offsets[1:] - self._posting_offsets[:-1]
        taken, room = [], MAX_POSTINGS
        for row in sorted(worth, key=lambda r: (int(sizes[r]), r)):
            room -= int(sizes[row])
            if room < 0:
                break
            taken.append(row)
        lists = [self._postings[self._posting_offsets[row] : self._posting_offsets[row + 1]] for row in taken]
        values = [np.full(len(rows), worth[row] + self._missing[row]) for row, rows in zip(taken, lists, strict=True)]
        rows, place = np.unique(np.concatenate([np.zeros(0, np.int32), *lists]), return_inverse=True)
        scores = np.bincount(place, np.concatenate([np.zeros(0), *values]), len(rows)) - self._name_missing[rows]
        return rows[self._best(np.rint(scores * 2**20), rows)].astype(np.int64)

    def _best(self, scores: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Places of the best spellings: by score, then by edges, then by row."""
        order = np.lexsort((rows, -self._num_edges[self._owners[rows]], -scores))
        return order[: self.config.candidates]

    def _near(self, word: str) -> list[tuple[int, int]]:
        row = self._row_of.get(word)
        exact = [] if row is None else [(row, 0)]
        return exact + [(int(self._edited_rows[r]), edits) for r, edits in self._edited.near(word) if edits]

    def _index_words(self, spelled: "pa.ChunkedArray") -> None:
        hashes, words, counts = [], [], []
        for start in range(0, len(spelled), _BLOCK_ROWS):
            folded = _folded(ops.concat([spelled.slice(start, _BLOCK_ROWS)]))
            raw = folded.cast(pa.large_binary()).to_pylist()
            hashes.append(np.array([xxhash.xxh3_64_intdigest(name) for name in raw], dtype=np.uint64))
            lists = pc.call_function("split_pattern", [folded], pc.SplitPatternOptions(" "))
            counts.append(np.asarray(pc.call_function("list_value_length", [lists])))
            words.append(lists.flatten())
        vocabulary, codes = ops.encode_chunks(words)
        self._row_of = {word: row for row, word in enumerate(vocabulary.to_pylist())}
        blank = self._row_of.pop("", -1)
        flat = np.concatenate([np.zeros(0, np.int32), *codes])
        lengths = np.concatenate([np.zeros(0, np.int64), *counts]).astype(np.int64)
        self._missing = np.full(len(vocabulary), self.config.missing_cost)
        self._missing[[self._row_of[w] for w in FUNCTION_WORDS if w in self._row_of]] = self.config.grammar_missing_cost
        name_of = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
        keep = flat != blank
        flat, name_of = flat[keep], name_of[keep]
        self._name_missing = np.bincount(name_of, self._missing[flat], len(lengths)).astype(np.float32)
        sizes = np.bincount(flat, minlength=len(vocabulary))
        self._posting_offsets = np.concatenate([[0], np.cumsum(sizes)])
        self._postings = name_of[np.argsort(flat, kind="stable")]
        self._edited_rows = np.sort(np.argsort(-sizes, kind="stable")[:EDITED_WORDS])
        self._edited_rows = self._edited_rows[self._edited_rows != blank]
        self._edited = WordIndex(vocabulary.take(pa.array(self._edited_rows)).to_pylist())
        joined = np.concatenate([np.zeros(0, np.uint64), *hashes])
        self._hash_rows = np.argsort(joined, kind="stable")
        self._hashes = joined[self._hash_rows]


def _spellings(names: Sequence[str], aliases: Sequence[Sequence[str]]) -> tuple["pa.ChunkedArray", np.ndarray]:
    """All names, then all aliases, and the entity of each (int64)."""
    name_array = TextColumn(names).array
    owners = [np.arange(len(names))]
    if isinstance(aliases, TextLists):
        counts = np.asarray(pc.fill_null(pc.call_function("list_value_length", [aliases.array]), 0))
        flat = pc.cast(aliases.array.flatten(), pa.large_string())
    else:
        counts = np.array([len(row) for row in aliases], dtype=np.int64)
        flat = pa.array([alias for row in aliases for alias in row], pa.large_string())
    owners.append(np.repeat(owners[0], counts))
    return pa.chunked_array([name_array, flat], pa.large_string()), np.concatenate(owners)


def _folded(names: "pa.LargeStringArray") -> "pa.LargeStringArray":
    """As link.py folds names, at Arrow's speed where they are ASCII."""
    is_ascii = np.asarray(pc.call_function("string_is_ascii", [names]))
    lowered = pc.call_function("ascii_lower", [names])
    options = pc.ReplaceSubstringOptions(pattern="[^0-9a-z]+", replacement=" ")
    folded = pc.call_function("ascii_trim_whitespace", [
        pc.call_function("replace_substring_regex", [lowered], options)])  # fmt: skip
    by_rule = np.flatnonzero(~is_ascii | ops.is_blank(folded))
    if not len(by_rule):
        return folded
    mask = np.zeros(len(names), bool)
    mask[by_rule] = True
    exact = [folded_name(name) for name in names.take(pa.array(by_rule)).to_pylist()]
    return TextColumn(folded).replaced(mask, exact).array
