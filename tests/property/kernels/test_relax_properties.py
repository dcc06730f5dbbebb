"""frontier_relax: both forms against the plain loops, and the loops against a heap Dijkstra limited in hops."""

import heapq

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_strategies import FAST_BACKENDS, csr_graphs

from kernels import RelaxGraph, RelaxSeeds, frontier_relax, relax_field, trace_paths

common = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
COSTS = st.sampled_from([0.0, 0.25, 0.5, 1.0, 0.1, 0.3])


@st.composite
def relax_cases(draw):
    """(graph, seeds, node costs, options)."""
    offsets, neighbours = draw(csr_graphs())
    num_nodes, num_slots = offsets.numel() - 1, neighbours.numel()
    num_questions, num_groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    one = st.tuples(st.integers(0, num_questions - 1), st.integers(0, num_groups - 1), st.integers(0, num_nodes - 1))
    ids = torch.tensor(draw(st.lists(one, max_size=6)), dtype=torch.int64).reshape(-1, 3)

    def numbers(size):
        return torch.tensor(draw(st.lists(COSTS, min_size=size, max_size=size)), dtype=torch.float32)

    seeds = RelaxSeeds(ids[:, 0], ids[:, 1], ids[:, 2], numbers(len(ids)) if draw(st.booleans()) else None)
    options = {"num_hops": draw(st.integers(0, 4)), "num_groups": num_groups}
    if draw(st.booleans()):
        options["edge_costs"] = numbers(num_questions * num_slots).view(num_questions, num_slots)
    if draw(st.booleans()):
        bits = st.lists(st.booleans(), min_size=num_questions * num_nodes, max_size=num_questions * num_nodes)
        options["node_mask"] = torch.tensor(draw(bits)).view(num_questions, num_nodes)
    if draw(st.booleans()):
        options["max_cost"] = draw(st.floats(0, 2))
    return RelaxGraph(offsets, neighbours), seeds, numbers(num_questions * num_nodes).view(-1, num_nodes), options


def same(left, right):
    return all(torch.equal(ours, theirs) for ours, theirs in zip(left, right, strict=True))


@common
@given(case=relax_cases(), max_labels=st.none() | st.integers(1, 8))
def test_frontier_relax_both_forms_equal_the_loops(case, max_labels):
    graph, seeds, costs, options = case
    expected = frontier_relax(graph, seeds, costs, max_labels=max_labels, backend="reference", **options)
    options["max_labels"] = max_labels
    for backend in FAST_BACKENDS:
        for form in ("dense", "sparse"):
            assert same(frontier_relax(graph, seeds, costs, form=form, backend=backend, **options), expected)


def hop_limited_dijkstra(graph, starts, node_cost, edge_cost, num_hops):
    """Least cost of each node, by a heap over (cost, node, hops)."""
    best, settled = {}, {}
    heap = [(cost, node, 0) for node, cost in starts]
    heapq.heapify(heap)
    while heap:
        cost, node, hops = heapq.heappop(heap)
        if hops >= settled.get(node, num_hops + 1):
            continue
        settled[node] = hops
        best[node] = min(cost, best.get(node, float("inf")))
        if hops == num_hops:
            continue
        for slot in range(int(graph.offsets[node]), int(graph.offsets[node + 1])):
            after = int(graph.neighbours[slot])
            heapq.heappush(heap, (cost + edge_cost(slot) + node_cost(after), after, hops + 1))
    return best


@common
@given(case=relax_cases())
def test_frontier_relax_costs_equal_a_heap_dijkstra(case):
    graph, seeds, costs, options = case
    options = {name: value for name, value in options.items() if name != "max_cost"}
    field = relax_field(graph, seeds, costs, **options)
    mask = options.get("node_mask", torch.ones_like(costs, dtype=torch.bool))
    edges = options.get("edge_costs")
    start_costs = torch.zeros(len(seeds.node_ids)) if seeds.costs is None else seeds.costs
    for question in range(costs.shape[0]):
        for group in range(options["num_groups"]):
            own = (seeds.question_ids == question) & (seeds.group_ids == group)
            starts = [(int(n), float(c)) for n, c in zip(seeds.node_ids[own], start_costs[own], strict=True)]
            best = hop_limited_dijkstra(
                graph,
                [(node, cost) for node, cost in starts if mask[question, node]],
                lambda node, q=question: float(costs[q, node]) if mask[q, node] else float("inf"),
                lambda slot, q=question: 0.0 if edges is None else float(edges[q, slot]),
                options["num_hops"],
            )
            expected = torch.full((graph.num_nodes,), float("inf"))
            for node, cost in best.items():
                expected[node] = cost
            assert torch.allclose(field[question, group], expected, atol=1e-5)


@common
@given(case=relax_cases(), form=st.sampled_from(["dense", "sparse"]))
def test_trace_paths_cost_of_the_path_is_the_label(case, form):
    graph, seeds, costs, options = case
    labels = frontier_relax(graph, seeds, costs, form=form, **options)
    paths = trace_paths(labels, torch.arange(labels.costs.numel()))
    edges = options.get("edge_costs")
    for row in range(labels.costs.numel()):
        part = slice(int(paths.offsets[row]), int(paths.offsets[row + 1]))
        nodes, slots, question = (
            paths.node_ids[part].tolist(),
            paths.slots[part].tolist(),
            int(labels.question_ids[row]),
        )
        assert nodes[-1] == labels.node_ids[row] and slots[0] == -1 and len(nodes) == labels.hops[row] + 1
        own = (
            (seeds.question_ids == question) & (seeds.group_ids == labels.group_ids[row]) & (seeds.node_ids == nodes[0])
        )
        assert own.any()
        cost = torch.tensor(0.0) if seeds.costs is None else seeds.costs[own].min()
        for before, node, slot in zip(nodes, nodes[1:], slots[1:], strict=False):
            assert graph.offsets[before] <= slot < graph.offsets[before + 1] and graph.neighbours[slot] == node
            cost = (cost if edges is None else cost + edges[question, slot]) + costs[question, node]
        assert cost == labels.costs[row]


@common
@given(case=relax_cases(), max_labels=st.none() | st.integers(1, 5), form=st.sampled_from(["dense", "sparse"]))
def test_frontier_relax_batch_of_n_equals_n_batches_of_one(case, max_labels, form):
    graph, seeds, costs, options = case
    whole = frontier_relax(graph, seeds, costs, max_labels=max_labels, form=form, **options)
    for question in range(costs.shape[0]):
        own = seeds.question_ids == question
        alone = RelaxSeeds(
            torch.zeros(int(own.sum()), dtype=torch.int64),
            seeds.group_ids[own],
            seeds.node_ids[own],
            None if seeds.costs is None else seeds.costs[own],
        )
        few = dict(options)
        for name in ("edge_costs", "node_mask"):
            if name in few:
                few[name] = few[name][question : question + 1]
        single = frontier_relax(graph, alone, costs[question : question + 1], max_labels=max_labels, form=form, **few)
        part = slice(int(whole.question_offsets[question]), int(whole.question_offsets[question + 1]))
        assert torch.equal(single.costs, whole.costs[part]) and torch.equal(single.node_ids, whole.node_ids[part])
        shifted = torch.where(whole.parents[part] >= 0, whole.parents[part] - part.start, -1)
        assert torch.equal(single.parents, shifted)
