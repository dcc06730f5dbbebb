"""From a model's text to a validated object, or a reason why not. Never raises on a bad reply.

Handles what models really send: thoughts before the answer, code fences, text around the JSON, JSON cut off or with
slips (json-repair), a bare array or value where an object with one field was asked, an object wrapped in another, and
key names in another case or style.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

import json_repair
from pydantic import BaseModel, ValidationError

_THOUGHTS = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_OPEN_THOUGHT = re.compile(r"<think(?:ing)?>.*\Z", re.DOTALL | re.IGNORECASE)
_HEADLESS_THOUGHT = re.compile(r"\A.*?</think(?:ing)?>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"```[A-Za-z0-9_-]*\s*\n?(.*?)(?:```|\Z)", re.DOTALL)
_CHAT_MARKS = re.compile(r"<\|(?:im_start|im_end|endoftext)\|>")


@dataclass(frozen=True, slots=True)
class Parsed:
    """`value` None means unusable; `note` says why, or how a usable reply was mended ("" when it was clean)."""

    value: BaseModel | None
    note: str = ""


def strip_thoughts(text: str) -> str:
    """Remove thoughts and chat marks. A thought that is never closed swallows the rest: there is no answer then.

    A closing mark without an opening one also ends a thought (chat templates may write the opening mark themselves).
    """
    text = _THOUGHTS.sub("", text)
    text = _HEADLESS_THOUGHT.sub("", text) if re.search(r"</think(?:ing)?>", text, re.IGNORECASE) else text
    text = _OPEN_THOUGHT.sub("", text)
    return _CHAT_MARKS.sub("", text).strip()


def parse_reply(text: str, schema: type[BaseModel], num_options: int = 0, is_cut_off: bool = False) -> Parsed:
    """Read `text` as an instance of `schema`.

    Args:
        text: the reply, thoughts already stripped.
        schema: pydantic model of the reply. Validators may read `num_options` from the validation context.
        num_options: how many numbered options the prompt showed; 0 when replies are not by index.
        is_cut_off: the reply ran into its token limit; a value that the limit cut is dropped, not kept in part.

    Returns:
        Parsed with a value, or without one and with the reason.
    """
    if not text.strip():
        return Parsed(None, "empty reply")
    notes: list[str] = []
    data = _load(text, notes, is_cut_off)
    if data is None:
        return Parsed(None, f"no JSON in the reply: {_excerpt(text)}")
    context = {"num_options": num_options}
    reason = ""
    for candidate, note in _readings(data, schema):
        try:
            value = schema.model_validate(candidate, context=context)
        except ValidationError as error:
            reason = reason or _first_error(error)
            continue
        if note:
            notes.append(note)
        return Parsed(value, "; ".join(notes))
    return Parsed(None, f"JSON does not fit: {reason}: {_excerpt(text)}")


def _load(text: str, notes: list[str], is_cut_off: bool) -> Any:
    """The JSON value in `text`; None where there is none."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        pass
    fenced = _FENCE.search(text)
    body = fenced.group(1).strip() if fenced else text
    if fenced:
        notes.append("code fence removed")
    starts = [position for position in (body.find("{"), body.find("[")) if position >= 0]
    if not starts:
        return None
    body = body[min(starts) :]
    try:
        value, _ = json.JSONDecoder().raw_decode(body)
    except json.JSONDecodeError:
        notes.append("JSON repaired")
        value = json_repair.loads(_whole_values(body) if is_cut_off else body)
        if not _holds_value(value):  # what broke off before its first value is not an empty list
            return None
    return value if isinstance(value, dict | list) else None


def _whole_values(body: str) -> str:
    """Cut JSON back to where its last whole value ends: half a name is worse than none."""
    end, before_text, in_text, escaped = 0, 0, False, False
    for place, char in enumerate(body):
        if in_text:
            in_text = escaped or char != '"'
            escaped = char == "\\" and not escaped
            end = end if in_text else place + 1
        elif char == '"':
            before_text, in_text = end, True
        elif char == ":":
            end = before_text  # that text was a key
        elif char in "{[}]":
            end = place + 1
        elif char == ",":
            end = place
    return body[:end]


def _holds_value(node: Any) -> bool:
    """Whether any text, number or truth value stands in `node`: brackets alone say nothing."""
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else None
    return node not in ("", None) if inner is None else any(_holds_value(item) for item in inner)


def _readings(data: Any, schema: type[BaseModel]) -> list[tuple[Any, str]]:
    """Ways to read `data` as the schema's object, the literal one first."""
    readings: list[tuple[Any, str]] = [(data, "")]
    fields = list(schema.model_fields)
    if isinstance(data, dict):
        renamed = _rename(data, fields)
        if renamed != data:
            readings.append((renamed, "keys renamed"))
        if len(data) == 1:
            (inner,) = data.values()
            if isinstance(inner, dict):
                readings.append((_rename(inner, fields), "outer object removed"))
            if len(fields) == 1:
                readings.append(({fields[0]: inner}, "key renamed"))
    if len(fields) == 1 and not isinstance(data, dict):
        readings.append(({fields[0]: data}, "bare value wrapped"))
    if isinstance(data, list):
        if len(data) == 1 and isinstance(data[0], dict):
            readings.append((_rename(data[0], fields), "outer array removed"))
        if len(fields) == 1 and data and all(isinstance(item, dict) for item in data):
            merged = [item[fields[0]] for item in data if fields[0] in item]
            if merged and all(isinstance(item, list) for item in merged):
                readings.append(({fields[0]: [x for item in merged for x in item]}, "arrays joined"))
    return readings


def _rename(data: dict[str, Any], fields: list[str]) -> dict[str, Any]:
    """Keys that differ from a field only by case, separators or a plural s get the field's name."""
    wanted = {_fold(name): name for name in fields}
    return {wanted.get(_fold(key), key): value for key, value in data.items()}


def _fold(key: str) -> str:
    return re.sub(r"[^0-9a-z]", "", str(key).lower()).rstrip("s")


def _first_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "the whole"
    return f"{place}: {first['msg']}"


def _excerpt(text: str, length: int = 120) -> str:
    flat = " ".join(text.split())
    return repr(flat if len(flat) <= length else flat[: length - 1] + "…")
