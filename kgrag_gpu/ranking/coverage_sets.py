"""Sets of connected sentences: how they are found from seeds, what they are worth, and what each unit earns by them.

All questions of a batch at once, as flat rows of (question, members). Coverage is whole numbers (coverage_tokens.py),
the other terms are float64 computed row by row, and units take a maximum: nothing here depends on the order or the
company of the rows (methods/cover.md, steps 3 to 7).
"""

from collections.abc import Iterator
from typing import Annotated, NamedTuple

import torch
from jaxtyping import Bool, Float64, Int32, Int64
from pydantic import Field
from torch import Tensor

from kernels import csr_expand, segment_topk
from kgrag_gpu.config.schema import ConfigModel
from kgrag_gpu.index.sentence_graph import Named, SentenceGraph
from kgrag_gpu.ranking.coverage_tokens import UNIT_SCALE, QuestionTokens

_BLOCK_ROWS = 1 << 14  # sets whose members' coverage is in memory at once
JOIN = -1  # the link of a pair that no entity connects: both its units are named by the question


class SetsConfig(ConfigModel):
    """Terms of a set's worth, in shares of a fully covered question, and how many sets grow further."""

    title_edge: float = 0.06  # the linking entity titles the neighbour's unit
    hub_cost: float = 0.015  # times log2 of the units that mention the linking entity
    named_cost: float = 0.05  # linked by an entity that the question names itself
    name_bonus: float = 0.15  # a unit of the set is titled by a name of the question
    join_bonus: float = 0.05  # two units that the question names under different spellings
    own_share: float = 0.1  # of what the sentence covers alone
    marginal_share: float = 0.25  # of what the set loses without it
    single_factor: float = 1.2
    single_name_bonus: float = 0.18
    single_cost: float = 0.02
    later_share: float = 0.5  # what link and name terms count from the third sentence on
    later_cost: float = 0.10  # for each sentence from the third on
    max_sentences: Annotated[int, Field(ge=1, le=6)] = 4
    num_grown_pairs: Annotated[int, Field(ge=1)] = 200  # best pairs that a third sentence is looked for
    num_grown_sets: Annotated[int, Field(ge=1)] = 100  # best larger sets that grow further


class Sets(NamedTuple):
    """Sets of one size, sorted by question.

    `members` are sentences, `links[i]` the entity that brought member i + 1 in (`JOIN`: none). `worth` is the set's
    coverage plus `terms`.
    """

    question_ids: Int64[Tensor, " sets"]
    members: Int64[Tensor, "sets size"]
    links: Int64[Tensor, "sets links"]
    worth: Float64[Tensor, " sets"]
    terms: Float64[Tensor, " sets"]


class Level(NamedTuple):
    """Sets of one size, and those of their (set, member) credits that raised a unit's score when they were booked."""

    sets: Sets
    rows: Int64[Tensor, " credits"]  # of `sets`
    keys: Int64[Tensor, " credits"]  # question * units + unit
    credits: Float64[Tensor, " credits"]


class GraphTensors:
    """The sentence graph on a device."""

    def __init__(self, graph: SentenceGraph, device: torch.device):
        def move(array) -> Tensor:
            return torch.from_numpy(array).to(device)

        self.unit_ids, self.unit_offsets = move(graph.unit_ids), move(graph.unit_offsets)
        self.offsets, self.neighbours = move(graph.offsets), move(graph.neighbours)
        self.entity_ids, self.is_title_edge = move(graph.entity_ids), move(graph.is_title_edge)
        self.log_mentions = torch.log2(move(graph.num_mentions).clamp(min=2).double())
        self.num_sentences, self.num_units = graph.num_sentences, graph.num_units
        self.num_entities = len(graph.num_mentions)
        self.device = device


class Coverage:
    """Coverage rows of (question, sentence) pairs of one batch, computed once each."""

    def __init__(self, questions: QuestionTokens, graph: GraphTensors):
        self._questions = questions
        self._num_sentences = graph.num_sentences
        size = questions.num_questions * graph.num_sentences
        self._place = torch.full((size,), -1, dtype=torch.int32, device=graph.device)
        self._parts: list[Tensor] = []
        self.rows: Int32[Tensor, "rows pieces"] = questions.coverage_of_keys(self._place.new_empty(0).long())
        self.alone: Int32[Tensor, " rows"] = self.rows.sum(1, dtype=torch.int32)

    def add(self, question_ids: Tensor, sentence_ids: Tensor) -> None:
        """Computes the rows of those pairs that have none yet."""
        wanted = torch.zeros(len(self._place), dtype=torch.bool, device=self._place.device)
        wanted[question_ids * self._num_sentences + sentence_ids] = True
        keys = torch.nonzero(wanted & (self._place < 0)).flatten()
        if not len(keys):
            return
        first = len(self.rows)
        self._place[keys] = torch.arange(first, first + len(keys), dtype=torch.int32, device=keys.device)
        new = self._questions.coverage_of_keys(keys)
        self.rows = torch.cat([self.rows, new])
        self.alone = torch.cat([self.alone, new.sum(1, dtype=torch.int32)])

    def places(self, question_ids: Int64[Tensor, "..."], sentence_ids: Int64[Tensor, "..."]) -> Int64[Tensor, "..."]:
        """Row numbers of pairs that have been added."""
        return self._place[question_ids * self._num_sentences + sentence_ids].long()


def worths(
    coverage: Coverage, question_ids: Int64[Tensor, " sets"], members: Int64[Tensor, "sets size"]
) -> tuple[Float64[Tensor, " sets"], Float64[Tensor, "sets size"], Float64[Tensor, "sets size"]]:
    """(coverage of the set, of each member alone, of the set without each member), in shares of the question."""
    num_sets, size = members.shape
    sums = torch.zeros(num_sets, 1 + 2 * size, dtype=torch.int32, device=members.device)
    for start in range(0, num_sets, _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        places = coverage.places(question_ids[block, None], members[block])
        alone = coverage.alone[places]
        sums[block, 1 : 1 + size] = alone
        if size == 1:
            sums[block, 0] = alone[:, 0]
            continue
        rows = [coverage.rows.index_select(0, places[:, i]) for i in range(size)]
        sums[block, 0], rest = _joint_sums(rows)
        sums[block, 1 + size :] = alone.flip(1) if size == 2 else rest
    shares = sums.double() / UNIT_SCALE
    return shares[:, 0], shares[:, 1 : 1 + size], shares[:, 1 + size :]


def _joint_sums(rows: list[Tensor]) -> tuple[Int32[Tensor, " sets"], Int32[Tensor, "sets size"]]:
    """Coverage of all members together and, from three on, without each: maxima over those before and after it."""
    after = [rows[-1]]
    for row in reversed(rows[:-1]):
        after.insert(0, torch.maximum(row, after[0]))
    whole = after[0].sum(1, dtype=torch.int32)
    if len(rows) == 2:
        return whole, whole.new_zeros(len(whole), 2)
    rest, before = [after[1]], rows[0]
    for row, following in zip(rows[1:-1], after[2:], strict=True):
        rest.append(torch.maximum(before, following))
        before = torch.maximum(before, row)
    rest.append(before)
    return whole, torch.stack([part.sum(1, dtype=torch.int32) for part in rest], dim=1)


class SetSearch:
    """The search for one batch of questions."""

    def __init__(self, graph: GraphTensors, questions: QuestionTokens, named: Named, config: SetsConfig):
        device = graph.device
        num_questions = questions.num_questions
        self._graph = graph
        self._config = config
        self.coverage = Coverage(questions, graph)
        self._num_questions = num_questions
        self._named_units = [
            torch.from_numpy(column).to(device)
            for column in (named.unit_questions, named.unit_ids, named.unit_spellings)
        ]
        self._name_scores = torch.zeros(num_questions, graph.num_units, dtype=torch.float64, device=device)
        self._name_scores[self._named_units[0], self._named_units[1]] = torch.from_numpy(named.unit_weights).to(device)
        self._is_named = torch.zeros(num_questions, graph.num_entities, dtype=torch.bool, device=device)
        self._is_named[torch.from_numpy(named.entity_questions), torch.from_numpy(named.entity_ids)] = True
        self.best = torch.full((num_questions * graph.num_units,), -torch.inf, dtype=torch.float64, device=device)
        self.levels: list[Level] = []
        self._near: Tensor | None = None

    def run(self, seeds: Bool[Tensor, "questions units"], near: Bool[Tensor, "questions units"] | None = None) -> None:
        """Scores single sentences of the seeds, pairs that touch them, and what grows from the best pairs.

        Neighbours join only from units that are `near`; None: from all.
        """
        graph, config = self._graph, self._config
        self._near = near
        seed_questions, seed_units = torch.nonzero(seeds, as_tuple=True)
        sentences, owners = csr_expand(graph.unit_offsets, seed_units)
        questions = seed_questions[owners]
        linked = self._linked_pairs(seeds, questions, sentences) if config.max_sentences > 1 else None
        pairs = [linked, self._joined_pairs(seeds)] if linked is not None else []
        self.coverage.add(
            torch.cat([questions, *(p.question_ids.repeat(2) for p in pairs)]),
            torch.cat([sentences, *(p.members.T.flatten() for p in pairs)]),
        )
        empty = torch.zeros(len(questions), dtype=torch.float64, device=graph.device)
        self._book(Sets(questions, sentences[:, None], sentences.new_zeros(len(sentences), 0), empty, empty))
        if not pairs:
            return
        grown = self._merge_best([self._book(p) for p in pairs], config.num_grown_pairs)
        for size in range(3, config.max_sentences + 1):
            candidates = self._grow(grown)
            self.coverage.add(candidates.question_ids, candidates.members[:, -1])
            candidates = self._book(candidates)
            if size < config.max_sentences:
                grown = self._merge_best([candidates], config.num_grown_sets)

    def name_scores(self, question: int, sentence_ids: Int64[Tensor, " sentences"]) -> Float64[Tensor, " sentences"]:
        """How surely the question names each sentence's unit, 0 to 1."""
        return self._name_scores[question, self._graph.unit_ids[sentence_ids]]

    def _linked_pairs(self, seeds: Tensor, questions: Tensor, sentences: Tensor) -> Sets:
        """Each pair of neighbours with an end in the seeds, once for each entity that links it."""
        graph = self._graph
        slots, owners = csr_expand(graph.offsets, sentences)
        left, right, question_ids = sentences[owners], graph.neighbours[slots].long(), questions[owners]
        units = graph.unit_ids[right]
        once = ~seeds[question_ids, units] | (left < right)
        if self._near is not None:
            once &= self._near[question_ids, units]
        kept = torch.nonzero(once).flatten()
        left, right, question_ids, slots = (
            column.index_select(0, kept) for column in (left, right, question_ids, slots)
        )
        entities = graph.entity_ids[slots].long()
        terms = self._edge_terms(question_ids, slots, entities)
        members = torch.stack([left, right], dim=1)
        terms += self._config.name_bonus * self._best_name(question_ids, members)
        return Sets(question_ids, members, entities[:, None], terms, terms)

    def _joined_pairs(self, seeds: Tensor) -> Sets:
        """Every sentence of a unit that the question names with every one of another, named by another spelling."""
        graph, config = self._graph, self._config
        questions, units, spellings = self._named_units
        counts = torch.bincount(questions, minlength=self._num_questions)
        slots, owners = csr_expand(torch.cat([counts.new_zeros(1), counts.cumsum(0)]), questions)
        keep = (owners < slots) & (units[owners] != units[slots]) & (spellings[owners] != spellings[slots])
        keep &= seeds[questions, units][owners] & seeds[questions, units][slots]
        first, second = units[owners[keep]], units[slots[keep]]
        left, pair_of_left = csr_expand(graph.unit_offsets, torch.minimum(first, second))
        right, pair = csr_expand(graph.unit_offsets, torch.maximum(first, second)[pair_of_left])
        members = torch.stack([left[pair], right], dim=1)
        question_ids = questions[owners[keep]][pair_of_left][pair]
        terms = config.join_bonus + config.name_bonus * self._best_name(question_ids, members)
        links = torch.full((len(members), 1), JOIN, dtype=torch.int64, device=graph.device)
        return Sets(question_ids, members, links, terms, terms)

    def _grow(self, sets: Sets) -> Sets:
        """Each set with each neighbour of each member that lies in a unit of its own."""
        graph, config = self._graph, self._config
        size = sets.members.shape[1]
        slots, owners = csr_expand(graph.offsets, sets.members.flatten())
        owners = owners // size
        new = graph.neighbours[slots].long()
        units = graph.unit_ids[sets.members].index_select(0, owners)
        new_units = graph.unit_ids[new]
        apart = (units != new_units[:, None]).all(1)
        if self._near is not None:
            apart &= self._near[sets.question_ids[owners], new_units]
        apart = torch.nonzero(apart).flatten()
        slots, owners, new = (column.index_select(0, apart) for column in (slots, owners, new))
        question_ids, entities = sets.question_ids[owners], graph.entity_ids[slots].long()
        members = torch.cat([sets.members[owners], new[:, None]], dim=1)
        step = self._edge_terms(question_ids, slots, entities)
        step += config.name_bonus * self._best_name(question_ids, members)
        terms = config.later_share * (sets.terms[owners] + step) - config.later_cost
        links = torch.cat([sets.links[owners], entities[:, None]], dim=1)
        return Sets(question_ids, members, links, terms, terms)

    def _edge_terms(self, question_ids: Tensor, slots: Tensor, entities: Tensor) -> Float64[Tensor, " slots"]:
        config, graph = self._config, self._graph
        return (
            config.title_edge * graph.is_title_edge[slots].double()
            - config.hub_cost * graph.log_mentions[entities]
            - config.named_cost * self._is_named[question_ids, entities].double()
        )

    def _best_name(self, question_ids: Tensor, members: Tensor) -> Float64[Tensor, " sets"]:
        return self._name_scores[question_ids[:, None], self._graph.unit_ids[members]].amax(1)

    def _book(self, sets: Sets) -> Sets:
        """Raises the units' scores by what the sets' members earn; returns the sets with their worth."""
        config, graph = self._config, self._graph
        whole, alone, rest = worths(self.coverage, sets.question_ids, sets.members)
        units = graph.unit_ids[sets.members]
        names = self._name_scores[sets.question_ids[:, None], units]
        worth = whole + sets.terms
        if sets.members.shape[1] == 1:
            credits = config.single_factor * alone + config.single_name_bonus * names - config.single_cost
        else:
            credits = worth[:, None] + config.own_share * (alone + config.name_bonus * names)
            credits = credits + config.marginal_share * (whole[:, None] - rest)
        keys = sets.question_ids[:, None] * graph.num_units + units
        keys, credits = keys.flatten(), credits.flatten()
        raises = torch.nonzero(credits > self.best.index_select(0, keys)).flatten()
        rows = raises // sets.members.shape[1]
        keys, credits = keys.index_select(0, raises), credits.index_select(0, raises)
        self.best.scatter_reduce_(0, keys, credits, "amax")
        booked = sets._replace(worth=worth)
        self.levels.append(Level(booked, rows, keys, credits))
        return booked

    def _merge_best(self, parts: list[Sets], num_kept: int) -> Sets:
        """The best sets of each question by worth; ties go to the earlier part, then to the earlier row."""
        kept = [_best_of_question(part, num_kept, self._num_questions) for part in parts]
        merged = Sets(*(torch.cat(columns) for columns in zip(*kept, strict=True)))
        order = torch.argsort(merged.question_ids, stable=True)
        merged = Sets(*(column[order] for column in merged))
        return _best_of_question(merged, num_kept, self._num_questions) if len(parts) > 1 else merged


def _best_of_question(sets: Sets, num_kept: int, num_questions: int) -> Sets:
    counts = torch.bincount(sets.question_ids, minlength=num_questions)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    # Worth is compared in float32: within its rounding sets are equal, and the earlier one goes first.
    chosen = segment_topk(sets.worth.float(), offsets, num_kept).indices.flatten()
    chosen = chosen[chosen >= 0]
    return Sets(*(column[chosen] for column in sets))


def winners(
    search: SetSearch, keys: Int64[Tensor, " keys"]
) -> Iterator[tuple[Sets, Int64[Tensor, " found"], Int64[Tensor, " found"]]]:
    """For each level (sets, their rows, the unit keys) whose credit is the final score of one of `keys`.

    A unit may win by several sets of equal credit; the first level's first row is the one to take.
    """
    wanted = torch.zeros(len(search.best), dtype=torch.bool, device=search.best.device)
    wanted[keys] = True
    for level in search.levels:
        won = wanted[level.keys] & (level.credits == search.best[level.keys])
        yield level.sets, level.rows[won], level.keys[won]
