"""Picks the form of an op: the plain reference, vectorised torch, or Triton.

``auto`` is torch on every device. The Triton forms are opt-in (``backend="triton"``) until
``python -m pipelines.bench kernels`` has recorded on a GPU that they beat torch there.
"""

import importlib.util

BACKENDS = ("auto", "reference", "torch", "triton")


def has_triton() -> bool:
    """True where the triton package can be found; it is not imported here."""
    return importlib.util.find_spec("triton") is not None


def choose(backend: str, op: str, has_triton_form: bool = True) -> str:
    """Return the backend to run, or raise with the reason why the one asked for cannot be had."""
    if backend not in BACKENDS:
        raise ValueError(f"backend of {op} must be one of {', '.join(BACKENDS)} (got {backend!r})")
    if backend == "triton":
        if not has_triton_form:
            raise ValueError(f"{op} has no Triton form; use backend='torch'")
        if not has_triton():
            raise ImportError(f"{op}: backend='triton' needs the triton package; pip install triton or use 'torch'")
    return "torch" if backend == "auto" else backend
