"""Answers over a KG of triples without a language model: link, spell, score whole relation paths, walk the best one.

Single-question form: the anchors are the best few entities that the question may name. From each, relation paths of one
to `max_steps` steps are listed and scored against the question's other words; anchor and path are chosen together. The
answer is the set of ends of the best path that leads anywhere, the anchor left out where there are others. All
questions of a batch advance together, one path length at a time.

Knows nothing of a question's topic entity, its number of hops or the directions of its relations.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from kernels import segment_topk
from kgrag_gpu.anchors.disambiguate import DisambiguationConfig, EntityRelations, choose_anchors, relation_scores
from kgrag_gpu.anchors.keywords import MentionConfig, MentionCosts
from kgrag_gpu.anchors.large_names import name_index
from kgrag_gpu.anchors.link import LinkConfig, Links
from kgrag_gpu.anchors.spelling import QuestionWords, Speller, SpellingConfig, relation_vocabulary, word_list
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.expansion.relation_paths import StepGraph, first_level, next_level
from kgrag_gpu.expansion.relation_walks import WalkEnds, walk_paths
from kgrag_gpu.kg.text_column import take_texts
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.ranking.answer_types import EndTypes
from kgrag_gpu.ranking.paths_align import Sheet
from kgrag_gpu.ranking.paths_expected import expected_scores
from kgrag_gpu.ranking.paths_lexical import RelationSpelling
from kgrag_gpu.ranking.paths_question import PathQuestion, read_question
from kgrag_gpu.ranking.relation_paths import PathBeam, PathScorer, PathTables, PathWeights, ScoredPaths, StepTexts
from kgrag_gpu.tensors.fixed_point import exact_dot
from kgrag_gpu.words import split_words


class PathAnswerConfig(ConfigModel):
    """Constants of answering by relation paths."""

    max_steps: Annotated[int, Field(ge=1)] = 3
    max_ends: Annotated[int, Field(ge=1)] = 48  # sampled ends that say how a path goes on
    num_paths: Annotated[int, Field(ge=1)] = 20  # best paths of a question, tried in order until one leads anywhere
    evidence_paths: Annotated[int, Field(ge=0)] = 5  # best paths whose ends are evidence beside the answer's
    evidence_ends: Annotated[int, Field(ge=1)] = 10  # ends of each of them, best supported first
    anchor_weight: float = 0.06  # of the link's score beside the path's
    sampled_names: Annotated[int, Field(ge=1)] = 24  # ends of a step whose names are looked at
    alias_share: Annotated[float, Field(ge=0, le=1)] = 0.05
    min_alias_pairs: Annotated[int, Field(ge=1)] = 3
    expected_width: Annotated[int, Field(ge=0)] = 12  # paths looked at for what the graph should hold; 0 leaves it out
    link: LinkConfig = LinkConfig()
    mention: MentionConfig = MentionConfig()
    spelling: SpellingConfig = SpellingConfig()
    disambiguation: DisambiguationConfig = DisambiguationConfig()
    weights: PathWeights = PathWeights()


@dataclass(frozen=True, slots=True)
class RankedPath:
    """A relation path from an anchor; `steps` are rows of the step graph."""

    anchor: int
    steps: tuple[int, ...]
    score: float


@dataclass(frozen=True, slots=True)
class PathAnswer:
    """What one question is answered by.

    Attributes:
        paths: the best paths, best first; `chosen` is the one whose ends are the answer, -1 where none leads anywhere.
        entities: rows of the KG, best supported first.
        support: ways that lead to each.
        edges: the triples of one way to each, in order.
        words: the question's words as corrected around the chosen path's anchor.
        shortfall: by how much the chosen path's score stays below that of the best path that the graph's habits would
            allow for the same words (ranking/paths_expected.py); large where the graph lacks what is asked for. 0 where
            it was not asked for.
        further_entities, further_edges: ends of the other best paths and the triples of one way to each: what else was
            looked at, for evidence, best path first.
    """

    paths: tuple[RankedPath, ...]
    chosen: int
    entities: tuple[int, ...]
    support: tuple[float, ...]
    edges: tuple[tuple[int, ...], ...]
    words: tuple[str, ...]
    shortfall: float = 0.0
    further_entities: tuple[int, ...] = ()
    further_edges: tuple[tuple[int, ...], ...] = ()


class _Top(NamedTuple):
    """The best paths of each question: rows of the scored paths (-1 where there are fewer), and their scores."""

    rows: Tensor
    scores: Tensor


@dataclass(frozen=True, slots=True)
class _Found:
    """The walk that answers a question: its `nth` path, from that agent's anchor, the walk `place` of `ends`."""

    nth: int
    agent: int
    ends: WalkEnds
    place: int

    def answer(self, paths: tuple[RankedPath, ...], words: tuple[str, ...], shortfall: float) -> PathAnswer:
        ends = self.ends
        part = slice(int(ends.offsets[self.place]), int(ends.offsets[self.place + 1]))
        trails = ends.edge_ids[part].tolist()
        return PathAnswer(
            paths=paths,
            chosen=self.nth,
            entities=tuple(ends.entities[part].tolist()),
            support=tuple(ends.support[part].tolist()),
            edges=tuple(tuple(edge for edge in trail if edge >= 0) for trail in trails),
            words=words,
            shortfall=shortfall,
        )


class PathAnswerer:
    """A graph prepared for questions: names, steps, wording, and what stands at the end of each step."""

    def __init__(self, resources: Resources, config: PathAnswerConfig | None = None):
        self.config = config or PathAnswerConfig()
        self._resources = resources
        self._device = resources.device
        kg = resources.kg
        self.kg = kg
        self.relation_texts = [" ".join(split_words(text)) or text for text in kg.relation_texts]
        self._vocabulary = relation_vocabulary(self.relation_texts)
        self._words = word_list(self.config.spelling, itertools.chain(self.relation_texts, kg.entity_names))
        costs = MentionCosts(self._words, self._vocabulary, self.config.mention)
        degrees = resources.graph.degrees().cpu().numpy()
        self.names = name_index(kg.entity_names, kg.entity_aliases, costs, self.config.link, degrees)
        self.steps = StepGraph.from_graph(
            resources.graph, kg.num_relations, self.config.alias_share, self.config.min_alias_pairs
        )
        self.scorer = self._scorer()
        self._phrases = {text for text in self.scorer.texts.texts if " " in text}
        self._speller = Speller(self._words, self._vocabulary, self._meaning, self.config.spelling)

    def link(self, texts: Sequence[str]) -> Links:
        """All entities that each question may name, best first."""
        with self._resources.stage("link"):
            return self.names.link(texts)

    def anchors(self, texts: Sequence[str], links: Links | None = None) -> Links:
        """The anchors of each question, disambiguated by the relations of entities."""
        config = self.config.disambiguation
        links = self.link(texts) if links is None else links
        vectors = torch.from_numpy(np.array(self._resources.vectors(texts))).to(self._device)
        with self._resources.stage("anchors"):
            cosines = self.scorer.texts.best_by_step(
                exact_dot(vectors, self.scorer.texts.vectors), self.steps.num_steps
            )
            relations = EntityRelations(self.steps.group_offsets, self.steps.group_steps)
            scores = relation_scores(links, relations, cosines, config.top_relations)
            return choose_anchors(links, scores.cpu().numpy(), config)

    def answer(self, texts: Sequence[str], anchors: Links | None = None) -> list[PathAnswer]:
        """Answer a batch; a question without anchors or paths gets an empty answer.

        Args:
            texts: the questions.
            anchors: the anchors of each question (default: found here). Windows of width 0 mean an anchor that the
                question does not name.
        """
        anchors = self.anchors(texts) if anchors is None else anchors
        questions = self._read(anchors)
        sheet = Sheet.of(questions, self.config.max_steps, self._device)
        vectors = torch.from_numpy(np.array(self._resources.vectors(sheet.phrases))).to(self._device)
        with self._resources.stage("score paths"):
            tables = self.scorer.tables(sheet.phrases, vectors)
            scored = self._score(sheet, tables, anchors)
            top = self._top(scored, anchors)
        with self._resources.stage("walk paths"):
            found = self._walk_best(top, scored, anchors)
            further = self._walk_further(top, scored, anchors, [-1 if f is None else f.nth for f in found])
        with self._resources.stage("expect paths"):
            expected = self._expected(sheet, tables, [-1 if f is None else f.agent for f in found])
        answers = self._answers(top, scored, anchors, questions, expected, found)
        return [
            replace(answer, further_entities=entities, further_edges=edges)
            for answer, (entities, edges) in zip(answers, further, strict=True)
        ]

    def _scorer(self) -> PathScorer:
        graph, kg, resources = self.steps, self.kg, self._resources
        texts = StepTexts.of(
            self.relation_texts,
            graph.step_of.tolist(),
            lambda t: resources.vectors(t, "encode relations"),
            self._device,
        )
        ends, offsets = graph.sample_ends(self.config.sampled_names)
        types = EndTypes.build(
            texts.vectors[texts.first_rows()].cpu().numpy(),
            graph.sharing(),
            graph.inverse.cpu().numpy(),
            [name.replace("_", " ") for name in take_texts(kg.entity_names, ends.cpu().numpy())],
            offsets.cpu().numpy(),
            lambda t: np.array(resources.vectors(t, "encode names")),
            self._device,
        )
        spelling = RelationSpelling(texts.texts)
        return PathScorer(texts, types, graph.inverse, graph.is_backward, spelling, self.config.weights)

    def _meaning(self, words: Sequence[str]) -> np.ndarray:
        vectors = torch.from_numpy(np.array(self._resources.vectors(words))).to(self._device)
        return exact_dot(vectors, self.scorer.texts.vectors).amax(1).cpu().numpy()

    def _read(self, anchors: Links) -> list[PathQuestion]:
        """The words around every anchor, corrected and put in order."""
        windows = list(
            zip(
                anchors.question_ids.tolist(),
                anchors.starts.tolist(),
                anchors.ends.tolist(),
                anchors.num_edits.tolist(),
                strict=True,
            )
        )
        around = [QuestionWords(anchors.words[q], start, end, edits) for q, start, end, edits in windows]
        corrected = self._speller.correct(around)
        with self._resources.stage("read questions"):
            known = self._words.common.__contains__
            return [
                read_question(words, start, end, self._phrases, known)
                for words, (_, start, end, _) in zip(corrected, windows, strict=True)
            ]

    def _expected(self, sheet: Sheet, tables: PathTables, agents: Sequence[int]) -> list[float]:
        """For each question the best score that the graph's habits allow for its chosen anchor's words (-inf: none)."""
        best = [-math.inf] * len(agents)
        asked = [q for q, agent in enumerate(agents) if agent >= 0]
        if self.config.expected_width and asked:
            chosen = sheet.take(torch.tensor([agents[q] for q in asked], device=self._device))
            width, depth = self.config.expected_width, self.config.max_steps
            scores = expected_scores(self.scorer, chosen, tables, depth, width).tolist()
            for q, score in zip(asked, scores, strict=True):
                best[q] = score
        return best

    def _score(self, sheet: Sheet, tables: PathTables, anchors: Links) -> ScoredPaths:
        """List and score the paths of all anchors, one length after the other."""
        config = self.config
        beam = PathBeam(self.scorer, sheet, tables, config.max_steps)
        entities = torch.from_numpy(anchors.entity_ids).to(self._device)
        level = first_level(self.steps, entities, config.max_ends)
        kept = beam.add(level.parents, level.steps)
        for length in range(2, config.max_steps + 1):
            ends = config.max_ends if length < config.max_steps else 0
            level = next_level(self.steps, level.keep(kept), ends)
            kept = beam.add(level.parents, level.steps)
        return beam.scored()

    def _top(self, scored: ScoredPaths, anchors: Links) -> _Top:
        """The best `num_paths` paths of each question over all its anchors."""
        questions = torch.from_numpy(anchors.question_ids).to(self._device)
        anchor_scores = torch.from_numpy(anchors.scores).to(self._device)
        scores = scored.scores + self.config.anchor_weight * anchor_scores[scored.agents]
        counts = torch.bincount(questions[scored.agents], minlength=len(anchors.offsets) - 1)
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        top = segment_topk(scores, offsets, self.config.num_paths)
        return _Top(top.indices, top.values)

    def _walk_best(self, top: _Top, scored: ScoredPaths, anchors: Links) -> list[_Found | None]:
        """Walk each question's paths in order until one leads anywhere."""
        num_questions, num_paths = top.rows.shape
        found: list[_Found | None] = [None] * num_questions
        entities = torch.from_numpy(anchors.entity_ids).to(self._device)
        waiting = torch.arange(num_questions, device=self._device)
        for nth in range(num_paths):
            waiting = waiting[top.rows[waiting, nth] >= 0]
            if not len(waiting):
                break
            rows = top.rows[waiting, nth]
            agents = scored.agents[rows]
            ends = walk_paths(self.steps, entities[agents], scored.steps[rows]).away_from(entities[agents]).on_host()
            leads = ends.offsets.diff() > 0
            for place, (question, agent) in enumerate(zip(waiting.tolist(), agents.tolist(), strict=True)):
                if leads[place]:
                    found[question] = _Found(nth, agent, ends, place)
            waiting = waiting[~leads.to(waiting.device)]
        return found

    def _walk_further(
        self, top: _Top, scored: ScoredPaths, anchors: Links, chosen: Sequence[int]
    ) -> list[tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]]:
        """Ends and triples of each question's best paths but the chosen one; no end twice."""
        config = self.config
        rows = top.rows[:, : config.evidence_paths].cpu()
        is_other = (rows >= 0) & (torch.arange(rows.shape[1])[None] != torch.tensor(chosen).reshape(-1, 1))
        questions, picked = is_other.nonzero()[:, 0].tolist(), rows[is_other].to(self._device)
        found: list[dict[int, tuple[int, ...]]] = [{} for _ in chosen]
        if questions:
            entities = torch.from_numpy(anchors.entity_ids).to(self._device)
            ends = walk_paths(self.steps, entities[scored.agents[picked]], scored.steps[picked]).on_host()
            offsets = ends.offsets.tolist()
            for walk, question in enumerate(questions):
                part = slice(offsets[walk], min(offsets[walk + 1], offsets[walk] + config.evidence_ends))
                trails = ends.edge_ids[part].tolist()
                for entity, trail in zip(ends.entities[part].tolist(), trails, strict=True):
                    found[question].setdefault(entity, tuple(edge for edge in trail if edge >= 0))
        return [(tuple(ends_of), tuple(ends_of.values())) for ends_of in found]

    def _answers(
        self,
        top: _Top,
        scored: ScoredPaths,
        anchors: Links,
        questions: Sequence[PathQuestion],
        expected: Sequence[float],
        found: Sequence[_Found | None],
    ) -> list[PathAnswer]:
        rows = top.rows.clamp(min=0)
        agents = (scored.agents[rows] if len(scored.agents) else rows).tolist()
        steps = (scored.steps[rows] if len(scored.agents) else rows[..., None]).tolist()
        scores, counts = top.scores.tolist(), (top.rows >= 0).sum(1).tolist()
        bare = (scored.scores[rows] if len(scored.agents) else rows.double()).tolist()  # without the anchor's share
        answers = []
        for q, outcome in enumerate(found):
            paths = tuple(
                RankedPath(int(anchors.entity_ids[agents[q][i]]), tuple(s for s in steps[q][i] if s >= 0), scores[q][i])
                for i in range(counts[q])
            )
            if outcome is None:
                answers.append(PathAnswer(paths, -1, (), (), (), ()))
                continue
            shortfall = max(0.0, expected[q] - bare[q][outcome.nth])
            answers.append(outcome.answer(paths, questions[outcome.agent].words, shortfall))
        return answers
