"""Deadlines of first tokens, what targets are told beside the body, and large bodies in time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.errors import UsageError
from lightgate.gateway.exchange import large
from lightgate.gateway.exchange.stream import StreamAttempt
from lightgate.gateway.exchange.timers import STEP_S, Timers
from lightgate.gateway.exchange.told import dropped_so_far, passed_lines, skipped_line, story_of
from lightgate.gateway.request.passed import IDEMPOTENCY
from lightgate.route.plan.plan import Plan, Step


class Loop:
    """A loop whose timers the test lets go off."""

    def __init__(self) -> None:
        self.set: list[tuple[float, Any]] = []

    def call_later(self, wait_s: float, call: Any) -> object:
        self.set.append((wait_s, call))
        return call

    def look(self) -> None:
        wait_s, call = self.set.pop()
        assert wait_s == STEP_S == 0.02
        call()


class Waiting:
    """Keeps how often its time was over."""

    def __init__(self, then: Any = None) -> None:
        self.over = 0
        self._then = then

    def give_up(self) -> None:
        self.over += 1
        if self._then is not None:
            self._then()


def test_deadlines_are_looked_at_by_one_timer_while_something_waits() -> None:
    now, loop = [100], Loop()
    timers = Timers(loop, lambda: now[0])  # type: ignore[arg-type]
    one, other = Waiting(), Waiting()
    timers.wait(one, 101)
    timers.wait(other, 103)
    assert len(loop.set) == 1
    loop.look()
    assert (one.over, other.over, len(loop.set)) == (0, 0, 1)
    now[0] = 101
    loop.look()
    assert (one.over, other.over, len(loop.set)) == (1, 0, 1)
    timers.end(other)
    timers.end(other)  # which is forgotten already
    now[0] = 200
    loop.look()
    assert (other.over, loop.set) == (0, [])
    timers.wait(one, 100)  # a timer is set again
    loop.look()
    assert (one.over, loop.set) == (2, [])


def test_one_that_is_ended_by_another_in_the_same_turn_is_not_told() -> None:
    loop = Loop()
    timers = Timers(loop, lambda: 100)  # type: ignore[arg-type]
    second = Waiting()
    first = Waiting(lambda: timers.end(second))
    for waiting in (first, second):
        timers.wait(waiting, 1)
    loop.look()
    assert (first.over, second.over) == (1, 0)


# Beside the body

STEPS = (Step("a/m", 0, None, "primary"), Step("b/m", None, None, "fallback"))


def test_targets_that_were_passed_over_are_named_once() -> None:
    skipped = (("a/m", "tools"), ("a/m", "tools"), ("b/m", "n"))
    assert skipped_line(skipped) == b"x-lightgate-skipped: a/m=tools, b/m=n\r\n"
    plan = Plan(STEPS, "ordered", "so")
    assert story_of(plan, ()) == plan.story
    told = story_of(plan, skipped[:2])
    assert told.startswith("b/m")
    assert "so, not asked: a/m (tools)" in told
    assert story_of(plan, skipped) == "no target (so, not asked: a/m (tools), b/m (n))"
    long = story_of(Plan(STEPS, "ordered", "x" * 999), skipped)
    assert long == f"no target ({'x' * 400})"


def test_a_race_of_which_one_target_is_left_costs_no_more() -> None:
    raced = (Step("a/m", 0, None, "racer"), Step("b/m", 0, None, "racer"))
    plan = Plan(raced, "ordered", "so", extra_nano=2e9)
    assert plan.story == "a/m + b/m (so, the race costs about $2 more)"
    assert story_of(plan, (("b/m", "price"),)) == "a/m (so, not asked: b/m (price))"
    cut = Plan(raced[:1], "ordered", "so", extra_nano=2e9)
    assert cut.story == "a/m (so)"


def test_fields_that_any_attempt_was_not_told_are_named_once() -> None:
    def attempt(*paths: str) -> Any:
        return SimpleNamespace(prepared=SimpleNamespace(dropped=paths))

    assert dropped_so_far([attempt(), attempt()]) == b""
    found = dropped_so_far([attempt("a", "b"), attempt("b", "c")])
    assert found == b"x-lightgate-dropped: a, b, c\r\n"


@pytest.mark.parametrize(
    ("provider", "called", "status", "again"),
    [
        ("lab", object(), None, True),  # it has not answered
        ("lab", object(), 500, False),
        ("lab", None, None, False),  # it runs
        ("other", None, 500, True),
    ],
)
def test_an_idempotency_key_goes_along_again_where_its_provider_has_not_answered(
    provider: str, called: Any, status: int | None, again: bool
) -> None:
    def target(name: str) -> Any:
        told = SimpleNamespace(provider=SimpleNamespace(name=name))
        return SimpleNamespace(target=told, passes=frozenset((IDEMPOTENCY,)))

    passed = ((IDEMPOTENCY, b"k"),)
    before = SimpleNamespace(target=target(provider), called=called, status=status)
    exchange: Any = SimpleNamespace(caller=SimpleNamespace(passed=passed), attempts=[before])
    assert (b": k\r\n" in passed_lines(exchange, target("lab"))) is again
    exchange.attempts = []
    assert b": k\r\n" in passed_lines(exchange, target("lab"))


# Events as they came

USAGE = b'{"choices":[],"usage":{"total_tokens":3}}'


def passed_on(*events: tuple[bytes, bytes], hides: bool = True, data: bytes = b"") -> bytes:
    attempt = StreamAttempt.__new__(StreamAttempt)
    attempt._hides_usage = hides
    return attempt._same(data, list(events), 0)


def test_one_plain_event_is_passed_on_as_it_came_and_others_are_written_anew() -> None:
    assert passed_on((b"", b"x"), data=b"data: x\n\n") == b"data: x\n\n"
    assert passed_on((b"", b"x"), data=b"data: x\n\r") == b"data: x\n\n"
    assert passed_on((b"", b"x"), data=b"data:x\n\n") == b"data: x\n\n"
    assert passed_on((b"e", b"x"), data=b"data: x\n\n") == b"event: e\ndata: x\n\n"
    two = passed_on((b"", b"a\nb"), (b"e", b"c"))
    assert two == b"data: a\ndata: b\n\nevent: e\ndata: c\n\n"


def test_counts_that_only_we_asked_for_are_hidden() -> None:
    alone = b"data: " + USAGE + b"\n\n"
    assert passed_on((b"", USAGE), data=alone) == b""
    assert passed_on((b"", USAGE), data=alone, hides=False) == alone
    assert passed_on((b"", b"x"), (b"", USAGE)) == b"data: x\n\n"
    for shown in (
        b'{"choices":[],"usage":null}',
        b'{"choices":[],"usages":1}',
        b'{"choices":[{}],"usage":{}}',
        b'{"choices":[] "usage":{}}',
    ):
        assert passed_on((b"", shown), (b"", b"x")) == b"data: %b\n\ndata: x\n\n" % shown


# Large bodies


class Large:
    """An exchange whose bodies are written as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.said: list[Any] = []
        self.kept: list[asyncio.Task[None]] = []
        self.error = error
        self.closed_ns: int | None = None
        self.due_ns = 100
        self.now = 99
        self.refusal: Any = None
        self.plan = Plan(STEPS, "ordered", "so")
        self.state = SimpleNamespace(
            now_ns=lambda: self.now, keep=self.kept.append, loop=asyncio.get_running_loop()
        )
        monkeypatch.setattr(large, "write_bodies", self._write)

    async def _write(self, exchange: Any, targets: list[str]) -> None:
        assert exchange is self
        self.said.append(targets)
        if self.error is not None:
            raise self.error

    def give_up(self) -> None:
        self.said.append("give up")

    def broke(self, defect: BaseException) -> None:
        self.said.append(defect)

    async def run(self) -> list[Any]:
        exchange: Any = self
        large.when_written(exchange, lambda: self.said.append("go on"))
        await asyncio.wait(self.kept)
        assert self.said.pop(0) == ["a/m", "b/m"]
        return self.said


async def test_a_large_body_goes_on_once_it_is_written_and_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await Large(monkeypatch).run() == ["go on"]
    late = Large(monkeypatch)
    late.now = 100
    assert await late.run() == ["give up"]
    left = Large(monkeypatch)
    left.closed_ns = 7
    assert await left.run() == []
    wrong = Large(monkeypatch, UsageError("wrong"))
    assert await wrong.run() == ["give up"]
    assert (wrong.refusal.status, wrong.refusal.message) == (400, "wrong")
    defect = ValueError("a defect")
    assert await Large(monkeypatch, defect).run() == [defect]
