"""segment_topk and segment_topk_mean: exact values, ties, padding and limits."""

import pytest
import torch

from kernels import segment_topk, segment_topk_mean

INF = float("inf")
SCORES = torch.tensor([1.0, 3.0, 3.0, 2.0, -0.0, 0.0, -5.0])
OFFSETS = torch.tensor([0, 4, 4, 7])


def test_segment_topk_ties_go_to_lowest_index_and_rest_is_padded(backend, device):
    values, indices = segment_topk(SCORES.to(device), OFFSETS.to(device), 2, backend=backend)
    assert indices.tolist() == [[1, 2], [-1, -1], [4, 5]]
    assert values.tolist() == [[3.0, 3.0], [-INF, -INF], [0.0, 0.0]]


def test_segment_topk_k_past_the_length_pads_each_row(backend, device):
    values, indices = segment_topk(SCORES.to(device), OFFSETS.to(device), 5, backend=backend)
    assert indices.tolist() == [[1, 2, 3, 0, -1], [-1] * 5, [4, 5, 6, -1, -1]]
    assert values[2].tolist() == [0.0, 0.0, -5.0, -INF, -INF]


def test_segment_topk_infinite_scores_keep_their_place(backend, device):
    scores = torch.tensor([-INF, 1.0, INF, -INF], device=device)
    _, indices = segment_topk(scores, torch.tensor([0, 4], device=device), 4, backend=backend)
    assert indices.tolist() == [[2, 1, 0, 3]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_segment_topk_every_float_type_keeps_its_type(dtype, backend):
    values, indices = segment_topk(SCORES.to(dtype), OFFSETS, 1, backend=backend)
    assert values.dtype == dtype and indices.tolist() == [[1], [-1], [4]]


def test_segment_topk_float64_neighbours_are_told_apart(backend):
    scores = torch.tensor([1.0, 1.0 + 1e-15, 1.0], dtype=torch.float64)
    assert segment_topk(scores, torch.tensor([0, 3]), 3, backend=backend).indices.tolist() == [[1, 0, 2]]


def test_segment_topk_hub_of_100000_ties_gives_first_places():
    _, indices = segment_topk(torch.zeros(100_001), torch.tensor([0, 1, 100_001]), 3)
    assert indices.tolist() == [[0, -1, -1], [1, 2, 3]]


def test_segment_topk_no_segments_gives_empty(backend):
    values, indices = segment_topk(torch.empty(0), torch.tensor([0]), 3, backend=backend)
    assert values.shape == indices.shape == (0, 3)


def test_segment_topk_nan_raises_value_error():
    with pytest.raises(ValueError, match="NaN"):
        segment_topk(torch.tensor([1.0, float("nan")]), torch.tensor([0, 2]), 1)


def test_segment_topk_k_zero_raises_value_error():
    with pytest.raises(ValueError, match="k must be at least 1"):
        segment_topk(SCORES, OFFSETS, 0)


@pytest.mark.parametrize("offsets", [[0, 4], [1, 7], [0, 5, 3, 7], []])
def test_segment_topk_offsets_that_do_not_fit_raise_value_error(offsets):
    with pytest.raises(ValueError, match="offsets must"):
        segment_topk(SCORES, torch.tensor(offsets, dtype=torch.int64), 1)


def test_segment_topk_mean_short_and_empty_segments(backend, device):
    means = segment_topk_mean(SCORES.to(device), OFFSETS.to(device), 3, backend=backend)
    assert means.tolist() == [pytest.approx(8 / 3), -INF, pytest.approx(-5 / 3)]


def test_segment_topk_mean_empty_option_sets_the_value(backend):
    assert segment_topk_mean(SCORES, OFFSETS, 100, empty=0.0, backend=backend).tolist() == [
        2.25,
        0.0,
        pytest.approx(-5 / 3),
    ]
