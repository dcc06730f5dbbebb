"""Evidence verification (AnchorRAG): which candidate facts enter the shared memory.

Without a model a fact is kept by its cosine with the question. With one, the model keeps facts by **number**; what it
does not name is dropped. The same reader of numbers serves every prompt that chooses among options.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.prompts.registry import make_request, sampling_for


class Choice(NamedTuple):
    """One prompt that shows numbered options."""

    question_id: str
    question: str
    options: tuple[str, ...]
    entity: str = ""
    path: str = ""


def choose(engine: Engine, kind: str, choices: Sequence[Choice], width: int = 0) -> list[list[int] | None]:
    """Asks the model to choose among options, all prompts in one batch.

    Args:
        engine: the model.
        kind: `rank_` or `choose_` `relations` or `entities`, `verify_evidence`, `rank_agents`.
        choices: the prompts.
        width: how many the prompt asks for at most (ranking kinds).

    Returns:
        For each prompt the chosen options (from 0) in the model's order, possibly none; None where no usable reply came
        (the engine keeps the reason), so that the caller can fall back.
    """
    requests = []
    for choice in choices:
        values = {"question": choice.question, "options": choice.options, "path": choice.path}
        if kind in ("rank_relations", "choose_relations"):
            values["entity"] = choice.entity
        if kind in ("rank_relations", "rank_entities"):
            values["width"] = width
        if kind == "rank_agents":
            values.pop("path")
        requests.append(make_request(kind, choice.question_id, len(choice.options), **values))
    chosen: list[list[int] | None] = []
    for reply in engine.generate(requests, sampling_for(kind)) if requests else []:
        numbers = getattr(reply.parsed, "best", getattr(reply.parsed, "keep", None)) if reply.ok else None
        chosen.append(None if numbers is None else [number - 1 for number in numbers])
    return chosen
