"""Properties of any KG: round trips, collapsing, CSR and mentions against plain Python."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kgrag_gpu.kg.collapse import collapse_triples
from kgrag_gpu.kg.mention_index import find_mentions
from kgrag_gpu.kg.merge import merge_kgs
from kgrag_gpu.kg.sentences import split_sentences
from kgrag_gpu.kg.store import load_kg, make_kg, save_kg
from kgrag_gpu.tensors.csr_graph import CsrGraph
from kgrag_gpu.types import Passage

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
settings.register_profile("kg", deadline=None, max_examples=60)
settings.load_profile("kg")


@st.composite
def raw_rows(draw, max_entities=6):
    num_entities = draw(st.integers(1, max_entities))
    entity, relation = st.integers(0, num_entities - 1), st.integers(0, 2)
    rows = draw(st.lists(st.tuples(entity, relation, entity, st.integers(-1, 3)), max_size=25))
    return num_entities, rows


@st.composite
def kgs(draw):
    num_entities, rows = draw(raw_rows())
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    kept = collapse_triples(columns[0], columns[1], columns[2], columns[3])
    heads, relations, tails = (column[kept.rows] for column in columns[:3])
    names = draw(st.lists(TEXTS, min_size=num_entities, max_size=num_entities))
    return make_kg(
        entity_names=names,
        entity_aliases=[tuple(draw(st.lists(TEXTS, max_size=2))) for _ in names],
        relation_names=["r0", "r1", "r2"],
        heads=heads,
        relations=relations,
        tails=tails,
        triple_texts=draw(st.lists(TEXTS, min_size=len(heads), max_size=len(heads))),
        triple_passage_offsets=kept.offsets,
        triple_passages=kept.passages,
        passages=[Passage(str(i), draw(TEXTS)) for i in range(4)],
        passage_entities=draw(st.lists(st.integers(-1, num_entities - 1), min_size=4, max_size=4)),
        kind="triples",
    )


@given(kgs())
def test_kg_saved_and_loaded_is_the_same(kg):
    with tempfile.TemporaryDirectory() as folder:
        loaded = load_kg(save_kg(kg, Path(folder) / "kg"))
    for name in ("entity_names", "entity_aliases", "relation_names", "passages", "content_hash"):
        assert getattr(loaded, name) == getattr(kg, name)
    assert list(loaded.triple_texts) == list(kg.triple_texts)
    for name in ("heads", "relations", "tails", "triple_passage_offsets", "triple_passages", "passage_entities"):
        assert np.array_equal(getattr(loaded, name), getattr(kg, name))


@given(raw_rows())
def test_collapse_equals_a_dictionary_of_sets(case):
    _, rows = case
    expected: dict[tuple, set[int]] = {}
    for head, relation, tail, passage in rows:
        expected.setdefault((head, relation, tail), set()).update({passage} - {-1})
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    kept = collapse_triples(columns[0], columns[1], columns[2], columns[3])
    assert [rows[i][:3] for i in kept.rows] == list(expected)
    found = [kept.passages[a:b].tolist() for a, b in zip(kept.offsets, kept.offsets[1:], strict=False)]
    assert found == [sorted(passages) for passages in expected.values()]


@given(raw_rows(max_entities=9))
def test_csr_equals_plain_lists(case):
    num_entities, rows = case
    slots: list[list[tuple]] = [[] for _ in range(num_entities)]
    for edge, (head, relation, tail, _) in enumerate(rows):
        slots[head].append((2 * relation, tail, edge, False))
        if head != tail:
            slots[tail].append((2 * relation + 1, head, edge, True))
    columns = np.array(rows, dtype=np.int32).reshape(-1, 4).T
    graph = CsrGraph.from_triples(columns[0].copy(), columns[1].copy(), columns[2].copy(), num_entities)
    expected = [slot for row in slots for slot in sorted(row)]
    found = zip(
        graph.directed_relations().tolist(),
        graph.neighbours.tolist(),
        graph.edge_ids.tolist(),
        graph.is_inverse.tolist(),
        strict=True,
    )
    assert list(found) == expected
    assert graph.offsets.tolist() == np.cumsum([0] + [len(row) for row in slots]).tolist()


@given(kgs(), kgs())
def test_merge_keeps_every_triple_of_both(first, second):
    merged = merge_kgs(first, second)

    def named(kg):
        names = list(zip(kg.entity_names, kg.entity_external_ids, strict=True))
        return {(names[h][0], int(r), text) for h, r, text in zip(kg.heads, kg.relations, kg.triple_texts, strict=True)}

    assert merged.num_triples <= first.num_triples + second.num_triples
    assert {text for _, _, text in named(merged)} == {text for _, _, text in named(first) | named(second)}
    assert merged.entity_names[: first.num_entities] == first.entity_names
    passages_of = sum(len(kg.triple_passages) for kg in (first, second))
    assert len(merged.triple_passages) <= passages_of


WORDS = st.sampled_from(["Ab", "Cd", "ab", "Ef", "x", "Ab-Cd", "É"])
PHRASES = st.lists(WORDS, min_size=1, max_size=3).map(" ".join)


@given(st.lists(st.lists(WORDS, max_size=8).map(" ".join), max_size=3), st.lists(PHRASES, max_size=5, unique=True))
def test_mentions_equal_a_search_at_every_place(texts, names):
    names = [name for i, name in enumerate(names) if name.lower() not in {n.lower() for n in names[:i]}]
    expected = []
    for text_id, text in enumerate(texts):
        spans = []
        for name_id, name in enumerate(names):
            for start in range(len(text) - len(name) + 1):
                end = start + len(name)
                bordered = not (text[start - 1 : start] or " ").isalnum() and not (text[end : end + 1] or " ").isalnum()
                piece = text[start:end]
                if piece.lower() == name.lower() and bordered and (not piece[0].islower() or piece == name):
                    spans.append((start, end, name_id))
        for start, end, name_id in spans:
            if not any(a <= start and end <= b and (a, b) != (start, end) for a, b, _ in spans):
                expected.append((text_id, start, end, name_id))
    found = find_mentions(texts, names)
    rows = zip(found.text_ids, found.starts, found.ends, found.name_ids, strict=True)
    assert [tuple(map(int, row)) for row in rows] == sorted(expected)


@given(st.text(st.sampled_from('aB .!?\n。"()U.S'), max_size=40))
def test_sentences_cover_the_text_in_order_without_overlap(text):
    spans = split_sentences(text)
    covered = [False] * len(text)
    previous = 0
    for start, end in spans:
        assert previous <= start < end
        assert text[start:end] == text[start:end].strip()
        covered[start:end] = [True] * (end - start)
        previous = end
    assert all(flag or text[i].isspace() for i, flag in enumerate(covered))
