"""What goes into an engine and what comes out of it. Knows no engine, no prompt file and no cache."""

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel

Role = Literal["system", "user", "assistant"]
FinishReason = Literal["stop", "length", "timeout", "error", ""]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class Request:
    """One question to the model.

    `kind` names the prompt file and is what costs are booked under. `schema` is the form of the reply (None: free
    text). `num_options` is how many options the prompt numbers (1-based); replies by index are held to it.
    `question_id` only labels failures, so two questions with the same messages share one call.
    """

    kind: str
    messages: tuple[Message, ...]
    schema: type[BaseModel] | None = None
    num_options: int = 0
    question_id: str = ""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the reply is drawn. Part of the cache key, so equal sampling means equal replies on a replay.

    `temperature` 0 is greedy. `seed` matters only above 0, and is mixed with the prompt's text, so that a sampled
    reply does not depend on what else stands in the batch; five samples of one prompt are five seeds.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. `ok` False means nothing usable came; `reason` then says why, and `text` is what there was.

    `text` has the model's thoughts and the chat's own marks removed; `parsed` is an instance of the request's schema.
    Token counts are the engine's own; for a retried request they are the sum over both tries. `cached` replies cost
    nothing now: their counts say what they cost when they were made. `reason` may also be set on a good reply, to say
    how it was mended.
    """

    text: str
    parsed: BaseModel | None
    ok: bool
    reason: str
    prompt_tokens: int
    completion_tokens: int
    cached: bool
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True)
class Failure:
    """One request without a usable reply: a line of `errors.jsonl`."""

    question_id: str
    kind: str
    reason: str
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request as a backend sees it: the chat, its text after the chat template, and the reply's JSON schema."""

    messages: tuple[Message, ...]
    text: str
    json_schema: str | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """A backend's raw reply. `error` is set where the request itself failed (time-out, server error)."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: FinishReason
    error: str = ""
    num_retries: int = 0
