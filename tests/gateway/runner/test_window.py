"""How many lines are under way, and what follows an answer."""

from __future__ import annotations

import asyncio

import pytest

from lightgate.clock.source import ManualClock
from lightgate.gateway.runner.sender import (
    ALONE_TRIES,
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    TRIES,
    GatewayAnswer,
    Verdict,
    judge,
)
from lightgate.gateway.runner.window import CUT_NS, HOLD_NS, START, SendWindow, WindowClosed


async def entered(window: SendWindow, count: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(window.enter()) for _ in range(count)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def test_it_grows_by_one_for_each_round_of_answers() -> None:
    window = SendWindow(8, ManualClock().now_ns)
    await entered(window, 20)
    assert window.flying == START
    widths = []
    for _ in range(30):
        window.answered()
        window.leave()
        await asyncio.sleep(0)
        widths.append(window.width)
    assert widths == sorted(widths)
    assert widths[1] == START + 1
    assert widths[-1] == 8 or window.width <= 8
    window.close()


async def test_it_does_not_grow_while_it_is_not_used() -> None:
    window = SendWindow(8, ManualClock().now_ns)
    for _ in range(50):
        window.answered()
    assert window.width == START


async def test_a_refusal_halves_it_at_once_and_only_once_for_a_burst() -> None:
    clock = ManualClock()
    window = SendWindow(32, clock.now_ns)
    window.width = 16.0
    window.refused(0.0)
    window.refused(0.0)
    assert window.width == 8
    clock.advance(CUT_NS)
    window.refused(0.0)
    assert window.width == 4
    for _ in range(20):
        clock.advance(CUT_NS)
        window.refused(0.0)
    assert window.width == 1  # something always goes on


async def test_a_refused_width_is_not_tried_again_for_a_while() -> None:
    clock = ManualClock()
    window = SendWindow(32, clock.now_ns)
    window.width = 4.0
    window.refused(1.0)
    assert window.width == 2
    await entered(window, 40)
    for _ in range(40):
        window.answered()
        window.leave()
        await asyncio.sleep(0)
    assert window.width == 3  # four were refused
    clock.advance(HOLD_NS)
    await entered(window, 40)
    for _ in range(4):
        window.answered()
        window.leave()
        await asyncio.sleep(0)
    assert window.width == 4
    window.close()


async def test_after_a_refusal_of_the_only_line_nothing_is_sent_for_as_long_as_was_asked() -> None:
    clock = ManualClock()
    window = SendWindow(1, clock.now_ns)
    window.refused(0.005)
    (waiting,) = await entered(window, 1)
    assert not waiting.done()
    clock.advance(5_000_000)
    async with asyncio.timeout(20):
        await waiting
    assert window.flying == 1


async def test_who_is_cancelled_gives_the_turn_back() -> None:
    window = SendWindow(1, ManualClock().now_ns)
    first, second, third = await entered(window, 3)
    assert first.done()
    second.cancel()
    await asyncio.sleep(0)
    window.leave()
    await third
    assert window.flying == 1


async def test_a_closed_window_lets_nobody_through() -> None:
    window = SendWindow(1, ManualClock().now_ns)
    _, waiting = await entered(window, 2)
    window.close()
    with pytest.raises(WindowClosed):
        await waiting
    with pytest.raises(WindowClosed):
        await window.enter()


async def test_a_window_that_is_held_says_so_and_may_be_closed() -> None:
    clock = ManualClock()
    window = SendWindow(1, clock.now_ns)
    window.width = 1.0
    held = [window.held]
    window.refused(2.0)
    held.append(window.held)
    window.refused(1.0)  # no sooner than was asked before
    clock.advance(2_000_000_000 - 1)
    held.append(window.held)
    (waiting,) = await entered(window, 1)
    timer = window._timer
    assert timer is not None
    window.close()
    assert timer.cancelled()
    with pytest.raises(WindowClosed):
        await waiting
    clock.advance(1)
    assert [*held, window.held] == [False, True, True, False]


def verdict(status: int, tries: int = 0, *, alone: bool = True, **more: object) -> Verdict:
    return judge(GatewayAnswer(status, **more), tries, alone=alone)  # type: ignore[arg-type]


@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 413, 422])
def test_an_answer_or_a_fault_of_the_line_stands(status: int) -> None:
    assert verdict(status).wait_s is None


def test_no_room_is_no_try_however_often() -> None:
    for code in ("no_spare_room", "rpm", "rate_limit_exceeded"):
        assert verdict(429, 10**6, code=code, retry_after_s=7.0) == Verdict(7.0, crowded=True)
    assert verdict(429, 99).wait_s == LONGEST_WAIT_S
    assert verdict(503, 99, code="draining").crowded
    assert verdict(0, 99, sent=False) == Verdict(FIRST_WAIT_S, crowded=True)


def test_a_spent_account_is_no_rate_limit() -> None:
    assert verdict(429, code="insufficient_quota").wait_s is None


@pytest.mark.parametrize("status", [0, 500, 502, 503, 504])
def test_failures_are_tried_again_a_few_times(status: int) -> None:
    waits = [verdict(status, tries).wait_s for tries in range(TRIES)]
    assert waits == [1.0, 2.0, 4.0, None]
    assert verdict(status).counts


def test_a_budget_that_others_hold_is_waited_for() -> None:
    assert verdict(402, alone=True).wait_s is None
    assert verdict(402, alone=False).wait_s is not None
    assert verdict(402, ALONE_TRIES, alone=False).wait_s is None


async def test_a_turn_that_was_given_to_one_who_left_is_given_to_the_next() -> None:
    window = SendWindow(1, ManualClock().now_ns)
    first = await entered(window, 1)
    second, third = await entered(window, 2)
    await first[0]
    window.leave()  # the second has its turn, and does not know it yet
    second.cancel()
    await asyncio.wait({second})
    assert second.cancelled()
    await third
    assert window.flying == 1
