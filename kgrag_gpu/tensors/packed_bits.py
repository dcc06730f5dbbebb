"""Booleans at one bit each, for columns as long as a graph's edges."""

import torch
from jaxtyping import Bool, Int64, UInt8
from torch import Tensor


def pack_bits(mask: Bool[Tensor, " rows"]) -> UInt8[Tensor, " bytes"]:
    """Bit i of byte j is row 8 * j + i; the last byte is filled up with zeros."""
    padded = torch.zeros(-(-len(mask) // 8) * 8, dtype=torch.uint8, device=mask.device)
    padded[: len(mask)] = mask
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=mask.device)
    return (padded.view(-1, 8) * weights).sum(1, dtype=torch.uint8)


def bits_at(packed: UInt8[Tensor, " bytes"], rows: Int64[Tensor, " rows"]) -> Bool[Tensor, " rows"]:
    """The booleans of `rows`."""
    return ((packed[rows >> 3] >> (rows & 7).to(torch.uint8)) & 1).bool()
