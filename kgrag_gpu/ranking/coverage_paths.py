"""Connected coverage shown to people: the winning sets as evidence paths, with the words that each sentence covered."""

from typing import Annotated, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.ranking.coverage_sets import JOIN, Sets, SetSearch, winners
from kgrag_gpu.ranking.coverage_tokens import UNIT_SCALE, QuestionTokens

_FIXED = 1.0 / UNIT_SCALE


class PathsConfig(ConfigModel):
    """What of the winning sets is shown."""

    num_paths: Annotated[int, Field(ge=0)] = 10  # distinct sets for each question
    covered_from: Annotated[float, Field(ge=0, le=1)] = 0.45  # a word counts as covered from this coverage on


class CoveredSet(NamedTuple):
    """One winning set in plain values, its sentences in the order of the chain as far as the question tells it."""

    sentence_ids: tuple[int, ...]
    link_entities: tuple[int, ...]  # `JOIN` where no entity links
    worth: float
    words: tuple[tuple[str, int], ...]  # of the question, in order, with the member that covers each best; -1: none

    @property
    def covered(self) -> list[list[str]]:
        """For each member the words that it covers best."""
        return [[word for word, by in self.words if by == member] for member in range(len(self.sentence_ids))]

    @property
    def missed(self) -> list[str]:
        """The words that no member covers."""
        return [word for word, by in self.words if by < 0]


def covered_sets(
    search: SetSearch, questions: QuestionTokens, ranked_units: list[np.ndarray], num_units: int, config: PathsConfig
) -> list[list[CoveredSet]]:
    """The sets that gave the best-ranked units their scores, for each question, highest worth first.

    Args:
        search: has run.
        questions: of the same batch.
        ranked_units: unit rows of each question, best first.
        num_units: rows of the unit table.
        config: how many sets and from which coverage on a word is covered.
    """
    shown = [units[: config.num_paths] for units in ranked_units]
    keys = np.concatenate([question * num_units + units for question, units in enumerate(shown)] or [np.zeros(0)])
    found: dict[int, tuple[int, int]] = {}
    levels = []
    for number, (sets, rows, unit_keys) in enumerate(winners(search, torch.from_numpy(keys.astype(np.int64)))):
        levels.append(sets)
        for row, key in zip(rows.tolist(), unit_keys.tolist(), strict=True):
            found.setdefault(key, (number, row))
    out: list[list[CoveredSet]] = []
    for question, units in enumerate(shown):
        chosen = dict.fromkeys(found[key] for key in (question * num_units + units).tolist() if key in found)
        sets = [_covered_set(search, questions, levels[number], row, config) for number, row in chosen]
        distinct = {frozenset(s.sentence_ids): s for s in sorted(sets, key=lambda s: s.worth)}
        out.append(sorted(distinct.values(), key=lambda s: (-s.worth, s.sentence_ids)))
    return out


def _reading_order(search: SetSearch, question: int, members: Tensor) -> Tensor:
    """The first two members in the order of the question's chain.

    First comes the one that the question names, or else the one that covers more: an answer stands where the question's
    own words end. Links stay as they are: the first connects the two either way.
    """
    if len(members) < 2:
        return members
    pair = members[:2]
    names = search.name_scores(question, pair).tolist()
    alone = search.coverage.alone[search.coverage.places(torch.full_like(pair, question), pair)].tolist()
    swap = (names[1], alone[1]) > (names[0], alone[0])
    return torch.cat([pair.flip(0) if swap else pair, members[2:]])


def _covered_set(search: SetSearch, questions: QuestionTokens, sets: Sets, row: int, config: PathsConfig) -> CoveredSet:
    question = int(sets.question_ids[row])
    members = _reading_order(search, question, sets.members[row])
    places = search.coverage.places(sets.question_ids[row].expand(len(members)), members)
    words, numbers = questions.words[question]
    rows = search.coverage.rows[places][:, : len(numbers)].cpu().numpy() * _FIXED
    weights = questions.weights[question, : len(numbers)].cpu().numpy() * _FIXED
    by_word = np.zeros((len(rows), len(words)))
    for member, values in enumerate(rows):
        np.add.at(by_word[member], numbers, values)
    total = np.bincount(numbers, weights=weights, minlength=len(words))
    share = np.divide(by_word, total, out=np.zeros_like(by_word), where=total > 0)
    best = share.argmax(axis=0) if len(words) else np.zeros(0, np.int64)
    is_covered = share.max(axis=0, initial=0.0) >= config.covered_from
    return CoveredSet(
        sentence_ids=tuple(members.tolist()),
        link_entities=tuple(sets.links[row].tolist()),
        worth=float(sets.worth[row]),
        words=tuple((word, int(best[i]) if is_covered[i] else -1) for i, word in enumerate(words) if word),
    )


__all__ = ["JOIN", "CoveredSet", "PathsConfig", "covered_sets"]
