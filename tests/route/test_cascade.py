"""Tiers: where a request starts, who follows, and what a climb does with verdicts and failures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.errors import ConfigError
from lightgate.route.alias import Alias
from lightgate.route.breaker import Breakers, Rules
from lightgate.route.cascade import (
    LEAST_SHARE,
    Cascade,
    ahead_after_ns,
    cascade_of,
    rungs,
    starting,
    tier_ask,
)
from lightgate.route.climb import NOTHING, Climb, Move
from lightgate.route.decide import Ask, decide

if TYPE_CHECKING:
    from lightgate.route.complexity import Level

SMALL, MIDDLE, LARGE = ("s/a", "s/b"), ("m/a", "s/b"), ("l/a",)
ALIAS = Alias(name="smart", targets=("s/a", "s/b", "m/a", "l/a"), policy="cascade", hedge="off")
VERIFY = ("not_refused",)


def three(verify: tuple[str, ...] = VERIFY) -> Cascade:
    return cascade_of(ALIAS, [("simple", SMALL), ("medium", MIDDLE), (None, LARGE)], verify)


@pytest.mark.parametrize(("level", "place"), [("simple", 0), ("medium", 1), ("complex", 2)])
def test_a_level_starts_in_the_first_tier_that_takes_it(level: Level, place: int) -> None:
    assert starting(three(), level) == place


def test_two_tiers_take_three_levels() -> None:
    two = cascade_of(ALIAS, [("medium", SMALL), (None, LARGE)])

    assert [starting(two, level) for level in ("simple", "medium", "complex")] == [0, 0, 1]


def test_the_last_tier_takes_everything_whatever_it_says() -> None:
    assert cascade_of(ALIAS, [("simple", SMALL), ("medium", LARGE)]).tiers[-1].upto == "complex"


@pytest.mark.parametrize(
    "tiers",
    [
        [],
        [("medium", SMALL), ("simple", MIDDLE), (None, LARGE)],
        [("simple", SMALL), ("simple", MIDDLE), (None, LARGE)],
        [(None, SMALL), (None, LARGE)],
        [("complex", SMALL), (None, LARGE)],
    ],
)
def test_tiers_that_do_not_rise_are_an_error(tiers: list[Any]) -> None:
    with pytest.raises(ConfigError):
        cascade_of(ALIAS, tiers)


def test_the_plan_of_a_tier_is_decides_over_its_targets() -> None:
    cascade, breakers = three(), Breakers(Rules(), lambda: 0.5)
    ask = Ask(alias=ALIAS, policy="cascade")

    plan = decide(tier_ask(cascade, 0, ask), breakers, 0, 0.5)

    assert tuple(step.target for step in plan.steps) == SMALL
    assert tier_ask(cascade, 0, ask).alias.policy == "fastest"
    assert tier_ask(cascade, 0, ask).policy is None
    assert tier_ask(cascade, 0, Ask(alias=ALIAS, policy="cheapest")).policy == "cheapest"


def test_tiers_are_remembered_apart() -> None:
    assert len({tier.alias.name for tier in three().tiers}) == 3


def test_a_target_whose_answer_failed_is_not_asked_again() -> None:
    cascade, ask = three(), Ask(alias=ALIAS)

    assert tier_ask(cascade, 1, ask, frozenset(("s/b",))).alias.targets == ("m/a",)
    assert tier_ask(cascade, 2, ask, frozenset(LARGE)).alias.targets == LARGE


def test_rungs_go_up_and_then_down() -> None:
    found = [(rung.tier, rung.role, rung.checked) for rung in rungs(three(), 1)]

    assert found == [(1, "start", True), (2, "next", False), (0, "below", False)]


def test_without_checks_nothing_is_held_back_or_started_ahead() -> None:
    found = rungs(three(verify=()), 0, ahead_ns=5)

    assert [rung.checked for rung in found] == [False, False, False]
    assert [rung.role for rung in found] == ["start", "next", "next"]


def test_the_next_tier_starts_ahead_only_where_it_pays() -> None:
    assert ahead_after_ns(2_000, 600, LEAST_SHARE) == 1_400
    assert ahead_after_ns(500, 600, 0.9) == 0
    assert ahead_after_ns(2_000, 600, LEAST_SHARE - 0.01) is None


# The climb


def test_an_answer_that_passes_ends_it() -> None:
    climb = Climb(rungs(three(), 0))

    assert climb.begin() == Move(start=(0,))
    assert climb.answered(0, "passed") == Move(deliver=0, verified=True, over=True)
    assert climb.answered(0, "passed") == NOTHING


def test_an_answer_that_was_not_checked_does_not_escalate() -> None:
    climb = Climb(rungs(three(), 0))
    climb.begin()

    assert climb.answered(0, "unchecked") == Move(deliver=0, verified=None, over=True)


def test_each_failure_goes_one_up_and_the_last_tier_is_passed_on_as_it_comes() -> None:
    climb = Climb(rungs(three(), 0))
    climb.begin()

    assert climb.answered(0, "failed") == Move(start=(1,))
    assert climb.failed(1) == Move(start=(2,), release=2)
    assert climb.answered(2) == Move(deliver=2, over=True)


def test_the_best_answer_that_failed_its_checks_is_better_than_none() -> None:
    climb = Climb(rungs(three(), 0))
    climb.begin()
    climb.answered(0, "failed")
    climb.answered(1, "failed")

    assert climb.failed(2) == Move(deliver=1, verified=False, over=True)


def test_the_tiers_below_answer_only_where_nobody_above_did() -> None:
    climb = Climb(rungs(three(), 1))
    climb.begin()
    climb.failed(1 - 1)

    assert climb.failed(1) == Move(start=(2,), release=2)
    assert climb.answered(2) == Move(deliver=2, over=True)

    climb = Climb(rungs(three(), 1))
    climb.begin()
    climb.answered(0, "failed")
    assert climb.failed(1) == Move(deliver=0, verified=False, over=True)


def test_nobody_goes_on_with_anothers_words() -> None:
    climb = Climb(rungs(three(), 2))
    assert climb.begin() == Move(start=(0,), release=0)

    assert climb.failed(0, committed=True) == Move(over=True)


def test_a_released_rung_that_failed_before_its_first_token_is_followed() -> None:
    climb = Climb(rungs(three(), 2))
    climb.begin()

    assert climb.failed(0) == Move(start=(1,), release=1)


def test_ahead_starts_by_the_clock_and_is_closed_when_the_first_passes() -> None:
    climb = Climb(rungs(three(), 0, ahead_ns=300))
    climb.begin()

    assert climb.due_ns() == 300
    assert climb.tick(299) == NOTHING
    assert climb.tick(300) == Move(start=(1,))
    assert climb.due_ns() is None
    assert climb.answered(0, "passed") == Move(cancel=(1,), deliver=0, verified=True, over=True)


def test_ahead_has_the_client_once_the_first_failed() -> None:
    two = cascade_of(ALIAS, [("medium", SMALL), (None, LARGE)], VERIFY)
    climb = Climb(rungs(two, 0, ahead_ns=0))
    climb.begin()
    climb.tick(0)

    assert climb.answered(0, "failed") == Move(release=1)
    assert climb.answered(1) == Move(deliver=1, over=True)


def test_ahead_may_be_done_first() -> None:
    two = cascade_of(ALIAS, [("medium", SMALL), (None, LARGE)], VERIFY)
    climb = Climb(rungs(two, 0, ahead_ns=0))
    climb.begin()
    climb.tick(0)

    assert climb.answered(1) == Move(cancel=(0,), deliver=1, over=True)


def test_a_first_that_fails_early_does_not_wait_for_the_clock() -> None:
    climb = Climb(rungs(three(), 0, ahead_ns=300))
    climb.begin()

    assert climb.failed(0) == Move(start=(1,))
    assert climb.due_ns() is None


@given(
    start=st.integers(0, 2),
    ahead=st.none() | st.integers(0, 5),
    checked=st.booleans(),
    events=st.lists(
        st.tuples(
            st.sampled_from(["passed", "failed", "unchecked", "down", "tick", "stranger"]),
            st.integers(0, 9),
        ),
        max_size=12,
    ),
)
def test_every_climb_keeps_its_promises(
    start: int, ahead: int | None, checked: bool, events: list[tuple[str, int]]
) -> None:
    ladder = rungs(three(VERIFY if checked else ()), start, ahead)
    climb = Climb(ladder)
    started: list[int] = []
    running: list[int] = []
    overs = 0

    def take(move: Move) -> None:
        nonlocal overs
        started.extend(move.start)
        running.extend(move.start)
        assert set(move.cancel) <= set(running)
        for place in move.cancel:
            running.remove(place)
        overs += move.over
        assert move.deliver is None or move.over
        assert move.release is None or not ladder[move.release].checked

    take(climb.begin())
    for kind, number in events:
        if kind == "tick":
            take(climb.tick(number))
        elif kind == "stranger":
            assert climb.answered(len(ladder) + number, "passed") == NOTHING
        elif running:
            place = running.pop(number % len(running))
            take(climb.failed(place) if kind == "down" else climb.answered(place, kind))  # type: ignore[arg-type]
        assert overs <= 1
        assert climb.over == bool(overs)
        assert climb.over or running, "a climb that is not over waits for somebody"
    assert len(set(started)) == len(started)
    assert started == sorted(started)
