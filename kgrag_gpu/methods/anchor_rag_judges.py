"""Who ranks relations and entities, keeps evidence and steers agents: scores alone (LR), or the language model.

Both answer the same questions about a batch of steps. The model's answers are read back as scores, so the walk itself
does not know who judged. Where the model gives no usable reply, the scores decide, and the engine has the reason.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Bool, Float64, Int64
from pydantic import Field
from torch import Tensor

from kgrag_gpu.answer.memory import Steps, first_of_best
from kgrag_gpu.answer.sufficiency import best_by, promising_agents
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.llm.engine import Engine
from kgrag_gpu.prompts.registry import make_request, sampling_for
from kgrag_gpu.ranking.relations import fuse_ranks, keep_best, segment_ranks
from kgrag_gpu.ranking.verify import Choice, choose
from kgrag_gpu.types import Question


class JudgeConfig(ConfigModel):
    """Thresholds of the judges."""

    ranking: Literal["rrf", "cosine"] = "rrf"  # LR: SBERT cosine and BM25 fused, or SBERT cosine alone
    rrf_constant: Annotated[float, Field(gt=0)] = 60.0
    verify: bool = True  # off: every ranked fact is evidence
    min_cosine: float = 0.1  # LR: a fact less like the question than this is no evidence
    agent_margin: Annotated[float, Field(ge=0)] = 0.5  # LR: an agent this far behind the question's best stops
    enough_score: float = 2.0  # LR: a path worth this much ends the search (out of reach: every round is walked)
    max_options: Annotated[int, Field(ge=2)] = 30  # model: options shown in one prompt, best by LR first
    rank_agents: bool = True  # model: it also chooses which agents go on (the published code only asks yes or no)


class ScoreJudge:
    """LR: reciprocal rank fusion of SBERT cosine and BM25, thresholds for the rest."""

    def __init__(self, config: JudgeConfig):
        self._config = config

    def relation_scores(self, view: Any, steps: Steps, owners: Int64[Tensor, " steps"], width: int) -> Tensor:
        """Score of each candidate relation among those of its frontier entity; -inf is never taken."""
        if self._config.ranking == "cosine":
            return view.relation_columns(steps)[0]
        return fuse_ranks(view.relation_columns(steps), owners, self._config.rrf_constant)

    def entity_scores(self, view: Any, steps: Steps, owners: Int64[Tensor, " steps"], width: int) -> Tensor:
        """Score of each reached entity among those of its relation."""
        if self._config.ranking == "cosine":
            return view.cosine(steps)
        return fuse_ranks(view.entity_columns(steps), owners, self._config.rrf_constant)

    def is_evidence(self, view: Any, steps: Steps) -> Bool[Tensor, " steps"]:
        """Which facts enter the memory."""
        if not self._config.verify:
            return torch.ones(len(steps), dtype=torch.bool, device=steps.rows.device)
        return view.cosine(steps) >= self._config.min_cosine

    def active_agents(self, view: Any, found: Steps, num_agents: int) -> Bool[Tensor, " agents"]:
        """Which agents go on, by the best path that each has found."""
        scores = best_by(found.agent_ids, found.scores, num_agents)
        return promising_agents(
            scores, view.questions_of_agents, view.num_questions, self._config.agent_margin, self._config.enough_score
        )


class ModelJudge(ScoreJudge):
    """The language model, all prompts of a kind in one batch; options beyond `max_options` are cut by score first."""

    def __init__(self, config: JudgeConfig, engine: Engine, questions: Sequence[Question]):
        super().__init__(config)
        self._engine = engine
        self._questions = questions

    def relation_scores(self, view: Any, steps: Steps, owners: Int64[Tensor, " steps"], width: int) -> Tensor:
        """As the model ranks them; entities with no more relations than are kept need no prompt."""
        scores = super().relation_scores(view, steps, owners, width)
        return self._ranked("rank_relations", view, view.relation_texts, steps, owners, width, scores)

    def entity_scores(self, view: Any, steps: Steps, owners: Int64[Tensor, " steps"], width: int) -> Tensor:
        """As the model ranks the facts; relations with no more neighbours than are kept need no prompt."""
        scores = super().entity_scores(view, steps, owners, width)
        return self._ranked("rank_entities", view, view.fact_texts, steps, owners, width, scores)

    def is_evidence(self, view: Any, steps: Steps) -> Bool[Tensor, " steps"]:
        """Those that the model names, one prompt for an agent's facts; options that are cut are no evidence."""
        by_score = super().is_evidence(view, steps)
        if not self._config.verify or not len(steps):
            return by_score
        owners = torch.unique(steps.agent_ids, return_inverse=True)[1]
        order = torch.argsort(owners, stable=True)
        chosen = self._asked(
            "verify_evidence", view, view.fact_texts, steps.at(order), owners[order], 0, steps.scores[order]
        )
        kept = by_score.clone()
        kept[order] = torch.where(chosen.isnan(), by_score[order], chosen > -torch.inf)
        return kept

    def active_agents(self, view: Any, found: Steps, num_agents: int) -> Bool[Tensor, " agents"]:
        """Those whose best path the model names; a question with one agent left needs no prompt."""
        scores = best_by(found.agent_ids, found.scores, num_agents)
        if not self._config.rank_agents:
            return scores > -torch.inf
        best = found.at(first_of_best(found.agent_ids, found.scores))
        best = best.at(torch.argsort(best.question_ids, stable=True))
        active = scores > -torch.inf
        if len(best):
            chosen = self._asked("rank_agents", view, view.walked_texts, best, best.question_ids, 1, best.scores)
            active[best.agent_ids] = chosen.isnan() | (chosen > -torch.inf)
        return active

    def _ranked(
        self, kind: str, view: Any, words: Callable, steps: Steps, owners: Tensor, width: int, scores: Tensor
    ) -> Float64[Tensor, " steps"]:
        """The model's ranks, and the scores where it was not asked or gave no usable reply."""
        chosen = self._asked(kind, view, words, steps, owners, width, scores)
        return torch.where(chosen.isnan(), scores, chosen)

    def _asked(
        self, kind: str, view: Any, words: Callable, steps: Steps, owners: Tensor, width: int, scores: Tensor
    ) -> Float64[Tensor, " steps"]:
        """The model's choice among each owner's steps: minus the rank where chosen, -inf where not, NaN if not asked.

        Not asked are owners with at most `width` steps, and those whose reply could not be used. Equal texts are one
        option. `owners` never fall.
        """
        out = torch.full((len(steps),), torch.nan, dtype=torch.float64, device=owners.device)
        counts = torch.bincount(owners)[owners]
        shown = keep_best(scores, owners, self._config.max_options)
        shown = shown[counts[shown] > width]
        part = steps.at(shown)
        texts, paths, names = words(part), view.path_texts(part), view.entity_names(part.from_ids)
        asked: dict[int, dict[str, list[int]]] = {}
        ranks = segment_ranks(scores[shown], owners[shown])
        for place in torch.argsort(ranks, stable=True).tolist():
            asked.setdefault(int(owners[shown[place]]), {}).setdefault(texts[place], []).append(place)
        groups = sorted(asked.items())
        choices = []
        for _, options in groups:
            first = next(iter(options.values()))[0]
            question = self._questions[int(part.question_ids[first])]
            choices.append(Choice(question.id, question.text, tuple(options), names[first], paths[first]))
        for (owner, options), numbers in zip(groups, choose(self._engine, kind, choices, width), strict=True):
            if numbers is None:
                continue
            out[owners == owner] = -torch.inf
            places = list(options.values())
            for rank, number in enumerate(numbers):
                out[shown[places[number]]] = -float(rank)
        return out


def ask_keywords(engine: Engine, questions: Sequence[Question]) -> list[str]:
    """The questions with the model's mentions behind them, each as written and with its spelling corrected."""
    requests = [make_request("keywords", question.id, question=question.text) for question in questions]
    out = []
    for question, reply in zip(questions, engine.generate(requests, sampling_for("keywords")), strict=True):
        mentions = getattr(reply.parsed, "mentions", ()) if reply.ok else ()
        spellings = [text for m in mentions for text in (m.mention, m.corrected) if text]
        out.append("\n".join([question.text, *dict.fromkeys(spellings)]))
    return out
