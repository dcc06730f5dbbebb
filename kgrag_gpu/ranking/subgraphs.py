"""Ranking of candidate subgraphs (BubbleRAG, Section 4.4): coverage, structure, evidence and diversity."""

from typing import Annotated, Literal

import torch
from jaxtyping import Bool, Float64, Int64
from pydantic import Field
from torch import Tensor

from kgrag_gpu.config.schema import ConfigModel


class SubgraphConfig(ConfigModel):
    """Terms of the composite score; `form: paper` takes the paper's single formula instead."""

    form: Literal["composite", "paper", "none"] = "composite"  # none: in the order of meetings
    coverage_weight: float = 0.5
    structure_weight: float = 0.1
    evidence_weight: float = 0.3
    diversity_weight: float = 0.1
    gamma: Annotated[float, Field(gt=0, le=1)] = 0.5  # each time that a covered group is covered again
    min_density: float = 0.3  # below it a candidate is dropped early; 0.5 where precision is low
    alpha: float = 1.0  # paper: how hard missed groups are punished


def density(
    node_sums: Float64[Tensor, " candidates"],
    edge_sums: Float64[Tensor, " candidates"],
    num_nodes: Int64[Tensor, " candidates"],
    num_edges: Int64[Tensor, " candidates"],
) -> Float64[Tensor, " candidates"]:
    """Mean cosine with the question over nodes and edges: the paper's information density."""
    return (node_sums + edge_sums) / (num_nodes + num_edges).clamp(min=1)


def keep_dense(
    question_ids: Int64[Tensor, " candidates"], values: Float64[Tensor, " candidates"], min_density: float
) -> Bool[Tensor, " candidates"]:
    """Candidates that are dense enough; a question none of whose are keeps its densest one."""
    if not len(question_ids):
        return torch.zeros(0, dtype=torch.bool, device=question_ids.device)
    best = torch.full((int(question_ids.max()) + 1,), -torch.inf, dtype=torch.float64, device=values.device)
    best.scatter_reduce_(0, question_ids, values, "amax")
    return values >= best[question_ids].clamp(max=min_density)


def paper_scores(
    mean_costs: Float64[Tensor, " candidates"], missed: Float64[Tensor, " candidates"], alpha: float
) -> Float64[Tensor, " candidates"]:
    """`1 / (mean node cost * exp(alpha * weight of missed groups) + eps)`."""
    return 1.0 / (mean_costs * torch.exp(alpha * missed) + 1e-6)


def composite_scores(
    question_ids: Int64[Tensor, " candidates"],
    covered: Bool[Tensor, "candidates groups"],
    weights: Float64[Tensor, "candidates groups"],
    diameters: Int64[Tensor, " candidates"],
    num_nodes: Int64[Tensor, " candidates"],
    evidence: Float64[Tensor, " candidates"],
    config: SubgraphConfig,
) -> tuple[Float64[Tensor, " candidates"], dict[str, Float64[Tensor, " candidates"]]]:
    """Score of every candidate, and each term of it.

    Diversity is taken greedily: the best candidate first, and every group that it covers counts `gamma` times as much
    for those after it. All questions advance together, a rank a step.
    """
    coverage = (covered * weights).sum(1)
    structure = 1.0 / (diameters * num_nodes).clamp(min=1).double().sqrt()
    base = config.coverage_weight * coverage + config.structure_weight * structure + config.evidence_weight * evidence
    num = len(question_ids)
    diversity = torch.zeros(num, dtype=torch.float64, device=base.device)
    scores = torch.full((num,), -torch.inf, dtype=torch.float64, device=base.device)
    if num:
        num_questions = int(question_ids.max()) + 1
        times = torch.zeros(num_questions, covered.shape[1], dtype=torch.float64, device=base.device)
        left = torch.ones(num, dtype=torch.bool, device=base.device)
        sizes = covered.sum(1).clamp(min=1)
        for _ in range(int(torch.bincount(question_ids).max())):
            fresh = (covered * config.gamma ** times[question_ids]).sum(1) / sizes
            value = torch.where(left, base + config.diversity_weight * fresh, -torch.inf)
            best = torch.full((num_questions,), -torch.inf, dtype=torch.float64, device=base.device)
            best.scatter_reduce_(0, question_ids, value, "amax")
            hits = torch.nonzero(left & (value == best[question_ids])).flatten()
            first = hits[_first_of(question_ids[hits])]
            scores[first], diversity[first] = value[first], fresh[first]
            times[question_ids[first]] += covered[first].double()
            left[first] = False
    return scores, {"coverage": coverage, "structure": structure, "evidence": evidence, "diversity": diversity}


def _first_of(ordered: Tensor) -> Bool[Tensor, " rows"]:
    first = torch.ones(len(ordered), dtype=torch.bool, device=ordered.device)
    first[1:] = ordered[1:] != ordered[:-1]
    return first
