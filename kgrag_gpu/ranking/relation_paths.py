"""Whole relation paths scored against questions, the anchor's mention left out and the number of steps not given.

Single question: the path's steps are laid in order over the question's words, read from the anchor outward
(paths_question.py); the score is the best mean likeness of a step to its words over all ways to split them
(paths_align.py), less a cost where the number of segments differs from the number of the question's chunks; plus how
well the path's end is what the question asks for (answer_types.py), plus how often the graph goes on that way.

Batch: all (question, anchor, path) triples of a length in one go. `PathBeam.add` takes a level of paths, scores it, and
says which of them to go on from.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from kernels import segment_topk
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.ranking.answer_types import EndTypes
from kgrag_gpu.ranking.paths_align import (
    IMPOSSIBLE,
    Likeness,
    Sheet,
    first_sums,
    last_sums,
    next_sums,
    spent,
)
from kgrag_gpu.ranking.paths_lexical import RelationSpelling
from kgrag_gpu.tensors.fixed_point import exact_dot


class PathWeights(ConfigModel):
    """The score's parts. Set on PathQuestion and MetaQA, clean and misspelt; flat around these values."""

    spelling_weight: float = 0.3  # of shared letters, beside the cosine of a segment and a step
    centrality_cost: float = 0.3  # for a step whose text is near to all steps' texts
    empty: float = 0.1  # likeness of a step that is given no words
    bound_cost: float = 0.3  # for each "of" or possessive inside a segment
    chunk_cost: float = 0.08  # for each segment more or fewer than the question has chunks
    typed_level: float = 0.65  # likeness of a noun to the kind of end it fits best
    typed_weight: float = 1.0
    noun_weight: float = 0.6  # of what the end should be
    noun_spelling_weight: float = 0.2
    name_share: float = 0.5  # of the ends' names, the rest being their profile
    name_limit: float = 0.2  # names speak against a kind more surely than for it
    kind_weight: float = 0.25  # of who, where and when
    back_cost: float = 0.03  # for going back by the relation just taken, unless words like "same" ask for it
    follow_weight: float = 0.05  # of log10 of the share of ends that go on by the next step
    max_paths: int = 256  # paths of an anchor that are gone on from at each length


@dataclass(frozen=True, eq=False)
class StepTexts:
    """The wording of steps: text t belongs to step `steps[t]`; steps ascend."""

    texts: list[str]
    steps: Int64[Tensor, " texts"]
    vectors: Tensor  # int16 [texts, dim]

    @classmethod
    def of(
        cls,
        relation_texts: Sequence[str],
        step_of: Sequence[int],
        encode: Callable[[Sequence[str]], np.ndarray],
        device: torch.device,
    ) -> "StepTexts":
        """A step is worded by its forward relations; one that is only walked backward, by the relations walked so.

        Args:
            relation_texts: readable, folded words by relation.
            step_of: the step of each directed relation (2 * relation + is_inverse).
        """
        worded: dict[int, dict[str, None]] = {}
        for is_inverse in (0, 1):
            covered = set(worded)
            for relation, text in enumerate(relation_texts):
                step = int(step_of[2 * relation + is_inverse])
                if step not in covered:
                    worded.setdefault(step, {})[text] = None
        pairs = [(step, text) for step in sorted(worded) for text in worded[step]]
        texts = [text for _, text in pairs]
        steps = torch.tensor([step for step, _ in pairs], dtype=torch.int64, device=device)
        return cls(texts, steps, torch.from_numpy(np.array(encode(texts))).to(device))

    def first_rows(self) -> Int64[Tensor, " steps"]:
        """The row of each step's first text."""
        is_first = torch.ones_like(self.steps, dtype=torch.bool)
        is_first[1:] = self.steps[1:] != self.steps[:-1]
        return is_first.nonzero().flatten()

    def best_by_step(self, scores: Float64[Tensor, "rows texts"], num_steps: int) -> Float64[Tensor, "rows steps"]:
        """The best of each step's texts."""
        out = torch.full((scores.shape[0], num_steps), -torch.inf, dtype=scores.dtype, device=scores.device)
        first = self.first_rows()
        counts = torch.bincount(self.steps, minlength=num_steps)[self.steps[first]]
        for nth in range(int(counts.max()) if len(counts) else 0):  # nearly all steps have one text
            rows = first[counts > nth] + nth
            steps = self.steps[rows]
            out[:, steps] = torch.maximum(out[:, steps], scores[:, rows])
        return out


@dataclass(frozen=True, eq=False)
class PathTables:
    """How each phrase of a batch's sheet fits each step of the graph."""

    like: Likeness
    noun_scores: Float64[Tensor, "phrases steps"]
    typed_scores: Float64[Tensor, "phrases steps"]


@dataclass(frozen=True, eq=False)
class PathScorer:
    """What the scores need to know of a graph; built once."""

    texts: StepTexts
    ends: EndTypes
    inverse: Int64[Tensor, " steps"]
    is_backward: Bool[Tensor, " steps"]
    spelling: RelationSpelling
    weights: PathWeights = field(default_factory=PathWeights)

    @property
    def num_steps(self) -> int:
        """Distinct steps."""
        return self.inverse.numel()

    def tables(self, phrases: Sequence[str], vectors: Tensor) -> PathTables:
        """Likeness tables of the phrases (`vectors` int16 [phrases, dim])."""
        w = self.weights
        cosines = self.texts.best_by_step(exact_dot(vectors, self.texts.vectors), self.num_steps)
        letters = torch.from_numpy(self.spelling.likeness(phrases)).to(cosines.device)
        letters = self.texts.best_by_step(letters, self.num_steps)
        segments = cosines + w.spelling_weight * letters - w.centrality_cost * self.centrality
        nothing = torch.full((1, self.num_steps), IMPOSSIBLE, dtype=torch.float64, device=cosines.device)
        forward_letters = w.noun_spelling_weight * torch.where(self.is_backward, 0.0, letters)
        profiles = self.ends.profile_cosines(vectors)
        names = self.ends.name_cosines(vectors).clamp(max=w.name_limit)
        centred = profiles - profiles.sum(1, keepdim=True) / self.num_steps  # exact sums: any batch gives the same
        nouns = (1 - w.name_share) * centred + w.name_share * names + forward_letters
        own = torch.where(self.is_backward, -1.0, cosines)  # "which gender is" asks for a gender, not for who has one
        kinds = torch.maximum(profiles, own) + forward_letters
        typed = w.typed_level + w.typed_weight * (kinds - kinds.amax(1, keepdim=True))
        return PathTables(Likeness(torch.cat([segments, nothing]), w.empty, w.bound_cost), nouns, typed)

    @cached_property
    def centrality(self) -> Float64[Tensor, " steps"]:
        """How near a step's texts are to all steps' texts on average, over or under the average step."""
        sums = exact_dot(self.texts.vectors, self.texts.vectors).sum(1)
        total = torch.zeros(self.num_steps, dtype=torch.float64, device=sums.device)
        total.index_add_(0, self.texts.steps, sums)
        counts = torch.bincount(self.texts.steps, minlength=self.num_steps) * len(self.texts.texts)
        means = total / counts.clamp(min=1)
        return means - means.mean()


@dataclass(frozen=True, eq=False)
class ScoredPaths:
    """Paths with scores, by agent, then length, then (parent, step); `steps` are padded with -1."""

    agents: Int64[Tensor, " paths"]
    steps: Int64[Tensor, "paths depth"]
    scores: Float64[Tensor, " paths"]


@dataclass(eq=False)
class _Level:
    agents: Tensor
    steps: Tensor  # [paths, length]
    sums: Tensor | None  # [paths, readings, width]; None at the last level
    joined: Tensor | None  # the same with one (step, inverse) pair as one segment
    backs: Tensor
    follows: Tensor

    def rows(self, rows: Tensor) -> "_Level":
        picked = [None if t is None else t[rows] for t in (self.agents, self.steps, self.sums, self.joined)]
        return _Level(*picked, self.backs[rows], self.follows[rows])  # type: ignore[arg-type]


class PathBeam:
    """Scores levels of growing paths."""

    def __init__(
        self, scorer: PathScorer, sheet: Sheet, tables: PathTables, max_steps: int, max_paths: int | None = None
    ):
        """`max_paths` takes the place of the weights' own limit."""
        self._scorer = scorer
        self._sheet = sheet
        self._tables = tables
        self._max_steps = max_steps
        self._max_paths = max_paths or scorer.weights.max_paths
        self._last: _Level | None = None
        self._done: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, parents: Int64[Tensor, " paths"], steps: Int64[Tensor, " paths"]) -> Int64[Tensor, " kept"]:
        """Score paths one step longer than before.

        Args:
            parents: agents at the first call, then positions among the rows kept last time.
            steps: the step that each path adds.

        Returns:
            Rows of the input (ascending) worth going on from; empty at the last length.
        """
        before = self._last
        depth = 1 if before is None else before.steps.shape[1] + 1
        is_last = depth == self._max_steps
        level, ways = self._grow(before, parents, steps, is_last)
        scores = torch.stack([self._finish(level, sums, count) for sums, count in ways]).amax(0)
        self._done.append((level.agents, level.steps, scores + self._end_scores(level)))
        if is_last:
            return steps.new_zeros(0)
        kept = self._promising(level)
        self._last = level.rows(kept)
        return kept

    def scored(self) -> ScoredPaths:
        """All paths of all lengths."""
        agents = torch.cat([agents for agents, _, _ in self._done])
        scores = torch.cat([scores for _, _, scores in self._done])
        padded = [
            torch.nn.functional.pad(steps, (0, self._max_steps - steps.shape[1]), value=-1)
            for _, steps, _ in self._done
        ]
        order = torch.argsort(agents, stable=True)
        return ScoredPaths(agents[order], torch.cat(padded)[order], scores[order])

    def _grow(
        self, before: _Level | None, parents: Tensor, steps: Tensor, is_last: bool
    ) -> tuple[_Level, list[tuple[Tensor, int]]]:
        """The new level, and sums with all words spent, [paths, readings], with their numbers of segments."""
        sheet, like, scorer = self._sheet, self._tables.like, self._scorer
        if before is None:
            none = torch.zeros(len(steps), dtype=torch.float64, device=steps.device)
            sums = first_sums(sheet, like, parents, steps)
            level = _Level(parents, steps[:, None], sums, torch.full_like(sums, IMPOSSIBLE), none, none)
            return level, [(spent(sheet, sums, parents), 1)]
        depth = before.steps.shape[1] + 1
        agents, last = before.agents[parents], before.steps[parents, -1]
        turns = steps == scorer.inverse[last]
        joins = (turns & sheet.is_shared[agents])[:, None]
        shared = sheet.is_shared[agents].nonzero().flatten()  # only these may take two steps as one segment
        assert before.sums is not None and before.joined is not None  # only the last level is without
        backs = before.backs[parents] + (turns & (scorer.inverse[steps] != steps)).double()
        follows = before.follows[parents] + scorer.ends.follower_logs(last, steps)
        path = torch.cat([before.steps[parents], steps[:, None]], 1)
        if is_last:
            level = _Level(agents, path, None, None, backs, follows)
            whole = last_sums(sheet, like, agents, steps, before.sums, parents)
            carried = torch.full_like(whole, IMPOSSIBLE)
            carried[shared] = last_sums(sheet, like, agents[shared], steps[shared], before.joined, parents[shared])
            fresh = torch.where(joins, spent(sheet, before.sums[parents], agents), IMPOSSIBLE)
            return level, [(whole, depth), (torch.maximum(carried, fresh), depth - 1)]
        sums = next_sums(sheet, like, agents, steps, before.sums, parents)
        carried = torch.full_like(sums, IMPOSSIBLE)
        carried[shared] = next_sums(sheet, like, agents[shared], steps[shared], before.joined, parents[shared])
        joined = torch.maximum(carried, torch.where(joins[:, :, None], before.sums[parents], IMPOSSIBLE))
        level = _Level(agents, path, sums, joined, backs, follows)
        return level, [(spent(sheet, sums, agents), depth), (spent(sheet, joined, agents), depth - 1)]

    def _finish(self, level: _Level, sums: Tensor, count: int) -> Float64[Tensor, " paths"]:
        """The best reading's mean likeness, less what its number of segments costs."""
        sheet, w = self._sheet, self._scorer.weights
        agents, last = level.agents, level.steps[:, -1]
        typed = sheet.typed[agents]
        kind = torch.where(typed >= 0, self._typed(typed, last), 0.0)
        means = (sums + kind) / (count + (typed >= 0))
        missing = (sheet.lowest[agents] - count).clamp(min=0) + (count - sheet.highest[agents]).clamp(min=0)
        scores = means - w.chunk_cost * missing
        return torch.where(sheet.lengths[agents] > 0, scores, IMPOSSIBLE).amax(1)

    def _typed(self, phrases: Tensor, last: Tensor) -> Tensor:
        scores = self._tables.typed_scores
        return scores[phrases.clamp(min=0), last[:, None]] if len(scores) else torch.zeros_like(phrases).double()

    def _end_scores(self, level: _Level) -> Float64[Tensor, " paths"]:
        """How well the end is what is asked for, and how usual the path is."""
        sheet, w, last = self._sheet, self._scorer.weights, level.steps[:, -1]
        nouns, kinds = sheet.nouns[level.agents], sheet.kinds[level.agents]
        noun_scores = self._tables.noun_scores
        by_noun = noun_scores[nouns.clamp(min=0), last] if len(noun_scores) else torch.zeros_like(level.follows)
        by_kind = self._scorer.ends.kinds[last, kinds.clamp(min=0)]
        backs = torch.where(sheet.is_shared[level.agents], 0.0, level.backs)
        return (
            w.noun_weight * torch.where(nouns >= 0, by_noun, 0.0)
            + w.kind_weight * torch.where(kinds >= 0, by_kind, 0.0)
            - w.back_cost * backs
            + w.follow_weight * level.follows
        )

    def _promising(self, level: _Level) -> Int64[Tensor, " kept"]:
        """At most `max_paths` of each agent, by the best mean likeness over any beginning of the words."""
        limit = self._max_paths
        counts = torch.bincount(level.agents, minlength=len(self._sheet.is_shared))
        if not counts.numel() or int(counts.max()) <= limit:
            return torch.arange(len(level.agents), device=level.agents.device)
        assert level.sums is not None
        real = (self._sheet.lengths[level.agents] > 0)[:, :, None]
        prefix = torch.where(real, level.sums, IMPOSSIBLE).amax((1, 2)) / level.steps.shape[1]
        prefix = prefix + self._scorer.weights.follow_weight * level.follows
        order = torch.argsort(level.agents, stable=True)
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        best = segment_topk(prefix[order], offsets, limit).indices
        return order[best[best >= 0]].sort().values
