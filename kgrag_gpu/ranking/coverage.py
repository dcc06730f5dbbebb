"""Connected coverage: ranks passages by the best connected set of sentences that covers a question's words together.

Single-question form: each word piece of the question is covered by a sentence as far as its best match there goes
(coverage_tokens.py). Sentences that share an entity are neighbours (index/sentence_graph.py). A set of one to four
connected sentences is worth what it covers together, and small terms for how it is linked; a passage scores the most
that it earns in any set (coverage_sets.py). Step by step: methods/cover.md.

`ConnectedCoverage.rank` takes the seeds from outside: all units (the exact form), the dense top and the named ones (the
pruned form), or what another method has found (`anchorrag-lr`). A pair is looked at where it touches a seed.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.index.encoder import Encoder, TokenStates
from kgrag_gpu.index.fuse import Ranking, top_ranking
from kgrag_gpu.index.sentence_graph import Named, SentenceGraph
from kgrag_gpu.index.tokens import TokenIndex
from kgrag_gpu.ranking.coverage_paths import CoveredSet, PathsConfig, covered_sets
from kgrag_gpu.ranking.coverage_sets import GraphTensors, SetsConfig, SetSearch
from kgrag_gpu.ranking.coverage_tokens import QuestionTokens, SentenceTokens, TokenCoverageConfig

_MAX_PAIRS = 500_000  # pairs in flight; more and the questions are split
_MAX_CELLS = 64_000_000  # (question, sentence) cells in flight


class CoverageConfig(ConfigModel):
    """All constants of connected coverage."""

    tokens: TokenCoverageConfig = TokenCoverageConfig()
    sets: SetsConfig = SetsConfig()
    paths: PathsConfig = PathsConfig()


class CoverageResult(NamedTuple):
    """One question's outcome: units that any set touched, best first, and the sets behind the first of them."""

    ranking: Ranking
    sets: list[CoveredSet]
    named: np.ndarray  # int64, units that the question names, surest first
    num_named_dropped: int


class ConnectedCoverage:
    """Scores batches of questions against one set of units.

    Attributes:
        graph: sentences and their neighbours; `graph.unit_ids` gives each sentence its unit.
    """

    def __init__(
        self,
        tokens: TokenIndex,
        graph: SentenceGraph,
        title_chars: np.ndarray,
        config: CoverageConfig,
        device: torch.device,
    ):
        """`title_chars` int64 [units]: length of the title that a unit's encoded text "title. text" starts with."""
        self.graph = graph
        self.tokens = tokens
        self._config = config
        self._tensors = GraphTensors(graph, device)
        self._sentences = SentenceTokens(tokens, graph, title_chars, device)
        self._unit_degrees = np.diff(graph.offsets[graph.unit_offsets])

    def question_tokens(self, texts: Sequence[str], encoder: Encoder) -> QuestionTokens:
        """The questions' word pieces; its `coverage(question_ids, sentence_ids)` is the evidence scorer of a step."""
        return QuestionTokens(texts, encoder.token_states(texts), self._sentences, self._config.tokens)

    def rank(
        self,
        texts: Sequence[str],
        states: TokenStates,
        seeds: Sequence[np.ndarray] | None = None,
        num_ranked: int | None = None,
        near: Sequence[np.ndarray] | None = None,
    ) -> list[CoverageResult]:
        """Ranks units for each question.

        Args:
            texts: the questions.
            states: their token states, `encoder.token_states(texts)`.
            seeds: for each question, the units whose sentences are scored, with their neighbours; the units that the
                question names are added. None: all units, the exact form.
            num_ranked: units kept in each ranking; None: all that a set touched.
            near: for each question, the units that may join a set as neighbours, beside the seeds; None: all. What
                bounds the work on a corpus whose entities each stand in many units.

        Returns:
            For each question its result. Units that no set touched are not ranked. A question's result does not depend
            on the others in the batch.
        """
        named = self.graph.names.find(texts)
        seed_rows = [self._seeds(named, question, seeds) for question in range(len(texts))]
        out: list[CoverageResult] = []
        for start, stop in self._parts(seed_rows):
            out += self._rank_part(texts[start:stop], _cut_states(states, start, stop), _cut_named(named, start, stop),
                                   seed_rows[start:stop], num_ranked,
                                   None if near is None else near[start:stop])  # fmt: skip
        return out

    def _seeds(self, named: Named, question: int, seeds: Sequence[np.ndarray] | None) -> np.ndarray:
        if seeds is None:
            return np.arange(self.graph.num_units)
        return np.union1d(seeds[question], named.unit_ids[named.unit_questions == question])

    def _parts(self, seed_rows: list[np.ndarray]) -> Iterator[tuple[int, int]]:
        """Runs of questions whose pairs and cells fit; one that alone has more still runs, alone."""
        start, pairs = 0, 0
        for question, rows in enumerate(seed_rows):
            new = int(self._unit_degrees[rows].sum())
            cells = (question + 1 - start) * max(self.graph.num_sentences, self.graph.num_units)
            if question > start and (pairs + new > _MAX_PAIRS or cells > _MAX_CELLS):
                yield start, question
                start, pairs = question, 0
            pairs += new
        if start < len(seed_rows):
            yield start, len(seed_rows)

    def _rank_part(
        self,
        texts: Sequence[str],
        states: TokenStates,
        named: Named,
        seeds: list[np.ndarray],
        num_ranked: int | None,
        near: Sequence[np.ndarray] | None,
    ) -> list[CoverageResult]:
        num_units = self.graph.num_units
        questions = QuestionTokens(texts, states, self._sentences, self._config.tokens)
        search = SetSearch(self._tensors, questions, named, self._config.sets)
        is_seed = self._mask(seeds)
        search.run(is_seed, None if near is None else self._mask(near) | is_seed)
        scores = search.best.view(len(texts), num_units).cpu().numpy()
        kept = num_units if num_ranked is None else num_ranked
        rankings = [top_ranking(row, kept) for row in scores]
        sets = covered_sets(search, questions, [r.rows for r in rankings], num_units, self._config.paths)
        return [
            CoverageResult(ranking, found, named.unit_ids[named.unit_questions == question], int(dropped))
            for question, (ranking, found, dropped) in enumerate(zip(rankings, sets, named.num_dropped, strict=True))
        ]

    def _mask(self, rows: Sequence[np.ndarray]) -> Bool[Tensor, "questions units"]:
        mask = torch.zeros(len(rows), self.graph.num_units, dtype=torch.bool)
        for question, units in enumerate(rows):
            mask[question, torch.from_numpy(units)] = True
        return mask.to(self._tensors.device)


def _cut_states(states: TokenStates, start: int, stop: int) -> TokenStates:
    first, last = int(states.offsets[start]), int(states.offsets[stop])
    tokens = slice(first, last)
    offsets = states.offsets[start : stop + 1] - first
    return TokenStates(
        states.vectors[start:stop], states.states[tokens], offsets, states.piece_ids[tokens], states.spans[tokens]
    )


def _cut_named(named: Named, start: int, stop: int) -> Named:
    entities = (named.entity_questions >= start) & (named.entity_questions < stop)
    units = (named.unit_questions >= start) & (named.unit_questions < stop)
    return Named(
        named.entity_questions[entities] - start,
        named.entity_ids[entities],
        named.entity_weights[entities],
        named.unit_questions[units] - start,
        named.unit_ids[units],
        named.unit_weights[units],
        named.unit_spellings[units],
        named.num_dropped[start:stop],
    )
