"""One batch of questions over a KG's sentences: anchors, what paths are worth, and the passages they earn.

The view that AnchorRAG (anchor_rag.py) walks where the KG was made of passages.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
import torch
from jaxtyping import Float64, Int64
from pydantic import Field
from torch import Tensor

from kernels import csr_expand
from kgrag_gpu.answer.memory import Steps
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.index.fuse import Ranking
from kgrag_gpu.kg.text_column import take_texts
from kgrag_gpu.methods.anchor_rag_sentences import Named, PairScores, SentenceWorld, merge_named, rankings_of
from kgrag_gpu.methods.passage_search import with_base_tail
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.ranking.entities import rarity, widest_frontier
from kgrag_gpu.ranking.evidence_passages import (
    PathConfig,
    Paths,
    best_per_key,
    edge_term,
    sentence_credits,
    step_terms,
    summed,
)
from kgrag_gpu.ranking.question_units import CoverageScorer, CoverTable, QuestionUnits, UnitConfig, pair_cosines
from kgrag_gpu.types import EvidencePath, EvidenceStep, Question, Retrieval


class AnchorConfig(ConfigModel):
    """Where agents start."""

    num_agents: Annotated[int, Field(ge=1)] = 16  # of both kinds together, named ones first
    num_named: Annotated[int, Field(ge=0)] = 6  # entities that the question names
    num_base: Annotated[int, Field(ge=0)] = (
        10  # titles of the base retriever's best passages: names leave words unexplained
    )
    misspelt_score: Annotated[float, Field(ge=0, le=1)] = 0.6  # of a name that is misspelt; 0 does not look for them
    misspelt_ratio: float = 3.0  # log10 of how much better than plain language it must explain the words
    other_case_score: Annotated[float, Field(ge=0, le=1)] = 0.4  # of a name in other case than the KG's


class PassageConfig(ConfigModel):
    """The walk over passages' sentences."""

    base: str = "hybrid"  # its best passages are anchors, and what evidence does not reach follows in its order
    evidence_scorer: Literal["coverage", "sentence"] = "coverage"  # tokens against token states, or clauses' vectors
    relation_width: Annotated[int, Field(ge=1)] = 5
    entity_width: Annotated[int, Field(ge=1)] = 5
    max_frontier: Annotated[int, Field(ge=1)] = 10
    max_joined: Annotated[int, Field(ge=0)] = 40  # pairs of named passages' sentences that go on together
    anchors: AnchorConfig = AnchorConfig()
    units: UnitConfig = UnitConfig()
    paths: PathConfig = PathConfig()


def open_passage_view(
    world: SentenceWorld,
    resources: Resources,
    config: PassageConfig,
    questions: Sequence[Question],
    named_texts: Sequence[str],
) -> "SentenceView":
    """Anchors and scores for one batch. `named_texts` are the questions with keywords behind them."""
    texts = [question.text for question in questions]
    base = resources.base_retriever(config.base).retrieve(questions)
    vectors = resources.vectors(texts)
    if config.evidence_scorer == "coverage":
        cover: Any = resources.base_retriever("cover")
        with resources.stage("encode questions"):
            scorer: CoverageScorer = cover.coverage.question_tokens(texts, resources.encoder)
    else:
        units = (resources.vectors, world.word_weights, world.vectors)
        scorer = QuestionUnits(texts, *units, config.units, resources.device)
    with resources.stage("search BM25"):
        lexical = world.lexical.scores(texts)
    named = world.named_entities(named_texts, config.anchors.other_case_score)
    if config.anchors.misspelt_score:
        with resources.stage("link"):
            misspelt = world.misspelt_entities(
                named_texts, config.anchors.misspelt_score, config.anchors.misspelt_ratio
            )
        named = merge_named(named, misspelt, resources.kg.num_entities)
    return SentenceView(world, named, base, vectors, lexical, scorer, config, resources.config.output_passages)


class SentenceView:
    """Anchors and scores of one batch."""

    def __init__(
        self,
        world: SentenceWorld,
        named: Named,
        base: Sequence[Retrieval],
        vectors: np.ndarray,
        lexical_scores: np.ndarray,
        scorer: CoverageScorer,
        config: PassageConfig,
        num_output: int,
    ):
        """`vectors` int16 [questions, dim], `lexical_scores` [questions, sentences] (BM25)."""
        device = world.passage_ids.device
        self._world = world
        self._paths = config.paths
        self._base = base
        self._num_output = num_output
        self._max_joined = config.max_joined
        self.widths = (config.relation_width, config.entity_width, config.max_frontier)
        self._vectors = torch.from_numpy(np.array(vectors)).to(device)
        self._lexical = torch.from_numpy(lexical_scores).to(device)
        self._cover = CoverTable(scorer, len(world.texts), device)
        self.walk = world.walk
        self.num_questions = len(base)
        questions, entities = (torch.from_numpy(column).to(device) for column in named[:2])
        scores = torch.from_numpy(named.scores).to(device)
        sure = scores / world.num_titled[entities].clamp(min=1).double().sqrt()
        self._named = PairScores(questions, entities, torch.ones_like(scores), world.kg.num_entities)
        self._name_scores = PairScores(questions, entities, sure, world.kg.num_entities)
        self.agent_questions, self.anchors, self.agent_is_named = _agents(world, named, base, config.anchors, device)
        # The agents, then one joint agent for each question.
        self.questions_of_agents = torch.cat([self.agent_questions, torch.arange(len(base), device=device)])
        self._credits: list[tuple[Tensor, Tensor]] = []

    def grow(self, frontier: Steps, owners: Tensor, link_ids: Tensor) -> tuple[Tensor, Steps]:
        """The sentences behind frontier entities as grown paths, without those from a passage already on the path.

        Returns:
            For each grown path the position in `frontier`, and the paths; their entities are not chosen yet.
        """
        world = self._world
        texts = world.walk.link_texts[link_ids]
        path_passages = self._passages(frontier.path_texts)
        kept = (path_passages[owners] != world.passage_ids[texts][:, None]).all(1)
        owners, link_ids, texts = owners[kept], link_ids[kept], texts[kept]
        questions, entities = frontier.question_ids[owners], frontier.entity_ids[owners]
        passages = world.passage_ids[texts]
        covered = self._cover(frontier.question_ids[:, None].expand_as(path_passages), frontier.path_texts).amax(1)
        grown = torch.maximum(covered[owners], self._cover(questions, texts))
        name = torch.maximum(
            self._name(frontier.question_ids, path_passages).amax(1)[owners],
            self._name(questions, passages[:, None])[:, 0],
        )
        via = self._titles(self._passages(frontier.text_ids))[owners]
        edges = edge_term(
            self._paths,
            (world.title_ids[passages] == entities) | (via == entities),
            world.num_mentions[entities],
            self._named(questions, entities) > 0,
        )
        terms = step_terms(self._paths, frontier.terms[owners], frontier.lengths[owners], edges, name)
        parents = frontier.at(owners)
        path_texts = parents.path_texts.scatter(1, parents.lengths[:, None], texts[:, None])
        return owners, parents.with_columns(
            parents=parents.rows, from_ids=entities, link_ids=link_ids, text_ids=texts, path_texts=path_texts,
            lengths=parents.lengths + 1, rounds=parents.rounds + 1, terms=terms, scores=summed(grown) + terms,
        )  # fmt: skip

    def relation_columns(self, steps: Steps) -> list[Tensor]:
        """What ranks a path's new sentence: its cosine with the question, its BM25 score."""
        return [self.cosine(steps), self._lexical[steps.question_ids, steps.text_ids]]

    def entity_columns(self, steps: Steps) -> list[Tensor]:
        """What ranks a sentence's entities, whose fact is the same sentence: how few passages mention them."""
        return [rarity(self._world.num_mentions[steps.entity_ids])]

    def frontier_scores(self, steps: Steps) -> Float64[Tensor, " steps"]:
        """What an entity promises: the worth of its path, less the cost of a hub."""
        return steps.scores + self._paths.hub_cost * rarity(self._world.num_mentions[steps.entity_ids])

    def cosine(self, steps: Steps) -> Float64[Tensor, " steps"]:
        """Cosine of each step's sentence with the question."""
        return pair_cosines(self._vectors, self._world.vectors, steps.question_ids, steps.text_ids)

    def relation_texts(self, steps: Steps) -> list[str]:
        """The new sentence of each path in words, with its passage's title."""
        return [self._sentence(text) for text in steps.text_ids.tolist()]

    def fact_texts(self, steps: Steps) -> list[str]:
        """The new fact of each path in words. All entities of a sentence share it."""
        return self.relation_texts(steps)

    def entity_names(self, entity_ids: Int64[Tensor, " rows"]) -> list[str]:
        """Names of entities."""
        return take_texts(self._world.kg.entity_names, entity_ids.cpu().numpy())

    def walked_texts(self, steps: Steps) -> list[str]:
        """Whole paths in words."""
        rows = zip(steps.path_texts.tolist(), steps.lengths.tolist(), strict=True)
        return [" -> ".join(self._sentence(text) for text in path[:length]) for path, length in rows]

    def path_texts(self, steps: Steps) -> list[str]:
        """What was walked before each path's new step, in words; empty for first steps."""
        rows = zip(steps.path_texts.tolist(), steps.lengths.tolist(), strict=True)
        return [" -> ".join(self._sentence(text) for text in path[: length - 1]) for path, length in rows]

    def evidence_path(self, steps: Steps, row: int) -> EvidencePath:
        """One path for people: a step for each sentence, from its passage's title to the entity it was left by."""
        world, kg = self._world, self._world.kg
        found = []
        for place in range(int(steps.lengths[row])):
            text, entity, edge = (
                int(column[row, place]) for column in (steps.path_texts, steps.path_entities, steps.path_edges)
            )
            passage = int(world.passage_ids[text])
            found.append(
                EvidenceStep(
                    kg.passages[passage].title, "mentions", kg.entity_names[entity], world.texts[text], (passage,), edge
                )
            )
        agent = int(steps.agent_ids[row])
        is_joint = agent >= len(self.anchors)
        starter = "two agents" if is_joint else kg.entity_names[int(self.anchors[agent])]
        notes = {"agent": starter, "round": int(steps.rounds[row])}
        return EvidencePath(tuple(found), float(steps.scores[row]), notes)

    def joined(self, steps: Steps) -> Steps:
        """Pairs of first sentences that two agents found in two passages which the question names, best first.

        They go on as paths of one agent more a question, from the entities at both their ends, at most `max_joined` of
        them. A comparison has its two subjects side by side this way.
        """
        is_own = self._titles(self._world.passage_ids[steps.text_ids]) == steps.from_ids
        rows = torch.nonzero((steps.lengths == 1) & self._is_named_agent(steps) & is_own).flatten()
        counts = torch.bincount(steps.question_ids[rows], minlength=self.num_questions)
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        by_question = rows[torch.argsort(steps.question_ids[rows], stable=True)]
        slots, owners = csr_expand(offsets, steps.question_ids[rows])
        first, second = rows[owners], by_question[slots]
        passages = self._passages(steps.text_ids)
        apart = (passages[first] != passages[second]) & (steps.agent_ids[first] < steps.agent_ids[second])
        first, second = first[apart], second[apart]
        left, right = steps.at(first), steps.at(second)
        questions = left.question_ids
        path_texts, path_entities, path_edges = (
            torch.cat([one[:, :1], other[:, :1], one[:, 2:]], dim=1)
            for one, other in (
                (left.path_texts, right.path_texts),
                (left.path_entities, right.path_entities),
                (left.path_edges, right.path_edges),
            )
        )
        names = self._name(questions[:, None], self._passages(path_texts)).amax(1)
        terms = self._paths.join_bonus + self._paths.name_bonus * names
        covered = self._cover(questions[:, None].expand_as(path_texts), path_texts).amax(1)
        shared = {
            "agent_ids": len(self.anchors) + questions, "path_texts": path_texts,
            "path_entities": path_entities, "path_edges": path_edges,
            "lengths": torch.full_like(questions, 2), "terms": terms, "scores": summed(covered) + terms,
        }  # fmt: skip
        best = widest_frontier(questions, shared["scores"], self._max_joined)
        ends = [end.with_columns(**shared).at(best) for end in (left, right)]
        return Steps(**{name: torch.cat([getattr(end, name) for end in ends]) for name in vars(ends[0])})

    def book(self, steps: Steps) -> None:
        """Lets the passages on these paths earn what the paths are worth."""
        is_first = torch.ones(len(steps), dtype=torch.bool, device=steps.rows.device)
        is_first[1:] = (steps.path_texts[1:] != steps.path_texts[:-1]).any(1)  # the entities of a sentence share it
        is_first[1:] |= steps.question_ids[1:] != steps.question_ids[:-1]
        steps = steps.at(is_first)
        passages = self._passages(steps.path_texts)
        questions = steps.question_ids[:, None].expand_as(passages)
        paths = Paths(
            self._cover(questions, steps.path_texts), steps.lengths, self._name(questions, passages), steps.terms
        )
        earned = sentence_credits(self._paths, paths)
        is_there = passages >= 0
        keys = questions[is_there] * max(1, self._world.kg.num_passages) + passages[is_there]
        self._credits.append(best_per_key(keys, earned[is_there]))

    def rankings(self) -> list[Ranking]:
        """The passages that evidence reached, best first, for each question; the base ranking follows."""
        none = self._vectors.new_zeros(0)
        keys, scores = best_per_key(
            torch.cat([none.long(), *(keys for keys, _ in self._credits)]),
            torch.cat([none.double(), *(scores for _, scores in self._credits)]),
        )
        found = rankings_of(keys, scores, self.num_questions, self._world.kg.num_passages)
        return with_base_tail(found, self._base, self._num_output)

    def _sentence(self, text_id: int) -> str:
        title = self._world.kg.passages[int(self._world.passage_ids[text_id])].title
        return f"{title}: {self._world.texts[text_id]}" if title else self._world.texts[text_id]

    def _passages(self, texts: Int64[Tensor, "..."]) -> Int64[Tensor, "..."]:
        return torch.where(texts >= 0, self._world.passage_ids[texts.clamp(min=0)], -1)

    def _titles(self, passages: Int64[Tensor, "..."]) -> Int64[Tensor, "..."]:
        return torch.where(passages >= 0, self._world.title_ids[passages.clamp(min=0)], -1)

    def _name(self, questions: Tensor, passages: Int64[Tensor, "rows places"]) -> Float64[Tensor, "rows places"]:
        """How surely the question names each passage, 0 where there is none."""
        questions = questions if questions.ndim == 2 else questions[:, None]
        return self._name_scores(questions.expand_as(passages), self._titles(passages))

    def _is_named_agent(self, steps: Steps) -> Tensor:
        return self.agent_is_named[steps.agent_ids.clamp(max=max(0, len(self.anchors) - 1))]


def _agents(
    world: SentenceWorld, named: Named, base: Sequence[Retrieval], config: AnchorConfig, device: torch.device
) -> tuple[Int64[Tensor, " agents"], Int64[Tensor, " agents"], Tensor]:
    """(question, anchor, whether the question names it) of each agent.

    First the entities that the question names, surest and longest first; then the titles of the base retriever's best
    passages.
    """
    questions: list[int] = []
    anchors: list[int] = []
    is_named: list[bool] = []
    length = named.ends - named.starts
    order = np.lexsort((named.entity_ids, named.starts, -length, -named.scores, named.question_ids))
    bounds = np.searchsorted(named.question_ids[order], np.arange(len(base) + 1))
    for question, retrieval in enumerate(base):
        first = named.entity_ids[order[bounds[question] : bounds[question + 1]]][: config.num_named].tolist()
        titles = world.kg.passage_entities[list(retrieval.passage_ids[: config.num_base])].tolist()
        entities = list(dict.fromkeys([*first, *(title for title in titles if title >= 0)]))[: config.num_agents]
        questions += [question] * len(entities)
        anchors += entities
        is_named += [position < len(first) for position in range(len(entities))]
    tensors = (torch.tensor(questions, dtype=torch.int64), torch.tensor(anchors, dtype=torch.int64))
    return tensors[0].to(device), tensors[1].to(device), torch.tensor(is_named, dtype=torch.bool, device=device)
