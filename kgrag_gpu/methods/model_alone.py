"""The model by itself, with no graph and no passage: what retrieval has to beat (IO, CoT, SC).

- `io`: the answer at once, after three examples.
- `cot`: a chain of thought first, then the answer (Wei et al. 2022).
- `sc`: self-consistency (Wang et al. 2023): several chains drawn at a temperature; the model picks one, or they vote.

All questions of a batch are asked in one call per sample. Every answer is marked `cot`: it comes from the model alone.
None of the three has a form without a model.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from kgrag_gpu.answer.generate import own_answer
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.kg.store import Kg
from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.llm.records import Reply
from kgrag_gpu.methods.registry import need_model
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.metrics.answer import normalise
from kgrag_gpu.prompts.registry import make_request, sampling_for
from kgrag_gpu.types import Answer, Question, Retrieval


class Io:
    """Input, output: one short reply a question."""

    Config: ClassVar[type[ConfigModel]] = ConfigModel
    name: ClassVar[str] = "io"
    prompt: ClassVar[str] = "io"

    def __init__(self, config: ConfigModel, resources: Resources):
        need_model(self.name, resources.engine.name if resources.engine else "none", _WHY)
        assert resources.engine is not None
        self._engine: Engine = resources.engine
        self._resources = resources

    @classmethod
    def check(cls, config: Any, kg: Kg, questions: Sequence[Question], engine: str) -> None:
        """Refuses to run without a model."""
        need_model(cls.name, engine, _WHY)

    def retrieve(self, questions: Sequence[Question]) -> list[Retrieval]:
        """Retrieves nothing; the answers are the model's."""
        with self._resources.stage("ask model"):
            return [Retrieval(answer=own_answer(reply)) for reply in self._ask(questions)]

    def _ask(self, questions: Sequence[Question], temperature: float | None = None, sample: int = 0) -> list[Reply]:
        """One reply a question; at a temperature, each `sample` is another draw."""
        drawn = sampling_for(self.prompt, self._engine.sampling)
        if temperature is not None:
            drawn = replace(drawn, temperature=temperature, seed=drawn.seed + sample)
        return self._engine.generate([make_request(self.prompt, q.id, question=q.text) for q in questions], drawn)


class Cot(Io):
    """Chain of thought: the last line is the answer."""

    name = "cot"
    prompt = "cot_examples"


class ScConfig(ConfigModel):
    """Constants of self-consistency (Wang et al. 2023, section 3)."""

    num_samples: Annotated[int, Field(ge=1)] = 5
    temperature: Annotated[float, Field(gt=0)] = 0.7
    choice: Literal["model", "vote"] = "model"  # who chooses among answers that differ


class SelfConsistency(Cot):
    """Several chains of thought, and one of their answers."""

    Config = ScConfig
    name = "sc"

    def __init__(self, config: ScConfig, resources: Resources):
        super().__init__(config, resources)
        self._config = config

    def retrieve(self, questions: Sequence[Question]) -> list[Retrieval]:
        """Draws every sample for the whole batch, then chooses for all questions at once."""
        config = self._config
        with self._resources.stage("ask model"):
            draws = [self._ask(questions, config.temperature, sample) for sample in range(config.num_samples)]
            samples = [[own_answer(reply) for reply in row] for row in zip(*draws, strict=True)]
            chosen = [vote(answers) for answers in samples]
            if config.choice == "model":
                chosen = self._picked(questions, samples, chosen)
        return [
            Retrieval(answer=answer, trace={"samples": [a.text for a in answers]})
            for answer, answers in zip(chosen, samples, strict=True)
        ]

    def _picked(
        self, questions: Sequence[Question], samples: Sequence[Sequence[Answer]], voted: Sequence[Answer]
    ) -> list[Answer]:
        """The model's pick among chains whose answers differ; the vote where they agree or no usable reply came."""
        rows = [row for row, answers in enumerate(samples) if len({normalise(a.text) for a in answers}) > 1]
        solutions = {row: [answer for answer in samples[row] if answer.text] for row in rows}
        requests = [
            make_request(
                "pick_answer", questions[row].id, len(solutions[row]), question=questions[row].text,
                options=[" ".join(answer.reply.split()) for answer in solutions[row]],
            )
            for row in rows
        ]  # fmt: skip
        chosen = list(voted)
        replies = self._engine.generate(requests, sampling_for("pick_answer")) if requests else []
        for row, reply in zip(rows, replies, strict=True):
            numbers = getattr(reply.parsed, "best", ()) if reply.ok else ()
            if numbers:
                chosen[row] = solutions[row][numbers[0] - 1]
        return chosen


def vote(answers: Sequence[Answer]) -> Answer:
    """The answer that most samples give, compared as the metrics compare; the earliest among equals."""
    counts = Counter(normalise(answer.text) for answer in answers if answer.text)
    if not counts:
        return answers[0]
    return max((answer for answer in answers if answer.text), key=lambda answer: counts[normalise(answer.text)])


_WHY = "it asks the model alone and has no form without one"
