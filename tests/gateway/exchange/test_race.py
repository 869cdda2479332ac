"""Attempts that overlap, step by step: who starts when, who stands in, when it is given up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.gateway.exchange.race import Race, follow
from lightgate.route.health.failure import SERVER
from lightgate.route.plan.plan import Plan, Step

S = 1_000_000_000


class Timer:
    """A timer of the played loop."""

    def __init__(self, wait_s: float, call: Any) -> None:
        self.wait_s, self.call, self.cancelled = wait_s, call, False

    def cancel(self) -> None:
        self.cancelled = True


class PlayedAttempt:
    """An attempt that ends as the test says."""

    def __init__(self, step: Step, said: list[Any]) -> None:
        self.step = step
        self.ok = self.lost = False
        self.failure = SERVER
        self.held_ns = 0
        self.driver: object = None
        self._said = said

    def release(self) -> None:
        self._said.append(("release", self.step.target))


class PlayedExchange:
    """An exchange that keeps which attempts were made and what became of it."""

    def __init__(self, *steps: Step, **more: Any) -> None:
        self.plan = Plan(steps=steps, policy="race", reason="", **more)
        self.now = 100 * S
        self.due_ns = self.now + 60 * S
        self.timers: list[Timer] = []
        self.allowed = True
        self.asked: list[tuple[str, Any]] = []
        self.unable: set[str] = set()
        self.attempts: list[Any] = []  # played ones
        self.said: list[Any] = []
        self.beside: list[Step] = []
        self.winner: Any = None
        self.closed_ns: int | None = None
        self.cascade = None
        self.assembles = False
        self.back = False
        self.whole = False
        self.request = SimpleNamespace(streamed=True)
        self.caller = SimpleNamespace(key=None)
        retries = SimpleNamespace(may=lambda _: self.allowed)
        observer = SimpleNamespace(may_start=self._may_start)
        self.state = SimpleNamespace(
            now_ns=lambda: self.now,
            loop=SimpleNamespace(call_later=self._call_later),
            learned=SimpleNamespace(observer=observer, retries=retries),
        )

    def _may_start(self, key: str, step: Step, plan: Plan) -> bool:
        assert plan is self.plan
        self.asked.append((key, step.target))
        return self.allowed

    def _call_later(self, wait_s: float, call: Any) -> Timer:
        self.timers.append(Timer(wait_s, call))
        return self.timers[-1]

    def make_attempt(self, step: Step) -> Any:
        if step.target in self.unable:
            return None
        self.attempts.append(PlayedAttempt(step, self.said))
        return self.attempts[-1]

    def carry_out(self, attempt: Any, limit_ns: int) -> None:
        self.said.append((attempt.step.target, limit_ns // S))

    def takes_back(self) -> bool:
        if self.back:
            self.winner = None
        return self.back

    def ask_whole(self) -> bool:
        return self.whole

    def give_up(self) -> None:
        self.said.append("give up")

    def ended(self, attempt: Any) -> None:
        self.said.append(("ended", attempt.step.target))

    def serial(self, first: int, past: int) -> None:
        self.said.append(("serial", first, past))

    def race(self) -> Race:
        exchange: Any = self
        made = Race(exchange, self.due_ns)
        made.start()
        return made

    @property
    def started(self) -> list[str]:
        return [attempt.step.target for attempt in self.attempts]


def step(target: str, start_ns: int | None = 0, role: Any = "racer") -> Step:
    return Step(target, start_ns, None, role)


FIRST, SECOND = step("a"), step("b", 2 * S, "hedge")
THIRD = step("c", None, "fallback")


def test_a_hedge_starts_when_its_time_has_come_and_not_before() -> None:
    exchange = PlayedExchange(FIRST, SECOND, THIRD)
    race = exchange.race()
    assert (exchange.started, exchange.asked) == (["a"], [])
    (timer,) = exchange.timers
    assert timer.wait_s == 2.0
    exchange.now += 2 * S - 1
    timer.call()
    assert exchange.started == ["a"]
    exchange.now += 1
    exchange.timers[-1].call()
    assert exchange.started == ["a", "b"]
    assert exchange.asked == [("", "b")]
    assert exchange.beside == [SECOND]
    assert exchange.said == [("a", 60), ("b", 58)]
    assert all(attempt.driver is race for attempt in exchange.attempts)
    assert len(exchange.timers) == 2  # no other step starts by the clock


def test_a_target_that_cannot_be_told_is_as_if_it_were_not_in_the_plan() -> None:
    exchange = PlayedExchange(FIRST, SECOND, THIRD)
    exchange.unable = {"a"}
    exchange.race()
    # Nobody runs, so the next one need not wait for its time.
    assert exchange.started == ["b"]
    assert exchange.asked == []
    both = PlayedExchange(step("a"), step("b"), THIRD)
    both.unable = {"b"}
    race = both.race()
    assert both.started == ["a"]
    race.over(both.attempts[0])
    assert both.started == ["a", "c"]
    race.over(both.attempts[1])
    assert both.said[-1] == "give up"


def test_without_anyone_who_can_be_told_it_is_given_up_at_once() -> None:
    exchange = PlayedExchange(FIRST, SECOND, THIRD)
    exchange.unable = {"a", "b", "c"}
    exchange.race()
    assert (exchange.said, exchange.timers) == (["give up"], [])
    shy = PlayedExchange(FIRST, SECOND)
    shy.unable, shy.whole = {"a", "b"}, True
    shy.race()
    assert shy.said == []  # it is asked for the whole


def test_a_hedge_without_a_budget_is_asked_for_again_later() -> None:
    exchange = PlayedExchange(FIRST, SECOND)
    exchange.caller.key = SimpleNamespace(id="k")
    exchange.allowed = False
    exchange.race()
    exchange.now += 2 * S
    exchange.timers[-1].call()
    assert (exchange.started, exchange.asked, exchange.beside) == (["a"], [("k", "b")], [])
    assert exchange.timers[-1].wait_s == 2.0
    exchange.allowed = True
    exchange.now += 2 * S
    exchange.timers[-1].call()
    assert exchange.started == ["a", "b"]


def test_a_failure_is_followed_by_the_next_and_the_timer_by_another() -> None:
    exchange = PlayedExchange(FIRST, step("b", 2 * S, "racer"), step("c", 5 * S))
    race = exchange.race()
    exchange.now += S
    race.over(exchange.attempts[0])
    assert exchange.started == ["a", "b"]
    assert exchange.timers[0].cancelled
    assert exchange.timers[1].wait_s == 4.0
    exchange.winner = exchange.attempts[1]
    exchange.timers[1].call()
    assert exchange.started == ["a", "b"]


def test_the_end_of_the_winner_is_the_end_of_the_race() -> None:
    exchange = PlayedExchange(FIRST, SECOND)
    race = exchange.race()
    (first,) = exchange.attempts
    exchange.winner, first.ok = first, True
    race.over(first)
    assert exchange.said[-1] == ("ended", "a")
    assert exchange.timers[0].cancelled
    assert exchange.started == ["a"]


def test_one_that_ended_well_without_a_winner_is_released_and_ends_it() -> None:
    exchange = PlayedExchange(FIRST, SECOND)
    race = exchange.race()
    exchange.attempts[0].ok = True
    race.over(exchange.attempts[0])
    assert exchange.said[1:] == [("release", "a"), ("ended", "a")]


def test_a_loser_that_we_closed_starts_nobody() -> None:
    exchange = PlayedExchange(step("a"), step("b"), THIRD)
    race = exchange.race()
    exchange.winner = exchange.attempts[1]
    race.over(exchange.attempts[0])
    assert exchange.started == ["a", "b"]
    other = PlayedExchange(step("a"), step("b"), THIRD)
    race = other.race()
    other.attempts[0].lost = True
    race.over(other.attempts[0])
    assert other.started == ["a", "b"]


def test_a_winner_that_is_taken_back_is_followed_by_those_that_have_not_failed() -> None:
    exchange = PlayedExchange(step("a"), step("b"), THIRD)
    race = exchange.race()
    first, second = exchange.attempts
    exchange.winner, exchange.back, second.lost = first, True, True
    race.over(first)
    assert exchange.started == ["a", "b", "b"]
    assert (exchange.attempts[2].step.role, exchange.attempts[2].step.start_ns) == (
        "fallback", None,
    )  # fmt: skip
    race.over(second)  # which was closed before
    race.over(exchange.attempts[2])
    assert exchange.started == ["a", "b", "b", "c"]


def test_one_that_is_held_back_is_released_once_another_has_failed() -> None:
    exchange = PlayedExchange(step("a"), step("b"))
    race = exchange.race()
    exchange.attempts[1].held_ns = 7
    race.over(exchange.attempts[0])
    assert ("release", "b") in exchange.said


def test_one_that_is_not_held_back_is_left_alone() -> None:
    exchange = PlayedExchange(step("a"), step("b"))
    race = exchange.race()
    race.over(exchange.attempts[0])
    assert all(said[0] != "release" for said in exchange.said)


def test_a_racer_without_a_budget_is_a_fallback_from_then_on() -> None:
    exchange = PlayedExchange(step("a"), step("b"), step("c"))
    exchange.allowed = False
    race = exchange.race()
    assert (exchange.started, exchange.asked, exchange.timers) == (["a"], [("", "b")], [])
    exchange.allowed = True
    race.over(exchange.attempts[0])
    assert exchange.started == ["a", "b", "c"]


def test_an_exchange_that_is_over_starts_nothing() -> None:
    exchange = PlayedExchange(FIRST, SECOND, THIRD)
    race = exchange.race()
    exchange.closed_ns = 1
    race.over(exchange.attempts[0])
    assert exchange.timers[0].cancelled
    exchange.timers[0].call()
    race.start()
    assert (exchange.started, len(exchange.said)) == (["a"], 1)


@pytest.mark.parametrize(
    ("steps", "streamed", "assembles", "races"),
    [
        ((FIRST, SECOND), True, False, True),
        ((FIRST, SECOND), False, True, True),
        ((FIRST, SECOND), False, False, False),
        ((FIRST, THIRD), True, True, False),
        ((FIRST,), True, True, False),
    ],
)
def test_a_plan_is_raced_where_it_overlaps_and_pieces_can_be_told_apart(
    steps: tuple[Step, ...], streamed: bool, assembles: bool, races: bool
) -> None:
    exchange: Any = PlayedExchange(*steps)
    exchange.request.streamed, exchange.assembles = streamed, assembles
    follow(exchange)
    assert bool(exchange.attempts) is races
    assert (("serial", 0, len(steps)) in exchange.said) is not races
