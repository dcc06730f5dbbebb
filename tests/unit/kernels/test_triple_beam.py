"""triple_beam: the decay within a parent, the best of a question, ties and questions with nothing."""

import math

import pytest
import torch

from kernels import triple_beam

INF = float("inf")
# parents 0 and 1 belong to question 0, parent 2 to question 2; question 1 has nothing
PARENTS = torch.tensor([0, 0, 2])
SCORES = torch.tensor([1.0, 0.9, 0.95, 0.5, 0.5, 0.8])
PARENT_IDS = torch.tensor([0, 0, 1, 2, 2, 0])


@pytest.fixture(params=["reference", "torch"])
def backend(request):
    """This op has no Triton form: torch's own calls are all of it."""
    return request.param


def test_triple_beam_second_child_yields_to_another_parent(backend, device):
    beams = triple_beam(
        SCORES.to(device), PARENT_IDS.to(device), PARENTS.to(device), 3, beam_width=2, gamma=4, backend=backend
    )
    assert beams.indices.tolist() == [[0, 2], [-1, -1], [3, 4]]
    assert beams.raw_scores.tolist() == [[1.0, pytest.approx(0.95)], [-INF, -INF], [0.5, 0.5]]
    assert beams.scores[2].tolist() == [0.5, pytest.approx(0.5 * math.exp(-1 / 4))]


def test_triple_beam_rank_past_gamma_decays_no_further(backend):
    scores = torch.tensor([4.0, 3.0, 2.0, 1.0])
    beams = triple_beam(
        scores, torch.zeros(4, dtype=torch.int64), torch.tensor([0]), 1, beam_width=4, gamma=2, backend=backend
    )
    expected = [4.0, 3.0 * math.exp(-0.5), 2.0 * math.exp(-1), 1.0 * math.exp(-1)]
    assert beams.scores[0].tolist() == pytest.approx(expected)


def test_triple_beam_default_gamma_is_twice_the_width(backend):
    beams = triple_beam(torch.ones(2), torch.tensor([0, 0]), torch.tensor([0]), 1, beam_width=5, backend=backend)
    assert beams.scores[0, 1].item() == pytest.approx(math.exp(-1 / 10))


def test_triple_beam_ties_go_to_the_lower_row(backend):
    beams = triple_beam(
        torch.ones(4), torch.tensor([1, 0, 1, 0]), torch.tensor([0, 0]), 1, beam_width=3, backend=backend
    )
    assert beams.indices.tolist() == [[0, 1, 2]]


def test_triple_beam_no_candidates_pads_everything(backend):
    none = torch.empty(0, dtype=torch.int64)
    beams = triple_beam(torch.empty(0), none, none, 2, beam_width=2, backend=backend)
    assert beams.indices.tolist() == [[-1, -1], [-1, -1]] and beams.scores.tolist() == [[-INF, -INF], [-INF, -INF]]


@pytest.mark.parametrize(("options", "message"), [({"beam_width": 0}, "beam_width"), ({"gamma": 0.0}, "gamma")])
def test_triple_beam_option_out_of_range_raises_value_error(options, message):
    with pytest.raises(ValueError, match=message):
        triple_beam(SCORES, PARENT_IDS, PARENTS, 3, **options)


def test_triple_beam_parent_outside_raises_index_error():
    with pytest.raises(IndexError, match="parent_ids must lie in"):
        triple_beam(SCORES, PARENT_IDS + 1, PARENTS, 3)
