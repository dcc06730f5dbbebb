"""Least-cost labels of (question, group, node), hop-limited, with back-pointers: BubbleRAG's expansion."""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from kernels import backend as backends
from kernels import checks
from kernels.frontier_relax.labels import RelaxLabels, RelaxPaths, build_table, trace_paths
from kernels.frontier_relax.problem import CostFunction, Problem, RelaxGraph, RelaxSeeds
from kernels.frontier_relax.split import question_parts, run_parts

FORMS = ("auto", "dense", "sparse")
WORKING_BYTES = 1 << 30  # of one part of the questions
_LARGEST = torch.finfo(torch.float32).max
# What auto compares, in nanoseconds on two CPU threads (pipelines.bench kernels shows where the forms cross).
_DENSE_NS_PER_CELL, _EDGE_COST_FACTOR, _SPARSE_NS_PER_SLOT, _LOCAL_CELLS = 0.3, 4, 60.0, 2e8


def frontier_relax(
    graph: RelaxGraph,
    seeds: RelaxSeeds,
    node_costs: Float[Tensor, "questions nodes"] | CostFunction,
    *,
    num_hops: int,
    edge_costs: Float[Tensor, "*questions edges"] | CostFunction | None = None,
    edge_ids: Int[Tensor, " slots"] | None = None,
    node_mask: Shaped[Tensor, "*questions nodes"] | None = None,
    max_labels: int | None = None,
    max_cost: float | None = None,
    num_questions: int | None = None,
    num_groups: int | None = None,
    form: str = "auto",
    backend: str = "auto",
) -> RelaxLabels:
    """Relax labels from the seeds outwards, cheapest paths first (BubbleRAG, bubble expansion).

    A path's cost is the seed's cost, then for each step the edge's cost and the cost of the node it enters; the start's
    own cost is not counted. A label is the least cost over all paths of at most ``num_hops`` edges from
    any seed of its question and group. Costs are float32, added in the order of the path. Equal costs keep the path
    of fewer hops; among those the parent with the least cost before the node's own, then the lowest slot.

    With ``max_labels`` a question keeps its cheapest final labels, in the order (cost, hops, group, node), and the
    result is exactly the head of the unlimited one. Two forms give equal results:

    * dense: a field [nodes, questions * groups] relaxed over all edges; best for small graphs and wide searches.
    * sparse: a list of labels relaxed over the frontier's edges; best where ``max_labels`` or ``max_cost`` keep the
      labels few against the graph, at a cost that does not grow with it.

    ``auto`` estimates both from the sizes (``choose_form``). Questions are split where they would need more than
    WORKING_BYTES; nothing is dropped for want of room.

    Args:
        graph: CSR out-edges (``RelaxGraph``); keep it for further calls.
        seeds: ``RelaxSeeds(question_ids, group_ids, node_ids, costs)``; repeated seeds keep the least cost.
        node_costs: [questions, nodes], or a function (question_ids, node_ids) -> costs; at least 0, infinite to forbid.
        num_hops: edges of the longest path, at least 0.
        edge_costs: [edges], [questions, edges] or a function (question_ids, edge_ids) -> costs; None for free edges.
        edge_ids: the edge of each CSR slot; None where slots are the edges.
        node_mask: bool [nodes] or [questions, nodes], the local graph; seeds outside it are dropped too.
        max_labels: final labels kept for each question.
        max_cost: labels dearer than this are not made.
        num_questions, num_groups: sizes, where node_costs is a function or the last groups have no seed.
        form: ``auto``, ``dense`` or ``sparse``.
        backend: ``auto``, ``reference``, ``torch`` or ``triton``.

    Returns:
        ``RelaxLabels``, sorted by (question, cost, hops, group, node); ``trace_paths`` reads the paths.

    Raises:
        ValueError: shapes, options or costs that do not fit. IndexError: ids outside.
        OverflowError: more than 2^31 - 1 labels or slots.

    Working set: see ``frontier_relax_bytes``.
    """
    problem = make_problem(
        graph,
        seeds,
        node_costs,
        num_hops,
        edge_costs,
        edge_ids,
        node_mask,
        max_labels,
        max_cost,
        num_questions,
        num_groups,
    )
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)} (got {form!r})")
    chosen = backends.choose(backend, "frontier_relax")
    if chosen == "reference":
        from kernels.frontier_relax.reference import reference_labels

        return build_table(reference_labels(problem), problem.num_questions, problem.num_groups, graph.num_nodes)
    if form == "auto":
        form = choose_form(problem)
    return run_parts(problem, question_parts(problem, form, WORKING_BYTES), form, chosen)


def relax_field(
    graph: RelaxGraph,
    seeds: RelaxSeeds,
    node_costs: Float[Tensor, "questions nodes"] | CostFunction,
    *,
    num_hops: int,
    edge_costs: Float[Tensor, "*questions edges"] | CostFunction | None = None,
    edge_ids: Int[Tensor, " slots"] | None = None,
    node_mask: Shaped[Tensor, "*questions nodes"] | None = None,
    max_cost: float | None = None,
    num_questions: int | None = None,
    num_groups: int | None = None,
    backend: str = "auto",
) -> Float[Tensor, "questions groups nodes"]:
    """The costs of ``frontier_relax`` as a dense field, infinite where there is no path; no back-pointers.

    Arguments as there. The result is a view of a [nodes, questions * groups] field and is not split: it must fit.
    """
    problem = make_problem(
        graph, seeds, node_costs, num_hops, edge_costs, edge_ids, node_mask, None, max_cost, num_questions, num_groups
    )
    chosen = backends.choose(backend, "frontier_relax")
    from kernels.frontier_relax.split import dense_layers

    field = dense_layers(problem, chosen)[-1]
    return field.view(graph.num_nodes, problem.num_questions, problem.num_groups).permute(1, 2, 0)


def choose_form(problem: Problem) -> str:
    """``dense`` or ``sparse``, by the estimated work of each and by whether one question's field fits."""
    graph = problem.graph
    slots, columns = graph.neighbours.numel(), problem.num_questions * problem.num_groups
    if dense_bytes(graph.num_nodes, problem.num_groups, problem.num_hops) > WORKING_BYTES:
        return "sparse"
    if problem.max_cost < _LARGEST and problem.max_labels is None:
        return "sparse" if slots * columns > _LOCAL_CELLS else "dense"
    per_question = graph.num_nodes * problem.num_groups
    if problem.max_labels is not None:
        per_question = min(per_question, problem.max_labels)
    mean_degree = slots / max(1, graph.num_nodes)
    sparse = problem.num_questions * per_question * mean_degree * _SPARSE_NS_PER_SLOT
    dense = slots * columns * _DENSE_NS_PER_CELL * (1 if problem.edge_costs is None else _EDGE_COST_FACTOR)
    return "sparse" if sparse < dense else "dense"


def dense_bytes(num_nodes: int, num_columns: int, num_hops: int) -> int:
    """Peak bytes of the dense field's layers: one for each hop, the start, and one being made."""
    return 4 * num_nodes * num_columns * (num_hops + 2)


def frontier_relax_bytes(num_nodes: int, num_questions: int, num_groups: int, num_hops: int, num_slots: int) -> int:
    """Peak bytes of ``relax_field`` above its inputs with free edges, in-edges already made.

    The layers, the node costs by node ([nodes, questions]) and torch's weight for each slot.
    """
    layers = dense_bytes(num_nodes, num_questions * num_groups, num_hops) - 4 * num_nodes * num_questions * num_groups
    return layers + 4 * num_nodes * num_questions + 4 * num_slots


def make_problem(
    graph, seeds, node_costs, num_hops, edge_costs, edge_ids, node_mask, max_labels, max_cost, num_questions, num_groups
) -> Problem:
    """Check the inputs of ``frontier_relax`` and settle the numbers of questions and groups."""
    if not isinstance(graph, RelaxGraph):
        raise TypeError(f"graph must be a RelaxGraph (got {type(graph).__name__}); make one of offsets and neighbours")
    if num_hops < 0 or (max_labels is not None and max_labels < 1) or (max_cost is not None and not max_cost >= 0):
        raise ValueError(
            "num_hops and max_cost must be at least 0, max_labels at least 1 "
            f"(got {num_hops}, {max_cost}, {max_labels})"
        )
    named = {name: checks.integers(name, getattr(seeds, name)) for name in ("question_ids", "group_ids", "node_ids")}
    seeds = RelaxSeeds(**named, costs=seeds.costs)
    checks.same_length(**named, **({} if seeds.costs is None else {"costs": seeds.costs}))
    if seeds.costs is not None and seeds.costs.numel() and not float(seeds.costs.min()) >= 0:
        raise ValueError("seed costs must be at least 0 and not NaN")
    if num_questions is None:
        num_questions = _size(node_costs.shape[0] if isinstance(node_costs, Tensor) else None, seeds.question_ids)
    num_groups = _size(num_groups, seeds.group_ids)
    checks.ids_below("seeds.question_ids", seeds.question_ids, num_questions, "the questions")
    checks.ids_below("seeds.group_ids", seeds.group_ids, num_groups, "the groups")
    checks.ids_below("seeds.node_ids", seeds.node_ids, graph.num_nodes, "the graph")
    _check_costs(graph, node_costs, edge_costs, edge_ids, node_mask, num_questions)
    largest = _LARGEST if max_cost is None else min(float(max_cost), _LARGEST)
    return Problem(
        graph,
        seeds,
        num_questions,
        num_groups,
        num_hops,
        node_costs,
        edge_costs,
        edge_ids,
        node_mask,
        max_labels,
        largest,
    )


def _size(given: int | None, ids: Tensor) -> int:
    if given is not None:
        return given
    return int(ids.max()) + 1 if ids.numel() else 0


def _check_costs(graph: RelaxGraph, node_costs, edge_costs, edge_ids, node_mask, num_questions: int) -> None:
    shape = (num_questions, graph.num_nodes)
    tensors = {"node_costs": node_costs, "edge_costs": edge_costs, "edge_ids": edge_ids, "node_mask": node_mask}
    checks.same_device(
        graph=graph.offsets, **{name: value for name, value in tensors.items() if isinstance(value, Tensor)}
    )
    if isinstance(node_costs, Tensor) and node_costs.shape != shape:
        raise ValueError(f"node_costs must be [questions, nodes] = {shape} (got {tuple(node_costs.shape)})")
    if node_mask is not None and (node_mask.dtype != torch.bool or node_mask.shape not in (shape, shape[1:])):
        raise ValueError(
            f"node_mask must be bool {shape[1:]} or {shape} (got {node_mask.dtype}, {tuple(node_mask.shape)})"
        )
    if edge_ids is not None and edge_ids.shape != graph.neighbours.shape:
        raise ValueError(f"edge_ids must have one entry for each of {graph.neighbours.numel()} slots")
    if isinstance(edge_costs, Tensor):
        if (edge_costs.ndim == 2 and edge_costs.shape[0] != num_questions) or edge_costs.ndim not in (1, 2):
            raise ValueError(f"edge_costs must be [edges] or [{num_questions}, edges] (got {tuple(edge_costs.shape)})")
        if edge_ids is not None:
            checks.ids_below("edge_ids", edge_ids, edge_costs.shape[-1], "edge_costs")
        elif edge_costs.shape[-1] != graph.neighbours.numel():
            raise ValueError(f"edge_costs without edge_ids must have one entry for each slot (got {edge_costs.shape})")


__all__ = [
    "RelaxGraph",
    "RelaxLabels",
    "RelaxPaths",
    "RelaxSeeds",
    "choose_form",
    "frontier_relax",
    "frontier_relax_bytes",
    "relax_field",
    "trace_paths",
]
