"""The best path that a question's words would ask for if the graph held it: a measure of what is missing.

Paths are listed from the graph's habits instead of from an anchor: any step may come first, and a step is followed by
those that some of its ends have. Where such a path scores far above the best one that the anchor really has, the
graph most likely lacks what is asked for.
"""

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from kernels import csr_expand, segment_topk
from kgrag_gpu.ranking.paths_align import Sheet
from kgrag_gpu.ranking.relation_paths import PathBeam, PathScorer, PathTables


def expected_scores(
    scorer: PathScorer, sheet: Sheet, tables: PathTables, max_steps: int, width: int
) -> Float64[Tensor, " agents"]:
    """The best score of any path of one to `max_steps` steps that the graph's habits allow.

    Args:
        width: paths of an agent gone on from at each length; the first steps are those most like any of its segments.
    """
    num_agents = len(sheet.is_shared)
    beam = PathBeam(scorer, sheet, tables, max_steps, width)
    parents, steps = _likeliest_steps(sheet, tables, width)
    kept = beam.add(parents, steps)
    last = steps[kept]
    offsets = scorer.ends.follower_offsets
    for _ in range(max_steps - 1):
        slots, owners = csr_expand(offsets, last)
        following = scorer.ends.follower_steps[slots]
        kept = beam.add(owners, following)
        last = following[kept]
    scored = beam.scored()
    counts = torch.bincount(scored.agents, minlength=num_agents)
    return segment_topk(scored.scores, torch.cat([counts.new_zeros(1), counts.cumsum(0)]), 1).values[:, 0]


def _likeliest_steps(
    sheet: Sheet, tables: PathTables, width: int
) -> tuple[Int64[Tensor, " paths"], Int64[Tensor, " paths"]]:
    """(agent, step) pairs, by agent, then step: the `width` steps of each agent with the likest segment."""
    num_agents = len(sheet.is_shared)
    num_phrases, num_steps = tables.like.table.shape
    rows = torch.arange(num_agents, device=sheet.nouns.device)[:, None, None, None].expand_as(sheet.segment_ids)
    real = sheet.segment_ids >= 0
    pairs = torch.unique(rows[real] * num_phrases + sheet.segment_ids[real])
    agents, phrases = pairs // num_phrases, pairs % num_phrases
    counts = torch.bincount(agents, minlength=num_agents)
    best = torch.full((num_agents, num_steps), -torch.inf, dtype=torch.float64, device=rows.device)
    first = counts.cumsum(0) - counts
    for nth in range(int(counts.max()) if num_agents else 0):  # an agent has some dozens of segments
        having = (counts > nth).nonzero().flatten()
        best[having] = torch.maximum(best[having], tables.like.table[phrases[first[having] + nth]])
    offsets = torch.arange(num_agents + 1, device=rows.device) * num_steps
    top = segment_topk(best.flatten(), offsets, min(width, max(num_steps, 1))).indices
    chosen = top[top >= 0].sort().values
    chosen = chosen[best.flatten()[chosen] > -torch.inf]
    return chosen // num_steps, chosen % num_steps
