"""Every metric of every question, as one table: what means, intervals and comparisons are made from.

A failed question scores 0 in every metric that its gold allows. A metric that a question's gold does not allow is NaN
and stays out of the mean; n says over how many questions a mean goes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from kgrag_gpu.metrics.anchors import anchor_hit, anchor_recall
from kgrag_gpu.metrics.answer import YES_NO_DATASETS, exact_match, gold_share, lenient_hit, token_f1
from kgrag_gpu.metrics.retrieval import all_recall_at, answer_coverage, gold_passages, recall_at, support_of
from kgrag_gpu.types import Result

RECALL_DEPTHS = (2, 5, 10, 15)
ALL_RECALL_DEPTHS = (5, 10)

Scorer = Callable[[Result], float | None]


def score_questions(
    results: Sequence[Result],
    dataset: str = "",
    compat_empty_hits: bool = False,
    passage_sentences: Mapping[int, Sequence[str]] | None = None,
) -> dict[str, dict[str, np.ndarray]]:
    """The scores by section and metric, each float64 [questions] in the order of `results`.

    Args:
        results: one per question.
        dataset: its name decides on HotpotQA's yes/no rule of F1.
        compat_empty_hits: see `answer.lenient_hit`.
        passage_sentences: see `retrieval.support_of`.
    """
    sections = {
        "answer": _answer_scorers(dataset, compat_empty_hits),
        "retrieval": _retrieval_scorers(results),
        "anchors": _anchor_scorers(results),
        "supplementary": _support_scorers(results, passage_sentences),
    }
    return {
        section: {name: _column(results, scorer) for name, scorer in scorers.items()}
        for section, scorers in sections.items()
    }


def _column(results: Sequence[Result], scorer: Scorer) -> np.ndarray:
    column = np.full(len(results), np.nan)
    for i, result in enumerate(results):
        score = scorer(result)
        if score is not None:
            column[i] = 0.0 if result.error else score
    return column


def _answer_scorers(dataset: str, compat_empty_hits: bool) -> dict[str, Scorer]:
    yes_no_rule = dataset in YES_NO_DATASETS

    def where_gold(score: Callable[..., float], **options: bool) -> Scorer:
        def scorer(result: Result) -> float | None:
            gold = result.question.golden_answers
            return score(result.answer.text, gold, **options) if gold else None

        return scorer

    return {
        "em": where_gold(exact_match),
        "f1": where_gold(token_f1, yes_no_rule=yes_no_rule),
        "hit@1": where_gold(exact_match),
        "hit@1_lenient": where_gold(lenient_hit, compat_empty_hits=compat_empty_hits),
        "acc": where_gold(gold_share, compat_empty_hits=compat_empty_hits),
    }


def _retrieval_scorers(results: Sequence[Result]) -> dict[str, Scorer]:
    if any(held or num_lacking for held, num_lacking in map(gold_passages, results)):
        return {f"recall@{k}": partial(recall_at, k=k) for k in RECALL_DEPTHS} | {
            f"all_recall@{k}": partial(all_recall_at, k=k) for k in ALL_RECALL_DEPTHS
        }
    if any(result.question.golden_answers for result in results):
        return {"answer_coverage": answer_coverage}
    return {}


def _support_scorers(
    results: Sequence[Result], passage_sentences: Mapping[int, Sequence[str]] | None
) -> dict[str, Scorer]:
    # A method that gives no evidence predicts no support: the metric says nothing about it.
    if not any(result.retrieval.evidence for result in results):
        return {}
    return {"support_f1": partial(support_of, passage_sentences=passage_sentences)}


def _anchor_scorers(results: Sequence[Result]) -> dict[str, Scorer]:
    if not any(result.question.topic_entities for result in results):
        return {}
    return {
        "top1": partial(anchor_hit, num_first=1),
        "top3": partial(anchor_hit, num_first=3),
        "recall": anchor_recall,
    }
