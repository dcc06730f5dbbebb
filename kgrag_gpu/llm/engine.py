"""The one way to ask a language model. Caching, validation, one retry and accounting happen here, once.

What differs between vLLM, transformers, a server and recorded replies sits behind `Backend`, which only turns prompts
into raw text. The engine knows nothing about questions, graphs or answers.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Protocol, Self

from kgrag_gpu.llm.cache import CachedReply, ReplyCache, choices_key, reply_key
from kgrag_gpu.llm.parse import parse_reply, strip_thoughts
from kgrag_gpu.llm.recorder import Recorder
from kgrag_gpu.llm.records import Completion, Failure, Message, Prompt, Reply, Request, Sampling
from kgrag_gpu.llm.usage import Usage
from kgrag_gpu.prompts.templates import render_messages, schema_text

__all__ = ["Backend", "Completion", "Engine", "Failure", "Message", "Prompt", "Reply", "Request", "Sampling"]

_EXCERPT_CHARACTERS = 200
_RETRY_CHARACTERS = 1500  # of the unusable reply that the retry shows the model


class Backend(Protocol):
    """What runs the model. `complete` and `choice_logprobs` yield in any order, each result as soon as it is there."""

    name: str  # "hf", "vllm", "openai", "replay"
    model_id: str
    revision: str
    max_context_tokens: int  # prompt and reply together
    detail: str  # one line for the manifest: device, dtype, what is guaranteed

    def render(self, messages: Sequence[Message]) -> str:
        """The chat as one text, ending where the reply begins."""
        ...

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text. Exact where the tokenizer is here, else an upper estimate."""
        ...

    def complete(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        """Replies to all prompts, as (row of `prompts`, completion)."""
        ...

    def choice_logprobs(
        self, prompts: Sequence[Prompt], choices: Sequence[Sequence[str]]
    ) -> Iterator[tuple[int, list[float], int]]:
        """Mean log-probability per token of each choice, as (row of `prompts`, scores, prompt tokens read)."""
        ...

    def close(self) -> None:
        """Give back memory and processes."""
        ...


class Engine:
    """A backend with cache, validation, one retry and accounting. Use as a context manager.

    Replies come back in the order of the requests. Equal requests of a batch are asked once. Requests reach the
    backend sorted by their text: equal prefixes stand together, and the order of the questions does not matter.
    """

    def __init__(
        self,
        backend: Backend,
        cache: ReplyCache | None = None,
        usage: Usage | None = None,
        recorder: Recorder | None = None,
        sampling: Sampling | None = None,
    ):
        self.backend = backend
        self.sampling = sampling or Sampling()  # temperature, seed and stops that the run is configured with
        self._recorder = recorder
        self.cache = cache if cache is not None else ReplyCache(None)
        self.usage = usage if usage is not None else Usage()
        self._failures: list[Failure] = []

    @property
    def name(self) -> str:
        """The backend's name: "hf", "vllm", "openai" or "replay"."""
        return self.backend.name

    @property
    def model_id(self) -> str:
        """The model as it was asked for, independent of where its files lie."""
        return self.backend.model_id

    @property
    def revision(self) -> str:
        """What tells two versions of the model's weights apart."""
        return self.backend.revision

    @property
    def max_context_tokens(self) -> int:
        """Tokens that prompt and reply may take together."""
        return self.backend.max_context_tokens

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Shut the backend down. Every reply is on disk before."""
        self.cache.close()
        if self._recorder:
            self._recorder.close()
        self.backend.close()

    def sleep(self) -> None:
        """Hand the device to another stage until the next request, where the backend can (vLLM's sleep mode)."""
        sleep = getattr(self.backend, "sleep", None)
        if sleep:
            sleep()

    def take_failures(self) -> list[Failure]:
        """Failures since the last call, in the order of the requests that met them."""
        failures, self._failures = self._failures, []
        return failures

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, as the backend counts them."""
        return self.backend.count_tokens(texts)

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Reply]:
        """Ask all requests in one batch.

        A reply that cannot be read is asked for once more, with the reason; what still cannot be read comes back with
        `ok` False and its reason, is kept for `take_failures`, and is not cached. Nothing a model says raises.

        Returns:
            One reply per request, in order.
        """
        started = time.perf_counter()
        prompts = [self._prompt(request) for request in requests]
        keys = [
            reply_key(prompt.text, self.model_id, self.revision, sampling, prompt.json_schema) for prompt in prompts
        ]
        replies = self._replay(requests, prompts, keys)
        pending = {key: row for row, key in reversed(list(enumerate(keys))) if key not in replies}
        rows = sorted(pending.values(), key=lambda row: (prompts[row].text, keys[row]))
        unusable = self._ask(requests, prompts, keys, rows, sampling, replies)
        self._ask_again(requests, prompts, keys, unusable, sampling, replies)
        self._book_seconds([request.kind for request in requests], time.perf_counter() - started)
        for request, key in zip(requests, keys, strict=True):
            self._note_failure(request, replies[key])
        return [replies[key] for key in keys]

    def score_choices(self, requests: Sequence[Request], choices: Sequence[Sequence[str]]) -> list[list[float]]:
        """Log-probability of each choice as the reply to its request, **averaged over the choice's tokens**.

        The mean, not the sum, so that a long choice is not worse for being long. Each choice is scored by itself: no
        choice sees the others. Natural logarithm; higher is better; comparable within one request.

        Args:
            requests: prompts; their schemas are not used.
            choices: the texts to score, for each request.

        Returns:
            One list of scores per request, in the order of its choices; -inf throughout where the prompt was too long
            or failed (kept for `take_failures`).
        """
        started = time.perf_counter()
        prompts = [self._prompt(request) for request in requests]
        keys = [
            choices_key(prompt.text, self.model_id, self.revision, options)
            for prompt, options in zip(prompts, choices, strict=True)
        ]
        found = {key: list(reply.scores) for key, reply in self.cache.get_many(keys).items()}
        for request, key in zip(requests, keys, strict=True):
            if key in found:
                counts = self.usage.of(request.kind)
                counts.cached_calls += 1
        self._score_missing(requests, prompts, keys, choices, found)
        self._book_seconds([request.kind for request in requests], time.perf_counter() - started)
        return [found[key] for key in keys]

    def _prompt(self, request: Request) -> Prompt:
        schema = schema_text(request.schema) if request.schema else None
        return Prompt(request.messages, self.backend.render(request.messages), schema)

    def _replay(self, requests: Sequence[Request], prompts: Sequence[Prompt], keys: Sequence[str]) -> dict[str, Reply]:
        """Cached replies by key. One that no longer passes the reader of today is asked anew."""
        stored = self.cache.get_many(keys)
        replies: dict[str, Reply] = {}
        for request, prompt, key in zip(requests, prompts, keys, strict=True):
            if key not in stored:
                continue
            if key not in replies:
                reply = _judge(request, _as_completion(stored[key]), cached=True)
                if not reply.ok:
                    del stored[key]
                    continue
                replies[key] = reply
                self._record(prompt, request.kind, _as_completion(stored[key]))
            counts = self.usage.of(request.kind)
            counts.cached_calls += 1
            counts.cached_prompt_tokens += replies[key].prompt_tokens
            counts.cached_completion_tokens += replies[key].completion_tokens
        return replies

    def _ask(
        self,
        requests: Sequence[Request],
        prompts: Sequence[Prompt],
        keys: Sequence[str],
        rows: Sequence[int],
        sampling: Sampling,
        replies: dict[str, Reply],
    ) -> list[int]:
        """Ask `rows`; fill `replies`, cache good ones as they come. Returns the rows worth asking again, sorted."""
        room = self.max_context_tokens - sampling.max_tokens
        fitting: list[int] = []
        lengths = self.count_tokens([prompts[row].text for row in rows])
        for row, length in zip(rows, lengths, strict=True):
            if length <= room:
                fitting.append(row)
            else:
                reason = f"prompt of {length} tokens, room for {room} ({self.max_context_tokens} with the reply)"
                replies[keys[row]] = Reply("", None, False, reason, 0, 0, False, "error")
        again = []
        for position, completion in self.backend.complete([prompts[row] for row in fitting], sampling):
            row = fitting[position]
            self._record(prompts[row], requests[row].kind, completion)
            reply = _judge(requests[row], completion, cached=False)
            replies[keys[row]] = reply
            self._book(requests[row].kind, reply, completion)
            if reply.ok:
                self.cache.put(_as_cached(keys[row], requests[row].kind, completion))
            elif not completion.error:
                again.append(row)
        return sorted(again)

    def _ask_again(
        self,
        requests: Sequence[Request],
        prompts: Sequence[Prompt],
        keys: Sequence[str],
        rows: Sequence[int],
        sampling: Sampling,
        replies: dict[str, Reply],
    ) -> None:
        """One more try for unusable replies, showing what was wrong. A good one is cached under the first key."""
        if not rows:
            return
        retries = [_retry_request(requests[row], replies[keys[row]]) for row in rows]
        retry_prompts = [self._prompt(request) for request in retries]
        retry_keys = [keys[row] for row in rows]
        first = {key: replies[key] for key in retry_keys}
        order = sorted(range(len(rows)), key=lambda i: retry_prompts[i].text)
        self._ask(retries, retry_prompts, retry_keys, order, sampling, replies)
        for request, key in zip(retries, retry_keys, strict=True):
            self.usage.of(request.kind).retries += 1
            reply, before = replies[key], first[key]
            reason = reply.reason if reply.ok else f"{before.reason}; asked again: {reply.reason}"
            replies[key] = Reply(
                reply.text or before.text,
                reply.parsed,
                reply.ok,
                reason,
                reply.prompt_tokens + before.prompt_tokens,
                reply.completion_tokens + before.completion_tokens,
                False,
                reply.finish_reason,
            )

    def _score_missing(
        self,
        requests: Sequence[Request],
        prompts: Sequence[Prompt],
        keys: Sequence[str],
        choices: Sequence[Sequence[str]],
        found: dict[str, list[float]],
    ) -> None:
        pending = {key: row for row, key in reversed(list(enumerate(keys))) if key not in found}
        rows = sorted(pending.values(), key=lambda row: (prompts[row].text, keys[row]))
        lengths = self.count_tokens([prompts[row].text for row in rows])
        longest = [max(self.count_tokens(list(choices[row])), default=0) for row in rows]
        fitting: list[int] = []
        for row, length, choice_length in zip(rows, lengths, longest, strict=True):
            if length + choice_length <= self.max_context_tokens:
                fitting.append(row)
                continue
            found[keys[row]] = [float("-inf")] * len(choices[row])
            reason = f"prompt of {length} tokens and choice of {choice_length}, room for {self.max_context_tokens}"
            self._fail(requests[row], reason, "")
        batch = self.backend.choice_logprobs([prompts[row] for row in fitting], [choices[row] for row in fitting])
        for position, scores, num_tokens in batch:
            row = fitting[position]
            found[keys[row]] = scores
            if self._recorder:
                self._recorder.add_scores(self.backend, prompts[row], requests[row].kind, choices[row], scores)
            counts = self.usage.of(requests[row].kind)
            counts.llm_calls += 1
            counts.prompt_tokens += num_tokens
            if any(score == float("-inf") for score in scores):
                self._fail(requests[row], "the engine could not score the choices", "")
            else:
                self.cache.put(CachedReply(keys[row], requests[row].kind, scores=tuple(scores)))

    def _record(self, prompt: Prompt, kind: str, completion: Completion) -> None:
        if self._recorder:
            self._recorder.add(self.backend, prompt, kind, completion)

    def _book(self, kind: str, reply: Reply, completion: Completion) -> None:
        counts = self.usage.of(kind)
        counts.llm_calls += 1
        counts.prompt_tokens += completion.prompt_tokens
        counts.completion_tokens += completion.completion_tokens
        counts.retries += completion.num_retries
        counts.mended += bool(reply.ok and reply.reason)

    def _book_seconds(self, kinds: Sequence[str], seconds: float) -> None:
        """A batch of several kinds (rare) shares its time by number of requests."""
        for kind in kinds:
            self.usage.of(kind).seconds += seconds / len(kinds)

    def _note_failure(self, request: Request, reply: Reply) -> None:
        if not reply.ok:
            self._fail(request, reply.reason, reply.text[:_EXCERPT_CHARACTERS])

    def _fail(self, request: Request, reason: str, excerpt: str) -> None:
        self.usage.of(request.kind).failures += 1
        self._failures.append(Failure(request.question_id, request.kind, reason, excerpt))


def _judge(request: Request, completion: Completion, cached: bool) -> Reply:
    """A raw completion as a reply: thoughts stripped, validated against the request's schema."""
    text = strip_thoughts(completion.text)
    parsed, note, ok = None, completion.error, not completion.error
    if ok and request.schema is not None:
        reading = parse_reply(text, request.schema, request.num_options, completion.finish_reason == "length")
        parsed, note, ok = reading.value, reading.note, reading.value is not None
    elif ok and not text:
        note, ok = "empty reply", False
    if not ok and completion.finish_reason == "length":
        note = f"{note} (cut off at the reply limit of {completion.completion_tokens} tokens)"
    counts = (completion.prompt_tokens, completion.completion_tokens)
    return Reply(text, parsed, ok, note, *counts, cached, completion.finish_reason)


def _retry_request(request: Request, reply: Reply) -> Request:
    shown = reply.text[:_RETRY_CHARACTERS] or "(nothing)"
    complaint = render_messages("retry", reason=reply.reason, wants_json=request.schema is not None)
    return replace(request, messages=(*request.messages, Message("assistant", shown), *complaint))


def _as_cached(key: str, kind: str, completion: Completion) -> CachedReply:
    return CachedReply(
        key,
        kind,
        text=completion.text,
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=completion.completion_tokens,
        finish_reason=completion.finish_reason,
    )


def _as_completion(stored: CachedReply) -> Completion:
    return Completion(stored.text, stored.prompt_tokens, stored.completion_tokens, stored.finish_reason)
