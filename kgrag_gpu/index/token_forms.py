"""How token states are stored: as they are (fp16), or projected on their main directions and rounded to int8.

Everything here is exact arithmetic followed by one rounding, so a state's stored bits depend on nothing but the state:
fp16 components and basis components lie on fixed grids, and float64 holds every sum of their products.
"""

from typing import Literal

import numpy as np
import torch

from kgrag_gpu.tensors.fixed_point import SCALE, to_fixed

Form = Literal["fp16", "int8"]
_LARGEST = 127
_GRID = 2.0**11  # states are put on this grid for the basis, so that the sums of its moment matrix are exact
_BLOCK_ROWS = 65_536


def fit_basis(states: np.ndarray, num_directions: int) -> np.ndarray:
    """The main directions of unit states, uncentred (what is kept are inner products, not distances to a mean).

    Args:
        states: float16 [tokens, dim].
        num_directions: rows wanted, at most dim.

    Returns:
        int16 [num_directions, dim] in fixed point, the direction of largest moment first; signs are fixed.
    """
    dim = states.shape[1]
    moments = torch.zeros(dim, dim, dtype=torch.float64)
    for start in range(0, len(states), _BLOCK_ROWS):
        block = torch.from_numpy(np.rint(states[start : start + _BLOCK_ROWS].astype(np.float64) * _GRID))
        moments += block.T @ block
    _, vectors = np.linalg.eigh(moments.numpy())
    basis = vectors[:, ::-1].T[:num_directions]
    largest = np.abs(basis).argmax(axis=1)
    signs = np.sign(basis[np.arange(len(basis)), largest])
    return to_fixed(basis * signs[:, None])


def project(states: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """Components of states along the basis, brought back to unit norm: float64 [tokens, directions].

    The products are exact, so a row does not depend on the batch. Without the norm a match would seem the weaker the
    more of a state lies outside the basis, and cosines would lose their scale.
    """
    products = torch.from_numpy(states.astype(np.float64)) @ torch.from_numpy(basis.astype(np.float64)).T
    components = products.numpy() * SCALE
    norms = np.sqrt((components * components).sum(axis=1, keepdims=True))
    return components / np.where(norms > 0, norms, 1.0)


def to_int8(components: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rounds rows to int8 with one float32 scale each: `components ~ rounded * scale`.

    Args:
        components: float64 [tokens, directions].

    Returns:
        int8 [tokens, directions] within -127..127 and float32 [tokens]; a row of zeros has scale 0.
    """
    largest = np.abs(components).max(axis=1, initial=0.0)
    scales = (largest / _LARGEST).astype(np.float32)
    divisors = np.where(scales > 0, scales.astype(np.float64), 1.0)
    rounded = np.clip(np.rint(components / divisors[:, None]), -_LARGEST, _LARGEST)
    return rounded.astype(np.int8), scales


def store_int8(states: np.ndarray, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`to_int8(project(states, basis))`, block by block so that the float64 copy stays small."""
    rows = np.zeros((len(states), len(basis)), dtype=np.int8)
    scales = np.zeros(len(states), dtype=np.float32)
    for start in range(0, len(states), _BLOCK_ROWS):
        stop = start + _BLOCK_ROWS
        rows[start:stop], scales[start:stop] = to_int8(project(states[start:stop], basis))
    return rows, scales
