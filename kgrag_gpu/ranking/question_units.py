"""What a question asks for, in parts: the whole of it and every run of one to three content words.

A set of sentences answers a question when together they cover its parts. The parts are vectors, so a part is covered
by meaning; rare words weigh more. Coverage is kept in fixed point: sums over parts are then exact, and a score does
not depend on which questions shared a batch.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Float64, Int16, Int32, Int64
from torch import Tensor

from kernels import csr_expand
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.tensors.fixed_point import exact_dot, exact_pair_dot
from kgrag_gpu.words import fold, is_content, split_words

_GATHER_COST = 40  # one product of gathered rows takes the time of so many in a matrix product
_PAIR_BLOCK = 4096
UNIT_SCALE = 2.0**30  # a whole question, fully covered, is this number
_WORD = re.compile(r"\w+(?:['’.&-]\w+)*")


class CoverageScorer(Protocol):
    """What scores evidence: parts of a question against sentences. `coverage_tokens.QuestionTokens` is another one."""

    width: int  # parts of the longest question

    def coverage(
        self, question_ids: Int64[Tensor, " pairs"], sentence_ids: Int64[Tensor, " pairs"]
    ) -> Int32[Tensor, "pairs parts"]:
        """Weighted coverage of each part by the sentence, times 2**30; columns past the question's parts are 0."""
        ...


class UnitConfig(ConfigModel):
    """How a question is cut and how a similarity becomes coverage."""

    window_words: tuple[int, ...] = (1, 2, 3)
    whole_weight: float = 0.15  # of the whole question's vector; the windows share the rest
    linear_share: float = 0.7  # the rest is the squared excess over the threshold
    threshold: float = 0.4


class WordWeights:
    """Inverse passage frequency of folded words, `ln(1 + passages / (1 + df))`; of a text, the sum over its words."""

    def __init__(self, texts: Sequence[str]):
        self._num_texts = len(texts)
        self._frequency = Counter(word for text in texts for word in set(split_words(text)))

    def __call__(self, text: str) -> float:
        return sum(math.log(1 + self._num_texts / (1 + self._frequency.get(w, 0))) for w in split_words(text))

    def __contains__(self, word: str) -> bool:
        """Whether some passage holds the (folded) word."""
        return word in self._frequency


class QuestionUnits:
    """The parts of a batch's questions and how well sentences cover them."""

    def __init__(
        self,
        questions: Sequence[str],
        embed: Callable[[Sequence[str]], np.ndarray],
        weigh: WordWeights,
        sentence_vectors: np.ndarray,
        config: UnitConfig,
        device: torch.device,
    ):
        """`embed` gives int16 fixed-point vectors of texts; `sentence_vectors` is int16 [sentences, dim]."""
        parts = [cut_question(question, weigh, config) for question in questions]
        texts = [text for part in parts for text, _ in part]
        counts = torch.tensor([len(part) for part in parts], dtype=torch.int64)
        self._offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).to(device)
        self._weights = torch.tensor([w for part in parts for _, w in part], dtype=torch.float64, device=device)
        self._vectors = torch.from_numpy(np.array(embed(texts))).to(device)
        self._sentences = sentence_vectors
        self._config = config
        self.width = int(counts.max()) if len(parts) else 0
        self.texts = [[text for text, _ in part] for part in parts]

    def coverage(
        self, question_ids: Int64[Tensor, " pairs"], sentence_ids: Int64[Tensor, " pairs"]
    ) -> Int32[Tensor, "pairs units"]:
        """Weighted coverage of each part of the question by the sentence, times 2**30; columns past its parts are 0."""
        out = torch.zeros(question_ids.numel(), self.width, dtype=torch.int32, device=question_ids.device)
        units, owners = csr_expand(self._offsets, question_ids)
        cosine = pair_cosines(self._vectors, self._sentences, units, sentence_ids[owners])
        c = self._config
        excess = ((cosine - c.threshold) / (1 - c.threshold)).clamp(0, 1)
        covered = (c.linear_share * cosine + (1 - c.linear_share) * (excess * excess)) * self._weights[units]
        out[owners, units - self._offsets[question_ids][owners]] = (covered * UNIT_SCALE).round().to(torch.int32)
        return out


class CoverTable:
    """Coverage rows of the (question, sentence) pairs of one batch, computed once each."""

    def __init__(self, scorer: CoverageScorer, num_sentences: int, device: torch.device):
        self._scorer = scorer
        self._num_sentences = max(1, num_sentences)
        self._keys = torch.zeros(0, dtype=torch.int64, device=device)
        self._places = self._keys
        self._table = torch.zeros(0, scorer.width, dtype=torch.int32, device=device)

    def __call__(
        self, question_ids: Int64[Tensor, "..."], sentence_ids: Int64[Tensor, "..."]
    ) -> Int32[Tensor, "... parts"]:
        """Coverage of each part of the question, times 2**30; zeros where the sentence is -1."""
        is_there = sentence_ids >= 0
        keys = question_ids * self._num_sentences + sentence_ids.clamp(min=0)
        distinct, inverse = torch.unique(keys[is_there], return_inverse=True)
        new = distinct[~torch.isin(distinct, self._keys)]
        if new.numel():
            covered = self._scorer.coverage(new // self._num_sentences, new % self._num_sentences)
            places = torch.arange(new.numel(), device=new.device) + len(self._table)
            self._keys, order = torch.sort(torch.cat([self._keys, new]))
            self._places = torch.cat([self._places, places])[order]
            self._table = torch.cat([self._table, covered])
        out = self._table.new_zeros(*sentence_ids.shape, self._scorer.width)
        out[is_there] = self._table[self._places[torch.searchsorted(self._keys, distinct)][inverse]]
        return out


def pair_cosines(
    left: Int16[Tensor, "left dim"],
    right: np.ndarray,
    left_ids: Int64[Tensor, " pairs"],
    right_ids: Int64[Tensor, " pairs"],
) -> Float64[Tensor, " pairs"]:
    """Exact products of stored vectors, by one matrix product or pair by pair, whichever is less work.

    Args:
        left: vectors of the batch.
        right: int16 [rows, dim], possibly a memory map; only the rows named are read.
        left_ids, right_ids: the pairs.
    """
    distinct, rows = torch.unique(right_ids, return_inverse=True)
    gathered = torch.from_numpy(np.ascontiguousarray(right[distinct.cpu().numpy()])).to(left.device)
    if len(left) * len(gathered) <= _GATHER_COST * left_ids.numel():
        return exact_dot(left, gathered)[left_ids, rows]
    blocks = torch.arange(left_ids.numel(), device=left.device).split(_PAIR_BLOCK)
    products = [exact_pair_dot(left[left_ids[block]], gathered[rows[block]]) for block in blocks]
    return torch.cat(products) if products else torch.zeros(0, dtype=torch.float64, device=left.device)


def cut_question(question: str, weigh: WordWeights, config: UnitConfig) -> list[tuple[str, float]]:
    """The parts of a question with weights that sum to 1: the whole, then the windows of each width in order.

    A window runs over content words and keeps the words between them as written. Windows of one width share that
    width's weight by the rarity of their words. A width that the question is too short for gives its weight back.
    """
    spans = [match.span() for match in _WORD.finditer(question)]
    content = [span for span in spans if is_content(fold(question[slice(*span)]))]
    groups: list[list[tuple[str, float]]] = []
    for width in config.window_words:
        if len(content) <= width:
            continue
        runs = [content[i : i + width] for i in range(len(content) - width + 1)]
        rarity = [sum(weigh(question[slice(*span)]) for span in run) for run in runs]
        total = math.fsum(rarity)
        groups.append([(question[r[0][0] : r[-1][1]], w / total) for r, w in zip(runs, rarity, strict=True)])
    if not groups:
        return [(question, 1.0)]
    share = (1 - config.whole_weight) / len(groups)
    return [(question, config.whole_weight), *((text, share * w) for group in groups for text, w in group)]
