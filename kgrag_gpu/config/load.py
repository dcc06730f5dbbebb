"""Builds a run's configuration from YAML files and dotted overrides, and words its errors for people.

Later sources win: schema defaults, configs/datasets/<dataset>.yaml, configs/methods/<method>.yaml, `--config` files in
order, `--set a.b=value`, and last the options of the command line that have a flag of their own.
"""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from kgrag_gpu.config.schema import ConfigModel, LlmConfig, RunConfig
from kgrag_gpu.methods.registry import method_config_class, method_names
from kgrag_gpu.types import UserError

CONFIG_ROOT = Path(__file__).resolve().parents[2] / "configs"


def load_run_config(
    dataset: str,
    method: str,
    config_files: Sequence[Path] = (),
    overrides: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
) -> RunConfig:
    """The resolved configuration of a run.

    Args:
        dataset: Registered name of a data set.
        method: A registered method, or a preset: the name of a file in configs/methods.
        config_files: YAML files, merged in order.
        overrides: "a.b=value", the value read as YAML.
        options: Dotted key to value, for flags of the command line; None values are left out.

    Raises:
        UserError: An unreadable file, an unknown key (the nearest known one is named), or a value that does not fit.
    """
    merged: dict[str, Any] = {"dataset": {"name": dataset}}
    dataset_file = CONFIG_ROOT / "datasets" / f"{dataset}.yaml"
    if dataset_file.is_file():
        _merge(merged, _read_yaml(dataset_file))
    _merge(merged, _method_values(method))
    _merge_sources(merged, config_files, overrides, options)
    return _validate(merged)


def load_llm_config(
    config_files: Sequence[Path] = (), overrides: Sequence[str] = (), options: Mapping[str, Any] | None = None
) -> LlmConfig:
    """The `llm` part alone, for pipelines that ask a model but run no method; arguments as in `load_run_config`.

    Files may hold other parts too, as those in configs/models do.

    Raises:
        UserError: As `load_run_config`; also an override outside of `llm`.
    """
    for text in overrides:
        if not text.startswith("llm."):
            raise UserError(f"--set {text}: only keys below llm have a meaning here, as in --set llm.model=NAME")
    merged: dict[str, Any] = {}
    _merge_sources(merged, config_files, overrides, options)
    try:
        return LlmConfig.model_validate(merged.get("llm", {}))
    except ValidationError as error:
        raise UserError(_explain(error, LlmConfig, "llm.")) from error


def _merge_sources(
    merged: dict[str, Any], config_files: Sequence[Path], overrides: Sequence[str], options: Mapping[str, Any] | None
) -> None:
    for file in config_files:
        _merge(merged, _read_yaml(Path(file)))
    for text in overrides:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise UserError(f"--set {text}: expected KEY=VALUE with a dotted key, as in --set index.bm25_k1=1.2")
        _merge(merged, _nested(key.strip(), _yaml_value(text, value)))
    for key, value in (options or {}).items():
        if value is not None:
            _merge(merged, _nested(key, value))


def _method_values(method: str) -> dict[str, Any]:
    preset = CONFIG_ROOT / "methods" / f"{method}.yaml"
    values = _read_yaml(preset) if preset.is_file() else {}
    values.setdefault("method", {}).setdefault("name", method)
    name = values["method"]["name"]
    if name not in method_names():
        presets = sorted(p.stem for p in (CONFIG_ROOT / "methods").glob("*.yaml"))
        known = sorted({*method_names(), *presets})
        raise UserError(f"no method or preset named {name}{_nearest(name, known)}; known: {', '.join(known)}")
    return values


def _validate(merged: dict[str, Any]) -> RunConfig:
    method_values = dict(merged["method"])
    name = method_values.pop("name")
    merged = {**merged, "method_name": name}
    try:
        method = method_config_class(name).model_validate(method_values)
    except ValidationError as error:
        raise UserError(_explain(error, method_config_class(name), "method.")) from error
    try:
        config = RunConfig.model_validate({**merged, "method": method})
    except ValidationError as error:
        raise UserError(_explain(error, RunConfig, "")) from error
    return config


def read_run_config(path: Path) -> RunConfig:
    """The configuration that a run directory keeps.

    Raises:
        UserError: it cannot be read, or this version of the package has other fields.
    """
    try:
        stored = yaml.safe_load(path.read_text(encoding="utf-8"))
        return _validate({**stored, "method": {**stored["method"], "name": stored["method_name"]}})
    except (OSError, yaml.YAMLError, KeyError, TypeError, UserError) as error:
        raise UserError(f"{path} cannot be read as this version's configuration: {error}") from error


def _explain(error: ValidationError, model: type[BaseModel], prefix: str) -> str:
    """One line for the first problem; an unknown key comes with the nearest known one."""
    problem = error.errors()[0]
    path = [str(part) for part in problem["loc"]]
    dotted = prefix + ".".join(path)
    if problem["type"] == "extra_forbidden":
        known = _keys_at(model, path[:-1])
        return f"config: unknown key {dotted}{_nearest(path[-1], known)}; known here: {', '.join(sorted(known))}"
    more = f" (and {len(error.errors()) - 1} more)" if len(error.errors()) > 1 else ""
    return f"config: {dotted}: {problem['msg']}, got {problem['input']!r}{more}"


def _keys_at(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    for part in path:
        field = model.model_fields.get(part)
        candidates = (field.annotation, *get_args(field.annotation)) if field else ()
        inner = [c for c in candidates if isinstance(c, type) and issubclass(c, ConfigModel)]
        if not inner:
            return []
        model = inner[0]
    return list(model.model_fields)


def _nearest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f" (did you mean {close[0]}?)" if close else ""


def _nested(dotted: str, value: Any) -> dict[str, Any]:
    for part in reversed(dotted.split(".")):
        value = {part: value}
    return value


def _merge(into: dict[str, Any], new: Mapping[str, Any]) -> None:
    for key, value in new.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = dict(value) if isinstance(value, Mapping) else value


def _yaml_value(text: str, value: str) -> Any:
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise UserError(f"--set {text}: the value is not valid YAML; quote it, as in --set key='\"a: b\"'") from error


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"config file {path} cannot be read ({error.strerror}); give the path of a YAML file"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        first_line = str(error).splitlines()[0]
        raise UserError(f"config file {path} is not valid YAML ({first_line})") from error
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(f"config file {path} holds a {type(values).__name__}; expected keys and values")
    return values
