"""Answers without a model: the best-scored span of the best passages, by the kind of answer the question asks for.

For questions that compare two named things see comparisons.py. Plain word statistics, no encoder; deterministic, and
each question by itself, so batches do not matter. Its scores are a floor to read other readers against.
"""

import functools
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kgrag_gpu.answer.comparisons import compare
from kgrag_gpu.answer.text import SENTENCE_BREAK, Span, date_spans, name_spans, number_spans, stems, told_as
from kgrag_gpu.types import Answer, Passage, Question, Retrieval, Source

_STATISTICS_PASSAGES = 50  # ranked passages over which word frequencies are taken
# Weights of a candidate's score; set by hand on small samples of three data sets, flat around these values.
_W_OVERLAP, _W_WHOLE, _W_RANK, _W_LINKED, _W_NEAR, _W_TITLE, _W_PLACE = 1.0, 0.3, 0.15, 0.6, 0.4, 0.25, 0.5

_WHEN = re.compile(
    r"\b(?:when|(?:what|which|in what|in which)\s+(?:year|date|day|month|decade|century)s?)\b|date of", re.I
)
_COUNT = re.compile(
    r"\bhow (?:many|much|old|long|tall|far|large|big|high)\b|\bwhat (?:number|percentage|population)\b", re.I
)
_PERSON = re.compile(r"\b(?:who|whom|whose)\b", re.I)
_PLACE = re.compile(
    r"\bwhere\b|\b(?:place|city|country|state|county|town|village|province|location) (?:of|is|was|in|did)\b", re.I
)
_PLACE_CUE = re.compile(r"\b(?:in|at|near|from|of)\s+(?:the\s+)?$", re.I)


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence as the scorer sees it. `place` is its number within the passage."""

    text: str
    stems: frozenset[str]
    place: int


def read_spans(
    questions: Sequence[Question], retrievals: Sequence[Retrieval], passages: Sequence[Passage], num_passages: int
) -> list[Answer]:
    """One answer per question, from its first `num_passages` passages or, without passages, from its evidence.

    A retrieval that already has an answer keeps it. Nothing retrieved, or no span of any kind: an empty answer with
    source "none". Ties go to the better passage, then the earlier span.
    """
    return [
        retrieval.answer or _read_one(question, retrieval, passages, num_passages)
        for question, retrieval in zip(questions, retrievals, strict=True)
    ]


def _read_one(question: Question, retrieval: Retrieval, passages: Sequence[Passage], num_passages: int) -> Answer:
    read = [passages[row] for row in retrieval.passage_ids[:num_passages]]
    source: Source = "graph" if retrieval.evidence else "passages"
    if not read:
        return _from_evidence(question, retrieval)
    pool = [passages[row] for row in retrieval.passage_ids[:_STATISTICS_PASSAGES]]
    decided = compare(question.text, read)
    if decided:
        return Answer(decided, source, (decided,))
    ranked = _rank_spans(question.text, read, pool)
    if not ranked:  # scripts without capital letters, or nothing of the kind: the best title that is not the question's
        titles = [
            passage.title for passage in read if passage.title and passage.title.lower() not in question.text.lower()
        ]
        return Answer(titles[0], source, (titles[0],)) if titles else Answer("", "none")
    return Answer(ranked[0][0], source, tuple(text for text, _ in ranked[:5]), confidence=ranked[0][1])


def _from_evidence(question: Question, retrieval: Retrieval) -> Answer:
    """The end of the best path that the question does not itself name."""
    asked = question.text.lower()
    for path in retrieval.evidence:
        for step in reversed(path.steps):
            for name in (step.tail, step.head):
                if name and name.lower() not in asked:
                    return Answer(name, "graph", (name,), confidence=path.score)
    return Answer("", "none")


def _rank_spans(question: str, read: Sequence[Passage], pool: Sequence[Passage]) -> list[tuple[str, float]]:
    """Candidate spans with their scores, best first, equal texts merged into their best score plus a little."""
    weights = _word_weights(question, pool)
    find, wants_place = _finder(question)
    linked = _linked(read)
    asked = stems(question)
    best: dict[str, tuple[float, str]] = {}
    seen: Counter[str] = Counter()
    for rank, passage in enumerate(read):
        sentences = _sentences(passage)
        title = stems(passage.title)
        overlaps = [_overlap(sentence.stems | title, weights) for sentence in sentences]
        whole = _overlap(frozenset().union(title, *(sentence.stems for sentence in sentences)), weights)
        for sentence, overlap in zip(sentences, overlaps, strict=True):
            base = _W_OVERLAP * overlap + _W_WHOLE * whole + _W_RANK / (1 + rank) + _W_LINKED * linked[rank]
            for span in find(sentence.text):
                words = stems(span.text)
                if not words or words <= asked or span.text.lower() in question.lower():
                    continue
                score = base + _W_NEAR * _nearness(sentence.text, span, weights)
                score -= _W_TITLE * len(words & title) / len(words)
                score += _W_PLACE * bool(wants_place and _PLACE_CUE.search(sentence.text[: span.start]))
                key = span.text.lower()
                seen[key] += 1
                if key not in best or score > best[key][0]:
                    best[key] = (score, span.text)
    scored = [(text, score + 0.05 * math.log1p(seen[key] - 1)) for key, (score, text) in best.items()]
    return sorted(scored, key=lambda item: -item[1])


def _finder(question: str):
    """What kind of span the question asks for, as (function from a sentence to its spans, whether it is a place)."""
    if _COUNT.search(question):
        return number_spans, False
    if _WHEN.search(question):
        return date_spans, False
    if _PERSON.search(question):
        return _people, False
    return name_spans, bool(_PLACE.search(question))


def _people(sentence: str) -> list[Span]:
    """Names of two to four words where the sentence has any, else every name."""
    names = name_spans(sentence)
    return [span for span in names if 2 <= len(span.text.split()) <= 4] or names


def _word_weights(question: str, pool: Sequence[Passage]) -> dict[str, float]:
    """Inverse document frequency of the question's words over the pool, summing to 1."""
    texts = [_passage_stems(passage) for passage in pool]
    raw = {
        word: math.log(1 + len(texts) / (1 + sum(word in text for text in texts))) for word in sorted(stems(question))
    }
    total = math.fsum(raw.values()) or 1.0
    return {word: weight / total for word, weight in raw.items()}


def _overlap(words: frozenset[str], weights: dict[str, float]) -> float:
    forms = told_as()
    return math.fsum(
        weight for word, weight in weights.items() if word in words or not words.isdisjoint(forms.get(word, ()))
    )


def _nearness(sentence: str, span: Span, weights: dict[str, float]) -> float:
    """Question words close to the span count more: weight divided by 1 + distance in words."""
    forms, total = told_as(), 0.0
    weights = {**{form: weight for word, weight in weights.items() for form in forms.get(word, ())}, **weights}
    for found in re.finditer(r"\w+", sentence):
        if span.start <= found.start() < span.end:
            continue
        weight = max((weights.get(stem, 0.0) for stem in stems(found.group())), default=0.0)
        if weight:
            gap = (
                sentence[found.end() : span.start] if found.end() <= span.start else sentence[span.end : found.start()]
            )
            total += weight / (1 + gap.count(" "))
    return total


def _linked(read: Sequence[Passage]) -> list[float]:
    """Whether another passage read names this passage's title: the mark of a chain's later hop."""
    titles = [re.sub(r"\s*\(.*?\)", "", passage.title).lower() for passage in read]
    texts = [passage.text.lower() for passage in read]
    return [
        float(len(title) > 3 and any(title in text for other, text in enumerate(texts) if other != rank))
        for rank, title in enumerate(titles)
    ]


@functools.lru_cache(maxsize=20_000)
def _sentences(passage: Passage) -> tuple[_Sentence, ...]:
    parts = [part.strip() for part in SENTENCE_BREAK.split(passage.text)]
    return tuple(_Sentence(part, stems(part), place) for place, part in enumerate(parts) if part)


@functools.lru_cache(maxsize=20_000)
def _passage_stems(passage: Passage) -> frozenset[str]:
    return stems(f"{passage.title} {passage.text}")
