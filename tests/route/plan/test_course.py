from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.route.health.failure import CLIENT, FINE, SERVER, by_status
from lightgate.route.plan.alias import Layout, lay_out, lay_out_twice
from lightgate.route.plan.course import AUTO_TTFT_NS, CHANCES, Course, RetryBudget
from lightgate.route.plan.plan import Plan, StandInHedge

S = 1_000_000_000
NAMES = ("a/x", "b/x", "c/x")
BUSY = by_status(429)


def course(race: int = 1, hedge_ns: int | None = None, retries: int = 0, at: int = 5 * S) -> Course:
    shape = Layout(retries, 8 * S, race, hedge_ns)
    return Course(Plan(lay_out(NAMES, 3, shape), "ordered", ""), at, at + 120 * S)


def test_one_after_the_other() -> None:
    on, budget = course(), RetryBudget()
    first = on.due(5 * S)
    assert first is not None
    assert (first.target, on.due(5 * S), on.next_ns, on.running) == ("a/x", None, None, 1)
    second = on.failed(first, SERVER, 6 * S, budget)
    assert second is not None
    assert second.target == "b/x"
    third = on.failed(second, BUSY, 7 * S, budget)
    assert third is not None
    assert third.target == "c/x"
    assert on.failed(third, SERVER, 8 * S, budget) is None
    assert on.over


def test_a_hedge_starts_by_the_clock_or_when_the_first_fails() -> None:
    on = course(hedge_ns=2 * S)
    first = on.due(5 * S)
    assert first is not None
    assert (on.next_ns, on.due(6 * S), on.due_by_clock(6 * S)) == (7 * S, None, None)
    waiting = on.due_by_clock(7 * S)
    assert waiting is not None
    assert waiting.role == "hedge"
    hedge = on.due(7 * S)
    assert hedge == waiting
    assert on.running == 2

    soon = course(hedge_ns=2 * S)
    first = soon.due(5 * S)
    assert first is not None
    instead = soon.failed(first, SERVER, 6 * S, RetryBudget())
    assert instead is not None
    assert instead.target == "b/x"


def test_a_hedge_without_budget_is_asked_for_again_and_stays_a_fallback() -> None:
    """After 2 s, 4 s, 8 s and 16 s of silence; the clock of these courses begins at 5 s."""
    on = course(hedge_ns=2 * S)
    first = on.due(5 * S)
    assert first is not None
    for at_s in (7, 9, 13, 21):
        assert on.next_ns == at_s * S
        assert on.due_by_clock(at_s * S - 1) is None
        assert on.due_by_clock(at_s * S) is not None
        on.postpone()
    assert (on.due_by_clock(99 * S), on.due(99 * S), on.next_ns) == (None, None, None)
    instead = on.failed(first, SERVER, 30 * S, RetryBudget())
    assert instead is not None
    assert (instead.target, instead.role) == ("b/x", "fallback")


def test_a_hedge_that_was_put_off_starts_later() -> None:
    on = course(hedge_ns=2 * S)
    on.due(5 * S)
    on.postpone()
    assert on.due(8 * S) is None
    late = on.due(9 * S)
    assert late is not None
    assert (late.target, late.role) == ("b/x", "hedge")


def test_a_racer_without_budget_is_a_fallback_at_once() -> None:
    on = course(race=2)
    on.due(5 * S)
    on.postpone()
    assert (on.due_by_clock(60 * S), on.next_ns) == (None, None)


# Fallbacks with a hedge of their own


def stood_in(**changes: Any) -> Course:
    shape = Layout(retries=0, ttft_ns=8 * S, race=1, hedge_ns=2 * S)
    steps, hedge = lay_out(NAMES, 3, shape), StandInHedge(3 * S, 9.0, 0.25)
    plan = Plan(steps, "ordered", "", reserve_nano=5.0, again=lambda: hedge)
    return Course(msgspec.structs.replace(plan, **changes), 5 * S, 125 * S)


def test_a_fallback_is_hedged_after_its_own_delay() -> None:
    on = stood_in()
    first = on.due(5 * S)
    assert first is not None
    second = on.failed(first, SERVER, 6 * S, RetryBudget())
    assert second is not None
    assert (second.target, second.role) == ("b/x", "fallback")
    assert (on.next_ns, on.due(8 * S)) == (9 * S, None)
    third = on.due_by_clock(9 * S)
    assert third is not None
    assert (third.target, third.role) == ("c/x", "hedge")
    assert third.stands_by == StandInHedge(3 * S, 9.0, 0.25)
    assert on.due(9 * S) == third
    assert on.running == 2


def test_the_hedge_of_a_fallback_replaces_it_if_that_fails_too() -> None:
    on, budget = stood_in(), RetryBudget()
    first = on.due(5 * S)
    assert first is not None
    second = on.failed(first, SERVER, 6 * S, budget)
    assert second is not None
    third = on.failed(second, SERVER, 7 * S, budget)
    assert third is not None
    assert (third.target, third.role, third.stands_by) == ("c/x", "fallback", None)


def test_a_request_has_one_hedge() -> None:
    """Who was hedged already, or has no plan for it, has none when the first fails."""
    on, budget = stood_in(), RetryBudget()
    first = on.due(5 * S)
    hedge = on.due(7 * S)
    assert first is not None
    assert hedge is not None
    assert on.failed(first, SERVER, 8 * S, budget) is not None  # the third, beside the hedge
    assert on.next_ns is None
    plain = stood_in(again=None)
    first = plain.due(5 * S)
    assert first is not None
    plain.failed(first, SERVER, 6 * S, budget)
    assert plain.next_ns is None


def test_racers_start_at_once() -> None:
    on = course(race=2)
    started = [on.due(5 * S), on.due(5 * S), on.due(5 * S)]
    assert [step.target if step else None for step in started] == ["a/x", "b/x", None]
    on.decided()
    assert (on.running, on.due(9 * S), on.over) == (2, None, False)


def test_nothing_follows_what_would_fail_anywhere() -> None:
    on = course()
    first = on.due(5 * S)
    assert first is not None
    assert on.failed(first, CLIENT, 6 * S, RetryBudget()) is None
    assert on.over


def test_a_target_that_is_full_is_not_asked_again_at_once() -> None:
    on = course(retries=1)
    first = on.due(5 * S)
    assert first is not None
    other = on.failed(first, BUSY, 6 * S, RetryBudget())
    assert other is not None
    assert other.target == "b/x"
    again = on.failed(other, SERVER, 6 * S, RetryBudget())
    assert again is not None
    assert again.target == "b/x"


def test_without_budget_or_time_it_is_over() -> None:
    spent = RetryBudget()
    while spent.may(6 * S):
        pass
    for budget, now in ((spent, 6 * S), (RetryBudget(), 125 * S)):
        on = course()
        first = on.due(5 * S)
        assert first is not None
        assert on.failed(first, SERVER, now, budget) is None
        assert on.over


@pytest.mark.parametrize(
    ("race", "expected"), [(1, min(8 * S, 120 * S // 3)), (2, 8 * S)], ids=["alone", "race"]
)
def test_how_long_the_first_has(race: int, expected: int) -> None:
    on = course(race=race)
    first = on.due(5 * S)
    assert first is not None
    assert on.ttft_ns(first, 5 * S) == expected


def test_what_is_left_of_the_time_is_shared_with_those_behind() -> None:
    """Three steps of eight seconds each, and twelve seconds left for all of them."""
    on = course()
    first = on.due(5 * S)
    assert first is not None
    assert on.ttft_ns(first, 113 * S) == 4 * S
    assert on.ttft_ns(first, 100 * S) == 8 * S
    unset = msgspec.structs.replace(first, ttft_ns=None)
    assert on.ttft_ns(unset, 5 * S) == AUTO_TTFT_NS
    assert on.ttft_ns(unset, 113 * S) == 4 * S
    beside = course(hedge_ns=2 * S)
    first = beside.due(5 * S)
    assert first is not None
    assert beside.ttft_ns(first, 113 * S) == 8 * S  # it starts by the clock, and shares nothing
    assert beside.ttft_ns(first, 120 * S) == 5 * S


def test_the_last_has_what_is_left() -> None:
    plan = Plan(lay_out(NAMES[:2], 2, Layout(0, None, 1, None)), "ordered", "")
    on = Course(plan, 0, 100 * S)
    first = on.due(0)
    assert first is not None
    assert on.ttft_ns(first, 0) == AUTO_TTFT_NS
    last = on.failed(first, SERVER, 30 * S, RetryBudget())
    assert last is not None
    assert on.ttft_ns(last, 30 * S) == 70 * S


@given(
    st.integers(1, 3),
    st.sampled_from((None, S, 2 * S)),
    st.integers(0, 2),
    st.lists(st.sampled_from((SERVER, BUSY, FINE, CLIENT)), max_size=12),
)
def test_a_course_always_ends(race: int, hedge_ns: int | None, retries: int, ends: list) -> None:  # type: ignore[type-arg]  # of failures
    on, budget, now = course(race, hedge_ns, retries), RetryBudget(), 5 * S
    running = []
    for end in [*ends, *[SERVER] * 12]:
        while (step := on.due(now)) is not None:
            running.append(step)
        assert len(running) == on.running <= 3 * (retries + 1)
        if not running:
            break
        now += S
        following = on.failed(running.pop(0), end, now, budget)
        if following is not None:
            running.append(following)
    assert on.over


def twice(retries: int = 0) -> Course:
    """A target and a hedge of it after two seconds."""
    steps = lay_out_twice("a/x", Layout(retries, 8 * S, 1, 2 * S))
    return Course(Plan(steps, "ordered", ""), 5 * S, 125 * S)


def test_a_hedge_at_the_same_target_starts_by_the_clock_only() -> None:
    on = twice()
    first = on.due(5 * S)
    assert first is not None
    assert (first.role, on.next_ns) == ("primary", 7 * S)
    assert on.ttft_ns(first, 5 * S) == 120 * S  # no deadline but the request's
    hedge = on.due(7 * S)
    assert hedge is not None
    assert (hedge.target, hedge.role, on.running) == ("a/x", "hedge", 2)
    assert on.failed(first, SERVER, 8 * S, RetryBudget()) is None
    assert on.running == 1  # the other goes on


def test_a_failure_before_its_time_leaves_the_retries_alone() -> None:
    on = twice()
    first = on.due(5 * S)
    assert first is not None
    assert on.failed(first, SERVER, 6 * S, RetryBudget()) is None
    assert on.over
    on = twice(retries=1)
    first = on.due(5 * S)
    assert first is not None
    again = on.failed(first, SERVER, 6 * S, RetryBudget())
    assert again is not None
    assert again.role == "fallback"
    assert on.failed(again, SERVER, 7 * S, RetryBudget()) is None


def test_a_hedge_that_its_budget_refuses_is_no_retry_either() -> None:
    on = twice()
    first = on.due(5 * S)
    assert first is not None
    for _ in range(CHANCES):
        on.postpone()
    assert on.next_ns is None
    assert on.failed(first, SERVER, 8 * S, RetryBudget()) is None
    assert on.over
