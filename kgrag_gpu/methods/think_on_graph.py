"""Think-on-Graph (Sun et al. 2024, section 2.1): the model walks a beam of `width` paths from the topic entities.

Single-question form, each round up to `depth`:
1. Relations (2.1.2): the model ranks the relations of every entity at a path's end; the best `width` stay.
2. Entities (2.1.2): of more than 20 neighbours along one relation 5 are sampled; the model ranks them.
3. Pruning: a step is worth (weight of the relation) * (weight of the entity); the best `width` of the question stay.
4. Reasoning (2.1.3): enough to answer? Then answer. Depth spent, or nowhere to go: chain of thought over the findings.
The relation just walked is not walked back.

All questions of a batch advance together: a round asks each kind of prompt once for all of them.

Without a model relations and entities are weighed by SBERT cosine, nothing stops the walk early, and the answer is the
end of the path whose steps are worth most on average.

Deviations. The model names options by number, best first, and weights are made of the ranks (1/rank, normalised); the
published code lets it write decimal scores. An entity that was expanded from a topic entity is not expanded from it
again. Options of no more than `width` are not put to the model.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float64, Int64
from pydantic import Field
from torch import Tensor

from kgrag_gpu.answer.memory import Memory, Steps, start_steps
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.kg.store import Kg
from kgrag_gpu.methods.anchor_rag_judges import ModelJudge, ScoreJudge
from kgrag_gpu.methods.anchor_rag_trace import Trace
from kgrag_gpu.methods.graph_walk import Ranked, Reached, goes_on, rank_links, reach_entities
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.methods.topic_walk import TopicWalk, TopicWalkConfig, check_topic_walk
from kgrag_gpu.ranking.entities import widest_frontier
from kgrag_gpu.ranking.relations import segment_ranks
from kgrag_gpu.types import Answer, Question, Retrieval


class ThinkOnGraphConfig(TopicWalkConfig):
    """The paper's N and D."""

    width: Annotated[int, Field(ge=1)] = 3
    depth: Annotated[int, Field(ge=1)] = 3


class ThinkOnGraph:
    """The batched walk."""

    Config: ClassVar[type[ConfigModel]] = ThinkOnGraphConfig

    def __init__(self, config: ThinkOnGraphConfig, resources: Resources):
        self._config = config
        self._resources = resources
        self._topics = TopicWalk(config, config.depth, resources)

    @staticmethod
    def check(config: ThinkOnGraphConfig, kg: Kg, questions: Sequence[Question], engine: str) -> None:
        """Refuses what cannot be walked; see `check_topic_walk`."""
        check_topic_walk("tog", config, kg, questions)

    def retrieve(self, questions: Sequence[Question]) -> list[Retrieval]:
        """Walks for a whole batch of questions; see the module's text."""
        config, resources = self._config, self._resources
        engine = resources.engine
        view = self._topics.open_view(questions)
        judge = ModelJudge(config.judge, engine, questions) if engine is not None else ScoreJudge(config.judge)
        trace = Trace(view, resources.kg)
        answers: list[Answer | None] = [None] * len(questions)
        with resources.stage("walk"):
            frontier = start_steps(view.agent_questions, view.anchors, config.depth)
            memory = Memory(frontier, resources.kg.num_entities)
            while len(frontier):
                memory.mark_expanded(frontier)
                links = rank_links(view, frontier, judge.relation_scores, config.width, goes_on)
                found = reach_entities(
                    view, links.steps, config.hub_limit, "sample", resources.config.seed, config.hub_sample
                )
                scores = judge.entity_scores(view, found.steps, found.owners, config.width)
                kept = memory.add(self._pruned(frontier, links, found, scores))
                trace.note(frontier, found.steps, kept, found.dropped)
                self._topics.answer_early(view, memory.steps, questions, answers)
                is_open = torch.tensor([a is None for a in answers], dtype=torch.bool, device=kept.rows.device)
                going = (kept.lengths < config.depth) & memory.is_new(kept) & is_open[kept.question_ids]
                frontier = kept.at(going)
        self._topics.answer_late(view, memory.steps, questions, answers)
        rankings = self._topics.rankings(questions, memory.steps)
        further = [{"anchors": config.anchors}] * len(questions)
        return trace.retrievals(memory.steps, rankings, answers, config.num_paths, further)

    def _pruned(self, frontier: Steps, links: Ranked, found: Reached, scores: Float64[Tensor, " steps"]) -> Steps:
        """The question's best `width` steps; a path is worth the mean of its steps, which is what `scores` becomes."""
        relation_weights = self._weights(links.scores, links.owners)[found.owners]
        worth = relation_weights * self._weights(scores, found.owners)
        terms = frontier.terms[links.owners][found.owners] + worth
        steps = found.steps.with_columns(terms=terms, scores=terms / found.steps.lengths.double())
        kept = widest_frontier(steps.question_ids, worth, self._config.width)
        return steps.at(kept[worth[kept] > 0])

    def _weights(self, scores: Float64[Tensor, " items"], owners: Int64[Tensor, " items"]) -> Float64[Tensor, " items"]:
        """What each item counts among its owner's: from ranks with a model (-inf: 0), else the cosine itself."""
        if self._resources.engine is None:
            return scores.double().clamp(min=0)
        shares = torch.where(scores > -torch.inf, 1.0 / segment_ranks(scores, owners).double(), 0.0)
        sums = torch.zeros(int(owners[-1]) + 1 if len(owners) else 0, dtype=torch.float64, device=shares.device)
        sums.index_add_(0, owners, shares)
        return shares / sums[owners].clamp(min=1e-12)
