"""The wait behind requests in flight: rooms and slopes that are found, and their use."""

from __future__ import annotations

import math
import random

import pytest

from lightgate.route.form.forms import Forms
from lightgate.route.form.lateness import KEPT, Lateness
from lightgate.route.form.prior import Prior
from lightgate.route.form.wait import (
    ALARM,
    DOUBT,
    ERROR_LEAST,
    FORGET,
    HOLDING_S,
    MOST,
    ROOM,
    SLACK,
    WaitCurve,
)
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.plan.alias import Alias, PlanAsk
from lightgate.route.plan.decide import decide

S = 1_000_000_000
A, B = "a/m", "b/m"


def fed(
    room: int, slope: float, most: int, *, samples: int = 400, noise: float = 0.05
) -> WaitCurve:
    """A curve that has met a target of this room, with as many in flight as `most`."""
    dice, curve = random.Random(7), WaitCurve()  # noqa: S311 - the same every time
    for _ in range(samples):
        flying = dice.randint(1, most)
        extra = slope * max(0, flying - room) * dice.expovariate(1.0) if flying > room else 0.0
        curve.saw(flying, extra + dice.gauss(0.0, noise), 0.3)
    return curve


@pytest.mark.parametrize(
    ("room", "slope", "most"), [(1, 0.5, 6), (2, 1.0, 6), (5, 0.4, 10), (8, 0.3, 14), (24, 0.1, 40)]
)
def test_the_room_and_the_slope_are_found(room: int, slope: float, most: int) -> None:
    curve = fed(room, slope, most)
    assert abs(curve.room - room) <= max(1, room // 5)
    truth = slope * (most - room)
    assert curve.seconds(most) == pytest.approx(truth, rel=0.35)
    assert curve.seconds(room * 0.5) <= 0.1 * truth
    assert not curve.spare(room)
    assert curve.spare(0.75 * curve.room)


def test_a_large_room_is_not_forgotten_within_a_few_turns_of_it() -> None:
    """Two hundred are served at once: a hundred first tokens are half of those in flight."""
    curve, dice = WaitCurve(), random.Random(11)  # noqa: S311 - the same every time
    for _ in range(800):
        flying = dice.randint(100, 300)
        curve.saw(flying, 0.01 * max(0, flying - 200) + dice.gauss(0.0, 0.05), 0.3)
    for _ in range(1000):  # a quiet spell says nothing about what is above it
        curve.saw(dice.randint(100, 199), dice.gauss(0.0, 0.05), 0.3)
    assert 160 <= curve.room <= 224
    assert curve.seconds(300) == pytest.approx(1.0, rel=0.3)


def test_without_a_queue_there_is_no_wait_and_always_room() -> None:
    curve = fed(1000, 0.0, 40)
    assert curve.seconds(40) < 0.03
    assert curve.spare(40)
    assert curve.easy == 40
    assert curve.hidden(41) == 0.0


def test_what_was_never_tried_has_a_price() -> None:
    curve = WaitCurve()
    assert curve.seconds(ROOM) == 0.0
    assert curve.seconds(ROOM + 2) == pytest.approx(2 * DOUBT * HOLDING_S / ROOM)
    curve.held(6.0)
    assert curve.seconds(ROOM + 2) == pytest.approx(2 * DOUBT * 6.0 / ROOM)
    curve.saw(10, 0.0, 0.3)  # ten at once were served: twenty may be
    assert curve.seconds(20) == 0.0
    assert curve.seconds(22) == pytest.approx(2 * DOUBT * 6.0 / 20)
    assert curve.hidden(12) > 0.0


def test_a_target_that_loses_half_of_its_room_is_seen_within_sixty_requests() -> None:
    curve, dice = fed(8, 0.3, 12), random.Random(3)  # noqa: S311 - the same every time
    before = curve.seconds(9)
    for _ in range(60):
        flying = dice.randint(3, 9)
        curve.saw(flying, 0.6 * max(0, flying - 4), 0.3)
    assert curve.seconds(9) > before + 1.0


def test_one_stall_bends_nothing() -> None:
    calm, stalled = fed(8, 0.3, 6), fed(8, 0.3, 6)
    stalled.saw(6, 60.0, 0.3)
    for _ in range(4):
        calm.saw(3, 0.0, 0.3)
        stalled.saw(3, 0.0, 0.3)
    assert stalled.seconds(6) < calm.seconds(6) + 0.3


def test_weights_stay_inside_a_float() -> None:
    curve = WaitCurve()
    for number in range(20_000):
        curve.saw(1 + number % 300, 0.0, 0.3)
    assert math.isfinite(curve.seconds(300))
    assert curve._unit < 1e10
    assert len(curve._bins) < 200


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_errors_to_one_side_are_forgotten_once_they_add_up(side: float) -> None:
    """Each counts beyond the slack, none for more than its most; after an alarm from the start."""
    curve = WaitCurve()

    def off(usual_errors: float) -> float:
        curve._notice(side * usual_errors * (curve._error_s + ERROR_LEAST * 0.3), 0.3)
        return curve._unit

    left = ALARM - 3 * (MOST - SLACK)
    for alarms in range(3):
        before = FORGET**alarms
        if alarms != 1:  # the second time begins where the first alarm has left it
            assert off(0.0) == off(-1.0) == off(SLACK) == before  # none of them adds anything
        assert off(2 * MOST) == off(MOST) == off(100.0) == before
        assert off(left + SLACK - 0.01) == before
        assert off(SLACK + 0.02) == before * FORGET


# In the form of a target


def forms() -> Forms:
    return Forms(
        {A: Prior(300.0, 400.0, 100.0, 90.0, 50.0), B: Prior(400.0, 500.0, 95.0, 85.0, 50.0)}
    )


def queued(known: Forms, target: str, slots: int, until_s: float = 60.0) -> int:
    """Play a target with slots: a request each 0.25 s, each holds one for 2 s."""
    free = [0.0] * slots
    flying: list[tuple[float, float, int]] = []
    now = 0.0
    while now < until_s:
        now += 0.25 + 0.05 * math.sin(now * 7)
        for end, began, kind in sorted(flying):
            if end <= now and kind == 0:
                known.first(target, 0, int(end * S), int(end * S) - int(began * S))
        for end, began, _ in [one for one in flying if one[0] + 1.7 <= now]:
            known.finished(target, int(now * S), 170, int(1.7 * S), int((end + 1.7 - began) * S))
            known.ended(target, int(began * S))
        flying = [
            (end, began, 1 if end <= now else 0) for end, began, _ in flying if end + 1.7 > now
        ]
        slot = free.index(min(free))
        start = max(now, free[slot])
        free[slot] = start + 2.0
        known.started(target, int(now * S))
        flying.append((start + 0.3, now, 0))
    return int(now * S)


def test_a_queue_is_not_taken_for_weather_and_a_free_target_is_preferred() -> None:
    known = forms()
    now = queued(known, A, 7)
    form = known.form(A)
    form.look(now)
    assert form.ttfts_s[0] < 0.6  # alone it is as quick as ever
    assert form.wait_s(now) > 0.1
    alias = Alias(name="m", targets=(A, B), policy="chat")
    found = decide(PlanAsk(alias=alias), Breakers(Rules(), lambda: 0.5), now, 0.5, known)
    assert found.steps[0].target == B
    assert found.predicted_ttft_ns == pytest.approx(0.4 * S, rel=0.2)


def test_the_engines_own_count_is_believed_for_three_seconds() -> None:
    known = forms()
    known.started(A, 1)
    known.engine(A, 9, 10 * S)
    form = known.form(A)
    assert form.flying(10 * S) == 9
    known.started(A, 2)
    assert form.flying(12 * S) == 10
    assert form.flying(13 * S) == 2
    known.engine(A, 0, 20 * S)  # counted before ours arrived
    assert form.flying(20 * S) == 2


def test_other_workers_counts_fade_into_as_many_each() -> None:
    known = forms()
    for number in range(4):
        known.started(A, number + 1)
    known.beside({"1": (5 * S, {A: 10}), "2": (5 * S, {A: 2})}, 5 * S)
    form = known.form(A)
    assert form.flying(5 * S) == 16
    assert form.flying(6 * S) == pytest.approx(4 + 12 / math.e + 8 * (1 - 1 / math.e))
    known.beside({"2": (7 * S, {})}, 8 * S)  # the other one has said nothing for too long
    assert form.flying(7 * S) == 4
    assert form.flying(8 * S) == pytest.approx(4 + 4 * (1 - 1 / math.e))
    known.beside({}, 30 * S)
    assert form.flying(30 * S) == 4
    assert not form.shared
    known.engine(A, 9, 30 * S)
    known.beside({}, 31 * S)
    assert form.flying(31 * S) == 9  # what the engine tells goes on


def test_a_target_that_has_gone_silent_looks_as_slow_as_its_oldest_request() -> None:
    known = forms()
    form = known.form(A)
    form.look(S)
    known.started(A, S)
    assert form.wait_s(4 * S) == 0.0  # one alone: a single stall
    known.started(A, int(1.5 * S))
    assert form.wait_s(int(1.8 * S)) == 0.0
    assert form.wait_s(4 * S) == pytest.approx(2.7)
    known.started(A, 2 * S)
    known.first(A, 0, int(2.3 * S), int(0.3 * S))  # a younger one was answered: a single stall
    form.look(4 * S)
    assert form.wait_s(4 * S) == 0.0


def test_a_curve_is_shared_until_own_samples_speak() -> None:
    first = forms()
    queued(first, A, 7)
    second = forms()
    second.adopt(first.export(), 60 * S)
    mine, theirs = second.form(A).curve, first.form(A).curve
    assert (mine.room, mine.slope, mine.widest) == (theirs.room, theirs.slope, theirs.widest)
    mine.saw(3, 0.0, 0.3)
    mine.take((2.0, 9.0, 10_000, 1.0))
    assert (mine.room, mine.widest) == (theirs.room, 10_000)


# Lateness


def test_a_stall_in_six_is_seen_and_a_wide_spread_is_not_one() -> None:
    steady, stalls, wide = Lateness(), Lateness(), Lateness()
    dice = random.Random(1)  # noqa: S311 - the same every time
    for number in range(KEPT):
        steady.saw(math.exp(dice.gauss(0.0, 0.2)), 0.3, 0.2)
        stalls.saw(12.0 if number % 6 == 0 else 1.0, 0.3, 0.2)
        wide.saw(math.exp(dice.gauss(0.0, 0.6)), 0.3, 0.6)
    assert (steady.mean, steady.tail) == (1.0, 1.0)
    assert stalls.tail > 3.0
    assert stalls.mean > 1.5
    assert wide.tail < 1.4
    for _ in range(KEPT):
        stalls.saw(1.0, 0.3, 0.2)
    assert (stalls.mean, stalls.tail) == (1.0, 1.0)


def test_a_stall_counts_as_long_as_a_hedge_leaves_it() -> None:
    found = Lateness()
    for _ in range(KEPT):
        found.saw(1000.0, 0.5, 0.2)
    assert max(found.last) == pytest.approx(2.0 + 2.0 / 0.5)
