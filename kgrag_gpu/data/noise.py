"""Misspellings as people type them, seeded: one edit in a word, never in a number."""

import random
import re

_LETTERS = re.compile(r"[^\W\d_]+")
# Neighbours on a QWERTY keyboard.
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def misspelt(text: str, seed: str, rate: float = 1.0, min_letters: int = 4) -> str:
    """The text with one edit in a share of its longer words: two letters swapped, one dropped, doubled, or mistyped.

    Args:
        seed: same text and seed, same result.
        rate: chance of each longer word.
        min_letters: shorter words stay as they are.
    """
    rng = random.Random(seed)

    def edited(match: re.Match[str]) -> str:
        word = match.group()
        if len(word) < min_letters or rng.random() >= rate or _touches_digit(match):
            return word
        return _edit(word, rng)

    return _LETTERS.sub(edited, text)


def _touches_digit(match: re.Match[str]) -> bool:
    """Whether the letters belong to a word with digits, such as 1990s or B52s."""
    text = match.string
    before, after = text[: match.start()][-1:], text[match.end() :][:1]
    return before.isdigit() or after.isdigit()


def _edit(word: str, rng: random.Random) -> str:
    kind = rng.choice(("swap", "drop", "double", "neighbour"))
    place = rng.randrange(len(word) - 1) if kind == "swap" else rng.randrange(len(word))
    before, letter, after = word[:place], word[place], word[place + 1 :]
    if kind == "swap":
        return before + after[0] + letter + after[1:]
    if kind == "drop":
        return before + after
    if kind == "double":
        return before + letter + letter + after
    near = _neighbours(letter.lower())
    key = rng.choice(near) if near else letter
    return before + (key.upper() if letter.isupper() else key) + after


def _neighbours(letter: str) -> str:
    for row, keys in enumerate(_ROWS):
        column = keys.find(letter)
        if column >= 0:
            beside = keys[max(0, column - 1) : column] + keys[column + 1 : column + 2]
            above = _ROWS[row - 1][column : column + 2] if row else ""
            below = _ROWS[row + 1][max(0, column - 1) : column + 1] if row + 1 < len(_ROWS) else ""
            return beside + above + below
    return ""
