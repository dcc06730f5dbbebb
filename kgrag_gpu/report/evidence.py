"""Evidence paths made ready for drawing: a chain where the steps follow each other, else a small layered graph.

Only places and labels are worked out here; the template draws. Labels are plain text, never markup.
"""

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kgrag_gpu.results import walk_steps
from kgrag_gpu.types import EvidenceStep

NODE_HEIGHT = 34
_COLUMN_GAP = 160
_ROW_GAP = 26
_MARGIN = 12
_CHAR_WIDTH = 7.3  # of the page's 13 px sans serif, on the generous side
_MAX_LABEL = 30
_MAX_RELATION = 22


@dataclass(frozen=True, slots=True)
class ChainItem:
    """A node of a chain, or the arrow between two: `is_inverse` points back to the left."""

    label: str
    is_edge: bool = False
    is_inverse: bool = False
    kind: str = ""


@dataclass(slots=True)
class GraphNode:
    """A placed node: upper left corner and size in pixels."""

    name: str
    label: str
    kind: str
    column: int
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """A drawn edge: SVG path data from head to tail, and where its label stands."""

    curve: str
    relation: str
    label: str
    label_x: float
    label_y: float


@dataclass(slots=True)
class GraphView:
    """A placed graph and its size in pixels."""

    nodes: list[GraphNode] = field(default_factory=list)
    edges: list[GraphEdge] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0


def shorten(text: str, limit: int) -> str:
    """The text, cut with an ellipsis past the limit."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def as_chain(steps: Sequence[EvidenceStep], kind_of: Callable[[str], str]) -> list[ChainItem] | None:
    """The steps as a chain from left to right; None where they branch, break or come back to a node.

    Args:
        steps: of one path.
        kind_of: name -> "anchor", "answer", "gold" or "", for the node's colour.
    """
    items: list[ChainItem] = []
    seen: set[str] = set()
    current: str | None = None
    for start, end, step in walk_steps(steps):
        if current is None:
            items.append(ChainItem(start, kind=kind_of(start)))
            seen.add(start)
        elif start != current:
            return None
        if not end:
            return items if len(steps) == 1 else None
        if end in seen:
            return None
        inverse = start != step.head
        items.append(ChainItem(step.relation or "·", is_edge=True, is_inverse=inverse))
        items.append(ChainItem(end, kind=kind_of(end)))
        seen.add(end)
        current = end
    return items


def as_graph(steps: Sequence[EvidenceStep], kind_of: Callable[[str], str]) -> GraphView:
    """The steps as a layered graph: anchors (or the first node) on the left, every node as near as it can be.

    Parts that hang together with no anchor start in the first column too. Parallel edges share one curve with joined
    labels; a self-loop is a label over its node.
    """
    edges: dict[tuple[str, str], list[str]] = {}
    names: dict[str, None] = {}
    for step in steps:
        head, tail = step.head or shorten(step.text, _MAX_LABEL), step.tail
        names[head] = None
        if tail:
            names[tail] = None
            edges.setdefault((head, tail), []).append(step.relation)
    columns = _columns(list(names), list(edges), kind_of)
    view = GraphView()
    placed = {
        name: GraphNode(name, shorten(name, _MAX_LABEL), kind_of(name), column) for name, column in columns.items()
    }
    view.nodes = list(placed.values())
    _place(view, list(edges))
    for (head, tail), relations in edges.items():
        view.edges.append(_edge(placed[head], placed[tail], " / ".join(dict.fromkeys(relations))))
    return view


def _columns(names: list[str], edges: list[tuple[str, str]], kind_of: Callable[[str], str]) -> dict[str, int]:
    """Column of every node by breadth-first distance from the anchors; unreached parts start anew at column 0."""
    neighbours: dict[str, list[str]] = {name: [] for name in names}
    for head, tail in edges:
        neighbours[head].append(tail)
        neighbours[tail].append(head)
    columns: dict[str, int] = {}
    starts = [name for name in names if kind_of(name) == "anchor"] or names[:1]
    while starts:
        frontier, column = starts, 0
        while frontier:
            for name in frontier:
                columns.setdefault(name, column)
            frontier = list(dict.fromkeys(n for name in frontier for n in neighbours[name] if n not in columns))
            column += 1
        starts = [name for name in names if name not in columns][:1]
    return columns


def _place(view: GraphView, edges: list[tuple[str, str]]) -> None:
    """Gives every node its corner; within a column nodes stand in the order of their neighbours to the left."""
    by_column: dict[int, list[GraphNode]] = {}
    for node in view.nodes:
        node.width = max(48.0, _text_width(node.label) + 24)
        by_column.setdefault(node.column, []).append(node)
    neighbours: dict[str, list[str]] = {node.name: [] for node in view.nodes}
    for head, tail in edges:
        neighbours[head].append(tail)
        neighbours[tail].append(head)
    rows: dict[str, float] = {}
    tallest = max(len(nodes) for nodes in by_column.values())
    x = float(_MARGIN)
    for column in sorted(by_column):
        nodes = by_column[column]
        nodes.sort(key=lambda node: _barycentre([rows[n] for n in neighbours[node.name] if n in rows], tallest))
        offset = (tallest - len(nodes)) / 2
        for i, node in enumerate(nodes):
            node.x, node.y = x, _MARGIN + 14 + (offset + i) * (NODE_HEIGHT + _ROW_GAP)
        rows.update({node.name: offset + i for i, node in enumerate(nodes)})
        x += max(node.width for node in nodes) + _COLUMN_GAP
    view.width = x - _COLUMN_GAP + _MARGIN
    view.height = 2 * _MARGIN + 14 + tallest * (NODE_HEIGHT + _ROW_GAP) - _ROW_GAP
    if any(node_a.column == node_b.column for node_a, node_b in _ends(view, edges)):
        view.width += 70  # edges within a column bulge to the right


def _barycentre(rows: list[float], without: float) -> float:
    return sum(rows) / len(rows) if rows else float(without)


def _text_width(text: str) -> float:
    return _CHAR_WIDTH * sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _ends(view: GraphView, edges: list[tuple[str, str]]) -> list[tuple[GraphNode, GraphNode]]:
    placed = {node.name: node for node in view.nodes}
    return [(placed[head], placed[tail]) for head, tail in edges]


def _edge(head: GraphNode, tail: GraphNode, relation: str) -> GraphEdge:
    label = shorten(relation, _MAX_RELATION)
    y1, y2 = head.y + NODE_HEIGHT / 2, tail.y + NODE_HEIGHT / 2
    if head is tail:
        x = head.x + head.width / 2
        top = head.y - 22
        curve = f"M{x - 14:.1f},{head.y:.1f} C{x - 22:.1f},{top:.1f} {x + 22:.1f},{top:.1f} {x + 14:.1f},{head.y:.1f}"
        return GraphEdge(curve, relation, label, x, head.y - 12)
    if head.column == tail.column:
        x1, x2 = head.x + head.width, tail.x + tail.width
        bulge = max(x1, x2) + 46
        curve = f"M{x1:.1f},{y1:.1f} C{bulge:.1f},{y1:.1f} {bulge:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"
        return GraphEdge(curve, relation, label, bulge, (y1 + y2) / 2)
    forward = head.column < tail.column
    x1, x2 = (head.x + head.width, tail.x) if forward else (head.x, tail.x + tail.width)
    middle = (x1 + x2) / 2
    curve = f"M{x1:.1f},{y1:.1f} C{middle:.1f},{y1:.1f} {middle:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"
    return GraphEdge(curve, relation, label, middle, (y1 + y2) / 2 - 5)
