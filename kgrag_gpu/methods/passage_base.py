"""Opens the retriever that another method builds on, by its name and its own values."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import ValidationError

from kgrag_gpu.index.fuse import Ranking
from kgrag_gpu.methods.registry import Method, method_class, method_config_class, method_names
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.types import Retrieval, UserError


def open_base(resources: Resources, name: str, values: Mapping[str, Any]) -> Method:
    """The registered method `name`; one with values of its own is not shared with other methods.

    Raises:
        UserError: no such method, or values that it does not have.
    """
    if name not in method_names():
        raise UserError(f"method.base: no method named {name}; known: {', '.join(method_names())}")
    if not values:
        return resources.base_retriever(name)
    try:
        config = method_config_class(name).model_validate(dict(values))
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(["method.base_config", *(str(part) for part in problem["loc"])])
        raise UserError(f"{key}: {problem['msg']}; a value of {name} is expected") from None
    return method_class(name)(config, resources)


def as_ranking(retrieval: Retrieval) -> Ranking:
    """The ranked passages of a retrieval."""
    return Ranking(np.array(retrieval.passage_ids, dtype=np.int64), np.array(retrieval.passage_scores))
