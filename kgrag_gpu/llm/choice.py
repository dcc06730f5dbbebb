"""Says which engine and model a run will use, before anything is loaded: the run's fingerprint needs to know."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from kgrag_gpu.config.schema import LlmConfig
from kgrag_gpu.llm.factory import choose_automatically, local_model
from kgrag_gpu.llm.models import find_model


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """What runs, and why in one line. `engine` is never "auto"; `revision` changes when the weights do."""

    engine: str
    model_id: str
    revision: str
    reason: str

    def apply(self, config: LlmConfig) -> LlmConfig:
        """The configuration with the choice written into it."""
        changes = {"engine": self.engine, **({"model": self.model_id} if self.model_id else {})}
        return config.model_copy(update=changes)


def choose_engine(config: LlmConfig) -> EngineChoice:
    """Decides `auto` and identifies the model's weights where they are on this machine."""
    kind, model, reason = config.engine, config.model, "asked for"
    if kind == "auto":
        kind, model, reason = choose_automatically(config)
    if kind == "hf" and (local := local_model(config)) is not None and local != model:
        model, reason = local, f"asked for; {model} cannot run here, weights of this one are on this machine"
    if kind == "none":
        return EngineChoice("none", "", "", f"none ({reason})")
    if kind == "replay":
        recorded = Path(config.replay_path or "")
        digest = hashlib.sha256(recorded.read_bytes()).hexdigest()[:16] if recorded.is_file() else ""
        return EngineChoice("replay", model, digest, f"recorded replies from {recorded}")
    if kind == "openai":
        return EngineChoice("openai", model, config.revision or "", f"{model} at {config.base_url}")
    files = find_model(model, config.revision)
    revision = files.revision if files else config.revision or ""
    return EngineChoice(kind, model, revision, f"{kind}, {model} ({reason})")
