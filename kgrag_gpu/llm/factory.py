"""Chooses and opens the engine that a config asks for, and says in one line what was chosen and why."""

import importlib.util
from pathlib import Path

import torch

from kgrag_gpu.config.schema import LlmConfig
from kgrag_gpu.llm.cache import ReplyCache
from kgrag_gpu.llm.engine import Backend, Engine
from kgrag_gpu.llm.models import find_model, resolve_model
from kgrag_gpu.llm.recorder import Recorder
from kgrag_gpu.llm.records import Sampling
from kgrag_gpu.llm.replay_engine import ReplayBackend
from kgrag_gpu.llm.usage import Usage
from kgrag_gpu.types import UserError

# Tried in this order by `auto` without a GPU when the configured model is the default one, which needs a GPU.
SMALL_MODELS = (
    "Qwen/Qwen2.5-1.5B-Instruct",
    "Qwen/Qwen2.5-0.5B-Instruct",
    "qwen2.5-coder-0.5b",
    "qwen2.5-coder-1.5b",
)
_GPU_ONLY_FORMS = ("awq", "gptq", "fp8")


def open_engine(
    config: LlmConfig, cache_dir: Path | None = None, usage: Usage | None = None, device: str = "auto"
) -> tuple[Engine | None, str]:
    """Open the configured engine.

    Args:
        config: which engine and model.
        cache_dir: folder of the reply cache; None keeps replies in memory.
        usage: account to book on; None makes a new one.
        device: for `hf`: "auto", "cpu", "cuda", "cuda:1".

    Returns:
        The engine, to be used as a context manager, or None for `none`; and the line that says what was chosen and why.

    Raises:
        UserError: an engine was asked for by name and cannot be had.
    """
    if config.engine == "none":
        return None, "language model: none (asked for)"
    if config.engine == "auto":
        kind, model, why = choose_automatically(config)
        if kind == "none":
            return None, f"language model: none ({why})"
        config = config.model_copy(update={"engine": kind, "model": model})
    else:
        why = "asked for"
    backend = _open_backend(config, _device(device))
    recorder = Recorder(Path(config.record_path)) if config.record_path else None
    sampling = Sampling(temperature=config.temperature, seed=config.seed, stop=config.stop)
    engine = Engine(backend, ReplyCache(cache_dir), usage, recorder, sampling)
    return engine, f"language model: {backend.name}, {backend.model_id} ({backend.revision}), {backend.detail}; {why}"


def choose_automatically(config: LlmConfig) -> tuple[str, str, str]:
    """(engine, model, why) for `auto`. Looks only at what is already on this machine, except with a GPU and vLLM."""
    has_cuda, has_vllm = torch.cuda.is_available(), importlib.util.find_spec("vllm") is not None
    if has_cuda and has_vllm:
        return "vllm", config.model, "auto: CUDA and vLLM are here"
    lack = "no CUDA device" if not has_cuda else "vLLM is not installed"
    name = local_model(config)
    if name is not None:
        return "hf", name, f"auto: {lack}, weights are on this machine"
    return (
        "none",
        "",
        f"auto: {lack}, and no weights on this machine for {config.model}"
        + (" or a small Qwen; python -m pipelines.fetch_models gets one" if config.model == LlmConfig().model else ""),
    )


def local_model(config: LlmConfig) -> str | None:
    """The configured model where transformers can load it from this machine; for the default one, also a small Qwen."""
    is_default = config.model == LlmConfig().model
    for name in (config.model, *(SMALL_MODELS if is_default else ())):
        if not torch.cuda.is_available() and any(form in name.lower() for form in _GPU_ONLY_FORMS):
            continue
        if find_model(name, config.revision if name == config.model else None):
            return name
    return None


def _open_backend(config: LlmConfig, device: torch.device) -> Backend:
    if config.engine == "hf":
        from kgrag_gpu.llm.hf_engine import HfBackend

        files = resolve_model(config.model, config.revision)
        return HfBackend(
            files, device, config.dtype, config.batch_size, config.max_context_tokens, config.enable_thinking
        )
    if config.engine == "openai":
        from kgrag_gpu.llm.openai_engine import OpenAiBackend

        return OpenAiBackend(config)
    if config.engine == "replay":
        return ReplayBackend(config.replay_path, config.max_context_tokens)
    if importlib.util.find_spec("vllm") is None:
        raise UserError("--llm vllm: vLLM is not installed; pip install 'kgrag-gpu[gpu]', or use --llm hf or openai")
    from kgrag_gpu.llm.vllm_engine import VllmBackend

    return VllmBackend(resolve_model(config.model, config.revision), config)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)
