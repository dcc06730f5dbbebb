"""Windows that say part of a name."""

import pytest

from kgrag_gpu.anchors.name_parts import SaidWord, best_part

MISSING = [1.5, 1.5, 1.5, 0.3]


def part(name_words, *hits: tuple[int, int, float]):
    """Hits as (place, row, worth)."""
    said: dict[int, list[SaidWord]] = {}
    for place, row, worth in hits:
        said.setdefault(row, []).append(SaidWord(place, row, 0, worth))
    return best_part(name_words, said, MISSING, 1.0)


def test_nothing_said_or_all_said_is_no_part():
    assert part([0, 1]) is None
    assert part([0, 1], (3, 0, 4.0), (4, 1, 4.0)) is None


def test_only_words_of_no_worth_are_no_part():
    assert part([0, 3], (3, 3, 0.0)) is None


def test_words_left_out_cost_what_they_are():
    assert part([0, 1, 3], (2, 0, 5.0)) == (pytest.approx(5.0 - 1.5 - 0.3), 2, 3, 0)


def test_a_word_said_twice_counts_once_and_the_first_window_wins():
    assert part([0, 1], (2, 0, 5.0), (9, 0, 5.0)) == (3.5, 2, 3, 0)


def test_words_in_between_cost_and_far_words_do_not_join():
    assert part([0, 1, 2], (2, 0, 5.0), (4, 1, 4.0)) == (pytest.approx(5 + 4 - 1.5 - 1.0), 2, 5, 0)
    assert part([0, 1, 2], (2, 0, 5.0), (9, 1, 4.0)) == (pytest.approx(5 - 3.0), 2, 3, 0)
