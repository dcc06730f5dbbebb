"""The table of labels that frontier_relax returns, how it is put in order, and how paths are read from it."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from kernels import checks
from kernels.frontier_relax.problem import cost_bits


class RelaxLabels(NamedTuple):
    """Labels of all questions, sorted by (question, cost, hops, group, node): cheapest first.

    ``is_final`` marks the one least label of each (question, group, node). The others are older and dearer labels of a
    node, kept because a path through that node needs the hops they save. ``parents`` are rows of this
    table (-1 at a start), always one hop shorter; ``parent_slots`` the CSR slot of the last step, a slot of the
    parent's row.
    """

    question_offsets: Int[Tensor, " questions_plus_one"]
    question_ids: Int[Tensor, " labels"]
    group_ids: Int[Tensor, " labels"]
    node_ids: Int[Tensor, " labels"]
    costs: Float[Tensor, " labels"]
    hops: Int[Tensor, " labels"]
    parents: Int[Tensor, " labels"]
    parent_slots: Int[Tensor, " labels"]
    is_final: Bool[Tensor, " labels"]


class RelaxPaths(NamedTuple):
    """Ragged paths from the start to the label; ``slots[i]`` is the step into ``node_ids[i]``, -1 at a start."""

    offsets: Int[Tensor, " paths_plus_one"]
    node_ids: Int[Tensor, " steps"]
    slots: Int[Tensor, " steps"]


class RawLabels(NamedTuple):
    """Labels as a form makes them, in any order, parents being rows of the same arrays."""

    keys: Tensor  # (question * groups + group) * nodes + node
    costs: Tensor
    hops: Tensor
    parents: Tensor
    slots: Tensor
    is_final: Tensor


def label_order(questions: Tensor, costs: Tensor, rest: Tensor) -> Tensor:
    """Stable order by (question, cost, rest), ``rest`` being at least 0."""
    order = torch.argsort(rest, stable=True)
    packed = ((questions << 32) | cost_bits(costs)).index_select(0, order)
    return order.index_select(0, torch.argsort(packed, stable=True))


def rank_in_question(questions: Tensor) -> Tensor:
    """Place of each row among the rows of its question; ``questions`` is sorted."""
    places = torch.arange(questions.numel(), device=questions.device)
    return places - torch.searchsorted(questions, questions)


def tie_key(keys: Tensor, hops: Tensor, num_groups: int, num_nodes: int) -> Tensor:
    """What orders labels of one question and one cost: hops, then group, then node."""
    span = num_groups * num_nodes
    return hops * span + keys % span


def build_table(raw: RawLabels, num_questions: int, num_groups: int, num_nodes: int) -> RelaxLabels:
    """Sort the labels and turn their parents into rows of the sorted table."""
    checks.items_fit("labels", raw.keys.numel(), "set max_labels or split the questions")
    pairs = raw.keys // num_nodes
    questions = pairs // num_groups
    order = label_order(questions, raw.costs, tie_key(raw.keys, raw.hops, num_groups, num_nodes))
    place = torch.empty_like(order)
    place[order] = torch.arange(order.numel(), device=order.device)
    parents = raw.parents.index_select(0, order)
    if parents.numel():
        parents = torch.where(parents >= 0, place.index_select(0, parents.clamp(min=0)), -1)
    questions = questions.index_select(0, order)
    bounds = torch.searchsorted(questions, torch.arange(num_questions + 1, device=questions.device))
    return RelaxLabels(
        question_offsets=bounds,
        question_ids=questions,
        group_ids=(pairs % num_groups).index_select(0, order),
        node_ids=(raw.keys % num_nodes).index_select(0, order),
        costs=raw.costs.index_select(0, order),
        hops=raw.hops.index_select(0, order),
        parents=parents,
        parent_slots=raw.slots.index_select(0, order),
        is_final=raw.is_final.index_select(0, order),
    )


def trace_paths(labels: RelaxLabels, rows: Int[Tensor, " paths"]) -> RelaxPaths:
    """Follow the parents of each label back to its start.

    Args:
        labels: from ``frontier_relax``.
        rows: rows of the table; they may repeat.

    Returns:
        Nodes and steps of each path, start first; path i has ``hops[rows[i]] + 1`` nodes.

    Raises:
        IndexError: a row outside the table.
    """
    rows = checks.integers("rows", rows)
    checks.ids_below("rows", rows, labels.costs.numel(), "labels")
    lengths = labels.hops[rows] + 1
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    node_ids = torch.empty(int(offsets[-1]), dtype=torch.int64, device=rows.device)
    slots = torch.empty_like(node_ids)
    current, places = rows, offsets[1:] - 1
    while current.numel():
        node_ids[places] = labels.node_ids[current]
        slots[places] = labels.parent_slots[current]
        current = labels.parents[current]
        going = current >= 0
        current, places = current[going], places[going] - 1
    return RelaxPaths(offsets, node_ids, slots)
