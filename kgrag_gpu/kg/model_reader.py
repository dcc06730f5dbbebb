"""The model as a reader of passages: named before it is loaded, opened only when something is to be read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kgrag_gpu.config.schema import LlmConfig
from kgrag_gpu.kg.extract import extract_kg
from kgrag_gpu.kg.store import Kg
from kgrag_gpu.llm.choice import EngineChoice
from kgrag_gpu.llm.factory import open_engine
from kgrag_gpu.prompts.registry import prompts_hash
from kgrag_gpu.types import Passage, UserError


@dataclass(frozen=True, slots=True)
class ModelReader:
    """What builds a KG where the extractor is "llm".

    Attributes:
        config: the language model's configuration.
        choice: what it comes to on this machine.
        cache_dir: holds the replies, so that a reading that was stopped goes on where it was.
        device: for engines in this process.
        openie_path: where to write what was read in HippoRAG's OpenIE format; None: nowhere.
    """

    config: LlmConfig
    choice: EngineChoice
    cache_dir: Path
    device: str = "auto"
    openie_path: Path | None = None

    @property
    def identity(self) -> str:
        """Engine, model, revision and prompts; another identity may read another KG from the same passages."""
        return f"{self.choice.engine}:{self.choice.model_id}:{self.choice.revision}:{prompts_hash()}"

    def read(self, passages: Sequence[Passage], source: str, report: Callable[[str], None] | None = None) -> Kg:
        """Loads the model, builds the KG, and notes in the KG's manifest what it cost.

        Raises:
            UserError: there is no model.
        """
        engine, _ = open_engine(self.choice.apply(self.config), self.cache_dir, device=self.device)
        if engine is None:
            raise UserError(
                f"the extractor llm needs a language model, and there is {self.choice.reason}; choose one with --llm "
                "and llm.model, or get a small one: python -m pipelines.fetch_models"
            )
        with engine, engine.usage.stage("build KG"):
            kg = extract_kg(passages, engine, source, report=report, openie_path=self.openie_path)
            engine.take_failures()  # each is among the KG's rejected rows
            spent = engine.usage.total
        cost = {
            name: getattr(spent, name) for name in ("llm_calls", "cached_calls", "prompt_tokens", "completion_tokens")
        }
        notes = {**dict(kg.manifest.get("notes", {})), **cost}
        return replace(kg, manifest={**kg.manifest, "notes": notes})
