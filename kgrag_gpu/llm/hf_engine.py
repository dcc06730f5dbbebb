"""Qwen through transformers, on a CPU or a GPU. Batched, left-padded; the slow but plain way to run a model.

Guarantees: prompts are batched by their length (longest first), greedy unless the temperature is above 0, and a
sampled reply draws from its own random stream (seed and prompt). Padding does not enter the sums of a reply, but a
matrix product's rounding can depend on the batch's shape, so a near tie between two tokens may fall differently in
another batch: replies are equal across batch sizes up to such ties, and bit-equal only when replayed from the cache.
"""

import hashlib
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from kgrag_gpu.llm.models import ModelFiles
from kgrag_gpu.llm.records import Completion, Message, Prompt, Sampling

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype for `auto`: bfloat16 where the device computes in it, else float32."""
    if name != "auto":
        return _DTYPES[name]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    native = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.bfloat16 if native else torch.float32


class HfBackend:
    """A causal language model of transformers behind the engine's protocol."""

    name = "hf"

    def __init__(
        self,
        files: ModelFiles,
        device: torch.device,
        dtype: str = "auto",
        batch_size: int = 8,
        max_context_tokens: int = 8192,
        enable_thinking: bool = False,
    ):
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()
        self.model_id, self.revision = files.model_id, files.revision
        self._device, self._batch_size, self._thinking = device, batch_size, enable_thinking
        self._tokenizer = AutoTokenizer.from_pretrained(files.path, padding_side="left", local_files_only=True)
        if self._tokenizer.pad_token_id is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        chosen = choose_dtype(dtype, device)
        model: Any = AutoModelForCausalLM.from_pretrained(files.path, dtype=chosen, local_files_only=True)
        self._model = model.to(device).eval()
        longest = getattr(self._model.config, "max_position_embeddings", max_context_tokens)
        self.max_context_tokens = min(max_context_tokens, longest)
        self._stops = _stop_ids(self._model, self._tokenizer)
        self._grammars = None
        # transformers renamed the argument in 5.2x; both names are in use.
        takes_cache = "cache" in inspect.signature(self._model.base_model.forward).parameters
        self._cache_argument = "cache" if takes_cache else "past_key_values"
        self.detail = f"transformers, {device}, {str(chosen).removeprefix('torch.')}, batches of {batch_size}"

    def render(self, messages: Sequence[Message]) -> str:
        """The chat through the model's own template; Qwen3's thinking is off unless asked for."""
        turns = [{"role": message.role, "content": message.content} for message in messages]
        options = {"enable_thinking": self._thinking}
        return self._tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, **options)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Exact, by the model's tokenizer."""
        return [len(ids) for ids in self._ids(texts)]

    def complete(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        """Batches of prompts of like length; yields after each batch. Out of device memory halves a batch once."""
        ids = self._ids([prompt.text for prompt in prompts])
        order = sorted(range(len(prompts)), key=lambda row: (-len(ids[row]), row))
        for start in range(0, len(order), self._batch_size):
            rows = order[start : start + self._batch_size]
            try:
                yield from self._complete_batch(rows, prompts, ids, sampling)
            except torch.cuda.OutOfMemoryError:
                if len(rows) == 1:
                    raise
                torch.cuda.empty_cache()
                half = (len(rows) + 1) // 2
                yield from self._complete_batch(rows[:half], prompts, ids, sampling)
                yield from self._complete_batch(rows[half:], prompts, ids, sampling)

    def choice_logprobs(
        self, prompts: Sequence[Prompt], choices: Sequence[Sequence[str]]
    ) -> Iterator[tuple[int, list[float], int]]:
        """Each prompt is read once; its choices continue from its keys and values, each on its own row."""
        ids = self._ids([prompt.text for prompt in prompts])
        options = [self._ids(texts) for texts in choices]
        order = sorted(range(len(prompts)), key=lambda row: (-len(ids[row]), row))
        for start in range(0, len(order), self._batch_size):
            rows = order[start : start + self._batch_size]
            scores = self._score_batch([ids[row] for row in rows], [options[row] for row in rows])
            for row, values in zip(rows, scores, strict=True):
                yield row, values, len(ids[row])

    def close(self) -> None:
        """Free the weights."""
        del self._model
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        return self._tokenizer(list(texts), add_special_tokens=False)["input_ids"] if texts else []

    def _pad_left(self, ids: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids and mask, both [rows, longest]."""
        width = max(len(row) for row in ids)
        pad = self._tokenizer.pad_token_id
        tokens = [[pad] * (width - len(row)) + list(row) for row in ids]
        mask = [[0] * (width - len(row)) + [1] * len(row) for row in ids]
        return torch.tensor(tokens, device=self._device), torch.tensor(mask, device=self._device)

    @torch.inference_mode()
    def _complete_batch(
        self, rows: Sequence[int], prompts: Sequence[Prompt], ids: Sequence[Sequence[int]], sampling: Sampling
    ) -> list[tuple[int, Completion]]:
        tokens, mask = self._pad_left([ids[row] for row in rows])
        processors = self._processors([prompts[row] for row in rows], tokens.shape[1], sampling)
        output = self._model.generate(
            input_ids=tokens,
            attention_mask=mask,
            max_new_tokens=sampling.max_tokens,
            do_sample=False,
            temperature=None,
            top_p=None,
            top_k=None,
            repetition_penalty=1.0,
            eos_token_id=list(self._stops),
            pad_token_id=self._tokenizer.pad_token_id,
            logits_processor=processors,
            stop_strings=list(sampling.stop) or None,
            tokenizer=self._tokenizer if sampling.stop else None,
        )
        replies = output[:, tokens.shape[1] :].tolist()
        return [
            (row, self._completion(reply, len(ids[row]), sampling)) for row, reply in zip(rows, replies, strict=True)
        ]

    def _completion(self, reply: list[int], prompt_tokens: int, sampling: Sampling) -> Completion:
        """Cut a row of generated ids at its first stop token, which counts as generated, as it does in vLLM."""
        end = next((place for place, token in enumerate(reply) if token in self._stops), None)
        kept = reply if end is None else reply[:end]
        text = self._tokenizer.decode(kept, skip_special_tokens=True)
        finish = "length" if end is None else "stop"
        for stop in sampling.stop:
            if stop in text:
                text, finish = text[: text.index(stop)], "stop"
        return Completion(text, prompt_tokens, len(kept) + (end is not None), finish)

    def _processors(self, prompts: Sequence[Prompt], prompt_width: int, sampling: Sampling) -> list[Any]:
        processors: list[Any] = []
        if any(prompt.json_schema for prompt in prompts):
            if self._grammars is None:
                from kgrag_gpu.llm.grammar import Grammars

                self._grammars = Grammars(self._tokenizer, self._model.config.vocab_size)
            processors.append(self._grammars.processor([prompt.json_schema for prompt in prompts], prompt_width))
        if sampling.temperature > 0:
            processors.append(_Draw([prompt.text for prompt in prompts], sampling))
        return processors

    @torch.inference_mode()
    def _score_batch(self, ids: Sequence[list[int]], options: Sequence[list[list[int]]]) -> list[list[float]]:
        """Mean log-probability of each option after its prompt.

        The option's own logits are taken in float32 from the last hidden state: bfloat16 logits are too coarse (steps
        of 1/8 near 20) and tie options that differ.
        """
        tokens, mask = self._pad_left(ids)
        inputs = {"attention_mask": mask, "position_ids": _positions(mask), "use_cache": True}
        output = self._model.base_model(input_ids=tokens, **inputs)
        pairs = [(row, option) for row, texts in enumerate(options) for option in texts]
        if not pairs:
            return [[] for _ in options]
        owner = torch.tensor([row for row, _ in pairs], device=self._device)
        last = output.last_hidden_state[:, -1]
        first = torch.tensor([option[0] for _, option in pairs], device=self._device)
        totals = self._logprobs(last, owner, first)
        long = [pair for pair, (_, option) in enumerate(pairs) if len(option) > 1]
        if long:
            picked = torch.tensor(long, device=self._device)
            rests = [pairs[pair][1] for pair in long]
            totals[picked] += self._continue(output.past_key_values, mask, owner[picked], rests)
        means = (totals / torch.tensor([len(option) for _, option in pairs], device=self._device)).tolist()
        scores: list[list[float]] = [[] for _ in options]
        for (row, _), mean in zip(pairs, means, strict=True):
            scores[row].append(mean)
        return scores

    def _continue(
        self, past: Any, mask: torch.Tensor, owner: torch.Tensor, options: Sequence[list[int]]
    ) -> torch.Tensor:
        """Summed log-probability of every token after the first, [options]; right-padded behind the prompt."""
        past.batch_select_indices(owner)
        width = max(len(option) for option in options) - 1
        inputs = [option[:-1] + [0] * (width + 1 - len(option)) for option in options]
        valid = torch.tensor([[int(place < len(option) - 1) for place in range(width)] for option in options])
        valid = valid.to(self._device)
        full_mask = torch.cat([mask[owner], valid], dim=1)
        hidden = self._model.base_model(
            input_ids=torch.tensor(inputs, device=self._device),
            attention_mask=full_mask,
            position_ids=_positions(full_mask)[:, -width:],
            **{self._cache_argument: past},
        ).last_hidden_state
        row, place = valid.nonzero(as_tuple=True)
        targets = torch.tensor([token for option in options for token in option[1:]], device=self._device)
        states = hidden[row, place]
        values = self._logprobs(states, torch.arange(len(row), device=self._device), targets)
        return torch.zeros(len(options), device=self._device).index_add_(0, row, values)

    def _logprobs(self, states: torch.Tensor, owner: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """log p(target | state of its owner), [targets]: one normaliser per state, target logits in float32."""
        head = self._model.get_output_embeddings()
        chunks = [torch.logsumexp(head(chunk).float(), dim=-1) for chunk in states.split(64)]
        logits = (states[owner].float() * head.weight[targets].float()).sum(dim=-1)
        return logits - torch.cat(chunks)[owner]


class _Draw:
    """Sampling as an argmax over noisy logits (Gumbel), each row with a random stream of its own.

    So a row's reply depends on its prompt, the seed and the step only, not on its neighbours in the batch.
    """

    def __init__(self, texts: Sequence[str], sampling: Sampling):
        self._sampling = sampling
        self._streams = [_stream(text, sampling.seed) for text in texts]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.float() / self._sampling.temperature
        if self._sampling.top_p < 1:
            ordered, places = F.softmax(scores, dim=-1).sort(dim=-1, descending=True)
            beyond = ordered.cumsum(dim=-1) - ordered >= self._sampling.top_p
            scores = scores.masked_fill(torch.zeros_like(beyond).scatter(1, places, beyond), float("-inf"))
        uniform = torch.stack([torch.rand(scores.shape[1], generator=stream) for stream in self._streams])
        return scores - torch.log(-torch.log(uniform.clamp(1e-20, 1 - 1e-7))).to(scores.device)


def _stream(text: str, seed: int) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}\n{text}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8]) >> 1)


def _positions(mask: torch.Tensor) -> torch.Tensor:
    return (mask.cumsum(dim=1) - 1).clamp_min(0)


def _stop_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """End-of-turn ids: what the model's files name, and ChatML's `<|im_end|>`, which some conversions forget."""
    named = [tokenizer.eos_token_id, getattr(model.generation_config, "eos_token_id", None)]
    ids = {value for item in named for value in (item if isinstance(item, list) else [item]) if value is not None}
    turn_end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    if turn_end is not None and turn_end != tokenizer.unk_token_id:
        ids.add(turn_end)
    return frozenset(ids)
