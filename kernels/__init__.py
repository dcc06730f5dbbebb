"""Batched tensor ops on ragged and sparse data: torch, and Triton where asked for. Knows nothing of KGs or questions.

Each op is a folder: the public wrapper with its checks, the plain reference that defines it, a vectorised torch
form, and a Triton form. Names of ops are functions here: ``from kernels import csr_expand``.
"""

from kernels.cosine_rows import cosine_rows, cosine_rows_bytes
from kernels.csr_expand import CsrSlots, csr_expand, csr_expand_bytes
from kernels.frontier_relax import (
    RelaxGraph,
    RelaxLabels,
    RelaxPaths,
    RelaxSeeds,
    frontier_relax,
    frontier_relax_bytes,
    relax_field,
    trace_paths,
)
from kernels.k_hop import KHop, k_hop, k_hop_bytes
from kernels.maxsim import maxsim, maxsim_bytes
from kernels.ppr import PprGraph, ppr, ppr_bytes, ppr_graph, ppr_residual
from kernels.segment_topk import SegmentTopk, segment_topk, segment_topk_bytes, segment_topk_mean
from kernels.triple_beam import Beams, triple_beam, triple_beam_bytes

__all__ = [
    "Beams",
    "CsrSlots",
    "KHop",
    "PprGraph",
    "RelaxGraph",
    "RelaxLabels",
    "RelaxPaths",
    "RelaxSeeds",
    "SegmentTopk",
    "cosine_rows",
    "cosine_rows_bytes",
    "csr_expand",
    "csr_expand_bytes",
    "frontier_relax",
    "frontier_relax_bytes",
    "k_hop",
    "k_hop_bytes",
    "maxsim",
    "maxsim_bytes",
    "ppr",
    "ppr_bytes",
    "ppr_graph",
    "ppr_residual",
    "relax_field",
    "segment_topk",
    "segment_topk_bytes",
    "segment_topk_mean",
    "trace_paths",
    "triple_beam",
    "triple_beam_bytes",
]
