"""Checks of shapes, ids and sizes that every public wrapper shares.

Knows nothing about what an op computes. Every message says what was got, what was expected and what to do.
Checks that read tensor values run on CPU tensors only: on a CUDA tensor they would force a synchronisation.
"""

import torch
from torch import Tensor

MAX_ITEMS = 2**31 - 1  # ids are int32 inside the kernels
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def axes(name: str, tensor: Tensor, num_axes: int) -> None:
    """Raise ``ValueError`` unless ``tensor`` has ``num_axes`` axes."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch tensor (got {type(tensor).__name__})")
    if tensor.ndim != num_axes:
        raise ValueError(f"{name} must have {num_axes} axes (got shape {tuple(tensor.shape)})")


def require_integers(name: str, tensor: Tensor, num_axes: int = 1) -> None:
    """Raise unless ``tensor`` holds integers on ``num_axes`` axes."""
    axes(name, tensor, num_axes)
    if tensor.dtype == torch.bool or tensor.is_floating_point() or tensor.is_complex():
        raise TypeError(f"{name} must hold integers (got {tensor.dtype}); pass int64 ids or offsets")


def integers(name: str, tensor: Tensor, num_axes: int = 1) -> Tensor:
    """Return ``tensor`` as int64 after checking that it holds integers on ``num_axes`` axes."""
    require_integers(name, tensor, num_axes)
    return tensor.long()


def floats(name: str, tensor: Tensor, num_axes: int, also: tuple[torch.dtype, ...] = ()) -> None:
    """Raise unless ``tensor`` holds floating point numbers (or one of ``also``) on ``num_axes`` axes."""
    axes(name, tensor, num_axes)
    if tensor.dtype not in _FLOATS + also:
        raise TypeError(f"{name} must hold floating point numbers (got {tensor.dtype})")


def same_device(**tensors: Tensor | None) -> torch.device:
    """Return the device the tensors share, or raise ``ValueError`` naming those that differ."""
    devices = {name: tensor.device for name, tensor in tensors.items() if tensor is not None}
    if len(set(devices.values())) > 1:
        listed = ", ".join(f"{name} on {device}" for name, device in devices.items())
        raise ValueError(f"all tensors must be on one device (got {listed}); move them with .to(device)")
    return next(iter(devices.values()))


def same_length(**tensors: Tensor) -> int:
    """Return the length the tensors share on their first axis, or raise ``ValueError``."""
    lengths = {name: tensor.shape[0] for name, tensor in tensors.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"first axes must be of one length (got {lengths})")
    return next(iter(lengths.values()))


def ids_below(name: str, ids: Tensor, limit: int, what: str) -> None:
    """Raise ``IndexError`` where an id lies outside 0..limit-1 (CPU tensors only)."""
    if ids.device.type != "cpu" or ids.numel() == 0:
        return
    low, high = (int(bound) for bound in torch.aminmax(ids))
    if low < 0 or high >= limit:
        raise IndexError(f"{name} must lie in 0..{limit - 1}, the rows of {what} (got {low}..{high})")


def offsets_over(name: str, offsets: Tensor, total: int, what: str) -> Tensor:
    """Return ragged pointers as int64 after checking that they rise from 0 to ``total``."""
    offsets = integers(name, offsets)
    if offsets.numel() == 0:
        raise ValueError(f"{name} must hold one entry more than there are segments (got an empty tensor)")
    if offsets.device.type == "cpu":
        first, last = int(offsets[0]), int(offsets[-1])
        if first != 0 or last != total:
            raise ValueError(f"{name} must run from 0 to {total}, the length of {what} (got {first}..{last})")
        if bool((offsets[1:] < offsets[:-1]).any()):
            raise ValueError(f"{name} must never fall; got a segment of negative length")
    return offsets


def items_fit(name: str, count: int, remedy: str) -> None:
    """Raise ``OverflowError`` where a count would not fit the kernels' int32 ids."""
    if count > MAX_ITEMS:
        raise OverflowError(f"{count} {name} are more than 2^31 - 1, the most that int32 ids can number; {remedy}")
