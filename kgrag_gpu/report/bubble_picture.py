"""A bubble made ready for drawing: nodes in their groups' colours, meetings ringed, the best subgraph bold.

Only places and labels are worked out here; the template draws. A node has the colour of the group whose front came
cheapest; paler ones are farther away on the cost field.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np

from kgrag_gpu.report.evidence import shorten

WIDTH, HEIGHT, _MARGIN = 900.0, 520.0, 70.0
NUM_COLOURS = 6  # classes g0 to g5 of the page's style
_MAX_LABEL = 26


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node: centre and radius in pixels, the number of its colour (-1: no front came), how pale it is."""

    name: str
    label: str
    detail: str
    x: float
    y: float
    radius: float
    colour: int
    opacity: float
    is_meeting: bool
    is_best: bool


@dataclass(frozen=True, slots=True)
class PlacedEdge:
    """An edge as a straight line, with its relation; `is_best` edges belong to the best subgraph."""

    start: tuple[float, float]
    end: tuple[float, float]
    relation: str
    is_best: bool


@dataclass(frozen=True, slots=True)
class BubblePicture:
    """The picture, its legend (group, its colour) and how many reached nodes are left out."""

    nodes: list[PlacedNode]
    edges: list[PlacedEdge]
    legend: list[tuple[str, int]]
    num_not_shown: int


def bubble_picture(trace: Mapping[str, Any]) -> BubblePicture | None:
    """The picture of a trace that holds a `bubble` (method.debug); None where there is none or nothing was reached."""
    bubble = trace.get("bubble")
    if not bubble or not bubble["nodes"]:
        return None
    places = _places(len(bubble["nodes"]), bubble["edges"])
    groups = [str(group["text"]) for group in trace["groups"]]
    meetings, best = set(bubble["meetings"]), set(bubble["best_nodes"])
    nodes = [
        _node(node, places[i], groups, i in meetings, i in best) for i, node in enumerate(bubble["nodes"])
    ]  # fmt: skip
    joined: dict[tuple[int, int], list[str]] = {}  # parallel edges are one line; those of the best subgraph come first
    for head, tail, relation in bubble["edges"]:
        joined.setdefault((min(head, tail), max(head, tail)), []).append(relation)
    num_best = len({tuple(sorted(edge[:2])) for edge in bubble["edges"][: bubble["num_best"]]})
    edges = [
        PlacedEdge(places[head], places[tail], " / ".join(dict.fromkeys(relations)), number < num_best)
        for number, ((head, tail), relations) in enumerate(joined.items())
    ]
    legend = [(shorten(text, 60), number % NUM_COLOURS) for number, text in enumerate(groups)]
    return BubblePicture(nodes, edges, legend, bubble["num_not_shown"])


def _places(num_nodes: int, edges: Sequence[Sequence[Any]]) -> list[tuple[float, float]]:
    """Centres in pixels by a force-directed layout with a fixed seed, each axis stretched over the picture."""
    graph = nx.Graph()
    graph.add_nodes_from(range(num_nodes))
    graph.add_edges_from((head, tail) for head, tail, _ in edges if head != tail)
    layout = nx.spring_layout(graph, k=3.5 / max(1.0, num_nodes**0.5), iterations=300, seed=0)
    found = np.array([layout[i] for i in range(num_nodes)], dtype=np.float64)
    low, high = found.min(0), found.max(0)
    share = np.where(high > low, (found - low) / np.where(high > low, high - low, 1.0), 0.5)
    size = np.array([WIDTH - 2 * _MARGIN, HEIGHT - 2 * _MARGIN])
    return [(float(x), float(y)) for x, y in (_MARGIN + share * size).round(1)]


def _node(
    node: Mapping[str, Any], place: tuple[float, float], groups: Sequence[str], is_meeting: bool, is_best: bool
) -> PlacedNode:
    fronts = sorted(node["reached"], key=lambda front: (front[2], front[0]))
    cheapest = fronts[0] if fronts else None
    told = [f"{groups[group]}: hop {hop}, cost {cost:.3g}" for group, hop, cost in fronts]
    name = str(node["name"])
    return PlacedNode(
        name=name,
        label=shorten(name, _MAX_LABEL) if is_best or is_meeting else "",
        detail="\n".join([name, f"own cost {node['cost']:.3g}", *told]),
        x=place[0],
        y=place[1],
        radius=11.0 if is_meeting else 8.0 if is_best else 5.5,
        colour=cheapest[0] % NUM_COLOURS if cheapest else -1,
        opacity=round(max(0.3, 1.0 - 0.35 * cheapest[2]), 2) if cheapest else 0.3,
        is_meeting=is_meeting,
        is_best=is_best,
    )
