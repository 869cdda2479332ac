"""The time by which a process deletes: the wall clock, if its life agrees."""

from __future__ import annotations

import time

from lightgate.clock.source import CONFIRM_NS, SYSTEM, LifeClock, ManualClock

WALL = 1_800_000_000_000_000_000


def test_nothing_is_old_in_the_first_hour_of_a_life() -> None:
    clock = ManualClock(7, WALL)
    life = LifeClock(clock)
    assert life.old_ns() == 0
    clock.advance(CONFIRM_NS - 1)
    assert life.old_ns() == 0
    clock.advance(1)
    assert life.old_ns() == WALL + CONFIRM_NS


def test_a_leap_ahead_counts_for_an_hour_at_most_and_one_back_in_full() -> None:
    clock = ManualClock(7, WALL)
    life = LifeClock(clock)
    clock.advance(3 * CONFIRM_NS)
    clock.step_wall(CONFIRM_NS)
    assert life.old_ns() == clock.wall_ns() == WALL + 4 * CONFIRM_NS
    clock.step_wall(1)
    assert life.old_ns() == WALL + 4 * CONFIRM_NS
    clock.step_wall(-9 * CONFIRM_NS)
    assert life.old_ns() == clock.wall_ns()


def test_a_clock_that_is_set_by_hand() -> None:
    clock = ManualClock(3, 50)
    clock.advance(4)
    clock.step_wall(-10)
    assert (clock.now_ns(), clock.wall_ns()) == (7, 44)


def test_the_clocks_of_the_system() -> None:
    before = time.monotonic_ns(), time.time_ns()
    now = SYSTEM.now_ns(), SYSTEM.wall_ns()
    assert all(one <= other for one, other in zip(before, now, strict=True))
    assert now[0] <= time.monotonic_ns()
