"""Linking over many names: the same links as over a small graph, from candidates alone."""

import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kgrag_gpu.anchors import large_names
from kgrag_gpu.anchors.keywords import MentionCosts
from kgrag_gpu.anchors.large_names import LargeNameIndex, name_index
from kgrag_gpu.anchors.link import NameIndex, folded_name
from kgrag_gpu.anchors.spelling import SpellingConfig, word_list
from kgrag_gpu.kg.formats import TripleReader
from kgrag_gpu.kg.text_column import TextColumn, TextLists

NAMES = [
    "Red",
    "red",
    "director",
    "Anna_of_Holstein",
    "Béla Tarr",
    "Saw",
    "Paul II",
    "Paul III",
    "$",
    "北京大学",
    "The Who",
]
ALIASES = [("The Master of Pécs",) if name == "Béla Tarr" else () for name in NAMES]
QUESTIONS = [
    "who is the parent of anna of holstein 's son",
    "who is the parent of ana of holstein 's son",
    "films by the master of pecs",
    "谁是北京大学的校长",
    "what is $ about",
    "who is the director of Red",
    "parents of paul ii",
    "songs of the who",
    "tar films",
    "",
    "zzzz",
]


def costs() -> MentionCosts:
    return MentionCosts(word_list(SpellingConfig()), frozenset(("directed", "by", "parents")))


@pytest.mark.parametrize("as_columns", [False, True])
def test_large_index_links_as_the_small_one(as_columns):
    names, aliases = NAMES, ALIASES
    if as_columns:
        names, aliases = TextColumn(NAMES), TextLists(pa.array([list(a) for a in ALIASES], pa.list_(pa.string())))
    edges = np.arange(len(NAMES))
    small, large = (kind(names, aliases, costs(), None, edges) for kind in (NameIndex, LargeNameIndex))
    one, two = small.link(QUESTIONS), large.link(QUESTIONS)
    assert one.offsets.tolist() == two.offsets.tolist()
    for column in ("entity_ids", "scores", "starts", "ends", "num_edits"):
        assert getattr(one, column).tolist() == getattr(two, column).tolist()
    assert one.words == two.words
    assert large.link([]).offsets.tolist() == [0]


def test_of_many_bearers_of_a_name_those_with_most_edges_are_weighed():
    names = ["Springfield"] * 500 + ["Springfield Lake"] * 500
    edges = np.random.default_rng(0).permutation(1000)
    index = LargeNameIndex(names, [()] * 1000, costs(), None, edges)
    found = index.link(["where is springfield"]).entity_ids.tolist()
    assert set(found) <= set(np.argsort(-edges[:500])[:40].tolist()) and len(found) == index.config.links


def test_names_said_by_common_words_are_found_by_their_hash(monkeypatch):
    monkeypatch.setattr(large_names, "MAX_POSTINGS", 10)
    names = [f"the {word}" for word in "abcdefgh"] + [f"who {word}" for word in "abcdefgh"] + ["The Who"]
    index = LargeNameIndex(names, [()] * len(names), costs())
    assert [names[e] for e in index.link(["songs of the who"]).entity_ids][:1] == ["The Who"]


def test_size_chooses_the_index(monkeypatch):
    monkeypatch.setattr(large_names, "LISTED_NAMES", 2)
    assert isinstance(name_index(["a", "b"], [(), ()], costs(), LinkDefaults, np.zeros(2)), NameIndex)
    assert isinstance(name_index(["a", "b", "c"], [()] * 3, costs(), LinkDefaults, np.zeros(3)), LargeNameIndex)


LinkDefaults = NameIndex([], [], costs()).config


def test_folding_by_columns_equals_folding_by_name():
    rng = random.Random(2)
    letters = "aZ09 _-.'é北ß$\u00a0\u0301"
    names = ["".join(rng.choice(letters) for _ in range(rng.randrange(9))) for _ in range(400)]
    assert large_names._folded(pa.array(names, pa.large_string())).to_pylist() == [folded_name(n) for n in names]


METAQA = Path(os.environ.get("KGRAG_DATA", "")) / "metaqa"


@pytest.mark.skipif(not METAQA.is_dir(), reason="needs $KGRAG_DATA/metaqa")
def test_on_metaqa_names_the_first_link_is_the_small_indexs():
    kb = next(p for p in METAQA.rglob("*kb*") if p.is_file())
    names = sorted(
        {name for block in TripleReader(kb) for name in (*block.heads.to_pylist(), *block.tails.to_pylist())}
    )
    edges = np.zeros(len(names))
    rng = random.Random(0)
    texts = [f"who wrote the films like {name.lower()}" for name in rng.sample(names, 300)]
    small, large = (
        kind(names, [()] * len(names), costs(), None, edges).link(texts) for kind in (NameIndex, LargeNameIndex)
    )
    same = [
        set(small.entity_ids[a : a + 1].tolist()) == set(large.entity_ids[b : b + 1].tolist())
        for a, b in zip(small.offsets[:-1].tolist(), large.offsets[:-1].tolist(), strict=True)
    ]
    assert np.mean(same) >= 0.99
