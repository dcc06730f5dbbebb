"""Questions that compare two named things, answered by rule: "A or B, which came first?" and "Are both ...?".

Each thing is tied to the passage whose title it is; where the question goes on through a relation ("the film whose
director was born first"), to the titled passage that the thing's passage names beside that relation's word. The rules
read dates, numbers and shared words; where evidence does not decide, they say what such questions answer most often
in the absence of support: the first thing, and "no".
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kgrag_gpu.answer.text import SENTENCE_BREAK, date_spans, number_spans, stems
from kgrag_gpu.types import Passage

_YES_NO = re.compile(r"^(?:is|are|was|were|do|does|did|has|have|had|can|could|will)\b", re.IGNORECASE)
_EARLY = re.compile(r"\b(?:first|earlier|earliest|older|oldest|elder|before)\b", re.IGNORECASE)
_LATE = re.compile(r"\b(?:later|latest|last|younger|youngest|newer|newest|more recent(?:ly)?|after)\b", re.IGNORECASE)
_MANY = re.compile(
    r"\b(?:more|most|larger|largest|bigger|longer|longest|taller|higher|highest|greater)\b", re.IGNORECASE
)
_DEATH = re.compile(r"\b(?:died|die|death|dies)\b", re.IGNORECASE)
_RELATION = re.compile(
    r"\b(director|producer|composer|performer|author|writer|singer|founder|creator|artist|screenwriter)s?\b",
    re.IGNORECASE,
)
_YEAR = re.compile(r"\b(1\d{3}|20\d{2})\b")
_KIND = re.compile(r"\b(?:is|was|are|were)\s+(?:an?|the|one of the)\s+(.{3,80})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Thing:
    """One side of a comparison: as the question writes it, and the passage about it (None: not retrieved)."""

    name: str
    passage: Passage | None


def compare(question: str, read: Sequence[Passage]) -> str:
    """The answer to a comparison, or "" where the question is not one.

    Args:
        question: its text.
        read: the passages read, best first.
    """
    text = question.strip()
    if _YES_NO.match(text) and not re.search(r"\bor\b", text):
        things = _named_things(text, read)
        return _yes_or_no(text, things, read)
    options = _options(text, read)
    return _choose(text, options, read) if options else ""


def _choose(question: str, options: tuple[_Thing, _Thing], read: Sequence[Passage]) -> str:
    """ "A or B": by year where the question asks for an order in time, by number for more or longer, else by words."""
    first, second = (_follow(question, option, read) for option in options)
    if _EARLY.search(question) or _LATE.search(question):
        values = [_year(question, passage) for passage in (first, second)]
        wants_low = not _LATE.search(question)
    elif _MANY.search(question):
        values = [_largest_number(passage) for passage in (first, second)]
        wants_low = False
    else:
        asked = stems(question)
        values = [float(len(asked & stems(passage.text))) if passage else None for passage in (first, second)]
        wants_low = False
    if values[0] is None or values[1] is None or values[0] == values[1]:
        return options[0].name
    return options[0 if (values[0] < values[1]) == wants_low else 1].name


def _yes_or_no(question: str, things: Sequence[_Thing], read: Sequence[Passage]) -> str:
    """ "no" unless the things' passages agree on what is asked.

    "Same X": some capitalised word (a nationality, a country) of what the first sentences say the things are is
    shared. Otherwise: the question's remaining words stand in both passages.
    """
    followed = [passage for passage in (_follow(question, thing, read) for thing in things[:2]) if passage]
    if len(followed) < 2:
        return "no"
    if re.search(r"\b(?:same|share)\b", question, re.IGNORECASE):
        return "yes" if _places_named(followed[0]) & _places_named(followed[1]) else "no"
    names = stems(" ".join(thing.name for thing in things))
    asked = stems(question) - names
    found = [stems(f"{passage.title} {passage.text}") for passage in followed]
    return "yes" if asked and all(asked <= words for words in found) else "no"


def _places_named(passage: Passage) -> frozenset[str]:
    """Capitalised words of the opening sentences, without the title's own: nationalities, countries, kinds."""
    opening = " ".join(SENTENCE_BREAK.split(passage.text)[:2])
    kind = _KIND.search(opening)
    words = set(re.findall(r"\b[A-Z][a-z]{3,}\b", kind.group(1) if kind else opening))
    words |= set(re.findall(r"\bin (?:[A-Z]\w+, )*([A-Z][a-z]{3,})", opening))
    return frozenset(words) - frozenset(re.findall(r"\w+", passage.title))


def _named_things(question: str, read: Sequence[Passage]) -> list[_Thing]:
    """Passages whose titles the question names, in the question's order; a title inside a longer one is skipped."""
    found: list[tuple[int, int, _Thing]] = []
    lowered = question.lower()
    for passage in read:
        for form in (passage.title, _bare(passage.title)):
            start = lowered.find(form.lower()) if len(form) > 2 else -1
            if start >= 0:
                found.append((start, start + len(form), _Thing(question[start : start + len(form)], passage)))
                break
    found.sort(key=lambda item: (item[0], item[0] - item[1]))
    kept: list[tuple[int, int, _Thing]] = []
    for item in found:
        if not kept or item[0] >= kept[-1][1]:
            kept.append(item)
    return [thing for _, _, thing in kept]


def _options(question: str, read: Sequence[Passage]) -> tuple[_Thing, _Thing] | None:
    """The two sides of "A or B": titles named on both sides of an "or", else the words around the last "or"."""
    places = [found.span() for found in re.finditer(r",?\s+or\s+", question)]
    if not places:
        return None
    things = _named_things(question, read)
    start, end = places[-1]
    left_text = re.split(r"[,:]\s+|\bbetween\s+|^(?:was|is|did|were|are)\s+", question[:start], flags=re.IGNORECASE)[-1]
    right_text = re.split(r"\s+(?:born|died|was|is)\b|\?", question[end:])[0]
    sides = []
    for text, area in ((left_text, question[:start]), (right_text, question[end:])):
        named = [thing for thing in things if thing.name in area]
        close = named[-1:] if area == question[:start] else named[:1]
        whole = [thing for thing in close if area.rstrip(" ?").endswith(thing.name) or area.startswith(thing.name)]
        sides.append(whole[0] if whole else _Thing(text.strip(" ?,"), close[0].passage if close else None))
    if not all(side.name[:1].isupper() or side.name[:1].isdigit() or side.passage for side in sides):
        return None
    return sides[0], sides[1]


def _follow(question: str, thing: _Thing, read: Sequence[Passage]) -> Passage | None:
    """The passage to read a thing's value from: its own, or that of the person whom the question goes on to."""
    relation = _RELATION.search(question)
    if thing.passage is None or relation is None:
        return thing.passage
    cue = relation.group(1).lower()[:6]
    best = None
    for sentence in SENTENCE_BREAK.split(thing.passage.text):
        for passage in read:
            name = _bare(passage.title)
            if passage is not thing.passage and len(name) > 3 and name in sentence:
                if cue in sentence.lower():
                    return passage
                best = best or passage
    return best or thing.passage


def _year(question: str, passage: Passage | None) -> float | None:
    """The year asked for: of death where the question says so, else the first year (birth, release, founding)."""
    if passage is None:
        return None
    years = [int(year) for span in date_spans(passage.text) for year in _YEAR.findall(span.text)]
    if not years:
        in_title = _YEAR.findall(passage.title)
        return float(in_title[0]) if in_title else None
    if _DEATH.search(question):
        return float(years[1]) if len(years) > 1 else float(years[0])
    return float(years[0])


def _largest_number(passage: Passage | None) -> float | None:
    if passage is None:
        return None
    digits = [re.sub(r"[^\d.]", "", span.text).strip(".") for span in number_spans(passage.text)]
    values = [float(text) for text in digits if re.fullmatch(r"\d+(?:\.\d+)?", text)]
    return max(values, default=None)


def _bare(title: str) -> str:
    return re.sub(r"\s*\(.*?\)\s*$", "", title)
