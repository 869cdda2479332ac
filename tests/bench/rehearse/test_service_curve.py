from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.bench.rehearse.queue import ServiceQueue
from lightgate.bench.rehearse.service_curve import Presence, ServiceCurve, fit

NS = 1_000_000_000


def served(slots: int, load: float, n: int = 1500, seed: int = 1) -> tuple[list[int], list[float]]:
    """Others in flight at the start, and first tokens (s), of a queue that holds slots for 1 s."""
    dice = random.Random(seed)  # noqa: S311 - the same every time
    queue, at = ServiceQueue(slots), 0.0
    beside, firsts = [], []
    for number in range(n):
        at += dice.expovariate(load * slots)
        now = int(at * NS)
        beside.append(queue.busy(now))
        own = 0.2 * dice.lognormvariate(0.0, 0.3)
        entry = queue.enter(number, now, int((own + dice.expovariate(1.0 / 0.8)) * NS))
        firsts.append((entry.start_ns - now) / NS + own)
    return beside, firsts


@pytest.mark.parametrize("slots", [2, 5, 8, 24])
def test_the_slots_of_a_queue_are_found_and_what_one_more_costs(slots: int) -> None:
    curve = fit(*served(slots, 0.85))
    assert slots - 1 <= curve.hinge <= slots * 1.2 + 1
    assert curve.slope_s == pytest.approx(1.0 / slots, rel=0.35)  # one of them ends that often
    assert curve.added_s(0) == 0.0
    assert curve.added_s(slots + 10) > 5.0 / slots


def test_weather_without_load_has_no_slope() -> None:
    dice = random.Random(2)  # noqa: S311 - the same every time
    beside = [dice.randrange(12) for _ in range(2000)]
    firsts = [
        0.3 * dice.lognormvariate(0.0, 0.6) * (5 if at % 400 < 40 else 1) for at in range(2000)
    ]
    curve = fit(beside, firsts)
    assert (curve.slope_s, curve.seen, curve.samples) == (0.0, 11, 2000)


def test_one_stall_bends_no_line() -> None:
    beside, firsts = served(8, 0.5)
    firsts[100], beside[100] = 500.0, 7
    calm = fit(*served(8, 0.5))
    assert fit(beside, firsts).added_s(13) == pytest.approx(calm.added_s(13), rel=0.4)


@pytest.mark.parametrize("n", [0, 5, 39])
def test_few_attempts_say_nothing(n: int) -> None:
    beside, firsts = served(1, 0.9, n)
    assert fit(beside, firsts).slope_s == 0.0


@given(st.floats(0.01, 30.0), st.integers(0, 300), st.integers(0, 300))
def test_a_sample_that_is_moved_and_moved_back_is_at_least_a_part_of_itself(
    seconds: float, then: int, now: int
) -> None:
    curve = ServiceCurve(seen=20, samples=500, hinge=8, slope_s=0.2)
    moved = curve.moved_s(seconds, then, now)
    assert moved >= 0.3 * seconds
    assert curve.moved_s(seconds, then, then) >= seconds - 1e-9
    assert (now > then) <= (moved >= curve.moved_s(seconds, then, then))


def test_presence_counts_those_under_way() -> None:
    presence = Presence([(0, 10), (5, 7), (10, 20)])
    assert [presence.at(at) for at in (-1, 0, 5, 7, 9, 10, 20)] == [0, 1, 2, 1, 1, 1, 0]
