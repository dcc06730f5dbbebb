"""Names of which a question says only some words: "hitler" for Adolf Hitler, "john nash" for John Forbes Nash, Jr.

Knows positions and costs, no texts.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class SaidWord(NamedTuple):
    """A question's word that may be a name's word: its place, the word's row, misspellings, and what it is worth."""

    place: int
    row: int
    edits: int
    worth: float


class NamePart(NamedTuple):
    """The window of a question that says part of a name."""

    score: float
    start: int
    end: int
    edits: int


def best_part(
    name_words: Sequence[int],
    said: Mapping[int, Sequence[SaidWord]],
    missing_costs: Sequence[float],
    gap_cost: float,
) -> NamePart | None:
    """The window that says the name best, None where it says nothing of it or all of it.

    A window's score is the worth of the name's words in it, each counted once, less the cost of the words left out and
    of other words in between. Equal scores: the first and shortest window.

    Args:
        name_words: rows of the name's distinct words.
        said: the question's words by row.
        missing_costs: by row.
        gap_cost: for each other word inside the window.
    """
    hits = sorted(hit for row in name_words for hit in said.get(row, ()))
    if not any(hit.worth > 0 for hit in hits) or all(row in said for row in name_words):
        return None
    total_missing = sum(missing_costs[row] for row in name_words)
    best: NamePart | None = None
    for first in range(len(hits)):
        worth: dict[int, SaidWord] = {}
        places: set[int] = set()
        for hit in hits[first:]:
            if hit.place - hits[first].place > len(name_words):
                break
            held = worth.get(hit.row)
            if held is None or hit.worth > held.worth:
                worth[hit.row] = hit
            places.add(hit.place)
            start, end = hits[first].place, hit.place + 1
            gaps = (end - start - len(places)) * gap_cost
            score = sum(h.worth + missing_costs[h.row] for h in worth.values()) - total_missing - gaps
            if best is None or score > best.score:
                best = NamePart(score, start, end, sum(h.edits for h in worth.values()))
    return best
