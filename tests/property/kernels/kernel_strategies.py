"""Random graphs and ragged data: empty, self-loops, duplicate edges, isolated nodes, ties."""

import importlib.util

import torch
from hypothesis import strategies as st

FAST_BACKENDS = ["torch"] + (["triton"] if importlib.util.find_spec("triton") else [])


@st.composite
def csr_graphs(draw, max_nodes=8, max_edges=20, both_ways=False):
    """(offsets, neighbours): a directed multigraph, or one with each edge in both directions."""
    num_nodes = draw(st.integers(1, max_nodes))
    node = st.integers(0, num_nodes - 1)
    edges = draw(st.lists(st.tuples(node, node), max_size=max_edges))
    if both_ways:
        edges = edges + [(tail, head) for head, tail in edges]
    rows = [[tail for head, tail in edges if head == row] for row in range(num_nodes)]
    offsets = [0]
    for row in rows:
        offsets.append(offsets[-1] + len(row))
    flat = [tail for row in rows for tail in row]
    return torch.tensor(offsets), torch.tensor(flat, dtype=torch.int64)


@st.composite
def ragged_scores(draw, max_segments=6, max_length=9):
    """(scores, offsets) with many ties."""
    lengths = draw(st.lists(st.integers(0, max_length), max_size=max_segments))
    few = st.sampled_from([-1.5, -0.0, 0.0, 0.25, 1.0, float("inf"), float("-inf")])
    scores = draw(st.lists(few | st.floats(-4, 4, width=16), min_size=sum(lengths), max_size=sum(lengths)))
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    return torch.tensor(scores, dtype=torch.float32), offsets
