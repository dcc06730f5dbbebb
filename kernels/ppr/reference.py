"""The definition of ppr: one dense linear solve in float64, dangling mass sent back to the restart."""

import torch
from torch import Tensor

from kernels.ppr import PprGraph


def solve(graph: PprGraph, restart: Tensor, damping: float, _passes: int, _columns: int) -> Tensor:
    """[questions, nodes] float32."""
    num_nodes = graph.strengths.numel()
    walk = torch.zeros((num_nodes, num_nodes), dtype=torch.float64)  # [to, from]
    bounds, sources = graph.offsets.tolist(), graph.sources.tolist()
    weights = [1.0] * len(sources) if graph.weights is None else graph.weights.double().tolist()
    for node in range(num_nodes):
        for slot in range(bounds[node], bounds[node + 1]):
            walk[node, sources[slot]] += weights[slot]
    out_weights = walk.sum(0)
    walk = torch.where(out_weights > 0, walk / torch.where(out_weights > 0, out_weights, 1.0), 0.0)
    out = torch.zeros((restart.shape[0], num_nodes), dtype=torch.float64)
    for question, row in enumerate(restart.double().cpu()):
        if float(row.sum()) == 0:
            continue
        start = row / row.sum()
        with_return = walk + torch.outer(start, (out_weights == 0).double())
        system = torch.eye(num_nodes, dtype=torch.float64) - damping * with_return
        out[question] = torch.linalg.solve(system, (1 - damping) * start)
    return out.float().to(restart.device)
