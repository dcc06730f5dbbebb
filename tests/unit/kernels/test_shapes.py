"""The jaxtyping annotations of the public wrappers hold for real calls, and refuse wrong shapes."""

import pytest
import torch

import kernels

beartype = pytest.importorskip("beartype", reason="beartype is not installed")
jaxtyping = pytest.importorskip("jaxtyping")
IDS = torch.tensor([0, 1])
SEEDS = kernels.RelaxSeeds(IDS, IDS, IDS)
GRAPH = kernels.RelaxGraph(torch.tensor([0, 1, 2]), torch.tensor([1, 0]))

CALLS = {
    "csr_expand": (torch.tensor([0, 1, 2]), IDS),
    "segment_topk": (torch.rand(4), torch.tensor([0, 1, 4]), 2),
    "segment_topk_mean": (torch.rand(4), torch.tensor([0, 1, 4]), 2),
    "cosine_rows": (torch.rand(2, 3), torch.rand(5, 3), IDS, IDS),
    "maxsim": (torch.rand(4, 3), torch.tensor([[0, 2], [2, 4]]), torch.rand(5, 3), torch.tensor([0, 5])),
    "ppr_graph": (torch.tensor([0, 1, 2]), IDS, torch.rand(2)),
    "ppr": (kernels.ppr_graph(torch.tensor([0, 1, 2]), IDS), torch.rand(3, 2)),
    "triple_beam": (torch.rand(2), IDS, IDS, 2),
    "frontier_relax": (GRAPH, SEEDS, torch.rand(2, 2)),
    "relax_field": (GRAPH, SEEDS, torch.rand(2, 2)),
}


def checked(name):
    """The wrapper with its annotations enforced."""
    return jaxtyping.jaxtyped(typechecker=beartype.beartype)(getattr(kernels, name))


@pytest.mark.parametrize("name", CALLS)
def test_wrapper_annotations_hold_for_a_real_call(name):
    options = {"num_hops": 1} if name in ("frontier_relax", "relax_field") else {}
    checked(name)(*CALLS[name], **options)


@pytest.mark.parametrize("name", ["csr_expand", "segment_topk", "cosine_rows", "ppr", "triple_beam"])
def test_wrapper_annotations_refuse_a_further_axis(name):
    arguments = [value[None] if isinstance(value, torch.Tensor) else value for value in CALLS[name]]
    with pytest.raises(jaxtyping.TypeCheckError):
        checked(name)(*arguments)
