"""The shared memory: every step that some agent kept, as one table that grows by a round at a time.

A step is a fact (entity, relation or sentence, entity) at the end of a path. It belongs to a question and an agent and
carries its path, so nothing has to be looked up to grow or to score it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Steps:
    """Columns of steps. A step of length 0 is an agent's start: its entity is the anchor, the rest is -1.

    The `path_` columns hold what each step of the path read, reached and used, this step's own last; -1 where the path
    is shorter.
    """

    rows: Int64[Tensor, " steps"]  # place in the memory, -1 before it has one
    question_ids: Int64[Tensor, " steps"]
    agent_ids: Int64[Tensor, " steps"]  # numbered through the batch
    rounds: Int64[Tensor, " steps"]  # from 1
    parents: Int64[Tensor, " steps"]  # rows of the memory, -1 for a first step
    from_ids: Int64[Tensor, " steps"]  # the entity that the step left
    link_ids: Int64[Tensor, " steps"]
    text_ids: Int64[Tensor, " steps"]  # wording of the link: a sentence, or a directed relation
    entity_ids: Int64[Tensor, " steps"]  # the entity that it reached
    path_texts: Int64[Tensor, "steps depth"]
    path_entities: Int64[Tensor, "steps depth"]  # reached by each step
    path_edges: Int64[Tensor, "steps depth"]  # triples of the KG, -1 where a step is none
    lengths: Int64[Tensor, " steps"]
    terms: Float64[Tensor, " steps"]  # what the path earned by how it is linked
    scores: Float64[Tensor, " steps"]  # worth of the path, `terms` included

    def __len__(self) -> int:
        return self.question_ids.numel()

    def at(self, rows: Tensor) -> "Steps":
        """The steps of some rows (a mask or row numbers)."""
        return Steps(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def with_columns(self, **columns: Tensor) -> "Steps":
        """The same steps with some columns replaced."""
        return replace(self, **columns)

    def reaching(self, entity_ids: Int64[Tensor, " steps"], edge_ids: Int64[Tensor, " steps"]) -> "Steps":
        """The same steps, each with the entity that it reaches and the triple that says so."""
        last = (self.lengths - 1)[:, None]
        return replace(
            self,
            entity_ids=entity_ids,
            path_entities=self.path_entities.scatter(1, last, entity_ids[:, None]),
            path_edges=self.path_edges.scatter(1, last, edge_ids[:, None]),
        )


def start_steps(question_ids: Int64[Tensor, " agents"], entity_ids: Int64[Tensor, " agents"], depth: int) -> Steps:
    """Agents at their anchors, numbered in order."""
    none = torch.full_like(question_ids, -1)
    zeros = torch.zeros(question_ids.shape, dtype=torch.float64, device=question_ids.device)
    agents = torch.arange(question_ids.numel(), device=question_ids.device)
    no_path = none[:, None].expand(-1, depth).clone()
    nothing = torch.zeros_like(none)
    return Steps(
        none, question_ids, agents, nothing, none, none, none, none, entity_ids,
        no_path, no_path, no_path, nothing, zeros, zeros,
    )  # fmt: skip


def concat_steps(parts: Sequence[Steps]) -> Steps:
    """Several tables as one, in order."""
    return Steps(**{field.name: torch.cat([getattr(part, field.name) for part in parts]) for field in fields(Steps)})


class Memory:
    """All steps of a batch, and which (agent, entity) have been expanded."""

    def __init__(self, start: Steps, num_entities: int):
        self.steps = start.at(torch.zeros(0, dtype=torch.int64, device=start.question_ids.device))
        self._num_entities = max(1, num_entities)
        self._expanded = self.steps.agent_ids

    def add(self, steps: Steps) -> Steps:
        """Stores steps once each (same agent, path and entity; the best stays) and returns them with their rows."""
        keys = torch.cat([steps.agent_ids[:, None], steps.entity_ids[:, None], steps.path_texts], dim=1)
        kept = first_of_best(torch.unique(keys, dim=0, return_inverse=True)[1], steps.scores)
        steps = steps.at(kept)
        first_row = len(self.steps)
        steps = steps.with_columns(rows=torch.arange(first_row, first_row + len(steps), device=kept.device))
        self.steps = concat_steps([self.steps, steps])
        return steps

    def mark_expanded(self, steps: Steps) -> None:
        """Notes that the agents of these steps have expanded the entities that they reached."""
        self._expanded = torch.unique(torch.cat([self._expanded, self._keys(steps)]))

    def is_new(self, steps: Steps) -> Bool[Tensor, " steps"]:
        """Whether the agent has not yet expanded the entity that the step reached."""
        return ~torch.isin(self._keys(steps), self._expanded)

    def _keys(self, steps: Steps) -> Int64[Tensor, " steps"]:
        return steps.agent_ids * self._num_entities + steps.entity_ids


def first_of_best(keys: Int64[Tensor, " rows"], scores: Float64[Tensor, " rows"]) -> Int64[Tensor, " keys"]:
    """For each distinct key the row of its highest score (the lowest row among equals), ascending."""
    order = torch.argsort(scores, descending=True, stable=True)
    order = order[torch.argsort(keys[order], stable=True)]
    ordered = keys[order]
    is_first = torch.ones(order.shape, dtype=torch.bool, device=keys.device)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return order[is_first].sort().values
