"""The reader: ranked passages or evidence in, one short answer out, all questions in one batch per prompt kind.

With an engine the model reads; without one, spans.py picks the answer from the best evidence. The reader does not know
which method found the passages, and never changes their order.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kgrag_gpu.answer.spans import read_spans
from kgrag_gpu.config.schema import ReaderConfig
from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.llm.records import Reply, Request, Sampling
from kgrag_gpu.prompts.registry import PROMPTS, make_request
from kgrag_gpu.types import Answer, EvidencePath, Passage, Question, Retrieval, Source

_LEAD = re.compile(
    r".*(?:\b(?:final |short )?answer(?: is| would be|:)\s*:?|答案(?:是|为)?[::]?|الإجابة(?: هي)?:?|\bréponse\s*:)\s*",
    re.IGNORECASE | re.DOTALL,
)
_NO_ANSWER = re.compile(
    r"(?:i (?:do not|don't|cannot|can't)\b|(?:unknown|unanswerable|no answer)\W*$|n/?a$|none of the passages|"
    r"(?:it is |the (?:answer|information) is )?not (?:mentioned|given|provided|stated|specified|known|available)\b|"
    r"(?:there is )?no information\b|insufficient\b|cannot be determined)",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+")
_LINE_TOKENS = 8  # upper bound on what "[12] ", the title's stop and the line break add to a passage


@dataclass(frozen=True, slots=True)
class _Reading:
    """One question as it goes to the model."""

    request: Request
    source: Source
    is_cut: bool


def read_answers(
    questions: Sequence[Question],
    retrievals: Sequence[Retrieval],
    passages: Sequence[Passage],
    engine: Engine | None,
    config: ReaderConfig,
    sampling: Sampling | None = None,
) -> list[Answer]:
    """Answer each question from what was retrieved for it.

    A retrieval that already has an answer keeps it. Otherwise the first `num_passages` passages are read, cut at
    passage borders to the token budget (cuts are counted as `cut_contexts`); where a KG has no passages the evidence
    is read; where there is neither, the model thinks aloud and the answer is marked `cot`.

    Args:
        questions: the batch.
        retrievals: one per question.
        passages: the KG's passages, which `Retrieval.passage_ids` point into.
        engine: None picks answers without a model.
        config: how much is read.
        sampling: temperature, seed and stops, the engine's own by default; reply limits are those of the prompt kinds.

    Returns:
        One answer per question. `text` is the answer span, `reply` the model's whole reply. A question whose reply
        could not be had has an empty text and source "none"; the reason is in `engine.take_failures()`.
    """
    if engine is None:
        return read_spans(questions, retrievals, passages, config.num_passages)
    answers = [retrieval.answer for retrieval in retrievals]
    open_rows = [row for row, answer in enumerate(answers) if answer is None]
    readings = _readings(
        [questions[row] for row in open_rows], [retrievals[row] for row in open_rows], passages, engine, config
    )
    base = sampling or engine.sampling
    for kind in ("answer", "answer_facts", "cot"):
        places = [place for place, reading in enumerate(readings) if reading.request.kind == kind]
        if not places:
            continue
        limit = config.max_answer_tokens if kind == "answer" else PROMPTS[kind].max_tokens
        drawn = Sampling(limit, base.temperature, base.top_p, base.seed, base.stop)
        replies = engine.generate([readings[place].request for place in places], drawn)
        engine.usage.of(kind).cut_contexts += sum(readings[place].is_cut for place in places)
        for place, reply in zip(places, replies, strict=True):
            answers[open_rows[place]] = _as_answer(reply, readings[place].source)
    return [answer for answer in answers if answer is not None]


def extract_span(reply: str) -> str:
    """The answer inside a reply: what follows the last "answer is" or "Answer:", first line, marks removed.

    Returns "" where the reply says that there is no answer.
    """
    text = reply.strip()
    lead = _LEAD.match(text)
    if lead and text[lead.end() :].strip():
        text = text[lead.end() :]
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    line = line.strip("*_`#- \t").strip()
    for opening, closing in ('""', "''", "“”", "«»", "「」", "[]"):
        if line.startswith(opening) and line.endswith(closing) and len(line) > 1:
            line = line[1:-1].strip()
    if line.endswith((".", "。")) and not re.search(r"(?:\b\w|\.\w+|\b[A-Z]\w{0,2})\.$", line):
        line = line[:-1].rstrip()
    return "" if _NO_ANSWER.match(line) else line


def own_answer(reply: Reply) -> Answer:
    """What the model answers by itself, marked `cot`; source "none" where the reply holds no answer."""
    span = extract_span(reply.text) if reply.ok else ""
    return Answer(span, "cot" if span else "none", (span,) if span else (), reply.text)


def _as_answer(reply: Reply, source: Source) -> Answer:
    span = extract_span(reply.text) if reply.ok else ""
    if not span:
        return Answer("", "none", reply=reply.text)
    names = tuple(name for name in (part.strip() for part in span.split(" | ")) if name)
    return Answer(names[0], source, names, reply.text)


def _readings(
    questions: Sequence[Question],
    retrievals: Sequence[Retrieval],
    passages: Sequence[Passage],
    engine: Engine,
    config: ReaderConfig,
) -> list[_Reading]:
    """Requests for all questions; tokens are counted once per distinct passage."""
    wanted = sorted({row for retrieval in retrievals for row in retrieval.passage_ids[: config.num_passages]})
    texts = {row: passage_text(passages[row]) for row in wanted}
    lengths = dict(zip(wanted, engine.count_tokens([texts[row] for row in wanted]), strict=True))
    bare = [make_request("answer", question=question.text, passages=[]) for question in questions]
    overheads = engine.count_tokens([engine.backend.render(request.messages) for request in bare])
    readings = []
    for question, retrieval, overhead in zip(questions, retrievals, overheads, strict=True):
        room = engine.max_context_tokens - config.max_answer_tokens - overhead
        budget = min(config.context_tokens, room)
        rows = retrieval.passage_ids[: config.num_passages]
        if rows:
            kept, is_cut = _fit([texts[row] for row in rows], [lengths[row] for row in rows], budget, engine)
            request = make_request("answer", question.id, question=question.text, passages=kept)
            readings.append(_Reading(request, "graph" if retrieval.evidence else "passages", is_cut))
        elif retrieval.evidence:
            facts = evidence_texts(retrieval.evidence)
            kept, is_cut = _fit(facts, engine.count_tokens(facts), budget, engine)
            request = make_request("answer_facts", question.id, question=question.text, facts=kept)
            readings.append(_Reading(request, "graph", is_cut))
        else:
            readings.append(_Reading(make_request("cot", question.id, question=question.text, facts=[]), "cot", False))
    return readings


def _fit(texts: Sequence[str], lengths: Sequence[int], budget: int, engine: Engine) -> tuple[list[str], bool]:
    """The longest run of whole texts, best first, that fits; of a first text that does not fit, whole sentences."""
    kept, used = [], 0
    for text, length in zip(texts, lengths, strict=True):
        if used + length + _LINE_TOKENS > budget:
            break
        kept.append(text)
        used += length + _LINE_TOKENS
    if not kept and texts:
        kept = [_first_sentences(texts[0], budget - _LINE_TOKENS, engine)]
    return kept, len(kept) < len(texts) or kept[:1] != list(texts[:1])


def _first_sentences(text: str, budget: int, engine: Engine) -> str:
    sentences = _SENTENCE_END.split(text)
    starts = [" ".join(sentences[:number]) for number in range(1, len(sentences) + 1)]
    fitting = [start for start, length in zip(starts, engine.count_tokens(starts), strict=True) if length <= budget]
    # A sentence longer than the whole budget: four characters of English are about a token; three is on the safe side.
    return fitting[-1] if fitting else text[: max(0, 3 * budget)]


def passage_requests(
    engine: Engine,
    passages: Sequence[Passage],
    rows: Sequence[Sequence[int]],
    write: Sequence[Callable[[Sequence[str]], Request]],
    context_tokens: int,
) -> list[Request]:
    """Requests of one kind that show passages, as many as there is room for; cuts are counted as `cut_contexts`.

    Args:
        engine: sets the room: its context less the kind's reply and the rest of the prompt.
        passages: the KG's passages.
        rows: for each request its passages, best first.
        write: makes the request that shows some texts.
        context_tokens: at most this many tokens of passages.
    """
    texts = {row: passage_text(passages[row]) for row in sorted({row for found in rows for row in found})}
    lengths = dict(zip(texts, engine.count_tokens(list(texts.values())), strict=True))
    bare = [request([]) for request in write]
    overheads = engine.count_tokens([engine.backend.render(request.messages) for request in bare])
    requests = []
    for make, found, empty, overhead in zip(write, rows, bare, overheads, strict=True):
        room = engine.max_context_tokens - PROMPTS[empty.kind].max_tokens - overhead
        budget = max(_LINE_TOKENS, min(context_tokens, room))
        shown, is_cut = _fit([texts[row] for row in found], [lengths[row] for row in found], budget, engine)
        engine.usage.of(empty.kind).cut_contexts += is_cut
        requests.append(make(shown))
    return requests


def passage_text(passage: Passage) -> str:
    """A passage as every prompt shows it."""
    return f"{passage.title}: {passage.text}" if passage.title else passage.text


def evidence_texts(evidence: Sequence[EvidencePath]) -> list[str]:
    """Distinct texts of the evidence's steps, best path first, in walking order."""
    return list(dict.fromkeys(step.text for path in evidence for step in path.steps))
