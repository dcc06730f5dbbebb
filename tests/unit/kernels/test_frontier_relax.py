"""frontier_relax on a graph of four nodes, both ways: 0 - 1, 1 - 2, 0 - 2, 2 - 3."""

from importlib import import_module

import pytest
import torch

from kernels import RelaxGraph, RelaxSeeds, frontier_relax, relax_field, trace_paths

OFFSETS = torch.tensor([0, 2, 4, 7, 8])
NEIGHBOURS = torch.tensor([1, 2, 0, 2, 0, 1, 3, 2])
COSTS = torch.tensor([[1.0, 0.25, 0.5, 1.0]])
INF = float("inf")
op = import_module("kernels.frontier_relax")  # the name in the package is the function


@pytest.fixture(params=["dense", "sparse", "reference", "triton dense", "triton sparse"])
def relax(request, device):
    """The op in each form, on each device, with tensors moved there."""
    backend, _, form = request.param.rpartition(" ")
    how = {"form": form, "backend": backend or "torch"} if form in op.FORMS else {"backend": form}
    if backend == "triton":
        pytest.importorskip("triton", reason="triton is not installed")

    def moved(value):
        if isinstance(value, RelaxSeeds):
            return RelaxSeeds(*(column if column is None else column.to(device) for column in value))
        return value.to(device) if isinstance(value, torch.Tensor) else value

    def run(seeds, costs=COSTS, **options):
        graph = RelaxGraph(OFFSETS.to(device), NEIGHBOURS.to(device))
        return frontier_relax(graph, moved(seeds), moved(costs), **{k: moved(v) for k, v in options.items()}, **how)

    return run


def seeds_at(*triples, costs=None):
    ids = torch.tensor(triples, dtype=torch.int64).reshape(-1, 3)
    return RelaxSeeds(ids[:, 0], ids[:, 1], ids[:, 2], None if costs is None else torch.tensor(costs))


def test_frontier_relax_two_hops_lists_labels_cheapest_first(relax):
    labels = relax(seeds_at((0, 0, 0)), num_hops=2)
    assert labels.node_ids.tolist() == [0, 1, 2, 3]
    assert labels.costs.tolist() == [0.0, 0.25, 0.5, 1.5]
    assert labels.hops.tolist() == [0, 1, 1, 2]
    assert labels.parents.tolist() == [-1, 0, 0, 2]
    assert labels.parent_slots.tolist() == [-1, 0, 1, 6]
    assert labels.is_final.all() and labels.question_offsets.tolist() == [0, 4]


def test_frontier_relax_start_cost_is_not_counted_but_seed_cost_is(relax):
    labels = relax(seeds_at((0, 0, 3), (0, 0, 3), costs=[2.0, 0.125]), num_hops=1)
    assert labels.node_ids.tolist() == [3, 2] and labels.costs.tolist() == [0.125, 0.625]


def test_frontier_relax_cheaper_detour_keeps_the_dear_label_that_saves_hops(relax):
    # 0 -> 2 costs 2 in one hop, 1.25 by way of 1; 3 needs the direct one at two hops
    edges = torch.tensor([0.0, 1.5, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0])
    labels = relax(seeds_at((0, 0, 0)), num_hops=2, edge_costs=edges)
    assert labels.node_ids.tolist() == [0, 1, 2, 2, 3]
    assert labels.costs.tolist() == [0.0, 0.25, 1.25, 2.0, 3.0]
    assert labels.hops.tolist() == [0, 1, 2, 1, 2]
    assert labels.is_final.tolist() == [True, True, True, False, True]
    assert labels.parents.tolist() == [-1, 0, 1, 0, 3]


def test_frontier_relax_groups_and_questions_stay_apart(relax):
    costs = torch.tensor([[1.0, 0.25, 0.5, 1.0], [0.0, 0.0, 0.0, 0.0]])
    labels = relax(seeds_at((1, 1, 3), (0, 0, 3)), costs, num_hops=1)
    assert labels.question_ids.tolist() == [0, 0, 1, 1] and labels.group_ids.tolist() == [0, 0, 1, 1]
    assert labels.costs.tolist() == [0.0, 0.5, 0.0, 0.0] and labels.question_offsets.tolist() == [0, 2, 4]


def test_frontier_relax_max_labels_keeps_the_head_in_tie_order(relax):
    labels = relax(seeds_at((0, 1, 0), (0, 0, 0)), torch.zeros(1, 4), num_hops=3, max_labels=4)
    assert labels.hops.tolist() == [0, 0, 1, 1]
    assert labels.group_ids.tolist() == [0, 1, 0, 0] and labels.node_ids.tolist() == [0, 0, 1, 2]


def test_frontier_relax_max_cost_cuts_paths(relax):
    assert relax(seeds_at((0, 0, 0)), num_hops=3, max_cost=0.5).node_ids.tolist() == [0, 1, 2]


def test_frontier_relax_mask_closes_nodes_and_drops_seeds(relax):
    mask = torch.tensor([True, True, False, True])
    labels = relax(seeds_at((0, 0, 0), (0, 0, 2)), num_hops=3, node_mask=mask)
    assert labels.node_ids.tolist() == [0, 1]


def test_frontier_relax_question_with_nothing_has_no_labels(relax):
    labels = relax(seeds_at((1, 0, 0)), torch.zeros(3, 4), num_hops=0)
    assert labels.question_offsets.tolist() == [0, 0, 1, 1]


def test_frontier_relax_no_seeds_gives_an_empty_table(relax):
    labels = relax(seeds_at(), num_hops=2, num_groups=2)
    assert labels.costs.numel() == 0 and labels.question_offsets.tolist() == [0, 0]


def test_frontier_relax_cost_functions_equal_tensors(relax):
    costs = COSTS.repeat(2, 1)
    edges = torch.rand(2, 5, generator=torch.Generator().manual_seed(0))
    edge_ids = torch.tensor([0, 1, 2, 3, 4, 0, 1, 2])
    seeds = seeds_at((0, 0, 0), (1, 0, 3))
    expected = relax(seeds, costs, num_hops=3, edge_costs=edges, edge_ids=edge_ids)
    actual = relax(
        seeds,
        lambda questions, nodes: costs.to(nodes.device)[questions, nodes],
        num_hops=3,
        edge_costs=lambda questions, ids: edges.to(ids.device)[questions, ids],
        edge_ids=edge_ids,
    )
    for ours, theirs in zip(actual, expected, strict=True):
        assert torch.equal(ours, theirs)


def test_trace_paths_gives_nodes_and_slots_from_the_start(relax):
    labels = relax(seeds_at((0, 0, 0)), num_hops=2)
    paths = trace_paths(labels, torch.tensor([3, 0], device=labels.costs.device))
    assert paths.offsets.tolist() == [0, 3, 4]
    assert paths.node_ids.tolist() == [0, 2, 3, 0] and paths.slots.tolist() == [-1, 1, 6, -1]


def test_frontier_relax_split_questions_give_the_same_table(monkeypatch):
    generator = torch.Generator().manual_seed(3)
    graph = RelaxGraph(OFFSETS, NEIGHBOURS)
    seeds = RelaxSeeds(*(torch.randint(0, high, (12,), generator=generator) for high in (5, 2, 4)))
    costs, edges = torch.rand(5, 4, generator=generator), torch.rand(5, 8, generator=generator)
    options = {"num_hops": 3, "edge_costs": edges, "node_mask": torch.rand(5, 4, generator=generator) < 0.9}
    for form in ("dense", "sparse"):
        whole = frontier_relax(graph, seeds, costs, form=form, max_labels=5, **options)
        with monkeypatch.context() as patch:
            patch.setattr(op, "WORKING_BYTES", 1)
            split = frontier_relax(graph, seeds, costs, form=form, max_labels=5, **options)
        for ours, theirs in zip(split, whole, strict=True):
            assert torch.equal(ours, theirs)


def test_frontier_relax_sparse_small_blocks_give_the_same_table(monkeypatch):
    from kernels.frontier_relax import torch_sparse

    graph, seeds = RelaxGraph(OFFSETS, NEIGHBOURS), seeds_at((0, 0, 0), (0, 1, 3), (1, 1, 1))
    costs = torch.rand(2, 4, generator=torch.Generator().manual_seed(1))
    whole = frontier_relax(graph, seeds, costs, num_hops=3, form="sparse")
    monkeypatch.setattr(torch_sparse, "BLOCK_SLOTS", 1)
    for ours, theirs in zip(frontier_relax(graph, seeds, costs, num_hops=3, form="sparse"), whole, strict=True):
        assert torch.equal(ours, theirs)


def test_frontier_relax_hub_of_100000_reaches_every_leaf():
    leaves = 100_000
    offsets = torch.cat([torch.tensor([0]), torch.arange(leaves, 2 * leaves + 1)])
    graph = RelaxGraph(offsets, torch.cat([torch.arange(1, leaves + 1), torch.zeros(leaves, dtype=torch.int64)]))
    costs = torch.full((1, leaves + 1), 0.5)
    for form in ("dense", "sparse"):
        labels = frontier_relax(graph, seeds_at((0, 0, 7)), costs, num_hops=2, form=form, max_labels=10)
        assert labels.node_ids.tolist() == [7, 0, 1, 2, 3, 4, 5, 6, 8, 9] and labels.costs[-1] == 1.0


def test_relax_field_unreached_nodes_are_infinite(device):
    graph = RelaxGraph(OFFSETS.to(device), NEIGHBOURS.to(device))
    seeds = RelaxSeeds(*(torch.tensor([number], device=device) for number in (0, 0, 0)))
    field = relax_field(graph, seeds, COSTS.to(device), num_hops=1, num_groups=2)
    assert field.tolist() == [[[0.0, 0.25, 0.5, INF], [INF] * 4]]


def test_frontier_relax_auto_takes_the_dense_form_for_small_graphs():
    problem = op.make_problem(
        RelaxGraph(OFFSETS, NEIGHBOURS), seeds_at((0, 0, 0)), COSTS, 2, None, None, None, None, None, None, None
    )
    assert op.choose_form(problem) == "dense"


@pytest.mark.parametrize("bad", [-0.5, float("nan")])
def test_frontier_relax_bad_node_cost_raises_value_error(bad):
    costs = COSTS.clone()
    costs[0, 1] = bad
    for form in ("dense", "sparse"):
        with pytest.raises(ValueError, match="node_costs must be at least 0 and not NaN"):
            frontier_relax(RelaxGraph(OFFSETS, NEIGHBOURS), seeds_at((0, 0, 0)), costs, num_hops=1, form=form)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_hops": -1}, "num_hops"),
        ({"num_hops": 1, "max_labels": 0}, "max_labels"),
        ({"num_hops": 1, "form": "round"}, "form must be one of"),
        ({"num_hops": 1, "node_mask": torch.ones(3, dtype=torch.bool)}, "node_mask must be bool"),
        ({"num_hops": 1, "edge_costs": torch.zeros(3)}, "one entry for each slot"),
    ],
)
def test_frontier_relax_option_that_does_not_fit_raises_value_error(options, message):
    with pytest.raises(ValueError, match=message):
        frontier_relax(RelaxGraph(OFFSETS, NEIGHBOURS), seeds_at((0, 0, 0)), COSTS, **options)


def test_frontier_relax_seed_outside_raises_index_error():
    with pytest.raises(IndexError, match=r"seeds\.node_ids must lie in"):
        frontier_relax(RelaxGraph(OFFSETS, NEIGHBOURS), seeds_at((0, 0, 4)), COSTS, num_hops=1)
