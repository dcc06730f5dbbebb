"""The key of a run: equal exactly when the predictions must be equal."""

import hashlib
import json
from collections.abc import Mapping

from kgrag_gpu.config.schema import RunConfig

# Where inputs lie and how the work is spread changes nothing that is predicted: contents are hashed instead of paths.
_LEFT_OUT = {"execution": True, "dataset": {"data"}, "kg": {"path"}}


def run_fingerprint(config: RunConfig, contents: Mapping[str, str]) -> str:
    """Eight hexadecimal digits over the resolved configuration and the hashes of what it points to.

    Args:
        config: The resolved configuration; its `execution` part and its paths do not count.
        contents: Names and hashes of the contents: questions, KG, encoder, model, prompts.
    """
    values = config.model_dump(mode="json", exclude=_LEFT_OUT)
    values["llm"]["base_url"] = None  # a server that moved to another node is the same model; contents hold its name
    text = json.dumps({"config": values, "contents": dict(contents)}, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
