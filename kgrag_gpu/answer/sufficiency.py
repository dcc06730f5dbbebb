"""The supervisor: is the evidence enough to answer, and which agents are worth going on with?

With a model both are asked, one prompt a question. Without one, a question is done when its best path is worth enough,
and an agent goes on while its best path is within a margin of the question's best.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float64, Int64
from torch import Tensor

from kgrag_gpu.answer.generate import own_answer
from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.prompts.registry import make_request, sampling_for
from kgrag_gpu.types import Answer, Question, Source


def best_by(rows: Int64[Tensor, " steps"], scores: Float64[Tensor, " steps"], size: int) -> Float64[Tensor, " size"]:
    """The highest score of each row number, -inf where it has none."""
    best = torch.full((size,), -torch.inf, dtype=torch.float64, device=scores.device)
    return best.scatter_reduce(0, rows, scores, "amax")


def promising_agents(
    agent_scores: Float64[Tensor, " agents"],
    agent_questions: Int64[Tensor, " agents"],
    num_questions: int,
    margin: float,
    enough: float,
) -> Bool[Tensor, " agents"]:
    """Which agents go on: their best path is within `margin` of the question's best, and that is below `enough`."""
    best = best_by(agent_questions, agent_scores, num_questions)[agent_questions]
    return (agent_scores > -torch.inf) & (agent_scores >= best - margin) & (best < enough)


def ask_enough(
    engine: Engine, questions: Sequence[Question], facts: Sequence[Sequence[str]], source: Source
) -> list[Answer | None]:
    """Asks whether the facts suffice. An answer where they do and the model gave one, else None.

    A question without facts is not asked. An unreadable reply counts as "not enough".
    """
    rows = [row for row, texts in enumerate(facts) if texts]
    requests = [
        make_request("enough", questions[row].id, question=questions[row].text, facts=facts[row]) for row in rows
    ]
    answers: list[Answer | None] = [None] * len(questions)
    for row, reply in zip(rows, engine.generate(requests, sampling_for("enough")) if requests else [], strict=True):
        names = (
            tuple(getattr(reply.parsed, "answers", ())) if reply.ok and getattr(reply.parsed, "enough", False) else ()
        )
        if names:
            answers[row] = Answer(names[0], source, names, reply.text)
    return answers


def think_aloud(engine: Engine, questions: Sequence[Question], facts: Sequence[Sequence[str]]) -> list[Answer]:
    """Chain of thought over whatever facts were found; the answer is marked `cot`, or `none` where it gives none."""
    requests = [
        make_request("cot", question.id, question=question.text, facts=texts)
        for question, texts in zip(questions, facts, strict=True)
    ]
    return [own_answer(reply) for reply in engine.generate(requests, sampling_for("cot"))] if requests else []
