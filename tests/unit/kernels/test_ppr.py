"""ppr: closed forms on tiny graphs, dangling nodes, batch independence and errors."""

import pytest
import torch

from kernels import ppr, ppr_graph, ppr_residual
from kernels.ppr import num_passes


@pytest.fixture(params=["reference", "torch"])
def backend(request):
    """This op has no Triton form: torch's own calls are all of it."""
    return request.param


def test_ppr_two_nodes_gives_the_closed_form(backend, device):
    graph = ppr_graph(torch.tensor([0, 1, 2], device=device), torch.tensor([1, 0], device=device))
    out = ppr(graph, torch.tensor([[1.0, 0.0]], device=device), backend=backend)
    assert out[0].tolist() == pytest.approx([2 / 3, 1 / 3], abs=1e-6)  # x0 = .5 + .5 x1, x1 = .5 x0


def test_ppr_weights_share_the_step(backend):
    graph = ppr_graph(torch.tensor([0, 2, 3, 4]), torch.tensor([1, 2, 0, 0]), torch.tensor([3.0, 1.0, 1.0, 1.0]))
    out = ppr(graph, torch.tensor([[1.0, 0.0, 0.0]]), backend=backend)
    assert out[0].tolist() == pytest.approx([2 / 3, 1 / 4, 1 / 12], abs=1e-6)


def test_ppr_dangling_node_returns_its_mass_to_the_restart(backend):
    graph = ppr_graph(torch.tensor([0, 1, 1, 1]), torch.tensor([1]))
    out = ppr(graph, torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 2.0]]), backend=backend)
    assert out[0].tolist() == pytest.approx([2 / 3, 1 / 3, 0.0], abs=1e-6)
    assert out[1].tolist() == [0.0, 0.0, 1.0]


def test_ppr_self_loop_and_duplicate_edges_count_as_they_stand(backend):
    graph = ppr_graph(torch.tensor([0, 3, 4]), torch.tensor([0, 1, 1, 1]))
    out = ppr(graph, torch.tensor([[1.0, 0.0]]), backend=backend)
    assert out[0].tolist() == pytest.approx([0.6, 0.4], abs=1e-6)  # x0 = .5 + x0 / 6


def test_ppr_empty_restart_gives_zeros(backend):
    graph = ppr_graph(torch.tensor([0, 1, 2]), torch.tensor([1, 0]))
    out = ppr(graph, torch.tensor([[0.0, 0.0], [1.0, 1.0]]), backend=backend)
    assert out[0].tolist() == [0.0, 0.0] and out[1].tolist() == pytest.approx([0.5, 0.5])


def test_ppr_no_questions_gives_no_rows(backend):
    graph = ppr_graph(torch.tensor([0, 1, 2]), torch.tensor([1, 0]))
    assert ppr(graph, torch.empty(0, 2), backend=backend).shape == (0, 2)


def random_graph(num_nodes=300, num_edges=2000, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sources = torch.randint(0, num_nodes - 20, (num_edges,), generator=generator).sort().values
    counts = torch.bincount(sources, minlength=num_nodes)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    weights = torch.rand(num_edges, generator=generator)
    return ppr_graph(offsets, torch.randint(0, num_nodes, (num_edges,), generator=generator), weights)


def test_ppr_batch_and_columns_do_not_change_the_bits():
    graph = random_graph()
    restart = torch.rand(70, 300, generator=torch.Generator().manual_seed(1)) ** 8
    whole = ppr(graph, restart)
    order = torch.randperm(70, generator=torch.Generator().manual_seed(2))
    assert torch.equal(ppr(graph, restart[order]), whole[order])
    assert torch.equal(ppr(graph, restart[7:8]), whole[7:8])
    assert torch.equal(ppr(graph, restart, columns=13), whole)


@pytest.mark.parametrize(("damping", "tolerance"), [(0.5, 1e-6), (0.85, 1e-5), (0.5, 0.9), (0.0, 1e-3)])
def test_ppr_residual_stays_under_the_tolerance(damping, tolerance):
    graph = random_graph()
    restart = torch.rand(5, 300, generator=torch.Generator().manual_seed(1)) ** 8
    scores = ppr(graph, restart, damping, tolerance)
    assert ppr_residual(graph, scores, restart, damping).max() <= tolerance
    assert (scores - ppr(graph, restart, damping, backend="reference")).abs().sum(1).max() <= tolerance / (1 - damping)


def test_ppr_graph_symmetric_promise_gives_the_same_walk():
    offsets, neighbours = torch.tensor([0, 2, 3, 5, 6]), torch.tensor([1, 2, 0, 0, 3, 2])
    restart = torch.eye(4)
    assert torch.equal(
        ppr(ppr_graph(offsets, neighbours, symmetric=True), restart), ppr(ppr_graph(offsets, neighbours), restart)
    )


def test_num_passes_follows_from_the_bound():
    assert num_passes(0.5, 1e-6) == 20 and num_passes(0.0, 1e-6) == 0 and num_passes(0.5, 0.9) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [({"damping": 1.0}, "damping"), ({"tolerance": 0.0}, "tolerance"), ({"columns": 0}, "columns")],
)
def test_ppr_option_out_of_range_raises_value_error(options, message):
    graph = ppr_graph(torch.tensor([0, 1, 2]), torch.tensor([1, 0]))
    with pytest.raises(ValueError, match=message):
        ppr(graph, torch.eye(2), **options)


def test_ppr_negative_restart_raises_value_error():
    with pytest.raises(ValueError, match="restart weights must be finite and at least 0"):
        ppr(ppr_graph(torch.tensor([0, 1, 2]), torch.tensor([1, 0])), torch.tensor([[1.0, -1.0]]))


def test_ppr_graph_negative_weight_raises_value_error():
    with pytest.raises(ValueError, match="weights must be finite"):
        ppr_graph(torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([-1.0]))


def test_ppr_graph_neighbour_outside_raises_index_error():
    with pytest.raises(IndexError, match="neighbours must lie in"):
        ppr_graph(torch.tensor([0, 1]), torch.tensor([1]))
