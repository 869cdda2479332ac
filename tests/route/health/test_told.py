"""Breakers that hear of other machines, and what they forget: by exact instants."""

from __future__ import annotations

import pytest

from lightgate.route.health import breaker as module
from lightgate.route.health.breaker import SECOND_NS, Breaker, Breakers, Rules
from lightgate.route.health.failure import RATE_LIMITED, SERVER

S = SECOND_NS


def breaker(now_ns: int = 0) -> Breaker:
    box = Breaker(Rules(), lambda: 1.0)
    if now_ns:
        box.succeeded(now_ns, now_ns)
    return box


def all_of_them() -> Breakers:
    return Breakers(Rules(), lambda: 1.0)


# What another machine tells


def test_another_machines_hold_is_the_providers_own_word() -> None:
    box = breaker(9 * S)  # an answer of late does not speak against it
    box.told(10 * S, 0, 5 * S)
    assert (box.state(14 * S), box.hold_until_ns) == ("held", 15 * S)
    box.told(11 * S, 0, 2 * S)
    assert box.hold_until_ns == 15 * S  # a shorter one changes nothing
    box.told(11 * S, 0, 4 * S + 1)
    assert box.hold_until_ns == 15 * S + 1
    box.told(20 * S, 0, 1000 * S)
    assert box.hold_until_ns == 320 * S  # nobody is held for more than five minutes
    box = breaker()
    box.told(10 * S, 0, 1)
    assert box.hold_until_ns == 10 * S + 1
    box = breaker()
    box.told(10 * S, 0, 0)
    assert box.rest_ns(0) == (0, 0)


def test_an_answer_to_a_later_request_ends_a_hold_that_was_told() -> None:
    box = breaker()
    box.told(10 * S, 0, 30 * S)
    box.succeeded(12 * S, 10 * S)
    assert box.state(12 * S) == "held"
    box.succeeded(12 * S, 10 * S + 1)
    assert box.state(12 * S) == "closed"


def test_another_machines_opening_counts_where_nothing_was_answered_here() -> None:
    box = breaker()
    box.told(10 * S, 7 * S, 0)
    assert (box.state(17 * S - 1), box.state(17 * S)) == ("open", "half_open")
    box.told(11 * S, 60 * S, 0)
    assert box.rest_ns(11 * S) == (6 * S, 0)  # one that is open is not lengthened
    box = breaker()
    box.told(10 * S, 1000 * S, 0)
    assert box.rest_ns(10 * S) == (300 * S, 0)
    box = breaker()
    box.told(10 * S, 1, 0)
    assert box.open_until_ns == 10 * S + 1
    box = breaker()
    box.told(10 * S, 0, 0)
    assert box.open_until_ns is None


def test_an_answer_of_the_last_half_minute_outweighs_another_machines_opening() -> None:
    box = breaker(S)
    box.told(29 * S, 7 * S, 0)
    assert box.open_until_ns is None
    box.told(31 * S, 7 * S, 0)
    assert box.open_until_ns == 38 * S


def test_what_is_told_is_no_request_for_the_ratio() -> None:
    box = Breaker(Rules(streak=100), lambda: 1.0)
    for now in range(10):
        box.told(now, 0, 0)
    for now in range(10, 14):
        box.failed(now, SERVER, None, now)
    assert box.open_until_ns is None
    box.failed(14, SERVER, None, 14)
    assert box.open_until_ns is not None


def test_an_opening_that_was_told_forgets_the_streak_before_it() -> None:
    box = breaker()
    box.failed(S, SERVER, None, S)
    box.failed(S, SERVER, None, S)
    box.told(2 * S, 3 * S, 0)
    box.failed(3 * S, SERVER, None, S)  # begun before
    assert box.open_until_ns == 5 * S
    box.started(5 * S)
    box.spoke(6 * S, 5 * S)
    box.failed(7 * S, SERVER, None, 7 * S)
    assert box.state(7 * S) == "closed"


def test_all_that_rests_is_told_and_taken_in() -> None:
    ours, theirs = all_of_them(), all_of_them()
    ours.failed("a/x", 0, RATE_LIMITED, 10.0, 0)
    for _ in range(3):
        ours.failed("b/y", 0, SERVER, None, 0)
    ours.succeeded("c/z", 0, 0)
    assert ours.states(S) == {"a/x": "held", "b/y": "open"}
    told = ours.resting(S)
    assert told == {"a/x": (0, 9 * S), "b/y": (4 * S, 0)}
    for target, (open_ns, hold_ns) in told.items():
        theirs.told(target, 50 * S, open_ns, hold_ns)
    assert theirs.troubled == {"a/x", "b/y"}
    assert theirs.resting(50 * S) == told
    theirs.told("d/w", 50 * S, 0, 0)
    assert theirs.troubled == {"a/x", "b/y"}
    assert ours.resting(10 * S) == {}
    assert ours.states(10 * S) == {"b/y": "half_open"}


# Instants at their edges


def test_a_target_is_quiet_from_the_instant_at_which_its_hold_ends() -> None:
    box = breaker()
    box.failed(0, RATE_LIMITED, 3.0, 0)
    assert (box.quiet(3 * S - 1), box.quiet(3 * S)) == (False, True)
    assert (box.state(3 * S - 1), box.state(3 * S)) == ("held", "closed")
    assert box.rest_ns(S) == (0, 2 * S)
    assert box.rest_ns(4 * S) == (0, 0)


def test_it_may_be_asked_again_when_both_the_pause_and_the_hold_are_over() -> None:
    box = breaker()
    for _ in range(3):
        box.failed(0, SERVER, None, 0)
    assert box.opens_again_ns == 5 * S
    box.failed(1, RATE_LIMITED, 8.0, 1)
    assert box.opens_again_ns == 8 * S + 1
    assert box.rest_ns(S) == (4 * S, 7 * S + 1)
    assert not box.allows(8 * S)
    assert box.allows(8 * S + 1)


def test_an_attempt_begun_at_the_instant_of_the_change_speaks_for_the_new_state() -> None:
    box = breaker()
    for _ in range(3):
        box.failed(S, SERVER, None, S)
    box.spoke(2 * S, S - 1)
    assert box.state(2 * S) == "open"
    box.spoke(2 * S, S)
    assert box.state(2 * S) == "closed"


def test_the_length_of_a_pause_is_forgotten_after_a_minute_of_health() -> None:
    for healthy_ns, level in ((60 * S - 1, 1), (60 * S, 0)):
        box = breaker()
        for _ in range(3):
            box.failed(0, SERVER, None, 0)
        box.started(5 * S)
        box.failed(5 * S, SERVER, None, 5 * S)
        assert box.level == 1
        box.started(15 * S)
        box.succeeded(15 * S, 15 * S)
        box.succeeded(15 * S + healthy_ns, 15 * S + healthy_ns)
        assert box.level == level


@pytest.mark.parametrize(("draw", "hold_ms"), [(0.0, 500), (0.5, 750), (1.0, 1000)])
def test_half_of_a_hold_without_a_wish_is_drawn(draw: float, hold_ms: int) -> None:
    box = Breaker(Rules(), lambda: draw)
    box.failed(0, RATE_LIMITED, None, 0)
    assert box.hold_until_ns == hold_ms * 1_000_000
    assert box.limited == 1


# Memory


def test_the_oldest_quiet_half_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 4)
    known = all_of_them()
    known.failed("held", 0, RATE_LIMITED, 10.0, 0)
    for name in ("b", "c", "d", "e"):
        known.succeeded(name, 0, 0)
    assert known.targets() == ("held", "d", "e")
    assert known.opens_again_ns("held") == 10 * S
    assert known.get("b") is None


def test_where_all_are_in_trouble_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 4)
    known = all_of_them()
    for name in ("a", "b", "c", "d", "e"):
        known.failed(name, 0, RATE_LIMITED, 10.0, 0)
    assert known.targets() == ("c", "d", "e")
    assert known.troubled == {"c", "d", "e"}
    assert known.all_quiet(("a", "b"))
    assert not known.all_quiet(("b", "c"))
