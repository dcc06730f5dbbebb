"""Questions as sheets of segments, and the best split of a question's words over the steps of a path.

The split is a small Viterbi over all (path, reading) pairs at once: `best[k]` is the best sum of likenesses with the
first k words spent; a step takes the words j to k, or none. Sums run in a fixed order over a path's own numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from kgrag_gpu.ranking.answer_types import KIND_OF_QUESTION
from kgrag_gpu.ranking.paths_question import MAX_ORDERED, PathQuestion, segments

MAX_READINGS = 4
WIDTH = MAX_ORDERED + 1
IMPOSSIBLE = -9.0
_BLOCK_CELLS = 4_000_000


@dataclass(frozen=True, eq=False)
class Sheet:
    """The segments of a batch of questions ("agents": a question may stand there once for each of its anchors).

    Attributes:
        phrases: the distinct texts of segments and nouns.
        segment_ids: rows of `phrases` by (agent, reading, first word, last word + 1), -1 where there is no segment.
        bounds: possessives that a segment runs across.
        lengths: words of each reading; 0 where there is no such reading.
        lowest, highest: segments that the question's chunks suggest.
        typed: row of `phrases` that a reading takes for the kind of end asked for, or -1.
        nouns: row of `phrases` with what the end should be, or -1.
        kinds: which of answer_types.KINDS is asked for, or -1.
        is_shared: whether a step and its inverse may be one segment.
    """

    phrases: list[str]
    segment_ids: Int64[Tensor, "agents readings width width"]
    bounds: Int64[Tensor, "agents readings width width"]
    lengths: Int64[Tensor, "agents readings"]
    lowest: Int64[Tensor, "agents readings"]
    highest: Int64[Tensor, "agents readings"]
    typed: Int64[Tensor, "agents readings"]
    nouns: Int64[Tensor, " agents"]
    kinds: Int64[Tensor, " agents"]
    is_shared: Bool[Tensor, " agents"]

    @classmethod
    def of(cls, questions: Sequence[PathQuestion], max_steps: int, device: torch.device) -> "Sheet":
        """Write down the segments of every reading of every question."""
        shape = (len(questions), MAX_READINGS)
        rows: dict[str, int] = {}
        segment_ids = np.full((*shape, WIDTH, WIDTH), -1, np.int64)
        bounds = np.zeros((*shape, WIDTH, WIDTH), np.int64)
        table = np.zeros((4, *shape), np.int64)  # lengths, lowest, highest, typed
        table[3] = -1
        nouns = np.full(len(questions), -1, np.int64)
        for a, question in enumerate(questions):
            if question.noun:
                nouns[a] = rows.setdefault(question.noun, len(rows))
            for v, reading in enumerate(question.readings[:MAX_READINGS]):
                for (i, j), (text, crossed) in segments(question, reading).items():
                    segment_ids[a, v, i, j] = rows.setdefault(text, len(rows))
                    bounds[a, v, i, j] = crossed
                typed = -1 if reading.typed is None else rows.setdefault(reading.typed, len(rows))
                low, high = (min(max_steps, max(1, n)) for n in (reading.min_segments, reading.max_segments))
                table[:, a, v] = (min(len(reading.order), MAX_ORDERED), low, high, typed)
        kinds = np.array([KIND_OF_QUESTION.get(q.asked, -1) for q in questions], np.int64)
        shared = np.array([q.is_shared for q in questions], bool)
        arrays = (segment_ids, bounds, *table, nouns, kinds, shared)
        return cls(list(rows), *(torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in arrays))

    def take(self, agents: Int64[Tensor, " agents"]) -> "Sheet":
        """The sheet of some of the agents, in the order given."""
        columns = (self.segment_ids, self.bounds, self.lengths, self.lowest, self.highest, self.typed, self.nouns)
        kept = [column[agents] for column in (*columns, self.kinds, self.is_shared)]
        return Sheet(self.phrases, *kept)


@dataclass(frozen=True, eq=False)
class Likeness:
    """Likeness of segments to steps; the last row of `table` stands for "no segment"."""

    table: Float64[Tensor, "phrases_plus_1 steps"]
    empty: float
    bound_cost: float


def first_sums(
    sheet: Sheet, like: Likeness, agents: Int64[Tensor, " paths"], steps: Int64[Tensor, " paths"]
) -> Float64[Tensor, "paths readings width"]:
    """`best` after one step."""
    out = torch.empty(len(agents), MAX_READINGS, WIDTH, dtype=torch.float64, device=agents.device)
    for block in _blocks(len(agents), MAX_READINGS * WIDTH):
        out[block] = _segment_scores(sheet, like, agents[block], steps[block])[:, :, 0]
    return out


def next_sums(
    sheet: Sheet,
    like: Likeness,
    agents: Int64[Tensor, " paths"],
    steps: Int64[Tensor, " paths"],
    before: Float64[Tensor, "parents readings width"],
    parents: Int64[Tensor, " paths"],
) -> Float64[Tensor, "paths readings width"]:
    """`best` after one more step."""
    out = torch.empty(len(agents), MAX_READINGS, WIDTH, dtype=torch.float64, device=agents.device)
    for block in _blocks(len(agents), MAX_READINGS * WIDTH * WIDTH):
        scores = _segment_scores(sheet, like, agents[block], steps[block])
        out[block] = (before[parents[block]][:, :, :, None] + scores).amax(dim=2)
    return out


def last_sums(
    sheet: Sheet,
    like: Likeness,
    agents: Int64[Tensor, " paths"],
    steps: Int64[Tensor, " paths"],
    before: Float64[Tensor, "parents readings width"],
    parents: Int64[Tensor, " paths"],
) -> Float64[Tensor, "paths readings"]:
    """The best sum with all words spent after a last step: a column of `next_sums` without the others."""
    out = torch.empty(len(agents), MAX_READINGS, dtype=torch.float64, device=agents.device)
    for block in _blocks(len(agents), MAX_READINGS * WIDTH):
        who = agents[block]
        ends = sheet.lengths[who][:, :, None, None].expand(-1, -1, WIDTH, 1)
        ids = sheet.segment_ids[who].gather(3, ends)[..., 0]
        crossed = sheet.bounds[who].gather(3, ends)[..., 0]
        scores = like.table[ids, steps[block][:, None, None]] - like.bound_cost * crossed
        at_end = torch.arange(WIDTH, device=who.device) == ends[..., 0]
        scores = torch.where(at_end, like.empty, scores)
        out[block] = (before[parents[block]] + scores).amax(dim=2)
    return out


def spent(sheet: Sheet, sums: Float64[Tensor, "paths readings width"], agents: Int64[Tensor, " paths"]) -> Tensor:
    """The best sums with all words spent, [paths, readings]."""
    return sums.gather(2, sheet.lengths[agents][:, :, None])[:, :, 0]


def _segment_scores(sheet: Sheet, like: Likeness, agents: Tensor, steps: Tensor) -> Tensor:
    """[paths, readings, first, last + 1]: likeness of the segment to the path's step; no words at all are `empty`."""
    ids = sheet.segment_ids[agents]
    scores = like.table[ids, steps[:, None, None, None]] - like.bound_cost * sheet.bounds[agents]
    nothing = torch.eye(WIDTH, dtype=torch.bool, device=agents.device)
    return torch.where(nothing, like.empty, scores)


def _blocks(num_rows: int, cells_per_row: int) -> list[slice]:
    size = max(1, _BLOCK_CELLS // cells_per_row)
    return [slice(start, min(num_rows, start + size)) for start in range(0, num_rows, size)]
