"""Every prompt kind: its file, the form of its reply, how long the reply may be. Requests are made here alone."""

from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from kgrag_gpu.llm.records import Request, Sampling
from kgrag_gpu.prompts import schemas
from kgrag_gpu.prompts.templates import prompts_hash, render_messages, schema_text

__all__ = ["PROMPTS", "PromptKind", "make_request", "prompts_hash", "sampling_for", "schema_text"]


@dataclass(frozen=True, slots=True)
class PromptKind:
    """A prompt file (named as the kind), its reply's schema (None: free text) and its reply limit in tokens."""

    schema: type[BaseModel] | None
    max_tokens: int


PROMPTS: dict[str, PromptKind] = {
    "answer": PromptKind(None, 32),
    "answer_facts": PromptKind(None, 48),
    "io": PromptKind(None, 32),
    "cot": PromptKind(None, 200),
    "cot_examples": PromptKind(None, 200),
    "keywords": PromptKind(schemas.Keywords, 128),
    "rank_relations": PromptKind(schemas.Best, 32),
    "rank_entities": PromptKind(schemas.Best, 32),
    "verify_evidence": PromptKind(schemas.Keep, 48),
    "enough": PromptKind(schemas.Enough, 96),
    "rank_agents": PromptKind(schemas.Keep, 32),
    "anchor_groups": PromptKind(schemas.AnchorGroups, 256),
    "grow": PromptKind(schemas.Add, 48),
    "read_triples": PromptKind(schemas.Triples, 256),
    "reason": PromptKind(schemas.Reason, 96),
    "rewrite": PromptKind(schemas.Query, 64),
    "filter_facts": PromptKind(schemas.Keep, 48),
    "sub_questions": PromptKind(schemas.Parts, 128),
    "choose_relations": PromptKind(schemas.Keep, 32),
    "choose_entities": PromptKind(schemas.Keep, 32),
    "note_progress": PromptKind(schemas.Known, 160),
    "reflect": PromptKind(schemas.BackTo, 32),
    "ircot_step": PromptKind(None, 64),
    "pick_answer": PromptKind(schemas.Best, 16),
    "judge_path": PromptKind(None, 2),
    "openie_entities": PromptKind(schemas.Entities, 256),
    "openie_triples": PromptKind(schemas.SentenceTriples, 512),
}


def make_request(kind: str, question_id: str = "", num_options: int = 0, **values: Any) -> Request:
    """A request of a registered kind. In each file the constant instructions come first, the question last.

    Args:
        kind: a key of `PROMPTS`, which is also the file's name.
        question_id: labels a failure.
        num_options: how many numbered options the prompt shows, where the reply is by number.
        values: what the file fills in.
    """
    return Request(kind, render_messages(kind, **values), PROMPTS[kind].schema, num_options, question_id)


def sampling_for(kind: str, base: Sampling | None = None) -> Sampling:
    """The reply limit of a kind with the temperature, seed and stops of `base` (greedy where there is none)."""
    return replace(base or Sampling(), max_tokens=PROMPTS[kind].max_tokens)
