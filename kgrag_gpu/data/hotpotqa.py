"""HotpotQA, official records: the distractor setting, and files of the fullwiki setting's shape.

`context` is [[title, [sentences]], ...]; the hub's form ({"title": [...], "sentences": [...]}) and a JSON string of
either read the same. A fullwiki context need not hold the gold passages: the titles that are missing are kept in
`extra["missing_gold_titles"]`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kgrag_gpu.config.schema import HubConfig
from kgrag_gpu.data.pool import PassagePool, join_sentences, nfc
from kgrag_gpu.data.records import ParseOptions, RecordError, question_text, record_id, require_mapping, text_list
from kgrag_gpu.types import GoldAnswer, Question

EXPECTED = "`_id`, `question`, `context` (list of [title, [sentences]]), `answer` and `supporting_facts`"
FILE_PATTERNS = (
    "hotpot_dev_distractor*.json*",
    "hotpot_dev_fullwiki*.json*",
    "hotpot*dev*.json*",
    "hotpot*validation*",
    "hotpot_train*.json*",
)
HUB = HubConfig(path="hotpotqa/hotpot_qa", name="distractor", split="validation")
NUM_HOPS = 2


def matches(record: Any) -> bool:
    """Whether the record has sentence-cut contexts and is not 2Wiki's (which carries `evidences`)."""
    return isinstance(record, Mapping) and "context" in record and "evidences" not in record


def parse(record: Any, pool: PassagePool, options: ParseOptions) -> Question:
    """One HotpotQA record; `type` is bridge or comparison.

    Raises:
        RecordError: no id, question or context.
    """
    record = require_mapping(record)
    level = record.get("level")
    return parse_sentence_record(
        record, pool, options, num_hops=NUM_HOPS, extra={"level": level} if isinstance(level, str) else {}
    )


def parse_sentence_record(
    record: Mapping[str, Any],
    pool: PassagePool,
    options: ParseOptions,
    num_hops: int | None,
    extra: Mapping[str, Any],
) -> Question:
    """The part that HotpotQA and 2WikiMultiHopQA share.

    Raises:
        RecordError: no id, question or context, or an answer that is no text.
    """
    identity = record_id(record, "_id", "id")
    text = question_text(record, options, "question")
    answers = _answers(record)
    paragraphs = _paragraphs(record.get("context"))
    rows: list[int] = []
    by_title: dict[str, int] = {}
    for title, sentences in paragraphs:
        row = pool.add(title, join_sentences(sentences), sentences)
        rows.append(row)
        by_title.setdefault(nfc(title).strip(), row)
    facts, missing = _supporting_facts(record.get("supporting_facts"), by_title)
    in_range = tuple(fact for fact in facts if fact[1] < len(pool.sentences[fact[0]]))
    extra = dict(extra) | ({"missing_gold_titles": missing} if missing else {})
    return Question(
        id=identity,
        text=text,
        golden_answers=answers,
        gold_passage_ids=tuple(dict.fromkeys(row for row, _ in facts)),
        context_passage_ids=tuple(dict.fromkeys(rows)),
        supporting_facts=in_range,
        num_hops=num_hops,
        type=record["type"] if isinstance(record.get("type"), str) else "",
        extra=extra,
    )


def _paragraphs(context: Any) -> list[tuple[str, list[str]]]:
    context = _unpacked(context, "context")
    if isinstance(context, Mapping):
        titles, bodies = context.get("title"), context.get("sentences", context.get("content"))
        context = list(zip(titles or (), bodies or (), strict=False)) if _is_list(titles) and _is_list(bodies) else None
    if not _is_list(context) or not context:
        raise RecordError("no `context` with passages")
    paragraphs = []
    for item in context:
        if not _is_list(item) or len(item) != 2 or not isinstance(item[0], str):
            raise RecordError("an item of `context` is not [title, [sentences]]")
        sentences = [item[1]] if isinstance(item[1], str) else item[1]
        if not _is_list(sentences) or not all(isinstance(s, str) for s in sentences):
            raise RecordError("the sentences of a `context` item are not a list of texts")
        paragraphs.append((item[0], list(sentences)))
    return paragraphs


def _supporting_facts(value: Any, by_title: Mapping[str, int]) -> tuple[list[tuple[int, int]], list[str]]:
    """((row, sentence number) of each fact that the context holds, titles that it does not hold)."""
    value = _unpacked(value, "supporting_facts") if value else []
    if isinstance(value, Mapping):
        value = list(zip(value.get("title", []), value.get("sent_id", []), strict=False))
    facts: list[tuple[int, int]] = []
    missing: list[str] = []
    for fact in value:
        if not _is_list(fact) or len(fact) != 2 or not isinstance(fact[0], str) or not isinstance(fact[1], int):
            raise RecordError("an item of `supporting_facts` is not [title, sentence number]")
        title = nfc(fact[0]).strip()
        if title in by_title:
            facts.append((by_title[title], fact[1]))
        else:
            missing.append(title)
    return facts, list(dict.fromkeys(missing))


def _answers(record: Mapping[str, Any]) -> tuple[GoldAnswer, ...]:
    answer = record.get("answer")
    if answer is None:
        return ()  # the hidden test split
    if not isinstance(answer, str) or not answer.strip():
        raise RecordError("`answer` holds no text")
    name = nfc(answer).strip()
    aliases = text_list(record.get("answer_aliases")) or text_list(record.get("aliases"))
    answer_id = record.get("answer_id")
    external_id = answer_id if isinstance(answer_id, str) else ""
    return (GoldAnswer(name, tuple(a for a in aliases if a != name), external_id),)


def _unpacked(value: Any, field: str) -> Any:
    """Some copies on the hub hold the nested fields as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        raise RecordError(f"`{field}` is text that is not JSON") from None


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
