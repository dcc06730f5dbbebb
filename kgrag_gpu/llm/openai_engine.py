"""Any server that speaks the OpenAI protocol: `vllm serve` on this or another node, or another one.

Requests run side by side up to a limit. The client retries time-outs, 429 and 5xx with growing pauses and honours
Retry-After; what still fails is that one request's outcome, never the batch's. The server is asked at the start what it
serves, so that a wrong address or model name is known before any work. Structured output goes as `response_format`.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from typing import Any

import openai

from kgrag_gpu.config.schema import LlmConfig
from kgrag_gpu.llm.records import Completion, FinishReason, Message, Prompt, Sampling
from kgrag_gpu.types import UserError

_BYTES_PER_TOKEN = 3  # an upper estimate of tokens: English is at 4 and more, other scripts near 3
_TOKENS_PER_MESSAGE = 8  # what a chat template adds


class OpenAiBackend:
    """A server behind the engine's protocol. Its tokenizer is not here, so prompt lengths are estimates."""

    name = "openai"

    def __init__(self, config: LlmConfig):
        if not config.base_url:
            raise UserError("--llm openai needs llm.base_url, for example http://localhost:8000/v1")
        self._config = config
        # openai.AsyncOpenAI binds to the running loop's connections; one loop serves the whole life of the engine.
        self._loop = asyncio.new_event_loop()
        key = os.environ.get(config.api_key_env) or "none"
        self._client = openai.AsyncOpenAI(
            base_url=config.base_url,
            api_key=key,
            max_retries=config.max_retries,
            timeout=config.request_timeout_s,
        )
        self.model_id, self.max_context_tokens = self._served_model()
        self.revision = config.revision or "server"
        self._slots = asyncio.Semaphore(config.max_concurrency)
        self.detail = f"server {config.base_url}, up to {config.max_concurrency} requests at once, not batch-invariant"

    def render(self, messages: Sequence[Message]) -> str:
        """The chat as plain text: the server applies the real template."""
        return "\n".join(f"<|{message.role}|>\n{message.content}" for message in messages)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """An upper estimate from the text's bytes."""
        return [len(text.encode()) // _BYTES_PER_TOKEN + 1 + _TOKENS_PER_MESSAGE * text.count("<|") for text in texts]

    def complete(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        """All prompts at once, at most `max_concurrency` in flight; yields each reply as it arrives."""
        yield from self._drain([self._complete_one(row, prompt, sampling) for row, prompt in enumerate(prompts)])

    def choice_logprobs(
        self, prompts: Sequence[Prompt], choices: Sequence[Sequence[str]]
    ) -> Iterator[tuple[int, list[float], int]]:
        """By the log-probabilities of a prompt that already ends in the choice, which vLLM servers give.

        A server that does not give them scores every choice -inf; the engine then records the failure.
        """
        yield from self._drain([self._score_one(row, prompt, choices[row]) for row, prompt in enumerate(prompts)])

    def close(self) -> None:
        """Close the connections."""
        if not self._loop.is_closed():
            self._loop.run_until_complete(self._client.close())
            self._loop.close()

    def _drain(self, jobs: Sequence[Coroutine[Any, Any, Any]]) -> Iterator[Any]:
        """Run coroutines side by side and yield results as they come, from synchronous code."""

        async def run() -> AsyncGenerator[Any, None]:
            tasks = [asyncio.ensure_future(job) for job in jobs]
            try:
                for done in asyncio.as_completed(tasks):
                    yield await done
            finally:
                for task in tasks:
                    task.cancel()

        results = run()
        try:
            while True:
                try:
                    yield self._loop.run_until_complete(anext(results))
                except StopAsyncIteration:
                    return
        finally:
            self._loop.run_until_complete(results.aclose())

    async def _complete_one(self, row: int, prompt: Prompt, sampling: Sampling) -> tuple[int, Completion]:
        options: dict[str, Any] = {"max_tokens": sampling.max_tokens, "temperature": sampling.temperature}
        if sampling.temperature > 0:
            options |= {"top_p": sampling.top_p, "seed": sampling.seed}
        if sampling.stop:
            options["stop"] = list(sampling.stop)
        if prompt.json_schema:
            form = {"name": "reply", "schema": json.loads(prompt.json_schema), "strict": True}
            options["response_format"] = {"type": "json_schema", "json_schema": form}
        async with self._slots:
            try:
                raw = await self._client.chat.completions.with_raw_response.create(
                    model=self.model_id, messages=_turns(prompt.messages), extra_body=self._extra_body(), **options
                )
                reply = raw.parse()
                return row, _as_completion(reply, getattr(raw, "retries_taken", 0))
            except (openai.OpenAIError, ValueError, TypeError, AttributeError, IndexError) as error:
                return row, self._failed(error)

    async def _score_one(self, row: int, prompt: Prompt, choices: Sequence[str]) -> tuple[int, list[float], int]:
        failed = row, [float("-inf")] * len(choices), 0
        async with self._slots:
            try:
                bare = await self._client.chat.completions.create(
                    model=self.model_id,
                    messages=_turns(prompt.messages),
                    max_tokens=1,
                    temperature=0.0,
                    extra_body=self._extra_body(),
                )
                num_prompt = bare.usage.prompt_tokens if bare.usage else 0
                scores = [await self._score_choice(prompt, choice, num_prompt) for choice in choices]
                return row, scores, num_prompt
            except (openai.OpenAIError, ValueError, TypeError, AttributeError, IndexError):
                return failed

    async def _score_choice(self, prompt: Prompt, choice: str, num_prompt: int) -> float:
        """Mean log-probability of the last tokens of a prompt that ends in the choice."""
        turns = [*_turns(prompt.messages), {"role": "assistant", "content": choice}]
        ending = {"prompt_logprobs": 0, "continue_final_message": True, "add_generation_prompt": False}
        reply: Any = await self._client.chat.completions.create(
            model=self.model_id,
            messages=turns,
            max_tokens=1,
            temperature=0.0,
            extra_body={**self._extra_body(), **ending},
        )
        rows = (reply.model_extra or {}).get("prompt_logprobs")
        length = reply.usage.prompt_tokens - num_prompt if reply.usage else 0
        if not rows or length < 1:
            return float("-inf")
        values = [next(iter(options.values()))["logprob"] for options in rows[-length:]]
        return sum(values) / length

    def _extra_body(self) -> dict[str, Any]:
        """What vLLM's server understands beyond OpenAI's protocol; sent only where the model thinks by default."""
        if "qwen3" in self.model_id.lower():
            return {"chat_template_kwargs": {"enable_thinking": self._config.enable_thinking}}
        return {}

    def _failed(self, error: Exception) -> Completion:
        tries = f"after {self._config.max_retries + 1} tries" if self._config.max_retries else "after one try"
        if isinstance(error, openai.APITimeoutError):
            return Completion("", 0, 0, "timeout", f"no reply within {self._config.request_timeout_s:g} s {tries}")
        if isinstance(error, openai.APIStatusError):
            again = f" {tries}" if error.status_code in (408, 409, 429) or error.status_code >= 500 else ""
            return Completion("", 0, 0, "error", f"server said {error.status_code}{again}: {_short(error)}")
        if isinstance(error, openai.APIConnectionError):
            return Completion("", 0, 0, "error", f"no connection {tries}: {_short(error.__cause__ or error)}")
        return Completion("", 0, 0, "error", f"unreadable response of the server: {_short(error)}")

    def _served_model(self) -> tuple[str, int]:
        """(model name, context length): the configured model, or the only one served when none was configured."""
        config = self._config
        try:
            page = self._loop.run_until_complete(self._client.models.list())
            served = {model.id: model for model in page.data}
        except openai.APIStatusError:
            return config.model, config.max_context_tokens  # a server without a list of models
        except (openai.OpenAIError, ValueError, TypeError, AttributeError) as error:
            cause = _short(error.__cause__ or error)
            lead = f"no OpenAI-compatible server at {config.base_url}"
            raise UserError(f"{lead} ({cause}); start one or mend llm.base_url") from None
        name = config.model
        if name not in served and name == LlmConfig().model and len(served) == 1:
            name = next(iter(served))
        if served and name not in served:
            raise UserError(f"the server serves {', '.join(sorted(served))}, not {name}; set llm.model")
        longest = getattr(served.get(name), "max_model_len", None) or config.max_context_tokens
        return name, min(config.max_context_tokens, longest)


def _turns(messages: Sequence[Message]) -> Any:
    return [{"role": message.role, "content": message.content} for message in messages]


def _as_completion(reply: Any, num_retries: int) -> Completion:
    choice = reply.choices[0]
    usage = reply.usage
    counts = (usage.prompt_tokens, usage.completion_tokens) if usage else (0, 0)
    finish: FinishReason = "length" if choice.finish_reason == "length" else "stop"
    return Completion(choice.message.content or "", *counts, finish, num_retries=num_retries)


def _short(error: object) -> str:
    return " ".join(str(error).split())[:160] or type(error).__name__
