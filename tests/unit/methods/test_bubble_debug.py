"""BubbleRAG's debug output, its picture, and a hub of many edges."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from anchor_rag_case import WordResources, question, resources_of, triple_kg, word_vectors

from kgrag_gpu.config.load import load_run_config
from kgrag_gpu.kg.store import make_kg
from kgrag_gpu.methods.bubble_rag import BubbleRag, BubbleRagConfig
from kgrag_gpu.methods.bubble_rag_debug import MAX_NODES
from kgrag_gpu.report.bubble_picture import HEIGHT, WIDTH, bubble_picture

TEXT = "Was the director of Silver Harbour married to the director of Copper Gate?"


def retrieve(tmp_path, **config):
    method = BubbleRag(BubbleRagConfig.model_validate(config), resources_of(triple_kg(), tmp_path))
    return method.retrieve([question(TEXT), question("What is it?", 1)])


def test_debug_trace_holds_field_fronts_meetings_and_terms(tmp_path):
    found, nothing = retrieve(tmp_path, debug=True)
    bubble = found.trace["bubble"]
    names = [node["name"] for node in bubble["nodes"]]
    assert len(names) == len(set(names)) <= MAX_NODES
    assert {"Silver Harbour", "Copper Gate", "Ada Lindqvist", "Otto Falk"} <= set(names)
    groups = [group["text"] for group in found.trace["groups"]]
    start = next(node for node in bubble["nodes"] if node["name"] == "Silver Harbour")
    assert [groups.index("Silver Harbour"), 0, 0.0] in [list(front) for front in start["reached"]]
    for place in bubble["meetings"]:
        assert len({group for group, _, _ in bubble["nodes"][place]["reached"]}) > 1
    assert set(bubble["terms"][0]) == {"coverage", "structure", "evidence", "diversity"}
    best = {(names[head], relation, names[tail]) for head, tail, relation in bubble["edges"][: bubble["num_best"]]}
    assert best == {(step.head, step.relation, step.tail) for step in found.evidence[0].steps}
    assert nothing.trace["bubble"]["nodes"] == []


def test_debug_off_keeps_no_bubble_and_finds_the_same(tmp_path):
    with_debug, without = retrieve(tmp_path, debug=True)[0], retrieve(tmp_path)[0]
    assert "bubble" not in without.trace
    assert without.evidence == with_debug.evidence


def test_picture_places_every_node_inside_and_marks_meetings_and_the_best_subgraph(tmp_path):
    found, nothing = retrieve(tmp_path, debug=True)
    picture = bubble_picture(found.trace)
    assert picture is not None
    assert all(0 < node.x < WIDTH and 0 < node.y < HEIGHT for node in picture.nodes)
    bubble = found.trace["bubble"]
    assert {n.name for n in picture.nodes if n.is_meeting} == {bubble["nodes"][i]["name"] for i in bubble["meetings"]}
    assert sum(edge.is_best for edge in picture.edges) == len(found.evidence[0].steps)
    assert [text for text, _ in picture.legend] == [group["text"] for group in found.trace["groups"]]
    assert bubble_picture(found.trace) == picture
    assert bubble_picture(nothing.trace) is None
    assert bubble_picture({}) is None


class LeafResources(WordResources):
    """As WordResources, but the leaves and their edges have one vector, made once."""

    def vectors(self, texts, progress=None):
        if len(texts) < 10_000:
            return word_vectors(texts)
        shared = word_vectors(["leaf"])
        out = np.repeat(shared, len(texts), axis=0)
        special = [row for row, text in enumerate(texts) if not text.startswith("leaf")]
        out[special] = word_vectors([texts[row] for row in special])
        return out


def test_hub_is_sampled_counted_and_the_answer_found(tmp_path, num_leaves=100_000):
    names = ["Great Hub", "Copper Gate", "Otto Falk", *(f"leaf {n}" for n in range(num_leaves))]
    heads = np.concatenate([[1, 2], np.full(num_leaves, 0)])
    tails = np.concatenate([[2, 0], np.arange(3, num_leaves + 3)])
    relations = np.concatenate([[0, 1], np.full(num_leaves, 2)])
    texts = [
        "Copper Gate directed by Otto Falk",
        "Otto Falk belongs to Great Hub",
        *(f"leaf {n}" for n in range(num_leaves)),
    ]
    kg = make_kg(
        entity_names=names, relation_names=["directed by", "belongs to", "holds"], heads=heads, relations=relations,
        tails=tails, triple_texts=texts, kind="triples",
    )  # fmt: skip
    resources = LeafResources(load_run_config("musique", "hybrid"), kg, tmp_path)
    config = BubbleRagConfig(hub_limit=1000, max_labels=20_000)
    (found,) = BubbleRag(config, resources).retrieve([question("Who ties Copper Gate to Great Hub?")])
    assert found.trace["hub_edges_left_out"] == num_leaves + 1 - 1000
    assert sum(n for group in found.trace["groups"] for n in group["front"]) <= 20_000
    walked = {(step.head, step.tail) for step in found.evidence[0].steps}
    assert walked == {("Copper Gate", "Otto Falk"), ("Otto Falk", "Great Hub")}
    assert found.answer is not None
    assert found.answer.text == "Otto Falk"
