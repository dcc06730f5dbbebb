"""ppr against the dense solve and triple_beam against loops over lists, on random data."""

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_strategies import csr_graphs

from kernels import k_hop, ppr, ppr_graph, ppr_residual, triple_beam

common = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


@common
@given(graph=csr_graphs(), data=st.data(), weighted=st.booleans())
def test_ppr_any_graph_equals_the_dense_solve(graph, data, weighted):
    offsets, neighbours = graph
    weights = None
    if weighted:
        drawn = data.draw(
            st.lists(st.sampled_from([0.0, 0.5, 3.0]), min_size=len(neighbours), max_size=len(neighbours))
        )
        weights = torch.tensor(drawn)
    num_nodes = offsets.numel() - 1
    rows = data.draw(
        st.lists(st.lists(st.sampled_from([0.0, 1.0, 0.25]), min_size=num_nodes, max_size=num_nodes), max_size=3)
    )
    restart = torch.tensor(rows).reshape(-1, num_nodes)
    prepared = ppr_graph(offsets, neighbours, weights)
    expected = ppr(prepared, restart, backend="reference")
    actual = ppr(prepared, restart)
    assert (actual - expected).abs().sum(1).max() <= 3e-6 if len(rows) else actual.shape == expected.shape
    coarse = ppr(prepared, restart, damping=0.7, tolerance=0.05)
    filled = restart.sum(1) > 0
    assert (ppr_residual(prepared, coarse, restart, damping=0.7)[filled] <= 0.05 + 1e-6).all()
    for row in range(len(rows)):
        assert torch.equal(ppr(prepared, restart[row : row + 1]), actual[row : row + 1])


@common
@given(data=st.data(), width=st.integers(1, 4), gamma=st.sampled_from([0.5, 2.0, 20.0]))
def test_triple_beam_any_candidates_equals_the_loops(data, width, gamma):
    parents = data.draw(st.lists(st.integers(0, 2), max_size=4))
    size = data.draw(st.integers(0, 12)) if parents else 0
    owners = data.draw(st.lists(st.integers(0, max(len(parents) - 1, 0)), min_size=size, max_size=size))
    few = st.sampled_from([-0.5, -0.0, 0.0, 0.5, 0.9, 1.0])
    scores = torch.tensor(data.draw(st.lists(few, min_size=size, max_size=size)))
    arguments = (torch.tensor(owners, dtype=torch.int64), torch.tensor(parents, dtype=torch.int64), 3)
    expected = triple_beam(scores, *arguments, beam_width=width, gamma=gamma, backend="reference")
    actual = triple_beam(scores, *arguments, beam_width=width, gamma=gamma)
    assert torch.equal(actual.indices, expected.indices)
    assert torch.equal(actual.scores, expected.scores)
    assert torch.equal(actual.raw_scores, expected.raw_scores)


@common
@given(graph=csr_graphs(both_ways=True), data=st.data(), num_hops=st.integers(0, 4))
def test_k_hop_both_forms_equal_the_search(graph, data, num_hops):
    offsets, neighbours = graph
    seed = st.tuples(st.integers(0, offsets.numel() - 2), st.integers(0, 2))
    seeds = torch.tensor(data.draw(st.lists(seed, max_size=5)), dtype=torch.int64).reshape(-1, 2)
    arguments = (offsets, neighbours, seeds[:, 0], seeds[:, 1], 3, num_hops)
    expected = k_hop(*arguments, backend="reference")
    for form in ("lists", "bits", "auto"):
        actual = k_hop(*arguments, form=form)
        assert torch.equal(actual.offsets, expected.offsets) and torch.equal(actual.node_ids, expected.node_ids)
