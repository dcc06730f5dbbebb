"""What `method.debug` keeps of a bubble: the field, the fronts hop by hop, the meetings, and each term of the scores.

Bounded: the nodes of the candidate subgraphs, then those that the fronts came closest to, up to `MAX_NODES`; the trace
says how many more were reached. The report draws it.
"""

from typing import Any

import numpy as np

from kgrag_gpu.kg.store import Kg
from kgrag_gpu.methods.bubble_rag_search import Bubble

MAX_NODES = 45
MAX_EDGES = 150


def debug_trace(kg: Kg, bubble: Bubble) -> dict[str, Any]:
    """One question's bubble as plain values.

    Nodes have a number; `reached` lists (group, hop, cost) of each front that came there, `cost` is the node's own on
    the field. Edges are (node, node, relation); those of the best subgraph come first and are counted by `num_best`.
    """
    assert bubble.reached is not None, "the search keeps what fronts reach only where method.debug is set"
    shown = _shown(bubble)
    number = {int(node): place for place, node in enumerate(shown)}
    reached: list[list[tuple[int, int, float]]] = [[] for _ in shown]
    columns = (column.tolist() for column in bubble.reached)
    for node, group, hop, cost in zip(*columns, strict=True):
        if node in number:
            reached[number[node]].append((group, hop, round(cost, 4)))
    edges = _edges(kg, bubble, shown)
    return {
        "nodes": [
            {"name": kg.entity_names[int(node)], "cost": round(float(bubble.node_costs[int(node)]), 4),
             "reached": sorted(reached[place])}
            for place, node in enumerate(shown)
        ],
        "edges": [
            (number[int(kg.heads[edge])], number[int(kg.tails[edge])], kg.relation_names[int(kg.relations[edge])])
            for edge in edges
        ],
        "num_best": len(bubble.candidates[0].edge_ids) if bubble.candidates else 0,
        "best_nodes": [number[int(n)] for n in bubble.candidates[0].node_ids if int(n) in number]
        if bubble.candidates else [],
        "meetings": list(dict.fromkeys(number[c.meeting] for c in bubble.candidates if c.meeting in number)),
        "terms": [{name: round(value, 4) for name, value in c.terms.items()} for c in bubble.candidates],
        "num_not_shown": len(np.setdiff1d(bubble.reached.nodes, shown)),
    }  # fmt: skip


def _shown(bubble: Bubble) -> np.ndarray:
    """int64 [nodes]: of the candidates, best first, then by how close the fronts came; ties by row."""
    assert bubble.reached is not None
    held = [candidate.node_ids for candidate in bubble.candidates]
    near = np.unique(bubble.reached.nodes)
    near = near[np.lexsort((near, -bubble.closeness[near]))]
    nodes = dict.fromkeys(int(node) for part in [*held, near] for node in part)
    return np.array(list(nodes)[:MAX_NODES], dtype=np.int64)


def _edges(kg: Kg, bubble: Bubble, shown: np.ndarray) -> list[int]:
    """Edges of the best subgraph, of the other candidates, then any between nodes that are shown."""
    held = [candidate.edge_ids for candidate in bubble.candidates]
    between = np.flatnonzero(np.isin(kg.heads, shown) & np.isin(kg.tails, shown))
    inside = set(shown.tolist())
    edges = dict.fromkeys(int(edge) for part in [*held, between] for edge in part)
    kept = [edge for edge in edges if int(kg.heads[edge]) in inside and int(kg.tails[edge]) in inside]
    return kept[:MAX_EDGES]
