"""The words of a text, folded for matching, and the closed word classes of English questions.

Knows grammar words, never topics: the lists hold what any English question is built with, whatever it asks about.
In another language nothing here matches, and every word counts as content.
"""

import re
import unicodedata

# Chinese characters and kana are written without spaces: each is a word of its own.
_CJK = "぀-ヿ㐀-䶿一-鿿豈-﫿"
_WORD = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")


def _listed(*lines: str) -> frozenset[str]:
    return frozenset(word for line in lines for word in line.split())


QUESTION_WORDS = _listed("who whom whose what which when where why how")
# Words that say two things have something in common: "films with the same director", "who starred together with".
SHARED_WORDS = _listed("same share shares shared sharing also both together common co either neither")
# Words of asking and naming that say nothing about what is asked: "what is the name of", "list the", "known as".
ASKING_WORDS = _listed("name names named list listed tell give show find describe called known")
# Before "of" these only announce the noun that follows: "what type of", "the number of".
CLASSIFIER_WORDS = _listed("type types kind kinds sort sorts name names number")
FUNCTION_WORDS = _listed(
    # articles, pronouns, determiners
    "a an the that this these those some any each every all no such another other others one ones i me my mine we us",
    "our you your he him his she her hers it its they them their theirs there here whatever whoever",
    # prepositions
    "of in on at by for with from to into onto about over under between among through during before after above below",
    "up down out off around along across near against within without upon via per as than",
    # auxiliaries, and what an apostrophe leaves of them
    "is are was were be been being am do does did doing done have has had having can could will would shall should may",
    "might must s t re ve d ll m",
    # conjunctions and adverbs
    "and or but nor so if then not too just only very much many more most few ever please let",
    *QUESTION_WORDS,
)
ARTICLES = frozenset(("a", "an", "the"))


def fold(text: str) -> str:
    """Case, accents and compatibility forms taken away, for comparing only; stored names keep theirs."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in decomposed if not unicodedata.combining(c))


def split_words(text: str) -> list[str]:
    """Folded words in order; punctuation and `_` part words: "X_of_Y's" -> x, of, y, s."""
    return _WORD.findall(fold(text))


def is_content(word: str) -> bool:
    """Whether a folded word can carry what is asked: no grammar word, no word of asking or sharing."""
    return word not in FUNCTION_WORDS and word not in ASKING_WORDS and word not in SHARED_WORDS
