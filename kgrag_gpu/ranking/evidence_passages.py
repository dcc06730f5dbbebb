"""What a path of sentences is worth, and what each passage on it earns.

A path is worth what its sentences cover of the question together, plus small terms for how they are linked
(methods/cover.md, steps 4 to 7). A passage earns the worth of the best path through it, and more
where that path needs it. The scorer of coverage is given from outside: clauses of the question against sentence
vectors, or its tokens against token states; here a sentence is a row of fixed-point coverages.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float64, Int32, Int64
from torch import Tensor

from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.ranking.question_units import UNIT_SCALE


class PathConfig(ConfigModel):
    """Terms of a path's worth, in shares of a fully covered question."""

    title_edge: float = 0.06  # the step goes to the passage that the entity titles, or comes from it
    hub_cost: float = 0.015  # times log2 of the passages that mention the entity
    named_cost: float = 0.05  # stepping through an entity that the question names itself
    name_bonus: float = 0.15  # a passage on the path is titled by a name of the question
    later_share: float = 0.5  # what the terms of earlier and of later steps count from the third sentence on
    later_cost: float = 0.10
    join_bonus: float = 0.05  # two agents' sentences put side by side, both from passages that the question names
    own_share: float = 0.05  # of what the sentence covers alone
    marginal_share: float = 0.25  # of what the path loses without it
    single_factor: float = 1.2
    single_name_bonus: float = 0.18
    single_cost: float = 0.02


class Paths(NamedTuple):
    """Paths of one to `depth` sentences.

    `cover` holds each sentence's coverage row, zeros where the path is shorter; `name_scores` (0..1) how surely the
    question names each sentence's passage; `terms` the sum of the link terms.
    """

    cover: Int32[Tensor, "paths depth units"]
    lengths: Int64[Tensor, " paths"]
    name_scores: Float64[Tensor, "paths depth"]
    terms: Float64[Tensor, " paths"]


def summed(cover: Int32[Tensor, "rows units"]) -> Float64[Tensor, " rows"]:
    """The covered share of the question: an exact integer sum, scaled."""
    return cover.sum(-1, dtype=torch.int64).double() / UNIT_SCALE


def step_terms(
    config: PathConfig,
    parent_terms: Float64[Tensor, " steps"],
    parent_lengths: Int64[Tensor, " steps"],
    edge_terms: Float64[Tensor, " steps"],
    best_name: Float64[Tensor, " steps"],
) -> Float64[Tensor, " steps"]:
    """Link terms of paths that grew by one sentence.

    Args:
        parent_terms, parent_lengths: of the path before; length 0 where the sentence is the first.
        edge_terms: of the entity that was stepped through (`edge_term`).
        best_name: the highest name score on the grown path.
    """
    first = config.name_bonus * best_name
    second = edge_terms + config.name_bonus * best_name
    later = config.later_share * (parent_terms + second) - config.later_cost
    return torch.where(parent_lengths == 0, first, torch.where(parent_lengths == 1, second, later))


def edge_term(
    config: PathConfig,
    is_title_edge: Tensor,
    num_mentions: Int64[Tensor, " steps"],
    is_named: Tensor,
) -> Float64[Tensor, " steps"]:
    """What stepping through an entity adds: titles bind, hubs and names that the question already had do not."""
    hub = torch.log2(num_mentions.clamp(min=2).double())
    return config.title_edge * is_title_edge.double() - config.hub_cost * hub - config.named_cost * is_named.double()


def sentence_credits(config: PathConfig, paths: Paths) -> Float64[Tensor, "paths depth"]:
    """What the passage of each sentence earns from its path; -inf past the path's length.

    Two sentences and more: worth + own_share * (alone + name) + marginal_share * (what the path loses without it).
    One sentence: single_factor * coverage + its name bonus - single_cost.
    """
    num_paths, depth, _ = paths.cover.shape
    whole = summed(paths.cover.amax(1)) if depth else paths.terms.new_zeros(num_paths)
    credits = paths.terms.new_full((num_paths, depth), -torch.inf)
    for place in range(depth):
        others = [i for i in range(depth) if i != place]
        rest = summed(paths.cover[:, others].amax(1)) if others else torch.zeros_like(whole)
        alone = summed(paths.cover[:, place])
        name = paths.name_scores[:, place]
        shared = whole + paths.terms + config.own_share * (alone + config.name_bonus * name)
        shared = shared + config.marginal_share * (whole - rest)
        single = config.single_factor * alone + config.single_name_bonus * name - config.single_cost
        earned = torch.where(paths.lengths == 1, single, shared)
        credits[:, place] = torch.where(place < paths.lengths, earned, -torch.inf)
    return credits


def best_per_key(
    keys: Int64[Tensor, " rows"], scores: Float64[Tensor, " rows"]
) -> tuple[Int64[Tensor, " keys"], Float64[Tensor, " keys"]]:
    """The distinct keys, ascending, and the highest score of each."""
    distinct, inverse = torch.unique(keys, return_inverse=True)
    best = torch.full(distinct.shape, -torch.inf, dtype=scores.dtype, device=scores.device)
    return distinct, best.scatter_reduce(0, inverse, scores, "amax")
