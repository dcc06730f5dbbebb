"""Retrieval metrics of one question, over passage rows of the KG.

Two passages are the same when title and text are: the KG stores such a pair once, so rows are identities. Gold
passages that the KG lacks (row -1) stay in the denominator and can never be found.
"""

from collections.abc import Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from kgrag_gpu.metrics.entities import EntityLookup
from kgrag_gpu.types import Result


def gold_passages(result: Result) -> tuple[set[int], int]:
    """The distinct gold passages that the KG holds, and how many distinct ones it lacks.

    A result without `gold_passage_ids` whose question has gold passages counts them all as lacking.
    """
    rows = result.gold_passage_ids
    asked = result.question.gold_passage_ids
    if asked and not rows:
        return set(), len(set(asked))
    held = {row for row in rows if row >= 0}
    if len(asked) == len(rows):  # beside each other, so that one lacking passage listed twice counts once
        return held, len({source for source, row in zip(asked, rows, strict=True) if row < 0})
    return held, sum(row < 0 for row in rows)


def recall_at(result: Result, k: int) -> float | None:
    """Distinct gold passages among the first k ranked, divided by all distinct gold ones; None without gold."""
    held, num_lacking = gold_passages(result)
    if not held and not num_lacking:
        return None
    return len(held.intersection(result.retrieval.passage_ids[:k])) / (len(held) + num_lacking)


def all_recall_at(result: Result, k: int) -> float | None:
    """1.0 where every gold passage is among the first k, else 0.0; None without gold."""
    recall = recall_at(result, k)
    return None if recall is None else float(recall == 1.0)


def answer_coverage(result: Result) -> float | None:
    """1.0 where some gold answer is an entity of the retrieved evidence, else 0.0; None without gold answers."""
    gold = result.question.golden_answers
    if not gold:
        return None
    evidence = EntityLookup(result.retrieval.evidence_entities)
    return float(any(evidence.holds(answer.external_id, answer.spellings) for answer in gold))


def support_f1(predicted: AbstractSet[Hashable], gold: AbstractSet[Hashable]) -> float:
    """F1 of two sets of supporting facts (paragraphs, or (paragraph, sentence) pairs); both empty 1, one empty 0."""
    if not predicted or not gold:
        return float(not predicted and not gold)
    return 2 * len(predicted & gold) / (len(predicted) + len(gold))


def support_of(result: Result, passage_sentences: Mapping[int, Sequence[str]] | None = None) -> float | None:
    """`support_f1` of a question, where what is predicted is the evidence path with the first rank.

    A question with gold sentences is scored over (passage, sentence), any other with gold passages over passages.
    A step's text counts as a passage's sentence when one of the two contains the other.

    Args:
        result: the question's outcome.
        passage_sentences: for rows of the KG's passages, their sentences as the data set cuts them.

    Returns:
        None without gold, and for gold sentences where `passage_sentences` is not given.
    """
    held, num_lacking = gold_passages(result)
    if not held and not num_lacking:
        return None
    steps = result.retrieval.evidence[0].steps if result.retrieval.evidence else ()
    if not result.question.supporting_facts:
        lacking = {("lacking", i) for i in range(num_lacking)}
        return support_f1({passage for step in steps for passage in step.passage_ids}, held | lacking)
    if passage_sentences is None:
        return None
    kg_row = dict(zip(result.question.gold_passage_ids, result.gold_passage_ids, strict=False))
    gold = {
        (kg_row[source], sentence) if kg_row.get(source, -1) >= 0 else ("lacking", source, sentence)
        for source, sentence in result.question.supporting_facts
    }
    predicted = {
        (passage, number)
        for step in steps
        for passage in step.passage_ids
        for number, sentence in enumerate(passage_sentences.get(passage, ()))
        if _overlap(step.text, sentence)
    }
    return support_f1(predicted, gold)


def _overlap(text: str, sentence: str) -> bool:
    text, sentence = text.strip(), sentence.strip()
    return bool(text and sentence) and (text in sentence or sentence in text)
