"""Which of the entities that a question may name are its anchors (AnchorRAG 3.2).

`score(e, q)` is the mean of the top min(k, |rel(e)|) cosines between the question and the texts of e's distinct
directed relations. It decides among names that fit about equally well (`tie_break`), is blended with the name's score
(`blend`), or stands alone (`relations_only`, the paper's form).
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from jaxtyping import Float64, Int64, Integer
from pydantic import Field
from torch import Tensor

from kernels import csr_expand, segment_topk_mean
from kgrag_gpu.anchors.link import Links
from kgrag_gpu.config.schema import ConfigModel


class DisambiguationConfig(ConfigModel):
    """How anchors are chosen among linked entities."""

    mode: Literal["tie_break", "blend", "relations_only"] = "tie_break"
    top_relations: Annotated[int, Field(ge=1)] = 5  # k
    num_anchors: Annotated[int, Field(ge=1)] = 3  # m
    scope: Literal["global", "per_mention"] = "per_mention"
    tie_margin: float = 0.5  # names within this of a mention's best one are near equal (log10 units)
    blend_weight: Annotated[float, Field(ge=0, le=1)] = 0.5  # of the relations, both sides as z-scores
    mention_share: float = 0.5  # a further mention needs this share of the best mention's score to come first


@dataclass(frozen=True, eq=False)
class EntityRelations:
    """The distinct relation texts of every entity, both directions: rows `texts[offsets[e] : offsets[e + 1]]`."""

    offsets: Int64[Tensor, " entities_plus_1"]
    texts: Integer[Tensor, " relations_of_entities"]


def relation_scores(
    links: Links, relations: EntityRelations, cosines: Float64[Tensor, "questions texts"], top: int
) -> Float64[Tensor, " links"]:
    """score(e, q) of every link; an entity without relations gets -1."""
    device = cosines.device
    entities = torch.from_numpy(links.entity_ids).to(device)
    questions = torch.from_numpy(links.question_ids).to(device)
    slots, owners = csr_expand(relations.offsets, entities)
    counts = relations.offsets[entities + 1] - relations.offsets[entities]
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return segment_topk_mean(cosines[questions[owners], relations.texts[slots].long()], offsets, top, empty=-1.0)


def choose_anchors(links: Links, relation_score: np.ndarray, config: DisambiguationConfig) -> Links:
    """The best `num_anchors` links of each question, best first.

    Scope `global` takes them as they rank; `per_mention` puts the best entity of each mention first (mentions are
    windows that overlap), so that a question about two entities gets both. Equal scores go by entity row.
    """
    questions = links.question_ids
    mentions = mention_ids(links)
    rank = _rank_scores(links, relation_score, mentions, config)
    order = np.lexsort((links.entity_ids, -rank[1], -rank[0], questions))
    if config.scope == "per_mention":
        order = _mentions_first(order, links, mentions, config.mention_share)
    counts = np.diff(links.offsets)
    place = np.arange(len(order)) - np.repeat(links.offsets[:-1], counts)
    kept = order[place < config.num_anchors]
    offsets = np.concatenate([[0], np.cumsum(np.minimum(counts, config.num_anchors))])
    return links.take(kept, offsets)


def mention_ids(links: Links) -> np.ndarray:
    """The mention of each link, int64 [links]: the first (best) link whose window it overlaps, by row."""
    mentions = np.arange(len(links.entity_ids))
    for q in range(len(links.offsets) - 1):
        heads: list[int] = []
        for row in range(links.offsets[q], links.offsets[q + 1]):
            same = (h for h in heads if links.starts[row] < links.ends[h] and links.starts[h] < links.ends[row])
            mentions[row] = next(same, row)
            if mentions[row] == row:
                heads.append(row)
    return mentions


def _rank_scores(
    links: Links, relation_score: np.ndarray, mentions: np.ndarray, config: DisambiguationConfig
) -> tuple[np.ndarray, np.ndarray]:
    """First and second sort key of each link, higher is better."""
    if config.mode == "relations_only":
        return relation_score, links.scores
    if config.mode == "blend":
        weight = config.blend_weight
        names = _z_scores(links.scores, links.offsets)
        return (1 - weight) * names + weight * _z_scores(relation_score, links.offsets), links.scores
    # Near-equal names of a mention all take its best score, and the relations decide among them.
    best = links.scores[mentions]
    near = links.scores >= best - config.tie_margin
    return np.where(near, best, links.scores), np.where(near, relation_score, -np.inf)


def _z_scores(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """(value - mean) / deviation within each question; 0 where all are equal."""
    out = np.zeros(len(values))
    for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        part = values[start:end]
        if end - start > 1 and part.std() > 0:
            out[start:end] = (part - part.mean()) / part.std()
    return out


def _mentions_first(order: np.ndarray, links: Links, mentions: np.ndarray, share: float) -> np.ndarray:
    """Within each question: the first link of every mention that is strong enough, then the others, both in order."""
    is_late = np.ones(len(order), dtype=np.int64)
    questions = links.question_ids
    seen: set[int] = set()
    best: dict[int, float] = {}
    for place, row in enumerate(order.tolist()):
        question, mention = int(questions[row]), int(mentions[row])
        floor = best.setdefault(question, float(links.scores[row])) * share
        if mention not in seen and links.scores[row] >= floor:
            is_late[place] = 0
        seen.add(mention)
    return order[np.lexsort((np.arange(len(order)), is_late, questions[order]))]
