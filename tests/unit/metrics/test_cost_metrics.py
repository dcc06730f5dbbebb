"""Costs add up over the parts of a run."""

from kgrag_gpu.metrics.cost import cost_block, sum_costs

KEYS = [
    "llm_calls",
    "prompt_tokens",
    "completion_tokens",
    "cached_calls",
    "seconds",
    "questions_per_second",
    "peak_device_bytes",
    "stages",
]


def test_sum_costs_adds_stages_and_usage_and_takes_the_peak():
    events = [
        {"event": "setup", "stages": {"load": 1.5}},
        {
            "stages": {"load": 0.5, "read": 2.0},
            "usage": [{"stage": "read", "kind": "answer", "llm_calls": 2, "prompt_tokens": 9}],
            "peak_device_bytes": 7,
        },
        {
            "stages": {"read": 1.0},
            "usage": [
                {"stage": "walk", "kind": "relations", "llm_calls": 1, "cached_calls": 4},
                {"stage": "walk", "kind": "answer", "completion_tokens": 5},
            ],
            "peak_device_bytes": 3,
        },
    ]
    cost = sum_costs(events, num_questions=10)
    assert list(cost) == [*KEYS, "by_stage", "by_kind"]
    assert {name: spent["llm_calls"] for name, spent in cost["by_stage"].items()} == {"read": 2, "walk": 1}
    assert cost["by_kind"]["answer"]["completion_tokens"] == 5
    assert cost["stages"] == {"load": 2.0, "read": 3.0}
    assert (cost["llm_calls"], cost["prompt_tokens"], cost["completion_tokens"], cost["cached_calls"]) == (3, 9, 5, 4)
    assert (cost["seconds"], cost["questions_per_second"], cost["peak_device_bytes"]) == (5.0, 2.0, 7)


def test_cost_block_nothing_booked_has_every_key_and_no_rate():
    cost = cost_block({}, 10)
    assert list(cost) == KEYS
    assert cost["seconds"] == 0
    assert cost["questions_per_second"] is None


def test_cost_block_given_values_are_kept():
    cost = cost_block({"seconds": 4.0, "stages": {"a": 1.0}, "wall": 9}, 8)
    assert (cost["seconds"], cost["questions_per_second"], cost["wall"]) == (4.0, 2.0, 9)
