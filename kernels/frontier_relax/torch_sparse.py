"""frontier_relax on a list of labels: only what the frontier touches is read, so a large graph costs no more.

Each round expands the labels that the last one made, keeps the least arrival at each (question, group, node), and
drops what cannot be among the ``max_labels`` cheapest of its question: costs only fall along the rounds, so a
label dearer than the present bound is dearer than the final one, and so is every path through it.
"""

import itertools

import torch
from torch import Tensor

from kernels import checks
from kernels.csr_expand import row_degrees
from kernels.csr_expand.torch_impl import expand
from kernels.frontier_relax.labels import RawLabels, label_order, rank_in_question, tie_key
from kernels.frontier_relax.problem import Problem, cost_bits, first_of_run, least_arrivals, require_costs

BLOCK_SLOTS = 1 << 21  # slots expanded at a time; a block ends between two (question, group) columns


class _Labels:
    """Every label made so far, round by round."""

    def __init__(self, keys: Tensor, costs: Tensor) -> None:
        starts = torch.full_like(keys, -1)
        self.rounds = [(keys, costs, torch.zeros_like(keys), starts, starts)]
        self.count = keys.numel()

    def append(self, keys: Tensor, costs: Tensor, hop: int, parents: Tensor, slots: Tensor) -> Tensor:
        """Add one round and return the ids of its labels."""
        ids = torch.arange(self.count, self.count + keys.numel(), device=keys.device)
        self.rounds.append((keys, costs, torch.full_like(keys, hop), parents, slots))
        self.count += keys.numel()
        checks.items_fit("labels", self.count, "set max_labels or split the questions")
        return ids

    def columns(self) -> list[Tensor]:
        """Keys, costs, hops, parents and slots of all rounds."""
        return [torch.cat(column) for column in zip(*self.rounds, strict=True)]


def sparse_labels(problem: Problem, least=None) -> RawLabels:
    """Labels of all questions, the final ones marked, with the older ones that their paths need.

    ``least`` is another form of ``least_arrivals``.
    """
    keys, costs = problem.starts()
    labels = _Labels(keys, costs)
    best = (keys, costs, torch.arange(keys.numel(), device=keys.device))  # sorted by key: keys, costs, label ids
    bounds = torch.full((problem.num_questions,), problem.max_cost, device=problem.device)
    bounds = _tighten(problem, best, bounds)
    frontier = best
    for hop in range(1, problem.num_hops + 1):
        frontier = _can_go_on(problem, frontier, bounds)
        if not frontier[0].numel():
            break
        found = [_expand(problem, part, best, bounds, least or least_arrivals) for part in _blocks(problem, frontier)]
        keys, costs, parents, slots = (torch.cat(column) for column in zip(*found, strict=True))
        if problem.max_labels is not None:
            bounds = _tighten(problem, _merge(best, (keys, costs, parents)), bounds)
            inside = costs <= bounds.index_select(0, _question_of(problem, keys))
            keys, costs, parents, slots = _select((keys, costs, parents, slots), inside)
        ids = labels.append(keys, costs, hop, parents, slots)
        frontier = (keys, costs, ids)
        best = _within(problem, _merge(best, frontier), bounds)
    return _trim(problem, labels, best)


def _question_of(problem: Problem, keys: Tensor) -> Tensor:
    return keys // (problem.num_groups * problem.graph.num_nodes)


def _within(problem: Problem, table: tuple[Tensor, Tensor, Tensor], bounds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The rows whose cost does not pass the bound of their question."""
    keys, costs, ids = _select(table, table[1] <= bounds.index_select(0, _question_of(problem, table[0])))
    return keys, costs, ids


def _can_go_on(problem: Problem, frontier: tuple[Tensor, Tensor, Tensor], bounds: Tensor):
    """The labels that can afford at least the cheapest node of their question.

    Most labels stand near their bound, so this spares most of the edges; the cheapest node is looked for only where
    that reads less than the edges it may spare.
    """
    frontier = _within(problem, frontier, bounds)
    nodes = frontier[0] % problem.graph.num_nodes if problem.graph.num_nodes else frontier[0]
    walked = int(row_degrees(problem.graph.offsets, nodes)[2]) if nodes.numel() else 0
    if not isinstance(problem.node_costs, Tensor) or walked < problem.node_costs.numel() // 4:
        return frontier
    least = problem.node_costs.amin(1).float()
    require_costs("node_costs", least)
    questions = _question_of(problem, frontier[0])
    affords = frontier[1] + least.index_select(0, questions) <= bounds.index_select(0, questions)
    keys, costs, ids = _select(frontier, affords)
    return keys, costs, ids


def _select(columns: tuple[Tensor, ...], mask: Tensor) -> list[Tensor]:
    """The rows of several columns where ``mask`` holds; the mask is searched once."""
    rows = torch.nonzero(mask).flatten()
    return [column.index_select(0, rows) for column in columns]


def _tighten(problem: Problem, best: tuple[Tensor, Tensor, Tensor], bounds: Tensor) -> Tensor:
    """Lower each question's bound to the cost of its ``max_labels``-th cheapest label, where it has that many."""
    limit = problem.max_labels
    if limit is None or not best[0].numel():
        return bounds
    packed = torch.sort((_question_of(problem, best[0]) << 32) | cost_bits(best[1])).values
    ends = torch.searchsorted(packed, torch.arange(problem.num_questions + 1, device=packed.device) << 32)
    full = ends[1:] - ends[:-1] >= limit
    places = (ends[:-1] + limit - 1).clamp(max=packed.numel() - 1)
    nth = (packed[places] & 0xFFFFFFFF).int().view(torch.float32)
    return torch.where(full, torch.minimum(nth, bounds), bounds)


def _blocks(problem: Problem, frontier: tuple[Tensor, Tensor, Tensor]) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Cut the frontier between columns so that a block has at most BLOCK_SLOTS slots, or one column.

    A block also spans fewer than 2^32 keys, so that key and cost share one int64.
    """
    num_nodes = problem.graph.num_nodes
    nodes, columns = frontier[0] % num_nodes, frontier[0] // num_nodes
    degrees = row_degrees(problem.graph.offsets, nodes)[1]
    first = torch.nonzero(first_of_run(columns)).flatten()
    running = torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])
    starts, slots_before, ids = first.tolist(), running[first].tolist(), columns[first].tolist()
    cuts, most_columns = [0], max(1, (1 << 32) // max(num_nodes, 1))
    total = int(running[-1])
    for place in range(1, len(starts)):
        slots_after = slots_before[place + 1] if place + 1 < len(starts) else total
        begun = cuts[-1]
        if slots_after - slots_before[begun] > BLOCK_SLOTS or ids[place] - ids[begun] >= most_columns:
            cuts.append(place)
    edges = [starts[cut] for cut in cuts] + [frontier[0].numel()]
    keys, costs, labels = frontier
    return [(keys[left:right], costs[left:right], labels[left:right]) for left, right in itertools.pairwise(edges)]


def _expand(problem: Problem, frontier, best, bounds: Tensor, least) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Keys, costs, parents and slots of the labels that the frontier improves, sorted by key."""
    keys, costs, ids = frontier
    num_nodes = problem.graph.num_nodes
    columns = keys // num_nodes
    questions = columns // problem.num_groups
    slots, owners = expand(problem.graph.offsets, keys - columns * num_nodes, torch.int32)
    nodes = problem.graph.neighbours.index_select(0, slots)
    edge = None
    if problem.edge_costs is not None:
        edge = problem.edge_costs_at(questions.index_select(0, owners), slots.long())
    kept = _within_slack(problem, bounds[questions] - costs, questions, owners, nodes, edge)
    slots, owners, nodes = (column.index_select(0, kept) for column in (slots, owners, nodes))
    arriving = costs.index_select(0, owners)
    if edge is not None:
        arriving += edge.index_select(0, kept)
    keys, chosen = least(columns.index_select(0, owners) * num_nodes + nodes, arriving)
    slots, owners, arriving = (column.index_select(0, chosen) for column in (slots, owners, arriving))
    questions = _question_of(problem, keys)
    costs = arriving + problem.node_costs_at(questions, keys % num_nodes)
    improved = (costs <= bounds.index_select(0, questions)) & (costs < _costs_of(best, keys))
    keys, costs, parents, slots = _select((keys, costs, ids.index_select(0, owners), slots), improved)
    return keys, costs, parents, slots.long()


def _index_type(table: Tensor) -> torch.dtype:
    """The shortest type that numbers the table's cells."""
    return torch.int32 if table.numel() <= checks.MAX_ITEMS else torch.int64


def _within_slack(
    problem: Problem, slack: Tensor, questions: Tensor, owners: Tensor, nodes: Tensor, edge: Tensor | None
) -> Tensor:
    """Candidates whose step costs no more than their label may still spend, give or take rounding.

    What passes in error is dropped when its cost is known; nothing is dropped here in error.
    """
    slack = slack + (slack.abs() + 1) * 1e-6
    steps = edge
    if isinstance(problem.node_costs, Tensor):  # a look-up is cheap, sorting is not
        cells = (questions * problem.graph.num_nodes).to(_index_type(problem.node_costs)).index_select(0, owners)
        cells += nodes
        entering = problem.node_costs.reshape(-1).index_select(0, cells).float()
        require_costs("node_costs", entering)
        steps = entering if edge is None else entering + edge
    if steps is None:
        return torch.nonzero(slack.index_select(0, owners) >= 0).flatten()
    return torch.nonzero(steps <= slack.index_select(0, owners)).flatten()


def _costs_of(best: tuple[Tensor, Tensor, Tensor], keys: Tensor) -> Tensor:
    """Present cost of each key, infinite where it has no label."""
    if not best[0].numel():
        return torch.full(keys.shape, float("inf"), device=keys.device)
    places = torch.searchsorted(best[0], keys).clamp(max=best[0].numel() - 1)
    same = best[0].index_select(0, places) == keys
    return torch.where(same, best[1].index_select(0, places), float("inf"))


def _merge(best: tuple[Tensor, Tensor, Tensor], newer: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Both tables by key; where both hold a key, the newer row (which is cheaper) stays."""
    keys, order = torch.sort(torch.cat([newer[0], best[0]]), stable=True)
    first = torch.nonzero(first_of_run(keys)).flatten()
    order = order.index_select(0, first)
    costs, ids = torch.cat([newer[1], best[1]]), torch.cat([newer[2], best[2]])
    return keys.index_select(0, first), costs.index_select(0, order), ids.index_select(0, order)


def _trim(problem: Problem, labels: _Labels, best: tuple[Tensor, Tensor, Tensor]) -> RawLabels:
    """Mark the final labels, at most ``max_labels`` a question, and drop all that no path of theirs needs."""
    keys, costs, hops, parents, slots = labels.columns()
    ids = best[2]
    if problem.max_labels is not None:
        questions = _question_of(problem, keys[ids])
        ties = tie_key(keys[ids], hops[ids], problem.num_groups, problem.graph.num_nodes)
        order = label_order(questions, costs[ids], ties)
        ids = ids[order[rank_in_question(questions[order]) < problem.max_labels]]
    is_final = torch.zeros(keys.shape, dtype=torch.bool, device=keys.device)
    is_final[ids] = True
    needed = is_final.clone()
    for hop in range(problem.num_hops, 0, -1):
        needed[parents[needed & (hops == hop)]] = True
    place = torch.cumsum(needed, 0) - 1
    kept = parents[needed]
    parents = torch.where(kept >= 0, place[kept.clamp(min=0)], -1) if kept.numel() else kept
    return RawLabels(keys[needed], costs[needed], hops[needed], parents, slots[needed], is_final[needed])
