from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.bench.rehearse.queue import QueueEntry, ServiceQueue

if TYPE_CHECKING:
    import random

Came = list[tuple[int, int]]


def starts(queue: ServiceQueue, came: Came) -> list[int]:
    """When each of (instant, service) starts."""
    return [queue.enter(number, at, long).start_ns for number, (at, long) in enumerate(came)]


def by_hand(slots: int, came: Came) -> list[int]:
    """The same by slots that are free at an instant each."""
    free, found = [0] * slots, []
    for at, long in came:
        place = free.index(min(free))
        begin = max(at, free[place])
        free[place] = begin + long
        found.append(begin)
    return found


def test_as_many_as_there_are_slots_start_at_once_and_the_others_in_order() -> None:
    queue = ServiceQueue(2)
    assert starts(queue, [(0, 10), (1, 4), (2, 3), (3, 1), (20, 5)]) == [0, 1, 5, 8, 20]
    assert queue.busy(20) == 1
    assert queue.wait_ns(20) == 0


arrivals = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 30)), max_size=60)


@given(st.integers(1, 6), arrivals)
def test_any_traffic_is_served_as_by_hand(slots: int, gaps: Came) -> None:
    at, came = 0, []
    for gap, long in gaps:
        at += gap
        came.append((at, long))
    assert starts(ServiceQueue(slots), came) == by_hand(slots, came)


def test_one_that_leaves_while_waiting_lets_the_others_up() -> None:
    queue = ServiceQueue(1)
    first, second, third = (queue.enter(number, 0, 10) for number in range(3))
    assert [first.start_ns, second.start_ns, third.start_ns] == [0, 10, 20]
    assert queue.leave(second, 5) == [(2, 10)]
    assert third.start_ns == 10
    assert queue.leave(first, 6) == [(2, 4)]
    assert (third.start_ns, third.end_ns) == (6, 16)
    assert queue.leave(third, 16) == []
    assert queue.busy(16) == 0


def test_those_that_are_served_are_never_moved() -> None:
    queue = ServiceQueue(2)
    entries = [queue.enter(number, 0, 10 + number) for number in range(4)]
    running = entries[1]
    assert queue.leave(entries[0], 3) == [(2, 7)]
    assert (running.start_ns, running.end_ns) == (0, 11)
    assert [entry.start_ns for entry in entries[2:]] == [3, 11]


@given(st.integers(1, 4), arrivals, st.randoms(use_true_random=False))
def test_after_one_left_the_rest_is_served_by_the_slots_that_are_free_then(
    slots: int, gaps: Came, dice: random.Random
) -> None:
    queue, at = ServiceQueue(slots), 0
    entries: list[QueueEntry] = []
    for gap, long in gaps:
        at += gap
        entries.append(queue.enter(len(entries), at, long))
    if not entries:
        return
    before = {entry.number: entry.start_ns for entry in entries}
    gone = dice.choice(entries)
    running = [one for one in entries if one.start_ns <= at < one.end_ns and one is not gone]
    waiting = [one for one in entries if one.start_ns > at and one is not gone]
    moved = queue.leave(gone, at)
    free = [one.end_ns for one in running]
    free += [at] * (slots - len(free))
    expected = []
    for one in waiting:
        place = free.index(min(free))
        expected.append(max(at, free[place]))
        free[place] = expected[-1] + one.service_ns
    assert [one.start_ns for one in waiting] == expected
    assert moved == [
        (one.number, before[one.number] - one.start_ns)
        for one in waiting
        if before[one.number] != one.start_ns
    ]


def test_slots_that_go_and_come_back() -> None:
    queue = ServiceQueue(2, [(10, 1), (30, 2)])
    found = starts(queue, [(0, 15), (0, 15), (9, 10), (9, 10), (9, 10)])
    # Two end at 15; from 10 on one is served at a time, from 30 on two are.
    assert found == [0, 0, 15, 25, 30]


def test_without_a_slot_nothing_starts_until_there_is_one() -> None:
    queue = ServiceQueue(1, [(5, 0), (50, 1)])
    assert starts(queue, [(6, 1), (60, 1)]) == [50, 60]


@pytest.mark.parametrize("slots", [1, 8])
def test_the_list_of_entries_stays_short(slots: int) -> None:
    queue = ServiceQueue(slots)
    for number in range(5000):
        queue.enter(number, number * 10, 9)
    assert queue.busy(49_995) == 1
    assert len(queue._entries) < 200
