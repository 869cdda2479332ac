"""The pace of a store: eight answers in a row say that it is slow, or that it is quick again."""

from __future__ import annotations

import pytest

from lightgate.gateway.shared.pace import StorePace

PATIENCE_S = 0.4


def is_slow(pace: StorePace) -> bool:
    return pace.slow


def took(pace: StorePace, *answers_s: float) -> list[bool]:
    return [pace.took(answer_s, PATIENCE_S) for answer_s in answers_s]


def test_a_store_is_slow_after_eight_slow_answers_and_quick_after_as_many_quick_ones() -> None:
    pace = StorePace()
    assert not is_slow(pace)
    assert took(pace, *[0.3] * 8) == [False] * 7 + [True]
    assert is_slow(pace)
    assert took(pace, *[0.1] * 8) == [False] * 7 + [True]
    assert not is_slow(pace)
    assert took(pace, *[0.3] * 8) == [False] * 7 + [True]


@pytest.mark.parametrize(("answer_s", "slow"), [(0.2, False), (0.2001, True)])
def test_more_than_half_of_the_patience_is_slow(answer_s: float, slow: bool) -> None:
    pace = StorePace()
    took(pace, *[answer_s] * 8)
    assert is_slow(pace) is slow


def test_one_quick_answer_among_slow_ones_is_enough_to_be_waited_for() -> None:
    pace = StorePace()
    assert took(pace, *[0.3] * 7, 0.1, *[0.3] * 7) == [False] * 15
    assert not is_slow(pace)
    assert took(pace, 0.3) == [True]
    assert took(pace, *[0.1] * 7, 0.3, *[0.1] * 7) == [False] * 15
    assert is_slow(pace)
