"""What the golden test of the model's side runs, and the command that records it anew.

    python tests/golden/llm/golden_llm_case.py [hf|vllm]

asks a real Qwen (the one `fetch_models` gets; a minute or two) and rewrites replies.jsonl and expected.json beside
this file. Review the difference before committing it.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from kgrag_gpu.answer.generate import read_answers
from kgrag_gpu.config.schema import LlmConfig, ReaderConfig
from kgrag_gpu.data.sample import sample_records
from kgrag_gpu.kg.extract import extract_triples
from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.llm.factory import open_engine
from kgrag_gpu.prompts.registry import make_request, sampling_for
from kgrag_gpu.types import Passage, Question, Retrieval

FOLDER = Path(__file__).parent
REPLIES, EXPECTED = FOLDER / "replies.jsonl", FOLDER / "expected.json"
NUM_QUESTIONS, NUM_EXTRACTED = 6, 3


def run_case(engine: Engine) -> dict[str, Any]:
    """Keywords, verification, choices, answers and extraction over questions of the embedded sample."""
    records = sample_records()[:NUM_QUESTIONS]
    passages, questions, retrievals = [], [], []
    keywords, verify, judge = [], [], []
    for record in records:
        gold = [p for p in record["paragraphs"] if p["is_supporting"]]
        first = len(passages)
        passages += [Passage(p["title"], p["paragraph_text"]) for p in gold]
        questions.append(Question(record["id"], record["question"]))
        retrievals.append(Retrieval(tuple(range(first, len(passages)))))
        options = [p["paragraph_text"] for p in record["paragraphs"][:4]]
        keywords.append(make_request("keywords", record["id"], question=record["question"]))
        verify.append(
            make_request("verify_evidence", record["id"], 4, question=record["question"], options=options, path="")
        )
        judge.append(make_request("judge_path", record["id"], question=record["question"], path=options[0]))
    engine.take_failures()
    answers = read_answers(questions, retrievals, passages, engine, ReaderConfig())
    keyword_replies = engine.generate(keywords, sampling_for("keywords"))
    verify_replies = engine.generate(verify, sampling_for("verify_evidence"))
    scores = engine.score_choices(judge, [["Yes", "No"]] * len(judge))
    found = extract_triples(passages[:NUM_EXTRACTED], engine)
    return {
        "answers": [
            [question.id, answer.text, answer.source] for question, answer in zip(questions, answers, strict=True)
        ],
        "keywords": [reply.parsed.model_dump() if reply.parsed else reply.reason for reply in keyword_replies],
        "verify": [reply.parsed.model_dump() if reply.parsed else reply.reason for reply in verify_replies],
        "choices": [[round(score, 6) for score in row] for row in scores],
        "triples": [list(row) for row in found.extraction.rows],
        "rejected": [[item.where, item.reason] for item in found.extraction.rejected],
        "failures": [asdict(failure) for failure in engine.take_failures()],
        "tokens": [engine.usage.total.prompt_tokens, engine.usage.total.completion_tokens],
    }


def regenerate(engine_name: Literal["hf", "vllm"]) -> None:
    """Ask the real model and write both files."""
    REPLIES.unlink(missing_ok=True)
    config = LlmConfig(
        engine=engine_name, model="qwen2.5-coder-0.5b", max_context_tokens=4096, record_path=str(REPLIES)
    )
    engine, line = open_engine(config)
    print(line, file=sys.stderr)
    assert engine is not None
    with engine:
        result = run_case(engine)
    EXPECTED.write_text(json.dumps(result, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    regenerate("vllm" if sys.argv[1:] == ["vllm"] else "hf")
