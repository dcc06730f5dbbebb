"""Names of the methods and where each is written. A method's module is imported only when it is asked for."""

import importlib
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.kg.store import Kg
from kgrag_gpu.types import Question, Retrieval, UserError

_METHODS = {
    "anchorrag": "anchor_rag:AnchorRag",
    "bm25": "passage_search:Bm25",
    "bubblerag": "bubble_rag:BubbleRag",
    "cot": "model_alone:Cot",
    "cover": "cover:Cover",
    "dense": "passage_search:Dense",
    "gear": "gear_agent:GearAgent",
    "hipporag": "hippo_rag:HippoRag",
    "hybrid": "passage_search:Hybrid",
    "io": "model_alone:Io",
    "ircot": "iterative:IrCot",
    "iter-retgen": "iterative:IterRetGen",
    "pog": "plan_on_graph:PlanOnGraph",
    "ppr": "ppr:Ppr",
    "sc": "model_alone:SelfConsistency",
    "tog": "think_on_graph:ThinkOnGraph",
}


class Method(Protocol):
    """A retrieval method: built once per process, then called with one batch of questions after the other.

    All questions of a batch advance together; the results come in the batch's order and must not depend on it.
    """

    Config: ClassVar[type[ConfigModel]]

    def __init__(self, config: Any, resources: Any): ...

    def retrieve(self, questions: Sequence[Question]) -> list[Retrieval]:
        """Retrieves for every question of the batch."""
        ...


def method_names() -> list[str]:
    """All registered methods."""
    return sorted(_METHODS)


def method_class(name: str) -> type[Method]:
    """The class of a registered method."""
    module, _, class_name = _METHODS[name].partition(":")
    return getattr(importlib.import_module(f"kgrag_gpu.methods.{module}"), class_name)


def method_config_class(name: str) -> type[ConfigModel]:
    """The configuration class of a registered method."""
    return method_class(name).Config


def check_method(name: str, config: Any, kg: Kg, questions: Sequence[Question], engine: str) -> None:
    """Asks a method whether it can work on this input, before anything is made for it.

    A method says so in an optional `check(config, kg, questions, engine)`, a static method that raises UserError;
    `engine` is the name of the chosen engine, "none" without a model.
    """
    check = getattr(method_class(name), "check", None)
    if check is not None:
        check(config, kg, questions, engine)


def need_model(name: str, engine: str, why: str) -> None:
    """Raises UserError where a method that has no form without a model is run without one."""
    if engine == "none":
        raise UserError(f"method {name} needs a language model: {why}; give --llm hf, vllm or openai")
