"""What a run cost: model calls, tokens, seconds by stage, device memory.

The parts come from a run's log: one record when the method was set up and one per batch, also from runs that were
interrupted and went on. Seconds of processes that ran side by side add up; they are work done, not time waited.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from kgrag_gpu.llm.usage import Usage

_COUNTS = ("llm_calls", "prompt_tokens", "completion_tokens", "cached_calls")


def sum_costs(events: Iterable[Mapping[str, Any]], num_questions: int) -> dict[str, Any]:
    """One cost block out of a run's logged parts.

    Args:
        events: records with any of `stages` (name -> seconds), `usage` (rows of counts) and `peak_device_bytes`.
        num_questions: questions answered for that cost.

    Returns:
        `cost` of `metrics.json`. `seconds` is the sum over stages; `peak_device_bytes` the greatest. Where a model was
        asked, `by_stage` and `by_kind` (of prompt) hold its calls, tokens, retries, cut contexts and seconds.
    """
    stages: dict[str, list[float]] = {}
    peak = 0
    usage = Usage()
    for event in events:
        for name, seconds in event.get("stages", {}).items():
            stages.setdefault(name, []).append(seconds)
        usage.add_rows(event.get("usage", ()))
        peak = max(peak, event.get("peak_device_bytes", 0))
    seconds_of = {name: math.fsum(seconds) for name, seconds in stages.items()}
    spent = usage.as_dict()
    cost = {**{key: spent[key] for key in _COUNTS}, "peak_device_bytes": peak, "stages": seconds_of}
    if spent["by_kind"]:
        cost |= {"by_stage": spent["by_stage"], "by_kind": spent["by_kind"]}
    return cost_block(cost, num_questions)


def cost_block(cost: Mapping[str, Any], num_questions: int) -> dict[str, Any]:
    """The cost with every key of `metrics.json`'s `cost`, absent counts as 0; other keys are kept behind them.

    `seconds` defaults to the sum of the stages; `questions_per_second` is None where no time was booked.
    """
    stages = dict(cost.get("stages") or {})
    seconds = cost.get("seconds")
    seconds = math.fsum(stages.values()) if seconds is None else seconds
    rate = cost.get("questions_per_second")
    block = {key: cost.get(key, 0) for key in _COUNTS}
    block |= {
        "seconds": seconds,
        "questions_per_second": (num_questions / seconds if seconds > 0 else None) if rate is None else rate,
        "peak_device_bytes": cost.get("peak_device_bytes", 0),
        "stages": stages,
    }
    return block | {key: value for key, value in cost.items() if key not in block}
