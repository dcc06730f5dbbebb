"""Plan-on-Graph (Chen et al. 2024, section 3): a plan, a memory, and the way back from a wrong turn.

Single-question form:
1. Task decomposition (3.1): the model splits the question into sub-questions.
2. Path exploration (3.2): of every frontier entity's relations, and of the facts behind them, the model keeps as many
   as the open sub-questions need: the breadth is its own choice, up to `max_width`.
3. Memory updating (3.3): what is known of each sub-question is noted and stands in every later prompt.
4. Evaluation (3.4): enough to answer? Then answer.
5. Reflection (3.4): else the model may go back to entities seen before, taken or not, at most `max_backtracks` times;
   relations already walked for the question are not offered again.
No way on and none back, or all rounds spent: chain of thought over what was found. Paths have at most `depth` steps.

All questions of a batch advance together: a round asks each kind of prompt once for all of them. There is no form
without a model: plan, breadth and the way back are its judgements.

Deviations. Options are named by number. Entities to go back to are offered with the fact that led there, best first, at
most `judge.max_options`. Where a reply cannot be used, SBERT cosine ranks and nothing is taken back.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Annotated, ClassVar

import torch
from jaxtyping import Bool
from pydantic import Field
from torch import Tensor

from kgrag_gpu.answer.memory import Memory, Steps, concat_steps, first_of_best, start_steps
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.kg.store import Kg
from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.methods.anchor_rag_judges import ModelJudge
from kgrag_gpu.methods.anchor_rag_trace import Trace, best_facts
from kgrag_gpu.methods.anchor_rag_triples import TripleView
from kgrag_gpu.methods.graph_walk import goes_on, rank_links, reach_entities
from kgrag_gpu.methods.registry import need_model
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.methods.topic_walk import TopicWalk, TopicWalkConfig, check_topic_walk
from kgrag_gpu.prompts.registry import make_request, sampling_for
from kgrag_gpu.ranking.relations import keep_best
from kgrag_gpu.types import Answer, Question, Retrieval

_WHY = "plan, breadth and the way back are its judgements"


class PlanOnGraphConfig(TopicWalkConfig):
    """The paper's limits."""

    depth: Annotated[int, Field(ge=1)] = 4
    max_backtracks: Annotated[int, Field(ge=0)] = 5
    max_width: Annotated[int, Field(ge=1)] = 5  # relations of an entity, and entities of a relation, at the most


class PlanOnGraph:
    """The batched walk."""

    Config: ClassVar[type[ConfigModel]] = PlanOnGraphConfig

    def __init__(self, config: PlanOnGraphConfig, resources: Resources):
        need_model("pog", resources.engine.name if resources.engine else "none", _WHY)
        assert resources.engine is not None
        self._engine: Engine = resources.engine
        self._config = config
        self._resources = resources
        self._topics = TopicWalk(config, config.depth, resources)

    @staticmethod
    def check(config: PlanOnGraphConfig, kg: Kg, questions: Sequence[Question], engine: str) -> None:
        """Refuses to run without a model, and what cannot be walked; see `check_topic_walk`."""
        need_model("pog", engine, _WHY)
        check_topic_walk("pog", config, kg, questions)

    def retrieve(self, questions: Sequence[Question]) -> list[Retrieval]:
        """Walks for a whole batch of questions; see the module's text."""
        config, resources = self._config, self._resources
        with resources.stage("plan"):
            plan = Plan.of(self._engine, questions)
        view = self._topics.open_view(questions)
        trace = Trace(view, resources.kg)
        answers: list[Answer | None] = [None] * len(questions)
        with resources.stage("walk"):
            frontier = start_steps(view.agent_questions, view.anchors, config.depth)
            memory = Memory(frontier, resources.kg.num_entities)
            seen = Seen(view, frontier)
            num_rounds = 0
            while len(frontier) and num_rounds < config.depth + config.max_backtracks:
                num_rounds += 1
                judge = AdaptiveJudge(config.judge, self._engine, plan.briefed())
                memory.mark_expanded(frontier)
                links = rank_links(view, frontier, judge.relation_scores, config.max_width, seen.may_walk)
                seen.note_walked(links.steps)
                found = reach_entities(
                    view, links.steps, config.hub_limit, "sample", resources.config.seed, config.hub_sample
                )
                scores = judge.entity_scores(view, found.steps, found.owners, config.max_width)
                best = keep_best(scores, found.owners, config.max_width)
                kept = memory.add(found.steps.at(best[scores[best] > -torch.inf]))
                seen.add(kept, found.steps)
                trace.note(frontier, found.steps, kept, found.dropped)
                facts = best_facts(view, memory.steps, config.max_facts)
                plan.note_progress(self._engine, facts, answers)
                self._topics.answer_early(view, memory.steps, plan.briefed(), answers)
                frontier = self._next_frontier(view, memory, seen, plan, kept, facts, answers)
        self._topics.answer_late(view, memory.steps, plan.briefed(), answers)
        rankings = self._topics.rankings(questions, memory.steps)
        further = [{"anchors": config.anchors, **notes} for notes in plan.traces()]
        return trace.retrievals(memory.steps, rankings, answers, config.num_paths, further)

    def _next_frontier(
        self,
        view: TripleView,
        memory: Memory,
        seen: "Seen",
        plan: "Plan",
        kept: Steps,
        facts: Sequence[Sequence[str]],
        answers: Sequence[Answer | None],
    ) -> Steps:
        """Steps 4 and 5: where open questions go on from, and what they go back to."""
        is_open = torch.tensor([answer is None for answer in answers], dtype=torch.bool, device=kept.rows.device)
        going = kept.at((kept.lengths < self._config.depth) & memory.is_new(kept) & is_open[kept.question_ids])
        going = going.at(first_of_best(going.agent_ids * view.walk.num_entities + going.entity_ids, going.scores))
        has_budget = torch.tensor([n < self._config.max_backtracks for n in plan.num_backtracks], device=is_open.device)
        offered = seen.offered(going, is_open & has_budget, self._config.depth, self._config.judge.max_options)
        back = offered.at(self._reflect(view, plan, offered, facts))
        fresh = back.rows < 0  # starts have no row either, and no fact to keep
        returned = memory.add(back.at(fresh & (back.lengths > 0)))
        return concat_steps([going, back.at(~fresh | (back.lengths == 0)), returned])

    def _reflect(self, view: TripleView, plan: "Plan", offered: Steps, facts: Sequence[Sequence[str]]) -> Tensor:
        """Rows of the entities that the model goes back to; counts a backtrack for each question that does."""
        rows: dict[int, list[int]] = {}
        for row, owner in enumerate(offered.question_ids.tolist()):
            rows.setdefault(owner, []).append(row)
        names, walked = view.entity_names(offered.entity_ids), view.walked_texts(offered)
        requests = []
        for owner, options in rows.items():
            texts = [f"{names[row]} ({walked[row]})" if walked[row] else names[row] for row in options]
            question = plan.briefed()[owner]
            requests.append(
                make_request(
                    "reflect", question.id, len(texts), question=question.text, facts=facts[owner], options=texts
                )
            )
        replies = self._engine.generate(requests, sampling_for("reflect")) if requests else []
        chosen: list[int] = []
        for (owner, options), reply in zip(rows.items(), replies, strict=True):
            numbers = getattr(reply.parsed, "back_to", ()) if reply.ok else ()
            plan.num_backtracks[owner] += bool(numbers)
            chosen.extend(options[number - 1] for number in numbers)
        return torch.tensor(sorted(chosen), dtype=torch.int64, device=offered.rows.device)


class AdaptiveJudge(ModelJudge):
    """Keeps as many relations and entities as the model names, none included; every entity costs a prompt."""

    def relation_scores(self, view: TripleView, steps: Steps, owners: Tensor, width: int) -> Tensor:
        """Minus the rank of each relation that the model keeps, -inf for the rest."""
        scores = view.relation_columns(steps)[0]
        return self._ranked("choose_relations", view, view.relation_texts, steps, owners, 0, scores)

    def entity_scores(self, view: TripleView, steps: Steps, owners: Tensor, width: int) -> Tensor:
        """Minus the rank of each fact that the model keeps, -inf for the rest."""
        return self._ranked("choose_entities", view, view.fact_texts, steps, owners, 0, view.cosine(steps))


@dataclass
class Plan:
    """Sub-questions, what is known of each, and how often each question went back."""

    questions: Sequence[Question]
    parts: list[list[str]]
    known: list[list[str]] = field(init=False)
    num_backtracks: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.known = [[""] * len(parts) for parts in self.parts]
        self.num_backtracks = [0] * len(self.parts)

    @classmethod
    def of(cls, engine: Engine, questions: Sequence[Question]) -> "Plan":
        """Asks for the sub-questions (3.1); a question that is not split is its own only part."""
        requests = [make_request("sub_questions", q.id, question=q.text) for q in questions]
        replies = engine.generate(requests, sampling_for("sub_questions")) if requests else []
        parts: list[list[str]] = []
        for question, reply in zip(questions, replies, strict=True):
            found = getattr(reply.parsed, "parts", ()) if reply.ok else ()
            parts.append([*found] or [question.text])
        return cls(questions, parts)

    def briefed(self) -> list[Question]:
        """The questions with their sub-questions and what is known, as every prompt shows them."""
        lines = [
            [f"{n}. {part} ({note})" if note else f"{n}. {part}" for n, part, note in zip(count(1), parts, known)]
            for parts, known in zip(self.parts, self.known, strict=True)
        ]
        return [replace(q, text="\n".join([q.text, *row])) for q, row in zip(self.questions, lines, strict=True)]

    def note_progress(self, engine: Engine, facts: Sequence[Sequence[str]], answers: Sequence[Answer | None]) -> None:
        """Notes what the facts say of each open question's parts (3.3); an unusable reply changes nothing."""
        rows = [row for row, (texts, answer) in enumerate(zip(facts, answers, strict=True)) if texts and answer is None]
        requests = [
            make_request("note_progress", self.questions[row].id, question=self.questions[row].text,
                         facts=facts[row], parts=self.parts[row])
            for row in rows
        ]  # fmt: skip
        replies = engine.generate(requests, sampling_for("note_progress")) if requests else []
        for row, reply in zip(rows, replies, strict=True):
            if reply.ok:
                told = list(getattr(reply.parsed, "known", ()))[: len(self.parts[row])]
                self.known[row] = told + [""] * (len(self.parts[row]) - len(told))

    def traces(self) -> list[dict]:
        """For each question its plan, as its trace shows it."""
        rows = zip(self.parts, self.known, self.num_backtracks, strict=True)
        return [{"sub_questions": parts, "known": known, "backtracks": n} for parts, known, n in rows]


class Seen:
    """Entities met so far, taken or not, and the links walked from them, question by question."""

    def __init__(self, view: TripleView, starts: Steps):
        self._walk = view.walk
        self._steps = starts
        self._walked = starts.rows[:0]  # keys of (question, link)

    def add(self, kept: Steps, met: Steps) -> None:
        """Adds a round: facts kept (with their place in the memory) and everything that was looked at."""
        steps = concat_steps([self._steps, kept, met])
        self._steps = steps.at(first_of_best(self._entity_keys(steps), steps.scores))

    def note_walked(self, links: Steps) -> None:
        """Notes links that were walked."""
        self._walked = torch.unique(torch.cat([self._walked, self._link_keys(links)]))

    def may_walk(self, steps: Steps) -> Bool[Tensor, " steps"]:
        """Whether a link is neither walked yet for its question nor the way straight back."""
        return goes_on(steps) & ~torch.isin(self._link_keys(steps), self._walked)

    def offered(self, going: Steps, may_return: Bool[Tensor, " questions"], depth: int, limit: int) -> Steps:
        """At most `limit` entities of each question to go back to: with links left, and not about to be walked."""
        steps = self._steps
        left = self._walk.num_links(steps.entity_ids) - self._num_walked(steps)
        usable = may_return[steps.question_ids] & (steps.lengths < depth) & (left > 0)
        usable &= ~torch.isin(self._entity_keys(steps), self._entity_keys(going))
        steps = steps.at(usable)
        order = torch.argsort(steps.scores, descending=True, stable=True)
        order = order[torch.argsort(steps.question_ids[order], stable=True)]
        steps = steps.at(order)
        return steps.at(keep_best(steps.scores, steps.question_ids, limit))

    def _num_walked(self, steps: Steps) -> Tensor:
        """How many links of each step's entity were walked for its question."""
        size = self._walk.link_texts.numel()
        questions, links = self._walked // max(1, size), self._walked % max(1, size)
        entities = torch.searchsorted(self._walk.link_offsets, links, right=True) - 1
        walked, counts = torch.unique(questions * self._walk.num_entities + entities, return_counts=True)
        if not walked.numel():
            return torch.zeros_like(steps.entity_ids)
        keys = self._entity_keys(steps)
        place = torch.searchsorted(walked, keys).clamp(max=walked.numel() - 1)
        return torch.where(walked[place] == keys, counts[place], 0)

    def _entity_keys(self, steps: Steps) -> Tensor:
        return steps.question_ids * self._walk.num_entities + steps.entity_ids

    def _link_keys(self, steps: Steps) -> Tensor:
        return steps.question_ids * max(1, self._walk.link_texts.numel()) + steps.link_ids
