"""cosine_rows: exact dot products, whatever the block."""

import pytest
import torch

from kernels import cosine_rows

QUERIES = torch.tensor([[1.0, 0.0], [0.5, -2.0]])
ROWS = torch.tensor([[3.0, 4.0], [0.25, 1.0], [0.0, 0.0]])


def test_cosine_rows_pairs_in_any_order(backend, device):
    query_ids = torch.tensor([1, 0, 1, 0], device=device)
    row_ids = torch.tensor([0, 0, 1, 2], device=device)
    out = cosine_rows(QUERIES.to(device), ROWS.to(device), query_ids, row_ids, backend=backend)
    assert out.tolist() == [-6.5, 3.0, -1.875, 0.0]
    assert out.dtype == torch.float32


def test_cosine_rows_no_pairs_gives_empty(backend):
    none = torch.empty(0, dtype=torch.int64)
    assert cosine_rows(QUERIES, ROWS, none, none, backend=backend).shape == (0,)


@pytest.mark.parametrize("dim", [1, 63, 100, 384])
def test_cosine_rows_every_block_gives_the_same_bits(dim):
    torch.manual_seed(dim)
    queries, rows = torch.randn(3, dim), torch.randn(50, dim)
    query_ids, row_ids = torch.randint(0, 3, (200,)), torch.randint(0, 50, (200,))
    whole = cosine_rows(queries, rows, query_ids, row_ids, backend="reference")
    for block in (1, 7, 64, None):
        assert torch.equal(cosine_rows(queries, rows, query_ids, row_ids, block_pairs=block), whole)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8])
def test_cosine_rows_short_types_match_the_wide_product(dtype, backend):
    rows = (ROWS * 4).to(dtype)
    out = cosine_rows(QUERIES, rows, torch.tensor([0, 1]), torch.tensor([0, 1]), backend=backend)
    assert out.tolist() == [12.0, -7.5]


def test_cosine_rows_two_doubles_give_double():
    out = cosine_rows(QUERIES.double(), ROWS.double(), torch.tensor([1]), torch.tensor([0]))
    assert out.dtype == torch.float64 and out.tolist() == [-6.5]


def test_cosine_rows_dims_differ_raises_value_error():
    with pytest.raises(ValueError, match=r"one dim \(got 2 and 3\)"):
        cosine_rows(QUERIES, torch.zeros(1, 3), torch.tensor([0]), torch.tensor([0]))


def test_cosine_rows_id_outside_raises_index_error():
    with pytest.raises(IndexError, match="row_ids must lie in"):
        cosine_rows(QUERIES, ROWS, torch.tensor([0]), torch.tensor([3]))


def test_cosine_rows_lengths_differ_raises_value_error():
    with pytest.raises(ValueError, match="one length"):
        cosine_rows(QUERIES, ROWS, torch.tensor([0, 1]), torch.tensor([0]))
