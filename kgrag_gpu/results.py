"""Result rows: how a `Result` is stored in a shard, and the two public JSONL forms made from it.

A shard row is lossless: floats, passage numbers and the trace come back exactly. Nested parts (gold answers, evidence,
anchors, trace) are JSON strings, so that the Parquet schema does not change when a method writes a new trace field.
The public forms (`predictions.jsonl`, `retrieval.jsonl`) are for people and other programs: fixed key order, scores
rounded to six digits, here and nowhere else. The module knows neither paths nor what the metrics make of a row.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kgrag_gpu.types import (
    Answer,
    EntityRef,
    EvidencePath,
    EvidenceStep,
    GoldAnswer,
    Passage,
    Question,
    Result,
    Retrieval,
    Source,
    UserError,
)

SCHEMA_VERSION = "1"
SCORE_DIGITS = 6
MAX_EVIDENCE_PATHS = 10  # of one question in predictions.jsonl; the shard keeps all of them

RESULT_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("question", pa.string(), nullable=False),
        pa.field("num_hops", pa.int32()),
        pa.field("type", pa.string(), nullable=False),
        pa.field("answerable", pa.bool_(), nullable=False),
        pa.field("golden_answers", pa.string(), nullable=False),  # JSON
        pa.field("question_record", pa.string(), nullable=False),  # JSON: the rest of the question
        pa.field("gold_passage_ids", pa.list_(pa.int64()), nullable=False),  # rows of the KG, -1 where it lacks one
        pa.field("prediction", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("names", pa.list_(pa.string()), nullable=False),
        pa.field("reply", pa.string(), nullable=False),
        pa.field("confidence", pa.float64()),
        pa.field("passage_ids", pa.list_(pa.int64()), nullable=False),
        pa.field("passage_scores", pa.list_(pa.float64()), nullable=False),
        pa.field("evidence", pa.string(), nullable=False),  # JSON
        pa.field("anchors", pa.string(), nullable=False),  # JSON
        pa.field("evidence_entities", pa.string(), nullable=False),  # JSON
        pa.field("method_answer", pa.string(), nullable=False),  # JSON: the method's own answer, or null
        pa.field("trace", pa.string(), nullable=False),  # JSON
        pa.field("error", pa.string(), nullable=False),
    ],
    metadata={"kgrag_gpu.result_schema": SCHEMA_VERSION},
)


def result_to_row(result: Result) -> dict[str, Any]:
    """One result as a row of `RESULT_SCHEMA`.

    Tuples inside `extra`, `notes` and `trace` come back as lists; numpy values come back as plain numbers.

    Raises:
        TypeError: a trace, a note or an extra field holds something that JSON cannot carry.
    """
    question, retrieval, answer = result.question, result.retrieval, result.answer
    return {
        "id": _utf8(question.id),
        "question": _utf8(question.text),
        "num_hops": question.num_hops,
        "type": _utf8(question.type),
        "answerable": bool(question.answerable),
        "golden_answers": _to_json([[g.name, list(g.aliases), g.external_id] for g in question.golden_answers]),
        "question_record": _to_json(
            {
                "gold_passage_ids": question.gold_passage_ids,
                "context_passage_ids": question.context_passage_ids,
                "supporting_facts": question.supporting_facts,
                "topic_entities": _entities_to_plain(question.topic_entities),
                "extra": question.extra,
            }
        ),
        "gold_passage_ids": [int(i) for i in result.gold_passage_ids],
        "prediction": _utf8(answer.text),
        "source": answer.source,
        "names": [_utf8(name) for name in answer.names],
        "reply": _utf8(answer.reply),
        "confidence": None if answer.confidence is None else float(answer.confidence),
        "passage_ids": [int(i) for i in retrieval.passage_ids],
        "passage_scores": [float(score) for score in retrieval.passage_scores],
        "evidence": _to_json([_path_to_plain(path) for path in retrieval.evidence]),
        "anchors": _to_json(_entities_to_plain(retrieval.anchors)),
        "evidence_entities": _to_json(_entities_to_plain(retrieval.evidence_entities)),
        "method_answer": _to_json(None if retrieval.answer is None else _answer_to_plain(retrieval.answer)),
        "trace": _to_json(retrieval.trace),
        "error": _utf8(result.error),
    }


def row_to_result(row: Mapping[str, Any]) -> Result:
    """The result that `result_to_row` made the row from."""
    record = json.loads(row["question_record"])
    question = Question(
        id=row["id"],
        text=row["question"],
        golden_answers=tuple(GoldAnswer(name, tuple(a), eid) for name, a, eid in json.loads(row["golden_answers"])),
        gold_passage_ids=tuple(record["gold_passage_ids"]),
        context_passage_ids=tuple(record["context_passage_ids"]),
        supporting_facts=tuple((passage, sentence) for passage, sentence in record["supporting_facts"]),
        topic_entities=_entities_from_plain(record["topic_entities"]),
        num_hops=row["num_hops"],
        type=row["type"],
        answerable=row["answerable"],
        extra=record["extra"],
    )
    method_answer = json.loads(row["method_answer"])
    retrieval = Retrieval(
        passage_ids=tuple(row["passage_ids"]),
        passage_scores=tuple(row["passage_scores"]),
        evidence=tuple(_path_from_plain(path) for path in json.loads(row["evidence"])),
        anchors=_entities_from_plain(json.loads(row["anchors"])),
        evidence_entities=_entities_from_plain(json.loads(row["evidence_entities"])),
        answer=None if method_answer is None else _answer_from_plain(method_answer),
        trace=json.loads(row["trace"]),
    )
    answer = Answer(
        text=row["prediction"],
        source=_source(row["source"]),
        names=tuple(row["names"]),
        reply=row["reply"],
        confidence=row["confidence"],
    )
    return Result(question, retrieval, answer, tuple(row["gold_passage_ids"]), row["error"])


def results_to_table(results: Iterable[Result]) -> pa.Table:
    """The results as a table of `RESULT_SCHEMA`, in the order given."""
    return pa.Table.from_pylist([result_to_row(result) for result in results], schema=RESULT_SCHEMA)


def read_results(paths: Iterable[Path]) -> list[Result]:
    """The results of several shard files, file after file.

    Raises:
        UserError: a file is not a shard of this version, or cannot be read.
    """
    results: list[Result] = []
    for path in paths:
        results.extend(row_to_result(row) for row in _read_shard(path).to_pylist())
    return results


def find_result(paths: Iterable[Path], question_id: str) -> Result | None:
    """The result of one question out of several shard files; None if it is not there.

    Raises:
        UserError: a file cannot be read as a shard.
    """
    for path in paths:
        rows = _read_shard(path).filter(pc.field("id") == question_id).to_pylist()
        if rows:
            return row_to_result(rows[0])
    return None


def question_ids(paths: Iterable[Path]) -> list[str]:
    """The ids in several shard files, file after file."""
    return [question_id for path in paths for question_id in _read_shard(path)["id"].to_pylist()]


def _read_shard(path: Path) -> pa.Table:
    try:
        table = pq.ParquetFile(path).read()
    except (OSError, pa.ArrowException) as error:
        raise UserError(
            f"{path} is not a readable shard ({error}); delete it and run the same command again"
        ) from error
    version = (table.schema.metadata or {}).get(b"kgrag_gpu.result_schema", b"none").decode()
    if version != SCHEMA_VERSION:
        raise UserError(f"{path} holds rows of schema version {version}, expected {SCHEMA_VERSION}; run it anew")
    return table


def prediction_row(result: Result) -> dict[str, Any]:
    """The question's line of `predictions.jsonl`.

    `golden_answers` holds one list per gold answer: its name, then its aliases. `answers` is the whole predicted answer
    set. `evidence` holds the first `MAX_EVIDENCE_PATHS` paths as text (`path_text`).
    """
    answer = result.answer
    return {
        "id": result.question.id,
        "question": result.question.text,
        "prediction": answer.text,
        "answers": list(answer.names),
        "source": answer.source,
        "confidence": _rounded(answer.confidence),
        "golden_answers": [list(gold.spellings) for gold in result.question.golden_answers],
        "evidence": [path_text(path) for path in result.retrieval.evidence[:MAX_EVIDENCE_PATHS]],
        "error": result.error,
    }


def retrieval_row(result: Result, passages: Sequence[Passage]) -> dict[str, Any]:
    """The question's line of `retrieval.jsonl`: the ranked passages, the gold ones and the anchors.

    Args:
        result: the question's outcome.
        passages: the KG's passages; `passage_ids` are rows of it.

    Returns:
        A dict whose `passages` are best first. A gold passage that the KG lacks has id -1 and no title.
    """
    retrieval = result.retrieval
    gold = set(result.gold_passage_ids)
    ranked = [
        {
            "rank": rank,
            "id": int(passage_id),
            "title": passages[passage_id].title,
            "score": _rounded(score),
            "gold": passage_id in gold,
        }
        for rank, (passage_id, score) in enumerate(
            zip(retrieval.passage_ids, retrieval.passage_scores, strict=True), start=1
        )
    ]
    return {
        "id": result.question.id,
        "question": result.question.text,
        "passages": ranked,
        "gold": [{"id": int(i), "title": passages[i].title if i >= 0 else None} for i in result.gold_passage_ids],
        "anchors": [{"name": anchor.name, "id": anchor.external_id} for anchor in retrieval.anchors],
    }


def json_line(row: Mapping[str, Any]) -> str:
    """A public row as one line of JSON without the line end; the same row always gives the same bytes in UTF-8."""
    return _utf8(json.dumps(_plain(row), ensure_ascii=False, allow_nan=False))


def path_text(path: EvidencePath) -> str:
    """An evidence path in one line: `A -r-> B <-s- C`; arrows follow the KG's direction, `; ` starts a new chain."""
    parts: list[str] = []
    current: str | None = None
    for start, end, step in walk_steps(path.steps):
        if start != current or not parts:
            parts.append(("; " if parts else "") + start)
        forward = start == step.head
        parts.append(f" -{step.relation}-> {end}" if forward else f" <-{step.relation}- {end}")
        current = end
    return "".join(parts)


def walk_steps(steps: Sequence[EvidenceStep]) -> list[tuple[str, str, EvidenceStep]]:
    """Each step with the end from which it is walked: (start, end, step), so that steps join up where they can.

    A step that touches the end of the one before starts there. Otherwise it starts at its head, or at its tail where
    `is_inverse`; the first step is turned round where only that joins it to the second. A step that names no entity
    (a sentence alone) is walked from its text to nothing.
    """
    walked: list[tuple[str, str, EvidenceStep]] = []
    current: str | None = None
    for i, step in enumerate(steps):
        head, tail = step.head or step.text, step.tail
        start, end = (tail, head) if step.is_inverse else (head, tail)
        if current is not None and current in (head, tail):
            start, end = (head, tail) if current == head else (tail, head)
        elif i + 1 < len(steps):
            following = (steps[i + 1].head, steps[i + 1].tail)
            if end not in following and start in following:
                start, end = end, start
        walked.append((start, end, step))
        current = end
    return walked


def _path_to_plain(path: EvidencePath) -> dict[str, Any]:
    steps = [
        [s.head, s.relation, s.tail, s.text, list(s.passage_ids), int(s.edge_id), bool(s.is_inverse)]
        for s in path.steps
    ]
    return {"steps": steps, "score": float(path.score), "notes": path.notes}


def _path_from_plain(plain: Mapping[str, Any]) -> EvidencePath:
    steps = tuple(
        EvidenceStep(head, relation, tail, text, tuple(passage_ids), edge_id, is_inverse)
        for head, relation, tail, text, passage_ids, edge_id, is_inverse in plain["steps"]
    )
    return EvidencePath(steps, plain["score"], plain["notes"])


def _answer_to_plain(answer: Answer) -> dict[str, Any]:
    return {
        "text": answer.text,
        "source": answer.source,
        "names": answer.names,
        "reply": answer.reply,
        "confidence": answer.confidence,
    }


def _answer_from_plain(plain: Mapping[str, Any]) -> Answer:
    return Answer(plain["text"], _source(plain["source"]), tuple(plain["names"]), plain["reply"], plain["confidence"])


def _entities_to_plain(entities: Iterable[EntityRef]) -> list[list[str]]:
    return [[entity.name, entity.external_id] for entity in entities]


def _entities_from_plain(plain: Iterable[Sequence[str]]) -> tuple[EntityRef, ...]:
    return tuple(EntityRef(name, external_id) for name, external_id in plain)


def _source(value: str) -> Source:
    if value not in get_args(Source):
        raise UserError(f"a result row has the answer source {value!r}, expected one of {', '.join(get_args(Source))}")
    return value  # type: ignore[return-value]


def _rounded(value: float | None) -> float | None:
    """A score as printed: six digits, no minus zero, None for a value that JSON cannot carry."""
    if value is None or not math.isfinite(value):
        return None
    return round(float(value), SCORE_DIGITS) + 0.0


def _to_json(value: Any) -> str:
    # ASCII escapes carry even lone surrogates (broken input) through Parquet; keys are sorted so that a dict built in
    # another order gives the same bytes.
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    """The value in JSON's types; sets are sorted, numpy and torch values become numbers and lists."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((_plain(item) for item in value), key=repr)
    if hasattr(value, "tolist"):  # numpy scalars and arrays, tensors
        return _plain(value.tolist())
    raise TypeError(f"a result row cannot hold a {type(value).__name__} (expected JSON's types, got {value!r:.80})")


def _utf8(text: str) -> str:
    """The text with lone surrogates replaced: neither Parquet nor a UTF-8 file can hold them."""
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text
