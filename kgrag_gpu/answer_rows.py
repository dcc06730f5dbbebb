"""The answers of a run for whoever asked: `answers.jsonl` and `answers.parquet`, a row a question, in the order asked.

Unlike `predictions.jsonl` a row carries its evidence with the passages' text, and the fields of the question's record.
A record that was rejected has a row, too: its place as id, no answer, and the reason as `error`.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kgrag_gpu.results import MAX_EVIDENCE_PATHS, json_line, path_text
from kgrag_gpu.types import EvidencePath, Passage, Rejected, Result, Retrieval

MAX_PASSAGES = 5
_TEXTS = pa.list_(pa.string())
_PASSAGES = pa.list_(pa.struct([("title", pa.string()), ("text", pa.string())]))
_STEP = pa.struct(
    [("head", pa.string()), ("relation", pa.string()), ("tail", pa.string()), ("text", pa.string()),
     ("passages", _PASSAGES)]
)  # fmt: skip
_PATH = pa.struct([("text", pa.string()), ("score", pa.float64()), ("steps", pa.list_(_STEP))])
_COST = pa.struct(
    [("seconds", pa.float64()), ("llm_calls", pa.float64()), ("prompt_tokens", pa.float64()),
     ("completion_tokens", pa.float64())]
)  # fmt: skip
ANSWER_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("question", pa.string()),
        ("answer", pa.string()),
        ("answers", _TEXTS),
        ("source", pa.string()),
        ("confidence", pa.float64()),
        ("evidence", pa.list_(_PATH)),
        ("passages", _PASSAGES),
        ("cost", _COST),
        ("fields", pa.string()),  # JSON here, an object in the JSON lines: columns of a table have one type
        ("error", pa.string()),
    ]
)


def answer_row(result: Result, passages: Sequence[Passage], cost: Mapping[str, Any]) -> dict[str, Any]:
    """One question's row.

    Args:
        result: the question's outcome.
        passages: the KG's passages.
        cost: the question's share of what its run cost (`cost_share`).

    Returns:
        `answers` is the whole answer set, best first, `answer` the first of it. `evidence` holds the best
        `MAX_EVIDENCE_PATHS` paths, each step with its passages; `passages` the best `MAX_PASSAGES` retrieved.
        `fields` are those of the question's record that the reader did not know.
    """
    answer, retrieval = result.answer, result.retrieval
    return {
        "id": result.question.id,
        "question": result.question.text,
        "answer": answer.text,
        "answers": list(answer.names) or ([answer.text] if answer.text else []),
        "source": answer.source,
        "confidence": answer.confidence,
        "evidence": [_path_row(path, passages) for path in retrieval.evidence[:MAX_EVIDENCE_PATHS]],
        "passages": _best_passages(retrieval, passages),
        "cost": dict(cost),
        "fields": dict(result.question.extra),
        "error": result.error,
    }


def rejected_row(rejected: Rejected) -> dict[str, Any]:
    """The row of a record that could not be asked; it cost nothing."""
    return {
        "id": rejected.where,
        "question": "",
        "answer": "",
        "answers": [],
        "source": "none",
        "confidence": None,
        "evidence": [],
        "passages": [],
        "cost": dict.fromkeys(_COST.names, 0.0),
        "fields": {},
        "error": f"rejected: {rejected.reason}",
    }


def cost_share(cost: Mapping[str, Any], num_questions: int) -> dict[str, float]:
    """The mean over the questions of a run's cost block: questions advance together, so only the mean is known."""
    return {name: cost.get(name, 0) / max(1, num_questions) for name in _COST.names}


def write_answers(folder: Path, rows: Sequence[Mapping[str, Any]]) -> tuple[Path, Path]:
    """Writes both files, each whole or not at all; returns their paths (JSON lines, Parquet)."""
    lines = [json_line(row) for row in rows]
    clean = [json.loads(line) for line in lines]  # the same texts in both: no lone surrogates, plain numbers
    for row in clean:
        row["fields"] = json.dumps(row["fields"], ensure_ascii=False, sort_keys=True)
    jsonl, parquet = folder / "answers.jsonl", folder / "answers.parquet"
    temporary = folder / f".answers.{uuid.uuid4().hex[:12]}.tmp"
    try:
        temporary.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        temporary.replace(jsonl)
        pq.write_table(pa.Table.from_pylist(clean, schema=ANSWER_SCHEMA), temporary)
        temporary.replace(parquet)
    finally:
        temporary.unlink(missing_ok=True)
    return jsonl, parquet


def _path_row(path: EvidencePath, passages: Sequence[Passage]) -> dict[str, Any]:
    steps = [
        {
            "head": step.head,
            "relation": step.relation,
            "tail": step.tail,
            "text": step.text,
            "passages": [_passage_row(passages[row]) for row in step.passage_ids],
        }
        for step in path.steps
    ]
    return {"text": path_text(path), "score": float(path.score), "steps": steps}


def _best_passages(retrieval: Retrieval, passages: Sequence[Passage]) -> list[dict[str, str]]:
    return [_passage_row(passages[row]) for row in retrieval.passage_ids[:MAX_PASSAGES]]


def _passage_row(passage: Passage) -> dict[str, str]:
    return {"title": passage.title, "text": passage.text}
