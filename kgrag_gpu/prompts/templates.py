"""Renders the prompt files beside it. A file has a block per turn, named by the role: system, user or assistant.

Text that is the same for every question of a kind comes first, the long context and the question last, so that an
engine with a prefix cache reads the common part once.
"""

import functools
import hashlib
import json
from importlib import resources
from typing import Any, cast

import jinja2
from pydantic import BaseModel

from kgrag_gpu.llm.records import Message, Role

_SUFFIX = ".jinja"


@functools.cache
def _environment() -> jinja2.Environment:
    loader = jinja2.FunctionLoader(lambda name: _source(name.removesuffix(_SUFFIX)))
    return jinja2.Environment(
        loader=loader, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )


def _source(name: str) -> str:
    return (resources.files("kgrag_gpu.prompts") / f"{name}{_SUFFIX}").read_text(encoding="utf-8")


def render_messages(name: str, **values: Any) -> tuple[Message, ...]:
    """The turns of prompt file `name`, in the file's order.

    Raises:
        jinja2.UndefinedError: the file needs a value that is not given (a mistake of ours, not of the user).
    """
    template = _environment().get_template(name + _SUFFIX)
    messages = []
    for role, block in template.blocks.items():
        text = "".join(block(template.new_context(values))).strip()
        if text:
            messages.append(Message(cast(Role, role), text))
    return tuple(messages)


def prompt_names() -> tuple[str, ...]:
    """Every prompt file, by name, sorted."""
    files = resources.files("kgrag_gpu.prompts").iterdir()
    return tuple(sorted(file.name.removesuffix(_SUFFIX) for file in files if file.name.endswith(_SUFFIX)))


@functools.cache
def prompts_hash() -> str:
    """Hash over all prompt texts, for a run's fingerprint: another wording is another run."""
    texts = [[name, _source(name)] for name in prompt_names()]
    return hashlib.sha256(json.dumps(texts, ensure_ascii=False).encode()).hexdigest()[:16]


@functools.cache
def schema_text(schema: type[BaseModel]) -> str:
    """The JSON schema of a reply, as compact as it can be: no titles, no descriptions, no extra keys allowed."""
    return json.dumps(_compact(schema.model_json_schema()), ensure_ascii=False, separators=(",", ":"))


def _compact(node: Any) -> Any:
    if isinstance(node, list):
        return [_compact(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {}
    for key, value in node.items():
        if key in ("properties", "$defs"):
            kept[key] = {name: _compact(inner) for name, inner in value.items()}
        elif key not in ("title", "description", "default"):
            kept[key] = _compact(value)
    if kept.get("type") == "object":
        kept.setdefault("additionalProperties", False)
        # A field with a default may be left out by a person; a model is made to write every field.
        kept["required"] = list(kept.get("properties", {}))
    return kept
