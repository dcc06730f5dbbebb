"""One question as the report shows it: outcome, prediction beside gold, evidence, ranked passages, reasons of failure.

Builds plain values for the template; markup and escaping are the template's business.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kgrag_gpu.metrics.answer import YES_NO_DATASETS, exact_match, normalise, token_f1
from kgrag_gpu.metrics.retrieval import gold_passages, recall_at
from kgrag_gpu.report.bubble_picture import bubble_picture
from kgrag_gpu.report.evidence import as_chain, as_graph, shorten
from kgrag_gpu.types import EvidencePath, EvidenceStep, Passage, Result

MAX_PATHS = 4
MAX_DRAWN_STEPS = 12
MAX_PASSAGES = 10
STRIP_LENGTH = 15
SNIPPET_CHARS = 420
TRACE_CHARS = 4000
COVERED_NOTE = "words_covered"  # the question's words that a path covers; a method may write it into a path's notes

OUTCOMES = {
    "failed": "failed",
    "wrong": "wrong",
    "unanswered": "unanswered",
    "partly": "partly right",
    "right": "right",
    "unjudged": "no gold answer",
}


@dataclass(frozen=True, slots=True)
class Lookups:
    """What every card needs to know of the run."""

    passages: Sequence[Passage]
    dataset: str


def outcome_of(result: Result, dataset: str) -> str:
    """Which of `OUTCOMES` a result is. "partly" is a token F1 above 0 without an exact match."""
    gold, text = result.question.golden_answers, result.answer.text
    if result.error:
        return "failed"
    if not gold:
        return "unjudged"
    if exact_match(text, gold):
        return "right"
    if not text.strip():
        return "unanswered"
    return "partly" if token_f1(text, gold, dataset in YES_NO_DATASETS) > 0 else "wrong"


def choose_results(results: Sequence[Result], limit: int) -> list[Result]:
    """The results that get a card: failed ones first, then evenly spread over the others in the order of their ids."""
    ordered = sorted(results, key=lambda result: result.question.id)
    failed = [result for result in ordered if result.error][:limit]
    others = [result for result in ordered if not result.error]
    room = min(limit - len(failed), len(others))
    return failed + [others[i * len(others) // room] for i in range(room)]


def card(result: Result, lookups: Lookups) -> dict[str, Any]:
    """Everything the template shows of one question."""
    question, retrieval, answer = result.question, result.retrieval, result.answer
    outcome = outcome_of(result, lookups.dataset)
    held, num_lacking = gold_passages(result)
    ranked = retrieval.passage_ids
    names_of_kind = _name_kinds(result)
    trace = {key: value for key, value in retrieval.trace.items() if key != "bubble"}  # that one is drawn
    return {
        "id": question.id,
        "question": question.text,
        "outcome": outcome,
        "outcome_label": OUTCOMES[outcome],
        "prediction": answer.text,
        "answers": [name for name in answer.names if name != answer.text][:8],
        "source": answer.source,
        "reply": shorten(answer.reply, TRACE_CHARS) if answer.reply != answer.text else "",
        "gold": [list(gold.spellings)[:6] for gold in question.golden_answers],
        "num_hops": question.num_hops,
        "type": question.type,
        "error": result.error,
        "recall": recall_at(result, 5) if not result.error else None,
        "anchors": [anchor.name for anchor in retrieval.anchors][:12],
        "strip": [{"gold": row in held, "title": _title(row, lookups)} for row in ranked[:STRIP_LENGTH]],
        "passages": [_ranked_passage(result, rank, held, lookups) for rank in range(min(len(ranked), MAX_PASSAGES))],
        "num_passages": len(ranked),
        "missed": [_missed(row, ranked, lookups) for row in sorted(held.difference(ranked[:MAX_PASSAGES]))],
        "num_lacking": num_lacking,
        "paths": [_path(path, result, names_of_kind, held, lookups) for path in retrieval.evidence[:MAX_PATHS]],
        "num_paths": len(retrieval.evidence),
        "bubble": bubble_picture(retrieval.trace),
        "trace": shorten(json.dumps(trace, ensure_ascii=False, indent=1), TRACE_CHARS) if trace else "",
    }


def _title(row: int, lookups: Lookups) -> str:
    return lookups.passages[row].title if 0 <= row < len(lookups.passages) else f"passage {row}"


def _ranked_passage(result: Result, rank: int, held: set[int], lookups: Lookups) -> dict[str, Any]:
    row = result.retrieval.passage_ids[rank]
    text = lookups.passages[row].text if 0 <= row < len(lookups.passages) else ""
    return {
        "rank": rank + 1,
        "title": _title(row, lookups),
        "text": shorten(text, SNIPPET_CHARS),
        "score": result.retrieval.passage_scores[rank],
        "gold": row in held,
    }


def _missed(row: int, ranked: Sequence[int], lookups: Lookups) -> dict[str, Any]:
    """A gold passage that is not among those shown, with its rank where it has one."""
    return {"title": _title(row, lookups), "rank": ranked.index(row) + 1 if row in ranked else None}


def _name_kinds(result: Result) -> dict[str, str]:
    """Normalised names that get a colour in the drawing. A gold answer outweighs the prediction, that an anchor."""
    kinds = {normalise(anchor.name): "anchor" for anchor in result.retrieval.anchors}
    kinds[normalise(result.answer.text)] = "answer"
    kinds |= {normalise(spelling): "gold" for gold in result.question.golden_answers for spelling in gold.spellings}
    kinds.pop("", None)
    return kinds


def _path(
    path: EvidencePath, result: Result, kinds: Mapping[str, str], held: set[int], lookups: Lookups
) -> dict[str, Any]:
    def kind_of(name: str) -> str:
        return kinds.get(normalise(name), "")

    drawn = path.steps[:MAX_DRAWN_STEPS]
    chain = as_chain(drawn, kind_of)
    notes = {key: value for key, value in path.notes.items() if key != COVERED_NOTE}
    return {
        "score": path.score,
        "chain": chain,
        "graph": as_graph(drawn, kind_of) if chain is None and drawn else None,
        "num_hidden": len(path.steps) - len(drawn),
        "sentences": [_sentence(step, held, lookups) for step in drawn if step.text or step.passage_ids],
        "covered": _covered_words(result.question.text, path.notes.get(COVERED_NOTE)),
        "notes": [(key, shorten(_note_text(value), 120)) for key, value in notes.items()],
    }


def _sentence(step: EvidenceStep, held: set[int], lookups: Lookups) -> dict[str, Any]:
    rows = step.passage_ids[:3]
    return {
        "text": shorten(step.text, SNIPPET_CHARS),
        "passages": [{"title": _title(row, lookups), "gold": row in held} for row in rows],
        "num_more": len(step.passage_ids) - len(rows),
    }


def _covered_words(question: str, covered: Any) -> list[tuple[str, bool]]:
    """The question's words, each with whether the note lists it; empty where there is no such note."""
    if not isinstance(covered, (list, tuple, dict)) or not covered:
        return []
    words = {normalise(str(word)) for word in covered}
    return [(word, normalise(word) in words and bool(normalise(word))) for word in question.split()]


def _note_text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
