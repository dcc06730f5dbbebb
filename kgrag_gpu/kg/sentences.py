"""Sentence cuts by rule, for any script. The knowledge graph, the token index and the reports cut at the same places.

A rule splitter errs on the side of not cutting: an abbreviation before a capital letter keeps both halves together,
unless the next word is one that begins sentences far more often than it follows an abbreviation.
"""

import re

_END = re.compile(r"[.!?…؟۔।]+[\"'”’)\]»]*(?=\s)|[。！？｡]+[」』”’）]*|\n\s*\n")
_LAST_TOKEN = re.compile(r"[^\s(\[\"“‘«]+$")
_INNER_DOTS = re.compile(r"[^\W\d_]{1,3}(?:\.[^\W\d_]{1,3})+|[^\W\d_]")  # U.S, a.m, Ph.D, or an initial
_WORDS = re.compile(r"\S+")
_ABBREVIATIONS = frozenset(
    _WORDS.findall(
        "mr mrs ms dr prof rev hon st sr jr messrs mme mlle gen col maj capt cmdr lt sgt cpl adm brig gov sen rep pres "
        "supt vs v no nos vol vols fig figs ed eds pp p ch sec art approx ca c cf al op cit viz est inc ltd co corp "
        "bros dept univ assn bldg ave blvd rd mt ft jan feb mar apr jun jul aug sept sep oct nov dec mon tue wed thu "
        "fri sat sun e.g i.e etc"
    )
)
# After these an upper-case word often does begin a new sentence, so a starter word decides.
_MAY_END = frozenset(_WORDS.findall("jr sr inc ltd co corp bros etc al no st"))
_STARTERS = frozenset(
    _WORDS.findall(
        "the a an it its he she his her they their this that these those in on at after before during since when while "
        "as by for from with although however there we i you but and some many most both one two"
    )
)


def split_sentences(text: str) -> list[tuple[int, int]]:
    """Character spans of the sentences of `text`, in order, without the white space around them.

    Every non-space character lies in exactly one span. A text of white space has none.
    """
    spans: list[tuple[int, int]] = []
    start = 0
    for match in _END.finditer(text):
        if match.group().isspace() or _is_boundary(text, start, match):
            _append(spans, text, start, match.end())
            start = match.end()
    _append(spans, text, start, len(text))
    return spans


def _append(spans: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    piece = text[start:end]
    stripped = piece.strip()
    if stripped:
        begin = start + len(piece) - len(piece.lstrip())
        spans.append((begin, begin + len(stripped)))


def _is_boundary(text: str, start: int, match: re.Match[str]) -> bool:
    mark = match.group()
    if mark[0] in "。！？｡":
        return True
    following = text[match.end() : match.end() + 40].lstrip().lstrip("\"'“‘«([")
    if following[:1].islower():
        return False
    if mark[0] != ".":
        return True
    token = _LAST_TOKEN.search(text[max(start, match.start() - 20) : match.start()])
    word = token.group().lower().lstrip("'") if token else ""
    next_word = following.split(maxsplit=1)[0].strip(",.;:").lower() if following.strip() else ""
    if _INNER_DOTS.fullmatch(word):
        is_initial = len(word) == 1
        return not is_initial and word not in _ABBREVIATIONS and next_word in _STARTERS
    if word in _MAY_END:
        return next_word in _STARTERS
    return word not in _ABBREVIATIONS
