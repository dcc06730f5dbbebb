"""Spans and word stems of plain text, for reading without a model. English stems; names of any script with case."""

import functools
import re
from dataclasses import dataclass

import Stemmer

SENTENCE_BREAK = re.compile(r"(?<=[.!?。！？])(?<!\b[A-Z]\.)(?<!\b(?:Mr|Dr|St|Jr|Sr|vs|No)\.)(?<!\b(?:Mrs)\.)\s+(?=\S)")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"[^\W_][\w'’.&-]*")
_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATE = re.compile(
    rf"\b(?:\d{{1,2}}\s+)?(?:{_MONTHS})\b(?:\s+\d{{1,2}}\b)?(?:,?\s+\d{{4}}\b)?|\b1\d{{3}}s?\b|\b20\d{{2}}s?\b|"
    r"\b\d{1,4}\s+(?:BC|BCE|AD|CE)\b|\b(?:\d{1,2}(?:st|nd|rd|th))\s+century\b"
)
_NUMBER = re.compile(
    r"\b\d[\d,]*(?:\.\d+)?(?:\s*%|\s+(?:million|billion|thousand|percent|hundred))?|"
    r"\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|hundred)\b",
    re.IGNORECASE,
)
_JOINERS = _words("of the de la le du des van von der den al el bin ibn da di del and y e zu &")
_STOP_WORDS = _words(
    """a an the of in on at by for from to with and or but as is are was were be been being has have had do does did
    he she it they them his her its their this that these those who whom whose which what when where why how there
    not no than then also after before during into about over under between both same first s"""
)
_SENTENCE_STARTS = _words(
    """the a an in on at by for from to with and or but as it he she they his her its their this that these those
    there after before during while when where although since following one some many most other however both"""
)


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a sentence: its text and character offsets."""

    text: str
    start: int
    end: int


# Words that ask for a fact and the words that such facts are told in.
_TOLD_AS = {
    "spouse": "married wife husband", "wife": "married", "husband": "married", "marry": "married wife husband",
    "sibling": "brother sister", "brother": "sibling", "sister": "sibling", "child": "son daughter children",
    "son": "child", "daughter": "child", "father": "son daughter", "mother": "son daughter",
    "birth": "born", "death": "died", "die": "died death", "born": "birth", "employer": "worked professor university",
    "educated": "attended studied school college university", "attend": "studied educated graduated",
    "performer": "singer band sung recorded", "composer": "composed music", "director": "directed film",
    "author": "wrote written novel", "founder": "founded established", "established": "founded", "owner": "owned",
    "owns": "owned", "country": "located", "located": "situated", "seat": "county",
}  # fmt: skip


@functools.cache
def told_as() -> dict[str, frozenset[str]]:
    """Stem of an asking word -> stems of the words that answer it in running text."""
    return {next(iter(stems(word))): stems(words) for word, words in _TOLD_AS.items()}


@functools.cache
def _stemmer() -> Stemmer.Stemmer:
    return Stemmer.Stemmer("english")


def stems(text: str) -> frozenset[str]:
    """Stems of the text's words, without the commonest English words."""
    words = [word for word in _WORD.findall(text.lower()) if word not in _STOP_WORDS]
    return frozenset(_stemmer().stemWords(words))


def date_spans(sentence: str) -> list[Span]:
    """Dates, years, decades and centuries, in order."""
    return [Span(found.group(), found.start(), found.end()) for found in _DATE.finditer(sentence)]


def number_spans(sentence: str) -> list[Span]:
    """Numbers, in digits or words, that are not part of a date."""
    dates = [(span.start, span.end) for span in date_spans(sentence)]
    found = [Span(match.group().strip(), match.start(), match.end()) for match in _NUMBER.finditer(sentence)]
    return [span for span in found if not any(start <= span.start < end for start, end in dates)]


def name_spans(sentence: str) -> list[Span]:
    """Runs of capitalised words with small joining words inside ("County of Barcelona"), and quoted titles."""
    spans, run = [], []
    last_end = 0
    dates = [(span.start, span.end) for span in date_spans(sentence)]
    for token in _TOKEN.finditer(sentence):
        if any(start <= token.start() < end for start, end in dates):
            continue  # the gap that it leaves ends a run
        word = token.group().rstrip(".'’-")
        glued = not run or sentence[last_end : token.start()] in (" ", ". ", "")
        is_name = word[:1].isupper() or (word[:1].isdigit() and bool(run))
        if run and not glued:
            _close(sentence, run, spans)
            run = []
        if is_name or (run and word in _JOINERS):
            run.append((token.start(), token.start() + len(word), is_name))
        elif run:
            _close(sentence, run, spans)
            run = []
        last_end = token.start() + len(token.group())
    _close(sentence, run, spans)
    for quoted in re.finditer(r"[\"“]([^\"“”]{2,60})[\"”]", sentence):
        spans.append(Span(quoted.group(1), quoted.start(1), quoted.end(1)))
    return spans


def _close(sentence: str, run: list[tuple[int, int, bool]], spans: list[Span]) -> None:
    """Add the run as a span, without joining words at its end and without a sentence's opening "The"."""
    while run and not run[-1][2]:
        run.pop()
    while run and sentence[run[0][0] : run[0][1]].lower() in _SENTENCE_STARTS:
        run.pop(0)
        while run and not run[0][2]:
            run.pop(0)
    if run:
        start, end = run[0][0], run[-1][1]
        if end - start > 1:
            spans.append(Span(sentence[start:end], start, end))
