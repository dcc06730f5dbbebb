"""Linking under every single edit and for any batch."""

from functools import lru_cache

from hypothesis import given, settings
from hypothesis import strategies as st

from kgrag_gpu.anchors.keywords import MentionCosts
from kgrag_gpu.anchors.link import NameIndex
from kgrag_gpu.anchors.spelling import SpellingConfig, WordIndex, word_list
from kgrag_gpu.data.noise import misspelt

NAMES = ["Marguerite Duras", "Holstein Gottorp", "Kurosawa", "Archduke Leopold", "Zanzibar Nights", "Wolfgang Pauli"]


@lru_cache(maxsize=1)
def index() -> NameIndex:
    costs = MentionCosts(word_list(SpellingConfig()), frozenset(("directed", "written", "parents")))
    return NameIndex(NAMES, [[]] * len(NAMES), costs)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(range(len(NAMES))), st.integers(0, 10_000))
def test_misspelt_names_of_long_words_are_still_found_first(row, seed):
    text = misspelt(f"who wrote the films directed by {NAMES[row]}", str(seed)).lower()
    assert index().link([text]).entity_ids[:1].tolist() == [row]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([*NAMES, "who", "films by", "xyz", ""]), max_size=6), st.randoms())
def test_order_and_size_of_the_batch_change_nothing(parts, rng):
    texts = [" ".join(parts[:n]) for n in range(len(parts) + 1)]
    alone = [index().link([text]).entity_ids.tolist() for text in texts]
    order = list(range(len(texts)))
    rng.shuffle(order)
    links = index().link([texts[i] for i in order])
    for place, i in enumerate(order):
        assert links.entity_ids[links.offsets[place] : links.offsets[place + 1]].tolist() == alone[i]


@settings(max_examples=100, deadline=None)
@given(st.text("abcd", min_size=4, max_size=7), st.integers(0, 1000))
def test_word_index_finds_a_word_behind_any_single_edit(word, seed):
    written = misspelt(word, str(seed))
    if len(written) >= 3:
        found = WordIndex([word]).near(written)
        assert [row for row, _ in found] == [0]
