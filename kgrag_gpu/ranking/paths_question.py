"""A question's words around one anchor, in the order in which a path would pass them.

"Who are the actors of films by the director of X" is read from the anchor outward: director, films, actors. The
content words left of the anchor are taken backward, those to its right forward; which side comes first is said by a
possessive ("X's father") and otherwise left open. Consecutive words form segments; a path of h steps cuts the words
into h segments. Knows grammar (kgrag_gpu/words.py), not topics.
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

from kgrag_gpu.words import ARTICLES, CLASSIFIER_WORDS, QUESTION_WORDS, SHARED_WORDS, is_content

MAX_ORDERED = 9  # words beyond are left out
MAX_SEGMENT = 6  # words of a segment, but for the one that holds all
_MAX_PHRASE = 6
_GRAND = "grand"  # "grandson" is the son's son: the one prefix by which English doubles a relation


@dataclass(frozen=True, slots=True)
class Reading:
    """One order of a question's words, with the number of segments that its chunks suggest.

    `typed` holds the noun of "which films ..." where this reading takes it for the kind of thing asked for, and no
    segment.
    """

    order: tuple[int, ...]
    min_segments: int
    max_segments: int
    typed: str | None = None


@dataclass(frozen=True, slots=True)
class PathQuestion:
    """What a path has to explain.

    Attributes:
        words: all words; the anchor's are `start` to `end`.
        phrases: for each word the number of the relation phrase ("place of birth") that it belongs to, or -1.
        readings: the orders to try.
        asked: the question word, "" where there is none.
        noun: the word or words nearest to the question word, else farthest from the anchor: what the end should be.
        is_shared: whether words like "same" or "also" say that two things have something in common.
    """

    words: tuple[str, ...]
    start: int
    end: int
    phrases: tuple[int, ...]
    readings: tuple[Reading, ...]
    asked: str
    noun: str
    is_shared: bool


def read_question(
    words: Sequence[str], start: int, end: int, relation_phrases: Set[str], is_word: Callable[[str], bool]
) -> PathQuestion:
    """Orders the words around the anchor `words[start:end]`.

    Args:
        words: folded words, spelling corrected.
        relation_phrases: relation texts of several words; a question that holds one keeps it whole.
        is_word: whether a word is known, for "grandson" (son) and not for "grandiose".
    """
    words, doubled = _split_grand(words, start, end, is_word)
    phrases = _phrases(words, start, end, relation_phrases)
    content = [
        (is_content(w) or phrases[i] >= 0) and not start <= i < end and not _announces(words, i)
        for i, w in enumerate(words)
    ]
    right = [i for i in range(end, len(words)) if content[i]]
    left = [i for i in range(start - 1, -1, -1) if content[i]]
    if left and left[0] == start - 1 and start >= 2 and words[start - 2] in ARTICLES and phrases[start - 1] < 0:
        left = left[1:]  # an apposition: "the film X"
    used = set(left) | set(right)
    num_chunks = _num_chunks(words, used, phrases) + len(doubled & used)
    orders = _orders(words, left, right, end, doubled)
    asked, noun, noun_words = _asked(words, start, end, used, phrases)
    if not noun and asked in ("", "what", "which") and orders[0]:
        noun = _farthest_chunk(words, orders[0], phrases)
    extra = 1 if asked in ("where", "when") else 0  # "where was X's son born" asks one step more than its chunks
    readings = [Reading(tuple(order), num_chunks, num_chunks + extra) for order in orders]
    if noun_words:
        without = [[i for i in order if i not in noun_words] for order in orders]
        readings += [Reading(tuple(order), num_chunks - 1, num_chunks - 1, noun) for order in without if order]
    is_shared = any(w in SHARED_WORDS for i, w in enumerate(words) if not start <= i < end)
    return PathQuestion(tuple(words), start, end, tuple(phrases), tuple(readings), asked, noun, is_shared)


def segments(question: PathQuestion, reading: Reading) -> dict[tuple[int, int], tuple[str, int]]:
    """(first, last + 1) of the reading's order -> the segment's text and the possessives that it runs across.

    A segment's text is what stands in the question from its first word to its last, the anchor left out: "place of
    birth", not "place birth". No segment cuts a relation phrase.
    """
    order = reading.order[:MAX_ORDERED]
    bounds = [0]
    for one, other in pairwise(order):
        bounds.append(bounds[-1] + _is_bound(question, one, other))
    found = {}
    for i in range(len(order)):
        for j in range(i + 1, len(order) + 1):
            whole = i == 0 and j == len(order)
            if (j - i > MAX_SEGMENT and not whole) or _cuts(question, order, i) or _cuts(question, order, j):
                continue
            found[i, j] = (_text(question, set(order[i:j])), bounds[j - 1] - bounds[i])
    return found


def _split_grand(
    words: Sequence[str], start: int, end: int, is_word: Callable[[str], bool]
) -> tuple[list[str], set[int]]:
    doubled = {
        i
        for i, w in enumerate(words)
        if not start <= i < end and w.startswith(_GRAND) and len(w) >= len(_GRAND) + 3 and is_word(w[len(_GRAND) :])
    }
    return [w[len(_GRAND) :] if i in doubled else w for i, w in enumerate(words)], doubled


def _phrases(words: Sequence[str], start: int, end: int, relation_phrases: Set[str]) -> list[int]:
    labels = [-1] * len(words)
    number = 0
    for size in range(_MAX_PHRASE, 1, -1):
        for i in range(len(words) - size + 1):
            free = all(label < 0 for label in labels[i : i + size]) and not (i < end and i + size > start)
            if free and " ".join(words[i : i + size]) in relation_phrases:
                labels[i : i + size] = [number] * size
                number += 1
    return labels


def _announces(words: Sequence[str], i: int) -> bool:
    """Whether the word only announces a noun: the "type" of "type of religion"."""
    return words[i] in CLASSIFIER_WORDS and words[i + 1 : i + 2] == ["of"]


def _num_chunks(words: Sequence[str], used: Set[int], phrases: Sequence[int]) -> int:
    """Runs of content words; a relation phrase is a run of its own."""
    count = 0
    for i in range(len(words)):
        if i not in used:
            continue
        continues = i - 1 in used and phrases[i] == phrases[i - 1]
        count += not continues
    return count


def _orders(words: Sequence[str], left: list[int], right: list[int], end: int, doubled: Set[int]) -> list[list[int]]:
    left = [i for i in left for _ in range(1 + (i in doubled))]
    right = [i for i in right for _ in range(1 + (i in doubled))]
    possessive = words[end : end + 1] == ["s"]
    return [right + left] if possessive or not left or not right else [right + left, left + right]


def _asked(
    words: Sequence[str], start: int, end: int, used: Set[int], phrases: Sequence[int]
) -> tuple[str, str, set[int]]:
    """The question word, the content next to it, and its positions where it is a noun right behind "which"."""
    place = next((i for i, w in enumerate(words) if w in QUESTION_WORDS - {"why", "how"} and not start <= i < end), -1)
    if place < 0:
        return "", "", set()
    asked = words[place]
    first = place + 1
    while first < len(words) and first not in used and not start <= first < end:
        first += 1
    if asked in ("where", "when", "whose") or first >= len(words) or first not in used:
        return asked, "", set()
    if asked in ("who", "whom"):
        return asked, words[first], set()
    last = first + 1
    while last in used and phrases[last] == phrases[first]:
        last += 1
    is_next = first == place + 1
    return asked, " ".join(words[first:last]), set(range(first, last)) if is_next else set()


def _farthest_chunk(words: Sequence[str], order: Sequence[int], phrases: Sequence[int]) -> str:
    chunk = [order[-1]]
    for i in reversed(order[:-1]):
        if abs(i - chunk[-1]) != 1 or phrases[i] != phrases[chunk[-1]]:
            break
        chunk.append(i)
    return " ".join(words[i] for i in sorted(set(chunk)))


def _is_bound(question: PathQuestion, one: int, other: int) -> int:
    """1 where "of" or a possessive stands between two words that follow each other in an order: two relations."""
    low, high = min(one, other), max(one, other)
    words = question.words
    if low == high:
        return 1
    if question.phrases[low] >= 0 and question.phrases[low] == question.phrases[high]:
        return 0
    if low < question.start <= high:
        possessive = words[question.end : question.end + 1] == ("s",)
        return int(possessive or words[question.start - 1] == "of")
    between = words[low + 1 : high]
    return int("s" in between or "of" in between)


def _cuts(question: PathQuestion, order: Sequence[int], at: int) -> bool:
    """Whether a border before `order[at]` runs through a relation phrase."""
    if not 0 < at < len(order):
        return False
    phrase = question.phrases[order[at]]
    return phrase >= 0 and phrase == question.phrases[order[at - 1]]


def _text(question: PathQuestion, places: Set[int]) -> str:
    left = [i for i in places if i < question.start]
    right = [i for i in places if i >= question.end]
    parts = [question.words[min(side) : max(side) + 1] for side in (left, right) if side]
    return " ".join(word for part in parts for word in part)
