"""Where evidence is drawn as a chain, where as a graph, and that nothing overlaps in the graph."""

from hypothesis import given
from hypothesis import strategies as st

from kgrag_gpu.report.evidence import NODE_HEIGHT, as_chain, as_graph
from kgrag_gpu.types import EvidenceStep


def steps(*triples):
    return [EvidenceStep(head, relation, tail, "") for head, relation, tail in triples]


def no_kind(name):
    return ""


def test_chain_of_two_steps_keeps_the_kgs_direction():
    items = as_chain(steps(("A", "r", "B"), ("C", "s", "B")), lambda name: "anchor" if name == "A" else "")
    assert items is not None
    assert [(i.label, i.is_edge, i.is_inverse, i.kind) for i in items] == [
        ("A", False, False, "anchor"),
        ("r", True, False, ""),
        ("B", False, False, ""),
        ("s", True, True, ""),
        ("C", False, False, ""),
    ]


def test_chain_branches_breaks_and_loops_are_no_chain():
    assert as_chain(steps(("A", "r", "B"), ("A", "r", "C"), ("A", "r", "D")), no_kind) is None
    assert as_chain(steps(("A", "r", "B"), ("C", "r", "D")), no_kind) is None
    assert as_chain(steps(("A", "r", "A")), no_kind) is None
    assert as_chain(steps(("A", "r", "B"), ("B", "r", "A")), no_kind) is None


def test_chain_sentence_without_entities_is_one_node():
    items = as_chain([EvidenceStep("", "", "", "A whole sentence.")], no_kind)
    assert items is not None
    assert [item.label for item in items] == ["A whole sentence."]


def test_graph_anchors_stand_left_and_nodes_by_distance():
    view = as_graph(
        steps(("B", "r", "A"), ("B", "s", "C"), ("C", "t", "C"), ("X", "u", "Y")),
        lambda name: "anchor" if name == "A" else "",
    )
    assert {node.name: node.column for node in view.nodes} == {"B": 1, "A": 0, "C": 2, "X": 0, "Y": 1}
    assert [edge.relation for edge in view.edges] == ["r", "s", "t", "u"]


def test_graph_parallel_edges_share_a_curve():
    view = as_graph(steps(("A", "r", "B"), ("A", "s", "B"), ("A", "r", "B")), no_kind)
    assert [edge.relation for edge in view.edges] == ["r / s"]


names = st.sampled_from(["A", "B", "C", "D", "a long name that must be cut somewhere near here", "北京", "القاهرة"])


@given(st.lists(st.tuples(names, st.text(max_size=40), names), min_size=1, max_size=12))
def test_graph_any_steps_nodes_lie_inside_and_apart(triples):
    view = as_graph(steps(*triples), no_kind)
    assert {node.name for node in view.nodes} == {name for head, _, tail in triples for name in (head, tail)}
    assert len(view.edges) == len({(head, tail) for head, _, tail in triples})
    boxes = [(node.x, node.y, node.x + node.width, node.y + NODE_HEIGHT) for node in view.nodes]
    for i, (left, top, right, bottom) in enumerate(boxes):
        assert left >= 0 and top >= 0 and right <= view.width and bottom <= view.height
        for other_left, other_top, other_right, other_bottom in boxes[:i]:
            assert right <= other_left or other_right <= left or bottom <= other_top or other_bottom <= top
