"""Runs frontier_relax part by part of the questions, so that its working set stays bounded."""

from dataclasses import replace

import torch
from torch import Tensor

from kernels.frontier_relax.labels import RawLabels, RelaxLabels, build_table
from kernels.frontier_relax.problem import CostFunction, Problem, RelaxSeeds
from kernels.frontier_relax.torch_dense import dense_labels, relax_layers
from kernels.frontier_relax.torch_sparse import sparse_labels

LABEL_BYTES = 160  # five int64 columns of the rounds, and their copies while the table is sorted
UNBOUNDED_LABELS = 1 << 15


def question_parts(problem: Problem, form: str, working_bytes: int) -> list[tuple[int, int]]:
    """Ranges of questions whose working sets are within ``working_bytes`` each, or of one question.

    The sparse form holds the labels it finds. Where ``max_labels`` does not bound them, UNBOUNDED_LABELS a question are
    counted on: a question may find more, and then holds more.
    """
    nodes = problem.graph.num_nodes * problem.num_groups
    if form == "dense":
        each = 4 * nodes * (problem.num_hops + 3)
    else:
        each = LABEL_BYTES * min(nodes, UNBOUNDED_LABELS if problem.max_labels is None else 2 * problem.max_labels)
    step = max(1, working_bytes // max(1, each))
    return [(first, min(first + step, problem.num_questions)) for first in range(0, problem.num_questions, step)]


def run_parts(problem: Problem, parts: list[tuple[int, int]], form: str, backend: str) -> RelaxLabels:
    """The table of all questions."""
    tables = []
    for first, past in parts or [(0, problem.num_questions)]:
        part = problem if len(parts) <= 1 else _part(problem, first, past)
        raw = _sparse(part, backend) if form == "sparse" else dense_labels(part, dense_layers(part, backend))
        tables.append(build_table(raw, part.num_questions, part.num_groups, part.graph.num_nodes))
    return tables[0] if len(tables) == 1 else _join(tables, [first for first, _ in parts])


def dense_layers(problem: Problem, backend: str) -> list[Tensor]:
    """The field after each hop, relaxed by torch or by the Triton kernel."""
    if backend == "triton":
        from kernels.frontier_relax.triton_impl import relax_once

        return relax_layers(problem, relax_once)
    return relax_layers(problem)


def _sparse(problem: Problem, backend: str) -> RawLabels:
    if backend == "triton":
        from kernels.frontier_relax.triton_impl import least_arrivals

        return sparse_labels(problem, least_arrivals)
    return sparse_labels(problem)


def _part(problem: Problem, first: int, past: int) -> Problem:
    seeds = problem.seeds
    own = (seeds.question_ids >= first) & (seeds.question_ids < past)
    columns = (seeds.question_ids[own] - first, seeds.group_ids[own], seeds.node_ids[own])
    mask = problem.node_mask
    return replace(
        problem,
        seeds=RelaxSeeds(*columns, None if seeds.costs is None else seeds.costs[own]),
        num_questions=past - first,
        node_costs=_rows(problem.node_costs, first, past),
        edge_costs=None if problem.edge_costs is None else _rows(problem.edge_costs, first, past),
        node_mask=mask if mask is None or mask.ndim == 1 else mask[first:past],
    )


def _rows(costs: Tensor | CostFunction, first: int, past: int) -> Tensor | CostFunction:
    if isinstance(costs, Tensor):
        return costs if costs.ndim == 1 else costs[first:past]
    return lambda question_ids, ids: costs(question_ids + first, ids)


def _join(tables: list[RelaxLabels], firsts: list[int]) -> RelaxLabels:
    """One table; parents move by the labels before, questions by the questions before."""
    before, offsets, parents = 0, [tables[0].question_offsets[:1]], []
    for table in tables:
        offsets.append(table.question_offsets[1:] + before)
        parents.append(torch.where(table.parents >= 0, table.parents + before, -1))
        before += table.costs.numel()
    joined = {name: torch.cat([getattr(table, name) for table in tables]) for name in RelaxLabels._fields}
    questions = [table.question_ids + first for table, first in zip(tables, firsts, strict=True)]
    joined |= {"question_offsets": torch.cat(offsets), "parents": torch.cat(parents)}
    return RelaxLabels(**(joined | {"question_ids": torch.cat(questions)}))
