"""The account of what the language model cost: calls, tokens, seconds, by stage and by prompt kind.

Token counts come from the engine's own ids, never from an estimate of ours. A replayed reply is a cached call: it adds
nothing to `prompt_tokens` and `completion_tokens`, and what it once cost stands beside them.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass
class Counts:
    """Sums over requests. `llm_calls` counts requests that reached the model, retries included."""

    llm_calls: int = 0
    cached_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_prompt_tokens: int = 0
    cached_completion_tokens: int = 0
    retries: int = 0  # asked again because the first reply could not be used, or the server refused
    mended: int = 0  # replies that needed repair before they could be read
    failures: int = 0  # requests without a usable reply in the end
    cut_contexts: int = 0  # prompts whose context was cut to the token budget
    seconds: float = 0.0

    def add(self, other: "Counts") -> None:
        """Add another's sums to these."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


class Usage:
    """Counts by (stage, prompt kind). The current stage is set by `stage(...)`; outside of any it is "other"."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], Counts] = {}
        self._stage = "other"

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Book what happens inside under `name`."""
        before, self._stage = self._stage, name
        try:
            yield
        finally:
            self._stage = before

    def of(self, kind: str) -> Counts:
        """The running sums of a prompt kind in the current stage; add to them in place."""
        return self._counts.setdefault((self._stage, kind), Counts())

    @property
    def total(self) -> Counts:
        """Sums over everything."""
        return self._sum(lambda stage, kind: True)

    def as_dict(self) -> dict[str, Any]:
        """For `metrics.json`: the totals, then the same keys under `by_stage` and `by_kind`, names in order."""
        stages = sorted({stage for stage, _ in self._counts})
        kinds = sorted({kind for _, kind in self._counts})
        return {
            **asdict(self.total),
            "by_stage": {name: asdict(self._sum(lambda stage, _, name=name: stage == name)) for name in stages},
            "by_kind": {name: asdict(self._sum(lambda _, kind, name=name: kind == name)) for name in kinds},
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row per (stage, kind), in order: what a shard stores, and `add_rows` reads back."""
        return [{"stage": stage, "kind": kind, **asdict(c)} for (stage, kind), c in sorted(self._counts.items())]

    def add_rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows written by `rows` (of other shards or an earlier, interrupted run)."""
        for row in rows:
            values = {field.name: row[field.name] for field in fields(Counts) if field.name in row}
            self._counts.setdefault((row["stage"], row["kind"]), Counts()).add(Counts(**values))

    def _sum(self, take) -> Counts:
        total = Counts()
        for (stage, kind), counts in sorted(self._counts.items()):
            if take(stage, kind):
                total.add(counts)
        return total
