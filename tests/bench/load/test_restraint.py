from __future__ import annotations

import pytest

from lightgate.bench.load.restraint import Restraint, is_key_refused
from lightgate.errors import AttemptError, HttpRefused, PeerReset, RateLimited, Unreachable

S = 1_000_000_000
DOWN = Unreachable("No connection.")
NO_KEY = HttpRefused("No.", code=401)


def test_a_429_holds_for_as_long_as_it_says() -> None:
    restraint = Restraint(pauses=True, give_up=None)
    restraint.heed(RateLimited("Busy.", retry_after_s=2.0), 10 * S)
    assert restraint.until_ns == 12 * S
    restraint.heed(RateLimited("Busy.", retry_after_s=0.5), 11 * S)
    assert restraint.until_ns == 12 * S  # the longer one stays
    restraint.heed(RateLimited("Busy.", retry_after_s=None), 11 * S + S // 2)
    assert restraint.until_ns == 12 * S + S // 2  # a second where none is named
    assert restraint.held_ns(20 * S) == 2 * S + S // 2
    assert restraint.held_ns(11 * S) == S


def test_a_plan_is_never_held() -> None:
    restraint = Restraint(pauses=False, give_up=None)
    restraint.heed(RateLimited("Busy.", retry_after_s=2.0), 10 * S)
    assert (restraint.until_ns, restraint.held_ns(20 * S)) == (0, 0)


def test_a_word_from_outside_holds_too() -> None:
    restraint = Restraint(pauses=True, give_up=None)
    restraint.hold(15 * S, 12 * S)
    restraint.hold(14 * S, 13 * S)
    assert restraint.until_ns == 15 * S
    assert restraint.held_ns(20 * S) == 3 * S


@pytest.mark.parametrize("error", [DOWN, NO_KEY, HttpRefused("No.", code=403)])
def test_so_many_in_a_row_are_enough(error: AttemptError) -> None:
    restraint = Restraint(pauses=True, give_up=3)
    assert [restraint.heed(error, 0) for _ in range(5)] == [False, False, True, False, False]
    assert restraint.gave_up is error


@pytest.mark.parametrize("between", [None, HttpRefused("Broken.", code=500), PeerReset("Gone.")])
def test_anything_else_in_between_begins_anew(between: AttemptError | None) -> None:
    restraint = Restraint(pauses=True, give_up=2)
    assert not any(restraint.heed(error, 0) for error in (DOWN, between) * 5)
    assert restraint.gave_up is None


def test_whose_key_was_refused() -> None:
    assert is_key_refused(NO_KEY)
    assert not is_key_refused(HttpRefused("No.", code=404))
    assert not is_key_refused(DOWN)
    assert not is_key_refused(None)
