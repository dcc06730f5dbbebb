"""Baselines that retrieve, let the model say something, and retrieve with that: IRCoT and Iter-RetGen, over any base.

- `ircot` (Trivedi et al. 2023, section 3): each sentence of a chain of thought is the next query; the passages of all
  steps are kept. At most four sentences; it stops at "answer is".
- `iter-retgen` (Shao et al. 2023, section 3): each round's query is the question followed by the answer given from the
  round before; three rounds, the last round's passages count, and the reader's answer from them is the last one.

All questions go in lockstep, one call of the model a step. Both read as many passages as the reader does, and the
reader answers at the end, as for every other method.

Deviations: IRCoT's passages, a set in the paper, are ranked by reciprocal rank fusion of the steps' lists. Iter-RetGen
generates the short answer that the reader would give, not a chain of thought. A reply that cannot be used ends
IRCoT's steps; in Iter-RetGen the question alone is asked again.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar

from pydantic import Field

from kgrag_gpu.answer.generate import passage_requests, read_answers
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.index.fuse import Ranking, append_missing, reciprocal_rank_fusion
from kgrag_gpu.kg.store import Kg
from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.llm.records import Request
from kgrag_gpu.methods.passage_base import as_ranking, open_base
from kgrag_gpu.methods.registry import need_model
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.prompts.registry import make_request, sampling_for
from kgrag_gpu.types import Question, Retrieval, UserError

_ANSWERS = re.compile(r"\banswer is\b", re.IGNORECASE)


class IterativeConfig(ConfigModel):
    """What both share."""

    base: str = "hybrid"  # any registered method that ranks passages
    base_config: Mapping[str, Any] = Field(default_factory=dict)  # values of that method's own configuration
    num_base: Annotated[int, Field(ge=1)] = 10  # passages of each retrieval that are kept
    rrf_constant: Annotated[float, Field(gt=0)] = 60.0


class IrCotConfig(IterativeConfig):
    """Constants of IRCoT."""

    max_steps: Annotated[int, Field(ge=1)] = 4  # sentences
    num_read: Annotated[int, Field(ge=1)] = 15  # passages shown to the model at a step, the paper's limit


class IterRetGenConfig(IterativeConfig):
    """Constants of Iter-RetGen."""

    num_rounds: Annotated[int, Field(ge=1)] = 3


class Iterative:
    """Base of the two: needs a model and passages."""

    name: ClassVar[str]

    def __init__(self, config: IterativeConfig, resources: Resources):
        self.check(config, resources.kg, (), resources.engine.name if resources.engine else "none")
        assert resources.engine is not None
        self._engine: Engine = resources.engine
        self._resources = resources
        self._base = open_base(resources, config.base, config.base_config)

    @classmethod
    def check(cls, config: Any, kg: Kg, questions: Sequence[Question], engine: str) -> None:
        """Refuses to run without a model, or over a KG without passages."""
        need_model(cls.name, engine, "its next query is what the model says, and it has no form without one")
        if not kg.passages:
            raise UserError(
                f"method {cls.name} reads passages, and this KG has none; use a KG built from passages, or tog or pog"
            )

    def _retrieve_base(self, questions: Sequence[Question], queries: Sequence[str]) -> list[Ranking]:
        """The base's passages for each query."""
        asked = [replace(question, text=query) for question, query in zip(questions, queries, strict=True)]
        return [as_ranking(found) for found in self._base.retrieve(asked)]


@dataclass
class _Chain:
    """One question's chain of thought so far."""

    question: Question
    query: str
    rankings: list[Ranking] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    stopped: str = ""  # why there is no further step; "" while there is one


class IrCot(Iterative):
    """Retrieval interleaved with a chain of thought."""

    Config: ClassVar[type[ConfigModel]] = IrCotConfig
    name = "ircot"

    def __init__(self, config: IrCotConfig, resources: Resources):
        super().__init__(config, resources)
        self._config = config

    def retrieve(self, questions: Sequence[Question]) -> list[Retrieval]:
        """Retrieves for a whole batch of questions; see the module's text."""
        chains = [_Chain(question, question.text) for question in questions]
        for number in range(self._config.max_steps + 1):
            active = [chain for chain in chains if not chain.stopped]
            if not active:
                break
            found = self._retrieve_base([chain.question for chain in active], [chain.query for chain in active])
            for chain, ranking in zip(active, found, strict=True):
                chain.rankings.append(ranking)
                chain.stopped = "steps spent" if number == self._config.max_steps else ""
            self._think([chain for chain in active if not chain.stopped])
        return [self._result(chain) for chain in chains]

    def _think(self, chains: Sequence[_Chain]) -> None:
        """The next sentence of each chain, all in one call."""
        if not chains:
            return
        with self._resources.stage("think a step"):
            replies = self._engine.generate(self._requests(chains), sampling_for("ircot_step", self._engine.sampling))
        for chain, reply in zip(chains, replies, strict=True):
            sentence = first_sentence(reply.text) if reply.ok else ""
            if not sentence or sentence in chain.steps:
                chain.stopped = "no new step"
                continue
            chain.steps.append(sentence)
            chain.query = sentence
            chain.stopped = "answer found" if _ANSWERS.search(sentence) else ""

    def _requests(self, chains: Sequence[_Chain]) -> list[Request]:
        """One request a chain, with as many of its passages, best first, as there is room for."""
        rows = [self._fused(chain).rows[: self._config.num_read].tolist() for chain in chains]
        write = [
            partial(make_request, "ircot_step", c.question.id, question=c.question.text, steps=c.steps) for c in chains
        ]
        shown = [lambda texts, make=make: make(passages=texts) for make in write]
        resources = self._resources
        return passage_requests(
            self._engine, resources.kg.passages, rows, shown, resources.config.reader.context_tokens
        )

    def _fused(self, chain: _Chain) -> Ranking:
        """The passages of all steps; each step brings its best `num_base`."""
        k = self._config.num_base
        heads = [Ranking(ranking.rows[:k], ranking.scores[:k]) for ranking in reversed(chain.rankings)]
        return reciprocal_rank_fusion(heads, k * len(heads), self._config.rrf_constant)

    def _result(self, chain: _Chain) -> Retrieval:
        ranking = chain.rankings[0]
        if len(chain.rankings) > 1:
            ranking = append_missing(self._fused(chain), ranking, self._resources.config.output_passages)
        trace = {"steps": chain.steps, "num_retrievals": len(chain.rankings), "stopped": chain.stopped}
        return Retrieval(tuple(ranking.rows.tolist()), tuple(ranking.scores.tolist()), trace=trace)


class IterRetGen(Iterative):
    """Retrieval and generation in turn."""

    Config: ClassVar[type[ConfigModel]] = IterRetGenConfig
    name = "iter-retgen"

    def __init__(self, config: IterRetGenConfig, resources: Resources):
        super().__init__(config, resources)
        self._config = config

    def retrieve(self, questions: Sequence[Question]) -> list[Retrieval]:
        """Retrieves for a whole batch of questions; see the module's text."""
        resources, engine = self._resources, self._engine
        queries: list[list[str]] = [[question.text] for question in questions]
        found: list[Ranking] = []
        for number in range(1, self._config.num_rounds + 1):
            found = self._retrieve_base(questions, [row[-1] for row in queries])
            if number == self._config.num_rounds:
                break
            read = [Retrieval(tuple(ranking.rows.tolist()), tuple(ranking.scores.tolist())) for ranking in found]
            with resources.stage("generate"):
                answers = read_answers(questions, read, resources.kg.passages, engine, resources.config.reader)
            for row, question, answer in zip(queries, questions, answers, strict=True):
                row.append(f"{question.text} {answer.text}".strip())
        return [
            Retrieval(tuple(ranking.rows.tolist()), tuple(ranking.scores.tolist()), trace={"queries": row})
            for ranking, row in zip(found, queries, strict=True)
        ]


def first_sentence(reply: str) -> str:
    """The first sentence of a reply's first line with words in it, bullet marks removed; "" where there is none."""
    line = next((line.strip("*-• \t") for line in reply.splitlines() if re.search(r"\w", line)), "")
    # A stop after a single letter or an abbreviation of up to three is no end ("J. S. Bach", "St. Ives", "No. 5").
    end = re.search(r"(?<!\b[A-Z])(?<!\b[A-Z][a-z])(?<!\b[A-Z][a-z]{2})[.!?](?=\s+[^a-z\s])", line)
    return line[: end.end()] if end else line
