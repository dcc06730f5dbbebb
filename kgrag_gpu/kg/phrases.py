"""Capitalised phrases that several passages share: names that no title carries.

Language-independent as far as capitals go: which words are mere sentence openers ("In", "Der") is read off the
corpus itself, not off a list. Scripts without capitals yield nothing here.
"""

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache

from kgrag_gpu.kg.mention_index import fold, long_enough

_WORD = re.compile(r"[^\W\d_]+")
_CONNECTORS = (
    "of the|of|the|for the|de la|de las|de los|de|del|della|delle|dei|di|da|dal|do|dos|das|du|des|la|le|les|el|van der|"
    "van den|van de|van|von der|von|vom|zu|zur|der|den|ter|ten|af|av|bin|ibn|al|y|e|og|och|und|et|i"
)


@cache
def _pattern() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """(a phrase, a connector inside one). Built on first use: the class of capitals takes a pass over Unicode."""
    upper = _ranges([c for c in range(sys.maxunicode + 1) if chr(c).isupper() or chr(c).istitle()])
    word = rf"[{upper}](?:\.(?=\s?[{upper}])|\w*(?:['’](?!s\b)\w+|[-–&/+]\w+)*)"
    phrase = rf"(?<![\w])(?:{word})(?:[ \u00a0](?:(?:{_CONNECTORS}) )?(?:{word}|\d+\b))*"
    return re.compile(phrase), re.compile(rf" (?:{_CONNECTORS}) ")


def _ranges(codes: list[int]) -> str:
    """A character class over sorted code points."""
    parts: list[str] = []
    start = previous = codes[0]
    for code in [*codes[1:], -1]:
        if code != previous + 1:
            parts.append(f"{chr(start)}-{chr(previous)}")
            start = code
        previous = code
    return "".join(parts)


def capitalised_phrases(texts: Sequence[str], min_chars: int, min_texts: int, max_texts: int) -> list[str]:
    """Phrases of capitalised words that stand in `min_texts` to `max_texts` of the texts, by first place.

    Connecting words ("of", "de la") may stand inside; the parts around them count as phrases too. A sentence's first
    word is left off where the texts write it in lower case at least as often as capitalised inside sentences.
    Spellings that differ in case alone are one phrase under its most frequent spelling (ties: the first seen).
    """
    found = [[(m.group(), _opens_sentence(text, m.start())) for m in _pattern()[0].finditer(text)] for text in texts]
    openers = _openers(texts, found)
    holders: dict[str, set[int]] = defaultdict(set)
    spellings: dict[str, Counter[str]] = defaultdict(Counter)
    fold_once = cache(fold)
    for text_id, occurrences in enumerate(found):
        for occurrence, opens in occurrences:
            for phrase in _variants(occurrence, opens, openers):
                if long_enough(phrase, min_chars):
                    key = fold_once(phrase)
                    holders[key].add(text_id)
                    spellings[key][phrase] += 1
    return [spellings[key].most_common(1)[0][0] for key, ids in holders.items() if min_texts <= len(ids) <= max_texts]


def _opens_sentence(text: str, start: int) -> bool:
    before = text[max(0, start - 4) : start].rstrip().rstrip("\"'“‘([«")
    return not before.strip() if start < 4 else before[-1:] in ".!?:;…\n" or not before


def _openers(texts: Sequence[str], found: list[list[tuple[str, bool]]]) -> set[str]:
    """First words of sentences that are no names: seen in lower case at least as often as capitalised inside one."""
    lower: Counter[str] = Counter()
    for text in texts:
        lower.update(word for word in _WORD.findall(text) if word[0].islower())
    inside: Counter[str] = Counter()
    first: set[str] = set()
    for occurrences in found:
        for phrase, opens in occurrences:
            words = _WORD.findall(phrase)
            inside.update(words[1:] if opens else words)
            if opens and words:
                first.add(words[0])
    return {word for word in first if lower[word.lower()] >= max(1, inside[word])}


def _variants(phrase: str, opens: bool, openers: set[str]) -> Iterator[str]:
    """The phrase without a mere sentence opener, and its parts around connecting words; never an opener alone."""
    if opens:
        first, _, rest = phrase.partition(" ")
        if first in openers:
            phrase = re.sub(rf"^(?:{_CONNECTORS}) ", "", rest)
    parts = _pattern()[1].split(phrase)
    for variant in dict.fromkeys([phrase, *parts]):
        if variant and not variant[0].isdigit() and variant not in openers:
            yield variant
