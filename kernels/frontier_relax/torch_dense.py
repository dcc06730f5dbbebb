"""frontier_relax on a dense field [nodes, questions * groups]: every node looks at all its in-edges, hop by hop.

One layer is kept for each hop count, so back-pointers need not be written while relaxing: a label's parent is found
afterwards, for the labels asked for alone, as the in-edge that explains its cost.
"""

import torch
from torch import Tensor

from kernels.csr_expand import csr_expand
from kernels.frontier_relax.labels import RawLabels, label_order, rank_in_question, tie_key
from kernels.frontier_relax.problem import INFINITY, Problem, first_of_run, least_arrivals, require_costs
from kernels.segments import csr_matrix, segment_min

EDGE_BLOCK_CELLS = 1 << 24  # cells of one gathered block [slots, columns] where edges have costs


def relax_layers(problem: Problem, relax=None) -> list[Tensor]:
    """The field after 0, 1, .. num_hops hops; fewer layers where nothing changes any more.

    ``relax`` is another form of ``_relax_once``.
    """
    keys, costs = problem.starts()
    num_nodes, num_columns = problem.graph.num_nodes, problem.num_questions * problem.num_groups
    layer = torch.full((num_nodes, num_columns), INFINITY, device=problem.device)
    layer[keys % num_nodes, keys // num_nodes] = costs
    enter = _node_cost_field(problem)
    layers = [layer]
    for hop in range(problem.num_hops):
        if hop == 0:  # few nodes have a label yet: walk out from them
            arriving = _first_arrivals(problem, keys, costs, torch.full_like(layer, INFINITY))
        else:
            arriving = (relax or _relax_once)(problem, layers[-1])
        arriving += enter
        if problem.max_cost < torch.finfo(torch.float32).max:
            arriving.masked_fill_(arriving > problem.max_cost, INFINITY)
        torch.minimum(arriving, layers[-1], out=arriving)
        if torch.equal(arriving, layers[-1]):
            break
        layers.append(arriving)
    return layers


def _node_cost_field(problem: Problem) -> Tensor:
    """[nodes, questions * groups] float32, infinite outside the mask."""
    num_questions, num_nodes = problem.num_questions, problem.graph.num_nodes
    if isinstance(problem.node_costs, Tensor):
        costs = problem.node_costs.float()
        require_costs("node_costs", costs)
        if problem.node_mask is not None:
            costs = torch.where(problem.node_mask, costs, INFINITY)
        by_node = costs.T
    else:
        nodes = torch.arange(num_nodes, device=problem.device)
        rows = [problem.node_costs_at(torch.full_like(nodes, question), nodes) for question in range(num_questions)]
        by_node = torch.stack(rows, 1) if rows else torch.empty((num_nodes, 0), device=problem.device)
    return by_node[:, :, None].expand(-1, -1, problem.num_groups).reshape(num_nodes, -1)


def _first_arrivals(problem: Problem, keys: Tensor, costs: Tensor, out: Tensor) -> Tensor:
    """Write the least cost of arriving over one edge of a start into ``out``."""
    num_nodes = problem.graph.num_nodes
    columns = keys // num_nodes
    slots, owners = csr_expand(problem.graph.offsets, keys % num_nodes)
    arriving = costs[owners]
    edge = problem.edge_costs_at((columns // problem.num_groups)[owners], slots)
    arriving = arriving if edge is None else arriving + edge
    reached, chosen = least_arrivals(columns[owners] * num_nodes + problem.graph.neighbours[slots], arriving)
    out[reached % num_nodes, reached // num_nodes] = arriving[chosen]
    return out


def _relax_once(problem: Problem, layer: Tensor) -> Tensor:
    """Least cost of arriving at each node by one more edge, the node's own cost not yet counted."""
    offsets, sources, slots = problem.graph.incoming
    if problem.edge_costs is None and layer.device.type == "cpu":
        shape = (layer.shape[0], layer.shape[0])
        out = torch.sparse.mm(csr_matrix(offsets, sources, problem.graph.ones, shape), layer, "amin")
    else:
        out = torch.empty_like(layer)
        groups, step = problem.num_groups, edge_step(problem)
        for first in range(0, problem.num_questions, step):
            past = min(first + step, problem.num_questions)
            arriving = layer[:, first * groups : past * groups].index_select(0, sources)
            if problem.edge_costs is not None:
                by_question = arriving.view(-1, past - first, groups)
                by_question += edge_block(problem, slots, first, past)[:, :, None]
            out[:, first * groups : past * groups] = segment_min(arriving, offsets)
    return out.masked_fill_((offsets[1:] == offsets[:-1])[:, None], INFINITY)


def edge_step(problem: Problem) -> int:
    """Questions whose gathered edges are relaxed at a time, where edges have costs."""
    return max(1, EDGE_BLOCK_CELLS // max(1, problem.graph.neighbours.numel() * problem.num_groups))


def edge_block(problem: Problem, slots: Tensor, first: int, past: int) -> Tensor:
    """[slots, questions first..past) or [slots, 1] float32."""
    if isinstance(problem.edge_costs, Tensor) and problem.edge_costs.ndim == 1:
        costs = problem.edge_costs_at(slots, slots)
        return costs[:, None] if costs is not None else slots[:, None]
    questions = torch.arange(first, past, device=slots.device)
    costs = problem.edge_costs_at(questions.repeat(slots.numel()), slots.long().repeat_interleave(past - first))
    return costs.view(slots.numel(), past - first) if costs is not None else slots[:, None]


def dense_labels(problem: Problem, layers: list[Tensor]) -> RawLabels:
    """The final labels of the field, at most ``max_labels`` a question, and the older labels their paths need."""
    keys, costs, hops = _final_labels(problem, layers)
    num_nodes = problem.graph.num_nodes
    levels: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []  # keys, final mark, parent key, slot; longest first
    needed = keys.new_empty(0)
    for hop in range(len(layers) - 1, -1, -1):
        own = keys[hops == hop]
        level = torch.unique(torch.cat([own, needed]))
        is_final = torch.isin(level, own, assume_unique=True)
        if hop:
            sources, slots = _parents(problem, layers[hop - 1], level)
            parent_keys = level // num_nodes * num_nodes + sources
        else:
            parent_keys = slots = torch.full_like(level, -1)
        levels.append((level, is_final, parent_keys, slots))
        needed = parent_keys if hop else needed
    del costs
    return _join(levels[::-1], layers, num_nodes)


def _final_labels(problem: Problem, layers: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Keys, costs and hops of the cheapest labels of each question."""
    num_nodes, num_groups, num_questions = problem.graph.num_nodes, problem.num_groups, problem.num_questions
    last = layers[-1].T.contiguous().view(num_questions, num_groups * num_nodes)
    limit = problem.max_labels
    if limit is not None and limit < last.shape[1]:
        bound = torch.kthvalue(last, limit, dim=1).values if num_questions else last.new_empty(0)
        chosen = (last <= bound[:, None]) & torch.isfinite(last)
    else:
        chosen = torch.isfinite(last)
    keys = torch.nonzero(chosen.flatten()).flatten()
    costs = last.flatten()[keys]
    nodes, columns = keys % num_nodes, keys // num_nodes
    hops = torch.zeros_like(keys)
    for layer in layers[:-1]:  # layers only fall: the first that holds the final cost is the label's hop count
        hops += layer[nodes, columns] > costs
    if limit is not None:
        questions = columns // num_groups
        order = label_order(questions, costs, tie_key(keys, hops, num_groups, num_nodes))
        order = order[rank_in_question(questions[order]) < limit]
        keys, costs, hops = keys[order], costs[order], hops[order]
    return keys, costs, hops


def _parents(problem: Problem, layer: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Source node and slot of the in-edge with the least cost so far; ties go to the lowest slot."""
    offsets, sources, slots = problem.graph.incoming
    columns, nodes = keys // problem.graph.num_nodes, keys % problem.graph.num_nodes
    found, owners = csr_expand(offsets, nodes)
    cells = sources.index_select(0, found).long() * layer.shape[1] + columns.index_select(0, owners)
    arriving = layer.view(-1).index_select(0, cells)
    edge = problem.edge_costs_at((columns // problem.num_groups)[owners], slots[found].long())
    if edge is not None:
        arriving = arriving + edge
    degrees = (offsets[1:] - offsets[:-1])[nodes].long()
    bounds = torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])
    least = segment_min(arriving[:, None], bounds)[:, 0]
    equal = torch.nonzero(arriving == least.index_select(0, owners)).flatten()
    best = found[equal[first_of_run(owners[equal])]]
    return sources[best].long(), slots[best].long()


def _join(levels: list[tuple[Tensor, Tensor, Tensor, Tensor]], layers: list[Tensor], num_nodes: int) -> RawLabels:
    """One table of the levels, shortest first; a parent stands in the level before."""
    before, rows = 0, []
    for hop, (level, is_final, parent_keys, slots) in enumerate(levels):
        costs = layers[hop][level % num_nodes, level // num_nodes]
        if hop:
            parents = before - levels[hop - 1][0].numel() + torch.searchsorted(levels[hop - 1][0], parent_keys)
        else:
            parents = parent_keys
        rows.append((level, costs, torch.full_like(level, hop), parents, slots, is_final))
        before += level.numel()
    return RawLabels(*(torch.cat(column) for column in zip(*rows, strict=True)))
