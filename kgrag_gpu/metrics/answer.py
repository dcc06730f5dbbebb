"""Answer metrics: exact match, token F1, strict and lenient Hit@1, and the share of gold answers found.

All take the one prediction as text and the question's gold answers; none knows how the prediction came about. A
question without gold answers has no score: callers leave it out rather than call these functions.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from kgrag_gpu.types import GoldAnswer

YES_NO_DATASETS = frozenset({"hotpotqa", "2wikimultihopqa"})  # whose official F1 has the yes/no rule
_YES_NO = frozenset({"yes", "no", "noanswer"})
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")


@lru_cache(maxsize=1 << 18)
def normalise(text: str) -> str:
    """Lower case, without ASCII punctuation and English articles, white space collapsed.

    Letters and punctuation of other scripts stay, so that names in them still compare.
    """
    text = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(prediction: str, gold: Sequence[GoldAnswer]) -> float:
    """1.0 where the normalised prediction equals any normalised answer or alias. Strict Hit@1 is the same rule."""
    normalised = normalise(prediction)
    return float(any(normalised == normalise(spelling) for spelling in _spellings(gold)))


def token_f1(prediction: str, gold: Sequence[GoldAnswer], yes_no_rule: bool = False) -> float:
    """The best token F1 over answers and aliases, in [0, 1].

    Args:
        prediction: the one prediction.
        gold: the question's gold answers, at least one.
        yes_no_rule: HotpotQA's and 2Wiki's rule: a yes, no or noanswer on either side that differs from the other
            side scores 0.
    """
    return max(_pair_f1(normalise(prediction), normalise(spelling), yes_no_rule) for spelling in _spellings(gold))


def lenient_hit(prediction: str, gold: Sequence[GoldAnswer], compat_empty_hits: bool = False) -> float:
    """1.0 where prediction and some answer or alias are equal, or one contains the other, after `_squeezed`.

    This is what ToG, PoG and AnchorRAG print as Hit@1. There an empty prediction hits, because the empty string is
    inside every string; here it never does, nor does an empty gold spelling.

    Args:
        prediction: the one prediction.
        gold: the question's gold answers.
        compat_empty_hits: let empty strings hit, as in the published scripts; for comparing with their outputs only.
    """
    return float(any(_lenient_match(prediction, spelling, compat_empty_hits) for spelling in _spellings(gold)))


def gold_share(prediction: str, gold: Sequence[GoldAnswer], compat_empty_hits: bool = False) -> float:
    """`acc`: the share of the gold answers that the prediction matches leniently, each by its name or an alias."""
    return sum(lenient_hit(prediction, [answer], compat_empty_hits) for answer in gold) / len(gold)


def _spellings(gold: Iterable[GoldAnswer]) -> Iterable[str]:
    return (spelling for answer in gold for spelling in answer.spellings)


def _pair_f1(prediction: str, gold: str, yes_no_rule: bool) -> float:
    if yes_no_rule and prediction != gold and (prediction in _YES_NO or gold in _YES_NO):
        return 0.0
    prediction_tokens, gold_tokens = prediction.split(), gold.split()
    if not prediction_tokens or not gold_tokens:
        return float(prediction_tokens == gold_tokens)
    overlap = sum((Counter(prediction_tokens) & Counter(gold_tokens)).values())
    # 2PR/(P+R) with P = overlap/predicted and R = overlap/gold, in one division.
    return 2 * overlap / (len(prediction_tokens) + len(gold_tokens))


def _squeezed(text: str) -> str:
    return text.strip().replace(" ", "").lower()


def _lenient_match(prediction: str, spelling: str, compat_empty_hits: bool) -> bool:
    a, b = _squeezed(prediction), _squeezed(spelling)
    if not (a and b) and not compat_empty_hits:
        return False
    return a in b or b in a
