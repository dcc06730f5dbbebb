"""How well sentences cover a question, token by token (methods/cover.md, step 1).

A word piece of the question is covered by a sentence as well as its best match there, by MaxSim over the sentence's
own tokens and those of its unit's title. Coverage is kept in fixed point, a whole question being 2**30: maxima and sums
over word pieces are then exact, and a score does not depend on which questions shared a batch.
"""

import re
from collections.abc import Sequence
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Float32, Int32, Int64
from pydantic import Field
from torch import Tensor

from kernels import csr_expand, maxsim
from kernels.segments import segment_max
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.index.encoder import TokenStates
from kgrag_gpu.index.sentence_graph import SentenceGraph
from kgrag_gpu.index.tokens import TokenIndex

UNIT_SCALE = 2.0**30
_ALL_SENTENCES_SHARE = 0.05  # above this share of all (question, sentence) pairs, one dense product is faster
_WORD = re.compile(r"\S+")
_EDGES = "\"'“”‘’«»()[]{}?!.,;:¿¡"


class TokenCoverageConfig(ConfigModel):
    """How a cosine becomes coverage."""

    linear_share: Annotated[float, Field(ge=0, le=1)] = 0.7  # the rest is the squared excess over the threshold
    threshold: Annotated[float, Field(ge=0, lt=1)] = 0.4
    unit_share: Annotated[float, Field(ge=0, le=1)] = 0.5  # of what another sentence of the same passage covers


class SentenceTokens:
    """The stored tokens of every sentence, on a device."""

    def __init__(self, tokens: TokenIndex, graph: SentenceGraph, title_chars: np.ndarray, device: torch.device):
        """`title_chars` int64 [units]: length of the title that a unit's encoded text starts with, 0 where none."""
        self.tokens = tokens
        self.states = torch.from_numpy(tokens.states).to(device)
        self.scales = None if tokens.scales is None else torch.from_numpy(tokens.scales).to(device)
        self.ranges = torch.from_numpy(sentence_token_ranges(tokens, graph, title_chars)).to(device)
        self.unit_ids = torch.from_numpy(graph.unit_ids).to(device)
        self.unit_offsets = torch.from_numpy(graph.unit_offsets).to(device)
        self.device = device

    @property
    def num_sentences(self) -> int:
        """Rows of the sentence table."""
        return len(self.unit_ids)


def sentence_token_ranges(tokens: TokenIndex, graph: SentenceGraph, title_chars: np.ndarray) -> np.ndarray:
    """Token runs of each sentence, int64 [sentences, 2, 2]: its unit's title, then its own; past-the-end second.

    A unit's encoded text is "title. text", or the text alone. Tokens beyond the encoder's limit do not exist, so a late
    sentence may own none.
    """
    owners = np.repeat(np.arange(tokens.num_texts, dtype=np.int64), np.diff(tokens.offsets))
    places = (owners << 32) + tokens.starts
    units = graph.unit_ids.astype(np.int64)
    base = np.where(title_chars > 0, title_chars + 2, 0)[units]
    own = [np.searchsorted(places, (units << 32) + base + graph.spans[:, side]) for side in (0, 1)]
    title_end = np.searchsorted(places, (units << 32) + title_chars[units])
    return np.stack([tokens.offsets[units], title_end, *own], axis=1).reshape(-1, 2, 2).astype(np.int64)


class QuestionTokens:
    """The word pieces of a batch's questions, and how well sentences cover them.

    Attributes:
        width: word pieces of the longest question.
        words: for each question its words and, for each word piece, the number of its word (-1: none).
    """

    def __init__(
        self, texts: Sequence[str], states: TokenStates, sentences: SentenceTokens, config: TokenCoverageConfig
    ):
        device = sentences.device
        self._sentences = sentences
        self._config = config
        self._states = sentences.tokens.question_states(states.states).to(device)
        self._offsets = torch.from_numpy(states.offsets).to(device)
        self._dense: Tensor | None = None
        counts = np.diff(states.offsets)
        self.num_questions = len(texts)
        self.width = int(counts.max(initial=0))
        self.weights = torch.from_numpy(_weights(states, sentences.tokens, self.width)).to(device)
        bounds = states.offsets.tolist()
        self.words = [_words(t, states.spans[bounds[i] : bounds[i + 1]]) for i, t in enumerate(texts)]

    def coverage(
        self, question_ids: Int64[Tensor, " pairs"], sentence_ids: Int64[Tensor, " pairs"]
    ) -> Int32[Tensor, "pairs pieces"]:
        """Weighted coverage of each word piece by the sentence, times 2**30; columns past the question's end are 0.

        Pairs may repeat and come in any order. Sum the columns for the covered share of the question, take maxima
        over sentences first for that of a set.
        """
        num_sentences = self._sentences.num_sentences
        keys, inverse = torch.unique(question_ids * num_sentences + sentence_ids, return_inverse=True)
        return self.coverage_of_keys(keys)[inverse]

    def coverage_of_keys(self, keys: Int64[Tensor, " pairs"]) -> Int32[Tensor, "pairs pieces"]:
        """As `coverage`, for ascending distinct `keys = question * sentences + sentence`."""
        sentences, config = self._sentences, self._config
        if not keys.numel() or not self.width:
            return torch.zeros(keys.numel(), self.width, dtype=torch.int32, device=keys.device)
        question_ids, sentence_ids = keys // sentences.num_sentences, keys % sentences.num_sentences
        if not config.unit_share:
            return self._covered(self._matches(keys), question_ids)
        num_units = len(sentences.unit_offsets) - 1
        unit_keys, unit_rows = torch.unique_consecutive(
            question_ids * num_units + sentences.unit_ids[sentence_ids], return_inverse=True
        )
        siblings, owners = csr_expand(sentences.unit_offsets, unit_keys % num_units)
        all_keys = (unit_keys // num_units)[owners] * sentences.num_sentences + siblings
        matches = self._matches(all_keys)
        counts = torch.bincount(owners, minlength=len(unit_keys))
        bounds = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        best = segment_max(matches, torch.arange(len(all_keys), device=keys.device), bounds)
        of_unit = self._covered(best, unit_keys // num_units)
        shared = (of_unit.double() * config.unit_share).round().to(torch.int32)
        own = self._covered(matches[torch.searchsorted(all_keys, keys)], question_ids)
        return torch.maximum(own, shared[unit_rows])

    def _matches(self, keys: Int64[Tensor, " pairs"]) -> Float32[Tensor, "pairs pieces"]:
        """MaxSim of (question, sentence) pairs; -1 where a sentence has no token."""
        sentences = self._sentences
        question_ids, sentence_ids = keys // sentences.num_sentences, keys % sentences.num_sentences
        if self._dense is None and len(keys) > _ALL_SENTENCES_SHARE * self.num_questions * sentences.num_sentences:
            # Every question's columns, padded to one width, so that a (sentence, question) pair is a row.
            columns = self._offsets[:-1, None] + torch.arange(self.width, device=keys.device)
            columns.clamp_(max=len(self._states) - 1)  # columns past a question's end weigh nothing
            self._dense = self._maxsim(None, None).index_select(1, columns.flatten()).view(-1, self.width)
        if self._dense is not None:
            return self._dense.index_select(0, sentence_ids * self.num_questions + question_ids)
        return self._maxsim(question_ids, sentence_ids)

    def _maxsim(self, question_ids: Tensor | None, sentence_ids: Tensor | None) -> Float32[Tensor, "rows columns"]:
        sentences = self._sentences
        return maxsim(
            sentences.states,
            sentences.ranges,
            self._states,
            self._offsets,
            question_ids=question_ids,
            sentence_ids=sentence_ids,
            token_scale=sentences.scales,
            accumulate=torch.float64,
            empty=-1.0,
        ).float()

    def _covered(
        self, matches: Float32[Tensor, "rows pieces"], question_ids: Int64[Tensor, " rows"]
    ) -> Int32[Tensor, "rows pieces"]:
        config = self._config
        excess = ((matches - config.threshold) / (1 - config.threshold)).clamp_(0, 1)
        covered = (config.linear_share * matches + (1 - config.linear_share) * (excess * excess)).clamp_(min=0)
        return covered.mul_(self.weights[question_ids]).round_().to(torch.int32)


def _weights(states: TokenStates, tokens: TokenIndex, width: int) -> np.ndarray:
    """Rarity of each word piece, summing to 2**30 in each question: float32 [questions, width], 0 past its end."""
    rarity = tokens.piece_weights(states.piece_ids)
    counts = np.diff(states.offsets)
    owners = np.repeat(np.arange(len(counts)), counts)
    out = np.zeros((len(counts), width))
    out[owners, np.arange(len(owners)) - states.offsets[owners]] = rarity
    totals = np.array([out[row, :count].sum() for row, count in enumerate(counts)]).reshape(-1, 1)
    return (out / np.where(totals > 0, totals, 1.0) * UNIT_SCALE).astype(np.float32)


def _words(text: str, spans: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The words of a question, and the number of the word that each of its pieces stands in."""
    bounds = [match.span() for match in _WORD.finditer(text)]
    starts = np.array([start for start, _ in bounds], dtype=np.int64)
    numbers = np.searchsorted(starts, spans[:, 0], side="right") - 1
    return [text[start:end].strip(_EDGES) for start, end in bounds], numbers
