"""GeAR's agent (Shen et al. 2024, section 4): a model reads, judges and asks again around the graph expansion.

Single-question form, round n with query q(n), q(1) the question:
1. The base retriever finds passages for q(n).
2. Read (3.1): the model writes the proximal triples of those passages, from round 2 on with the memory in sight.
3. Link (3.1): each proximal triple starts beams at the indexed fact nearest to it; then the expansion of gear.py (3.2).
4. Gist memory (4.1): the triples are appended. Reason (4.1): can the question be answered from them? If not, why?
5. Rewrite (4.2): the model words the next query from question, memory and that reason.
At most `max_rounds` rounds. Final passages (4.3): reciprocal rank fusion of every round's passages and, for each triple
of the memory, of the passages that it links to.

Here all questions go in lockstep: a step of a round is one batch of requests over the questions still open. Without a
model this is gear.py's one round. `syncge` is one round with the model's triples, without memory and reasoning.

Deviations: a question whose reading gave no triple starts from its passages' facts, as without a model. A judgement
that cannot be read counts as "not enough"; a rewriting that cannot be read, or asks what was asked before, ends the
rounds. Passages beyond the reader's token budget are not read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field

from kgrag_gpu.answer.generate import passage_requests
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.expansion.triple_beam import Beams
from kgrag_gpu.index.fuse import Ranking, append_missing, reciprocal_rank_fusion
from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.llm.records import Request
from kgrag_gpu.methods.gear import BasePassages, Gear, GearConfig
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.prompts.registry import make_request, sampling_for
from kgrag_gpu.types import EvidencePath, Question, Retrieval


class GearAgentConfig(GearConfig):
    """The expansion's constants and the agent's."""

    use_model: bool = True  # off: the form without a model, even where an engine is open
    max_rounds: Annotated[int, Field(ge=1)] = 4
    dataset_rounds: Mapping[str, Annotated[int, Field(ge=1)]] = Field(  # fewer rounds for sets with fewer hops
        default_factory=lambda: {"hotpotqa": 2, "2wikimultihopqa": 2}
    )
    gist_memory: bool = True  # off: each round sees its own triples alone, and no triple links passages at the end
    rewrite: bool = True  # off: the next query is the question and what is missing, not worded anew
    expand: bool = True  # off: a round's passages are the base retriever's
    max_triples: Annotated[int, Field(ge=1)] = 20  # proximal triples taken from one reading


@dataclass
class _Course:
    """How one question fares. `memory` keeps its triples in the order they were read, each once."""

    question: Question
    query: str
    memory: dict[str, None] = field(default_factory=dict)
    rankings: list[Ranking] = field(default_factory=list)
    paths: list[EvidencePath] = field(default_factory=list)
    rounds: list[dict[str, Any]] = field(default_factory=list)
    why: str = ""
    stopped: str = ""  # why there is no further round; "" while there is one


class GearAgent(Gear):
    """The agent where an engine is open, else one round without it."""

    Config: ClassVar[type[ConfigModel]] = GearAgentConfig

    def __init__(self, config: GearAgentConfig, resources: Resources):
        super().__init__(config, resources)
        self._agent_config = config
        self._engine = resources.engine if config.use_model else None
        self._num_rounds = config.dataset_rounds.get(resources.config.dataset.name, config.max_rounds)
        self._num_rounds = min(self._num_rounds, config.max_rounds)

    def retrieve(self, questions: Sequence[Question]) -> list[Retrieval]:
        """Retrieves for a whole batch of questions; see the module's text."""
        engine = self._engine
        if engine is None:
            return super().retrieve(questions)
        courses = [_Course(question, question.text) for question in questions]
        for number in range(1, self._num_rounds + 1):
            active = [course for course in courses if not course.stopped]
            if not active:
                break
            self._search(engine, active, number)
            if self._num_rounds > 1:
                self._judge(engine, active)
            if number == self._num_rounds:
                for course in active:
                    course.stopped = course.stopped or "rounds spent"
            else:
                self._ask_anew(engine, [course for course in active if not course.stopped])
        links = self._memory_links(courses)
        return [self._result(course, lists) for course, lists in zip(courses, links, strict=True)]

    def _search(self, engine: Engine, courses: Sequence[_Course], number: int) -> None:
        """Steps 1 to 3 of one round, and the memory's growth."""
        asked = [replace(course.question, text=course.query) for course in courses]
        base = self.find_base(asked)
        read = self._read(engine, courses, base)
        vectors = torch.from_numpy(np.array(self._resources.vectors([course.query for course in courses])))
        vectors = vectors.to(self._resources.device)
        if self._agent_config.expand:
            beams, num_candidates = self.expand(self._link(read, base), vectors)
        else:
            empty = torch.zeros(0, dtype=torch.int64)
            beams = [Beams(empty, empty[:, None], empty.double())] * len(courses)
            num_candidates = [0] * len(courses)
        for course, passages, triples, found, count in zip(courses, base, read, beams, num_candidates, strict=True):
            known = course.memory if self._agent_config.gist_memory else {}
            new = [triple for triple in triples if triple not in known]
            course.memory = {**known, **dict.fromkeys(new)}
            course.rankings.append(self._fused(passages, found) if self._agent_config.expand else passages.ranking)
            course.paths += self.facts.evidence(found, self._config.num_paths, round=number)
            course.rounds.append({"query": course.query, "new_triples": new, "num_candidates": count})

    def _read(self, engine: Engine, courses: Sequence[_Course], base: Sequence[BasePassages]) -> list[list[str]]:
        """Step 2: the proximal triples of each question's passages, as "head relation tail"."""
        with self._resources.stage("read triples"):
            rows = [found.ranking.rows[: self._config.num_base].tolist() for found in base]
            write = [partial(self._reading, course) for course in courses]
            resources = self._resources
            budget = resources.config.reader.context_tokens
            requests = passage_requests(engine, resources.kg.passages, rows, write, budget)
            replies = engine.generate(requests, sampling_for("read_triples", engine.sampling))
        found = [getattr(reply.parsed, "triples", ()) if reply.ok else () for reply in replies]
        triples = [list(dict.fromkeys(" ".join(" ".join(row).split()) for row in rows)) for rows in found]
        return [rows[: self._agent_config.max_triples] for rows in triples]

    def _reading(self, course: _Course, shown: Sequence[str]) -> Request:
        facts = list(course.memory) if self._agent_config.gist_memory else []
        return make_request(
            "read_triples", course.question.id, question=course.question.text, passages=shown, facts=facts
        )

    def _link(self, read: Sequence[Sequence[str]], base: Sequence[BasePassages]) -> list[np.ndarray]:
        """Step 3: the start facts, those nearest to each triple; without a triple the facts of the base's passages."""
        texts = list(dict.fromkeys(triple for triples in read for triple in triples))
        vectors = self._resources.vectors(texts)
        with self._resources.stage("link triples"):
            nearest = self.facts.search(np.array(vectors), 1) if texts else []
        fact_of = {text: ranking.rows for text, ranking in zip(texts, nearest, strict=True)}
        return [
            np.unique(np.concatenate([fact_of[triple] for triple in triples]))
            if triples
            else self.passage_facts(found.ranking)
            for triples, found in zip(read, base, strict=True)
        ]

    def _judge(self, engine: Engine, courses: Sequence[_Course]) -> None:
        """Step 4: is the memory enough? A question without any triple is not asked: it is not."""
        with self._resources.stage("reason"):
            asked = [course for course in courses if course.memory]
            requests = [
                make_request("reason", c.question.id, question=c.question.text, facts=list(c.memory)) for c in asked
            ]
            replies = engine.generate(requests, sampling_for("reason", engine.sampling)) if requests else []
        for course in courses:
            course.why = "no fact was found yet"
        for course, reply in zip(asked, replies, strict=True):
            is_enough = reply.ok and getattr(reply.parsed, "answerable", False)
            course.why = getattr(reply.parsed, "why", "") if reply.ok else ""
            course.stopped = "enough" if is_enough else ""
        for course in courses:
            course.rounds[-1] |= {"enough": course.stopped == "enough", "why": course.why}

    def _ask_anew(self, engine: Engine, courses: Sequence[_Course]) -> None:
        """Step 5: the next query of each question."""
        if self._agent_config.rewrite:
            queries = self._rewritten(engine, courses)
        else:
            queries = [f"{course.question.text} {course.why}".strip() for course in courses]
        for course, query in zip(courses, queries, strict=True):
            known = {round_["query"] for round_ in course.rounds}
            course.stopped = "no new query" if not query or query in known else ""
            course.query = query

    def _rewritten(self, engine: Engine, courses: Sequence[_Course]) -> list[str]:
        with self._resources.stage("rewrite"):
            requests = [
                make_request(
                    "rewrite", c.question.id, question=c.question.text, facts=list(c.memory), why=c.why or "unknown"
                )
                for c in courses
            ]
            replies = engine.generate(requests, sampling_for("rewrite", engine.sampling)) if requests else []
        return [getattr(reply.parsed, "query", "") if reply.ok else "" for reply in replies]

    def _memory_links(self, courses: Sequence[_Course]) -> list[list[Ranking]]:
        """The passages that each triple of a question's memory links to, by passage and by fact vectors, fused."""
        if not self._agent_config.gist_memory or self._num_rounds == 1:
            return [[] for _ in courses]
        k = self._config.num_base
        texts = list(dict.fromkeys(triple for course in courses for triple in course.memory))
        vectors = np.array(self._resources.vectors(texts))
        passages = self._resources.dense
        with self._resources.stage("link memory"):
            by_passage = passages.search(vectors, k) if texts else []
            by_fact = self.facts.search(vectors, k) if texts else []
            lists = {}
            for text, direct, facts in zip(texts, by_passage, by_fact, strict=True):
                rows = [row for fact in facts.rows.tolist() for row in self.facts.passages_of_fact(fact)]
                rows = np.array(list(dict.fromkeys(rows)), dtype=np.int64)
                through_facts = Ranking(rows, np.arange(len(rows), 0, -1, dtype=np.float64))
                lists[text] = reciprocal_rank_fusion([direct, through_facts], k, self._config.rrf_constant)
        return [[lists[triple] for triple in course.memory] for course in courses]

    def _result(self, course: _Course, links: Sequence[Ranking]) -> Retrieval:
        """The final passages, the best beams of all rounds, and the course in the trace."""
        k = self._resources.config.output_passages
        ranking = course.rankings[0]
        if len(course.rankings) + len(links) > 1:
            # Ties go to what the last list prefers: the first round's, which is the question's own.
            lists = [*links, *course.rankings[:0:-1], course.rankings[0]]
            fused = reciprocal_rank_fusion(lists, k, self._config.rrf_constant)
            ranking = append_missing(fused, course.rankings[0], k)
        paths = sorted(course.paths, key=lambda path: -path.score)[: self._config.num_paths]
        trace = {"rounds": course.rounds, "stopped": course.stopped, "memory": list(course.memory)}
        return self._as_retrieval(ranking, paths, trace)
