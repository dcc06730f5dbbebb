"""AnchorRAG (Xu et al. 2025): m agents walk the graph from m anchors; a supervisor watches their shared memory.

Single-question form, with the paper's section numbers:
1. Predictor (3.2): find the entities that the question names; take the best m as anchors.
2. Retrievers (3.3), one per anchor, each round: rank the relations of every frontier entity and keep the best b; rank
   the entities behind each and keep the best b; verify the facts found; the survivors enter the shared memory, their
   ends are the next frontier. An entity is expanded once by an agent.
3. Supervisor (3.4): enough to answer? Then answer. Else go on with the promising agents, for at most D rounds.
4. Depth spent or nobody active: chain of thought over what was found, and the answer says so (`cot`).

Here all questions and agents are rows of one table and advance together. `anchorrag` asks the language model in steps
1 to 4; `anchorrag-lr` never does: ranking by RRF of SBERT cosine and BM25, verification by thresholds. Without an
engine the two are one.

Over passages a relation is a sentence and its entities are those that it ties together. A path of sentences is worth
what they cover of the question (ranking/evidence_passages.py), and a passage ranks by the best path through it.
Over triples the LR form scores whole relation paths (path_answers.py), since single relations lose their way.

Deviations. Relation ranking fuses ranks; the published code adds two scales. A frontier keeps an agent's best
`max_frontier` entities by the worth of their paths. Relations and entities with no more options than would be kept
cost no prompt. Over passages: the best passages of the base retriever are anchors too; first sentences of two named
passages are joined and walked on as one path, which comparisons need; a sentence's entities, whose facts are all that
sentence, are ranked by rarity; the reader answers from the ranked passages unless `answer_from_passages` is off.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field

from kgrag_gpu.answer.memory import Memory, Steps, concat_steps, first_of_best, start_steps
from kgrag_gpu.answer.sufficiency import ask_enough, think_aloud
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.methods.anchor_rag_judges import JudgeConfig, ModelJudge, ScoreJudge, ask_keywords
from kgrag_gpu.methods.anchor_rag_passages import PassageConfig, open_passage_view
from kgrag_gpu.methods.anchor_rag_sentences import SentenceWorld
from kgrag_gpu.methods.anchor_rag_trace import Trace, best_facts
from kgrag_gpu.methods.anchor_rag_triples import TripleConfig, TripleWorld
from kgrag_gpu.methods.graph_walk import rank_links, reach_entities
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.ranking.entities import widest_frontier
from kgrag_gpu.ranking.relations import keep_best
from kgrag_gpu.types import Answer, Question, Retrieval


class AnchorRagConfig(ConfigModel):
    """Constants of AnchorRAG; the paper's k, m and b lie under `triples`."""

    use_model: bool = True  # off: LR, even where an engine is open
    depth: Annotated[int, Field(ge=1)] = 3  # D
    hub_limit: Annotated[int, Field(ge=1)] = 50  # neighbours along one relation
    hub_policy: Literal["sample", "top"] = "sample"  # beyond the limit: a seeded sample, or the best by score
    answer_from_passages: bool = True  # over passages the reader answers, not the supervisor
    max_facts: Annotated[int, Field(ge=1)] = 30  # shown to the supervisor, best first
    cot_with_evidence: bool = True  # the published code drops the evidence found before it thinks aloud
    num_paths: Annotated[int, Field(ge=0)] = 10  # evidence paths kept in the result
    judge: JudgeConfig = JudgeConfig()
    passages: PassageConfig = PassageConfig()
    triples: TripleConfig = TripleConfig()


class AnchorRag:
    """The batched walk."""

    Config: ClassVar[type[ConfigModel]] = AnchorRagConfig

    def __init__(self, config: AnchorRagConfig, resources: Resources):
        self._config = config
        self._resources = resources
        self._engine = resources.engine if config.use_model else None
        self._sentences = SentenceWorld(resources) if resources.kg.passages else None
        self._triples = (
            None if resources.kg.passages else TripleWorld(resources, config.triples, config.depth, config.judge.verify)
        )
        if self._triples is not None:
            self._triples.answerer  # noqa: B018 (built now, so that no batch pays for it)

    def retrieve(self, questions: Sequence[Question]) -> list[Retrieval]:
        """Walks for a whole batch of questions; see the module's text."""
        config, engine = self._config, self._engine
        if self._triples is not None and engine is None and config.triples.whole_paths:
            return self._triples.answer_by_paths([question.text for question in questions])
        view = self._predict(questions)
        judge = ModelJudge(config.judge, engine, questions) if engine is not None else ScoreJudge(config.judge)
        trace = Trace(view, self._resources.kg)
        answers: list[Answer | None] = [None] * len(questions)
        with self._resources.stage("walk"):
            frontier = start_steps(view.agent_questions, view.anchors, config.depth)
            memory = Memory(frontier, self._resources.kg.num_entities)
            is_first_round = True
            while len(frontier):
                memory.mark_expanded(frontier)
                links = rank_links(view, frontier, judge.relation_scores, view.widths[0]).steps
                ends, num_dropped = self._rank_entities(view, judge, links)
                kept = memory.add(ends.at(judge.is_evidence(view, ends)))
                if is_first_round and config.depth > 1:
                    kept = concat_steps([kept, memory.add(view.joined(kept))])
                is_first_round = False
                view.book(kept)
                trace.note(frontier, ends, kept, num_dropped)
                self._answer_early(view, memory, questions, answers)
                frontier = self._next_frontier(view, judge, memory, kept, answers)
        self._answer_late(view, memory, questions, answers)
        return trace.retrievals(memory.steps, view.rankings(), answers, config.num_paths)

    def _predict(self, questions: Sequence[Question]) -> Any:
        """Step 1: the anchors, and what the walk compares texts with."""
        texts = [question.text for question in questions]
        with self._resources.stage("keywords"):
            named_texts = texts if self._engine is None else ask_keywords(self._engine, questions)
        if self._sentences is not None:
            config = self._config.passages
            return open_passage_view(self._sentences, self._resources, config, questions, named_texts)
        assert self._triples is not None
        return self._triples.open_view(texts, named_texts)

    def _rank_entities(self, view: Any, judge: ScoreJudge, links: Steps) -> tuple[Steps, Steps]:
        """Step 2, entities: the best b neighbours along each link, and those that the hub limit left out."""
        config, width = self._config, view.widths[1]
        found = reach_entities(view, links, config.hub_limit, config.hub_policy, self._resources.config.seed)
        scores = judge.entity_scores(view, found.steps, found.owners, width)
        kept = keep_best(scores, found.owners, width)
        return found.steps.at(kept[scores[kept] > -torch.inf]), found.dropped

    def _next_frontier(
        self, view: Any, judge: ScoreJudge, memory: Memory, kept: Steps, answers: Sequence[Answer | None]
    ) -> Steps:
        """Step 3: who goes on, and from which entities; empty when the depth is spent or nobody is active."""
        is_open = torch.tensor([answer is None for answer in answers], dtype=torch.bool, device=kept.rows.device)
        going = kept.at((kept.lengths < self._config.depth) & memory.is_new(kept) & is_open[kept.question_ids])
        active = judge.active_agents(view, going, len(view.questions_of_agents))
        going = going.at(active[going.agent_ids])
        scores = view.frontier_scores(going)
        ends = first_of_best(going.agent_ids * max(1, self._resources.kg.num_entities) + going.entity_ids, scores)
        return going.at(ends[widest_frontier(going.agent_ids[ends], scores[ends], view.widths[2])])

    def _answer_early(
        self, view: Any, memory: Memory, questions: Sequence[Question], answers: list[Answer | None]
    ) -> None:
        """Step 3: asks, for every open question, whether the evidence is enough."""
        if self._engine is None or (self._sentences is not None and self._config.answer_from_passages):
            return
        rows = [row for row, answer in enumerate(answers) if answer is None]
        facts = best_facts(view, memory.steps, self._config.max_facts)
        found = ask_enough(self._engine, [questions[r] for r in rows], [facts[r] for r in rows], "graph")
        for row, answer in zip(rows, found, strict=True):
            answers[row] = answer

    def _answer_late(
        self, view: Any, memory: Memory, questions: Sequence[Question], answers: list[Answer | None]
    ) -> None:
        """Step 4: chain of thought for what is still open; without a model the end of the best path."""
        if self._sentences is not None and self._config.answer_from_passages:
            return
        rows = [row for row, answer in enumerate(answers) if answer is None]
        if self._engine is None:
            for row, name in enumerate(view.best_ends(memory.steps)):
                answers[row] = Answer(name, "graph" if name else "none", (name,) if name else ())
            return
        facts = best_facts(view, memory.steps, self._config.max_facts)
        shown = [facts[row] if self._config.cot_with_evidence else [] for row in rows]
        with self._resources.stage("think aloud"):
            found = think_aloud(self._engine, [questions[r] for r in rows], shown)
        for row, answer in zip(rows, found, strict=True):
            answers[row] = answer
