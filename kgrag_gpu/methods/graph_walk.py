"""Two steps that every walk over a graph takes, for all questions at once: rank links, reach the entities behind them.

AnchorRAG, Think-on-Graph and Plan-on-Graph differ in who ranks, how many stay and what happens then; that is theirs.
Knows steps and views (anchor_rag_triples.py, anchor_rag_passages.py), no prompt and no method.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from kgrag_gpu.answer.memory import Steps, concat_steps
from kgrag_gpu.expansion.neighbours import sample_hubs
from kgrag_gpu.ranking.relations import keep_best

_MAX_CANDIDATES = 200_000  # links looked at in one go; a longer frontier is walked in parts

Scorer = Callable[[Any, Steps, Tensor, int], Tensor]  # (view, steps, owners, width) -> a score each, -inf: never taken


class Ranked(NamedTuple):
    """Links that stay, as grown paths. Link i starts at row `owners[i]` of the frontier; owners never fall."""

    steps: Steps
    scores: Tensor  # what they were ranked by
    owners: Int64[Tensor, " steps"]


class Reached(NamedTuple):
    """Entities behind links. `owners[i]` is the row of the link that entity i lies behind; owners never fall."""

    steps: Steps
    owners: Int64[Tensor, " steps"]
    dropped: Steps  # what the hub limit left out


def rank_links(
    view: Any,
    frontier: Steps,
    score: Scorer,
    width: int,
    may_walk: Callable[[Steps], Bool[Tensor, " steps"]] | None = None,
) -> Ranked:
    """The best `width` links of every frontier entity, as paths grown by them.

    Args:
        view: one batch of questions over a KG.
        frontier: where to go on from.
        score: ranks the links of each entity.
        width: links that stay for each entity; ties go to the lowest position.
        may_walk: links that are offered at all; every one by default.
    """
    parts = []
    block = view.walk.num_links(frontier.entity_ids).cumsum(0) // _MAX_CANDIDATES
    for number in torch.unique(block):
        rows = torch.nonzero(block == number).flatten()
        part = frontier.at(rows)
        found = view.walk.links_of(part.entity_ids)
        owners, steps = view.grow(part, found.owners, found.rows)
        if may_walk is not None:
            open_links = may_walk(steps)
            owners, steps = owners[open_links], steps.at(open_links)
        scores = score(view, steps, owners, width)
        kept = keep_best(scores, owners, width)
        kept = kept[scores[kept] > -torch.inf]
        parts.append(Ranked(steps.at(kept), scores[kept], rows[owners[kept]]))
    if not parts:
        return Ranked(frontier, frontier.scores, frontier.rows)
    steps, scores, owners = zip(*parts, strict=True)
    return Ranked(concat_steps(steps), torch.cat(scores), torch.cat(owners))


def reach_entities(
    view: Any, links: Steps, limit: int, policy: Literal["sample", "top"], seed: int, num_kept: int | None = None
) -> Reached:
    """The entities behind each link. Of more than `limit`, `num_kept` stay (as many as the limit by default).

    Args:
        view: one batch of questions over a KG.
        links: grown paths.
        limit: neighbours along one link that are all looked at.
        policy: beyond the limit a seeded sample stays, or the best by cosine.
        seed: of the sample, which depends on nothing else.
        num_kept: how many stay beyond the limit.
    """
    found = view.walk.members_of(links.link_ids, links.from_ids)
    steps = links.at(found.owners).reaching(
        view.walk.member_entities[found.rows], view.walk.member_edge_ids[found.rows]
    )
    owners, num_kept = found.owners, limit if num_kept is None else num_kept
    if policy == "sample":
        stays = sample_hubs(owners, found.rows, num_kept, seed)
    else:
        stays = torch.zeros(len(steps), dtype=torch.bool, device=owners.device)
        stays[keep_best(view.cosine(steps), owners, num_kept)] = True
    if num_kept < limit and len(steps):
        stays |= torch.bincount(owners)[owners] <= limit
    return Reached(steps.at(stays), owners[stays], steps.at(~stays))


def goes_on(steps: Steps) -> Bool[Tensor, " steps"]:
    """Whether a path over triples does not walk the relation of its step before straight back."""
    before = steps.path_texts.gather(1, (steps.lengths - 2).clamp(min=0)[:, None])[:, 0]
    return (steps.lengths < 2) | (before != steps.text_ids ^ 1)
