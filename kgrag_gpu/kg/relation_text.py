"""Readable words for names, by rule; a relation's wording in the other direction too. Knows no data set's relations."""

import re

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SEPARATORS = re.compile(r"[_\s\-–]+")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
FREEBASE_ID = re.compile(r"(?:/m/|m\.)0[0-9a-z_]+|(?:/g/|g\.)1[0-9a-z_]+")
_PREPOSITIONS = ("in", "at", "on", "from", "to", "for", "with", "as", "into", "against")
_CLAUSE_STARTS = ("is", "was", "are", "were", "be", "been", "does", "did")


def relation_text(name: str) -> str:
    """Words for a relation name as stored.

    A dotted (Freebase) name gives its last two parts, type and property, without words said twice; a compound of two
    such names (through a mediator) the last two parts of the first and the last of the second. A URI gives its last
    part. Underscores and camelCase become spaces. A name that already is words stays as it is.
    """
    if _URI.match(name):
        name = re.split(r"[/#]", name.rstrip("/#"))[-1]
    halves = [half.strip("/.") for half in re.split(r"\./|\.\.", name) if half.strip("/.")]
    if not halves or not re.fullmatch(r"[\w./]+", name) or not re.search(r"[./]", name):
        return _words(name) or name
    words: list[str] = []
    for number, half in enumerate(halves):
        parts = [part for part in re.split(r"[./]", half) if part]
        for part in parts[-2:] if number == 0 else parts[-1:]:
            words.extend(word for word in _words(part).split() if word not in words[-4:])
    return " ".join(words) or name


def _words(part: str) -> str:
    pieces = _SEPARATORS.split(_CAMEL.sub(" ", part))
    return " ".join(p if p.isupper() and len(p) > 1 else p.lower() for p in pieces if p)


def inverse_text(text: str) -> str:
    """Words for the same relation seen from its tail: "directed by" -> "has directed", "parents" -> "parents of".

    Where no such turn fits (a clause, "born in"), "inverse of ..." marks it. A relation seen inward is a different
    thing from the same one outward, and its text says so: never equal to `text`.
    """
    words = text.split()
    if not words or words[0] in _CLAUSE_STARTS or words[-1] in _PREPOSITIONS:
        return f"inverse of {text}"
    if len(words) > 1 and words[-1] in ("by", "of"):
        return "has " + " ".join(words[:-1])
    if len(words) > 1 and words[0] in ("has", "have", *_PREPOSITIONS):
        return " ".join(words[1:]) + " of"
    return f"{text} of"


def is_joined(name: str) -> bool:
    """Whether an entity's name writes its spaces as `_` (an id does not)."""
    return "_" in name.strip("_") and " " not in name and not name.startswith("_:") and not FREEBASE_ID.fullmatch(name)


def readable_name(name: str) -> str:
    """An entity's name with its spaces."""
    return name.replace("_", " ").strip() if is_joined(name) else name
