"""Graphs for the benchmarks: seeded random power laws of any size, and the real FB15k-237 where $KGRAG_DATA has it."""

import gzip
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from kernels import PprGraph, RelaxGraph, ppr_graph

DEGREE = 10  # edges drawn for each node


@dataclass(frozen=True)
class BenchGraph:
    """A graph with every edge in both directions, and the forms that ops and peers want it in."""

    name: str
    num_edges: int
    offsets: Tensor
    neighbours: Tensor

    @property
    def num_nodes(self) -> int:
        """Nodes of the graph."""
        return self.offsets.numel() - 1

    @cached_property
    def relax(self) -> RelaxGraph:
        """For frontier_relax."""
        return RelaxGraph(self.offsets, self.neighbours)

    @cached_property
    def walk(self) -> PprGraph:
        """For ppr."""
        return ppr_graph(self.offsets, self.neighbours, symmetric=True)

    @cached_property
    def short(self) -> Tensor:
        """The neighbours as int32."""
        return self.neighbours.int()

    @cached_property
    def sources(self) -> Tensor:
        """The start of each slot."""
        return torch.repeat_interleave(torch.arange(self.num_nodes), self.offsets.diff())

    @cached_property
    def igraph(self):
        """The same graph for igraph, each edge once."""
        import igraph

        once = self.sources < self.neighbours
        return igraph.Graph(n=self.num_nodes, edges=torch.stack([self.sources[once], self.neighbours[once]], 1).numpy())


def from_pairs(name: str, sources: Tensor, targets: Tensor, num_nodes: int) -> BenchGraph:
    """Both directions of the distinct pairs, without self-loops."""
    keys = torch.cat([sources * num_nodes + targets, targets * num_nodes + sources])
    keys = torch.unique_consecutive(torch.sort(keys).values)
    sources = keys // num_nodes
    keys -= sources * num_nodes
    apart = sources != keys
    sources, keys = sources[apart], keys[apart]
    offsets = torch.zeros(num_nodes + 1, dtype=torch.int64)
    offsets[1:] = torch.bincount(sources, minlength=num_nodes).cumsum(0)
    return BenchGraph(name, keys.numel() // 2, offsets, keys)


def power_law(num_edges: int, seed: int = 0, copies: int = 1) -> BenchGraph:
    """A Chung-Lu graph: node i is drawn in proportion to ``(i + 1)^-1/2``, ids shuffled.

    With ``copies`` the expected degrees of a graph of ``num_edges / copies`` edges are repeated that many times: more
    nodes and edges of equal degrees. Pairs drawn twice and self-loops are dropped (under 1 %).
    """
    num_nodes = num_edges // DEGREE
    kinds = num_nodes // copies
    random = np.random.default_rng(seed)
    shuffled = random.permutation(num_nodes)

    def ends() -> Tensor:
        kind = (kinds * random.random(num_edges) ** 2).astype(np.int64)
        return torch.from_numpy(shuffled[kind + kinds * random.integers(0, copies, num_edges)])

    name = f"power law {num_edges:.0e}".replace("e+0", "e") + (f" of {copies} equal parts" if copies > 1 else "")
    return from_pairs(name, ends(), ends(), num_nodes)


def fb15k237() -> BenchGraph | None:
    """The training triples of FB15k-237 as an undirected graph, or None where $KGRAG_DATA does not hold them."""
    path = Path(os.environ.get("KGRAG_DATA", "")) / "fb15k237" / "train.txt.gz"
    if not os.environ.get("KGRAG_DATA") or not path.is_file():
        return None
    ids: dict[str, int] = {}
    pairs = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            head, _, tail = line.rstrip("\n").split("\t")
            pairs.append((ids.setdefault(head, len(ids)), ids.setdefault(tail, len(ids))))
    heads, tails = torch.tensor(pairs).T
    return from_pairs("FB15k-237", heads, tails, len(ids))
