"""Names in questions."""

import numpy as np
import pytest

from kgrag_gpu.anchors.keywords import MentionConfig, MentionCosts, unexplained_words
from kgrag_gpu.anchors.link import LinkConfig, NameIndex
from kgrag_gpu.anchors.spelling import SpellingConfig, WordIndex, WordList, word_list

NAMES = ["Red", "red", "director", "Anna_of_Holstein", "Béla Tarr", "Saw", "Paul II", "Paul III", "$", "北京大学"]


@pytest.fixture(scope="module")
def index() -> NameIndex:
    costs = MentionCosts(word_list(SpellingConfig()), frozenset(("directed", "by", "parents")))
    aliases: list[list[str]] = [[] for _ in NAMES]
    aliases[4] = ["The Master of Pécs"]
    return NameIndex(NAMES, aliases, costs)


def linked(index: NameIndex, text: str) -> list[str]:
    links = index.link([text])
    return [NAMES[i] for i in links.entity_ids]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("who is the parent of anna of holstein 's son", "Anna_of_Holstein"),
        ("who is the parent of ana of holstien 's son", "Anna_of_Holstein"),
        ("films by bela tarr", "Béla Tarr"),
        ("films by the mster of pecs", "Béla Tarr"),
        ("谁是北京大学的校长", "北京大学"),
        ("what is $ about", "$"),
    ],
)
def test_link_finds_the_name_however_it_is_written(index, text, name):
    assert linked(index, text)[:1] == [name]


def test_link_capitals_tell_homonyms_apart_and_win_over_relation_words(index):
    found = linked(index, "who is the director of Red")
    assert found[0] == "Red"
    assert set(found[1:3]) == {"red", "director"}
    assert set(linked(index, "who is the director of red")) >= {"Red", "red"}


def test_link_exact_name_goes_before_its_neighbour(index):
    assert linked(index, "parents of paul ii")[:2] == ["Paul II", "Paul III"]


def test_link_gives_window_and_edits(index):
    links = index.link(["the heir of ana of holstein"])
    first = (links.starts[0], links.ends[0], links.num_edits[0])
    assert first == (3, 6, 1)
    assert links.words[0][3:6] == ["ana", "of", "holstein"]


def test_link_empty_text_and_unknown_words_give_nothing(index):
    links = index.link(["", "zzzzzz"])
    assert links.offsets.tolist() == [0, 0, 0]


def test_link_without_names_gives_nothing():
    costs = MentionCosts(WordList({}, WordIndex([])), frozenset())
    assert NameIndex([], [], costs).link(["who is red"]).offsets.tolist() == [0, 0]


def test_link_batch_equals_single_and_order_changes_nothing(index):
    texts = ["films by bela tarr", "director of Red", "", "parents of paul ii and saw", "prents of pual iii"]
    together = index.link(texts)
    for q, text in enumerate(texts):
        alone = index.link([text])
        part = slice(together.offsets[q], together.offsets[q + 1])
        assert together.entity_ids[part].tolist() == alone.entity_ids.tolist()
        assert together.scores[part].tolist() == alone.scores.tolist()
        assert together.starts[part].tolist() == alone.starts.tolist()


def test_link_keeps_as_many_as_configured():
    costs = MentionCosts(word_list(SpellingConfig()), frozenset())
    names = [f"Henry {n}" for n in range(20)]
    index = NameIndex(names, [[]] * 20, costs, LinkConfig(links=4))
    assert len(index.link(["sons of henry 7"]).entity_ids) == 4


def costs(frequencies: dict[str, float], relation_words=()) -> MentionCosts:
    words = WordList(frequencies, WordIndex(frequencies))
    return MentionCosts(words, frozenset(relation_words), MentionConfig(edit_cost=2.0, unknown_cost=7.0))


def test_cost_is_the_cheaper_of_as_written_and_misspelt():
    known = costs({"movie": 1e-4, "move": 1e-3})
    assert known.cost("movie") == pytest.approx(4.0)
    assert known.cost("mvie") == pytest.approx(6.0)  # movie, one edit
    assert known.cost("zzzz") == 7.0


def test_cost_of_words_that_begin_like_relation_words_is_capped():
    known = costs({"director": 1e-5}, ["directed"])
    assert known.cost("director") == 3.0
    assert costs({"director": 1e-5}).cost("director") == pytest.approx(5.0)


def test_cost_of_numbers_grows_with_their_digits():
    assert [costs({}).cost(w) for w in ("7", "1999")] == [2.5, 5.5]


def test_running_costs_are_sums_before_each_word():
    known = costs({"red": 1e-3})
    assert known.running(["red", "zzzz"]).tolist() == pytest.approx([0.0, 3.0, 10.0])
    assert known.running([]).tolist() == [0.0]


def test_unexplained_words_are_content_outside_the_spans():
    words = ["who", "wrote", "films", "by", "anna", "lee"]
    assert unexplained_words(words, [(4, 6)]) == ["wrote", "films"]
    assert unexplained_words(words, []) == ["wrote", "films", "anna", "lee"]


def test_scores_lie_on_one_grid():
    index = NameIndex(["Saw"], [[]], costs({"saw": 1e-3}))
    scores = index.link(["who is in saw"]).scores
    assert np.array_equal(scores * 2**20, np.rint(scores * 2**20))


PEOPLE = ["Adolf Hitler", "Alois Hitler", "Hitler: The Rise of Evil", "John Forbes Nash, Jr.", "Nash Edgerton", "Kevin"]


@pytest.fixture(scope="module")
def people() -> NameIndex:
    costs = MentionCosts(word_list(SpellingConfig()), frozenset(("leader", "college")))
    edges = np.array([900, 5, 20, 80, 80, 3])
    return NameIndex(PEOPLE, [[]] * len(PEOPLE), costs, num_edges=edges)


def test_link_part_of_a_name_is_enough_and_the_better_known_goes_first(people):
    links = people.link(["what was hitler the leader of"])
    assert [PEOPLE[i] for i in links.entity_ids[:2]] == ["Adolf Hitler", "Alois Hitler"]
    assert (links.starts[0], links.ends[0]) == (2, 3)


def test_link_more_words_said_go_before_fewer(people):
    links = people.link(["what college did john nash go to"])
    assert PEOPLE[links.entity_ids[0]] == "John Forbes Nash, Jr."


def test_link_whole_name_costs_nothing_that_a_part_does(people):
    whole, part = people.link(["where was adolf hitler", "where was hitler"]).scores[[0, 2]]
    assert whole > part
