"""One key's slot, word by word: rings, leases of several workers, and what is left."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.gateway.spend import shares
from lightgate.gateway.spend.counter_file import SLOT_WORDS
from lightgate.gateway.spend.shares import (
    BASE,
    HELD,
    HELD_TOKENS,
    OWN_PERIOD,
    OWN_WORDS,
    PERIOD,
    REQUEST_LIMIT,
    REQUESTS,
    RING,
    RING_REQUESTS,
    RING_TOKENS,
    SPEND_LIMIT,
    SPENT,
    TOKEN_LIMIT,
    TOKENS,
    Amounts,
    LockedSlot,
    SeenSpend,
    has_lease,
    lower_limits,
    place_of,
)

AT = 7  # where the slot begins: not at the first word
NOW = 1000  # the newest second of the rings


class Bench:
    """A slot with three workers; the second of them looks at it."""

    def __init__(self, workers: int = 3) -> None:
        self.words: Any = memoryview(array("q", bytes(8 * (AT + SLOT_WORDS))))
        self.workers = workers
        self.own = self.place(1)
        self.slot = LockedSlot(self.words, AT, self.own, workers)
        self.words[AT + PERIOD] = 40
        self.words[AT + RING_REQUESTS] = self.words[AT + RING_TOKENS] = NOW

    def place(self, worker: int) -> int:
        return place_of(SimpleNamespace(at=AT), worker)  # type: ignore[arg-type]

    def put(self, worker: int, **counts: int) -> None:
        """Set words of a worker, which are of this period and second unless said otherwise."""
        at = self.place(worker)
        plain = {"own_period": 40, "own_second": NOW}
        for name, value in (plain | counts).items():
            self.words[at + getattr(shares, name.upper())] = value

    def got(self, worker: int, *names: int) -> tuple[int, ...]:
        return tuple(self.words[self.place(worker) + name] for name in names)

    def ring(self, ring: int, counts: dict[int, int]) -> None:
        """Counts by second."""
        for second, count in counts.items():
            self.words[AT + ring + 1 + second % RING] = count


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_workers_words_stand_one_after_the_other(bench: Bench) -> None:
    places = [bench.place(worker) for worker in range(3)]
    assert [place - places[0] for place in places] == [0, OWN_WORDS, 2 * OWN_WORDS]
    assert places[0] == AT + RING_TOKENS + 1 + RING


def test_all_seconds_of_a_ring_count(bench: Bench) -> None:
    for second in range(NOW - RING + 1, NOW + 1):
        bench.ring(RING_REQUESTS, {second: 1})
        bench.ring(RING_TOKENS, {second: 1000 + second})
    taken, free = bench.slot.taken()
    assert (taken.requests, taken.tokens) == (
        RING, sum(1000 + second for second in range(NOW - RING + 1, NOW + 1)),
    )  # fmt: skip
    assert (taken.nano_usd, free) == (0, Amounts(0, 0, 0))
    seconds = bench.slot.seconds(RING_TOKENS, TOKENS)
    assert seconds == [1000 + second for second in range(NOW - RING + 1, NOW + 1)]
    assert bench.slot.seconds(RING_REQUESTS, REQUESTS) == [1] * RING
    assert bench.slot.head() == NOW


def test_what_is_taken_is_spent_reserved_and_leased_to_others(bench: Bench) -> None:
    bench.words[AT + BASE] = 5
    bench.put(0, held=10, spent=20, spend_limit=100, requests=3, request_limit=7, held_tokens=30,
              tokens=40, token_limit=200)  # fmt: skip
    bench.put(1, held=1, spent=2, spend_limit=1000, requests=4, request_limit=1000, held_tokens=5,
              tokens=6, token_limit=1000)  # fmt: skip
    bench.put(
        2,
        held=7,
        spent=8,
        spend_limit=9,
        requests=2,
        request_limit=1,
        held_tokens=3,
        tokens=4,
        token_limit=5,
    )  # fmt: skip - more than was leased to it
    taken, free = bench.slot.taken()
    assert free == Amounts(70, 4, 130)
    assert taken == Amounts(5 + 100 + 3 + 15, 7 + 4 + 2, 200 + 11 + 7)
    assert bench.slot.money() == (5 + 20 + 2 + 8, 10 + 1 + 7)
    assert bench.slot.held_tokens() == 30 + 5 + 3


def test_counts_of_another_period_or_an_old_second_are_over_but_reservations_hold(
    bench: Bench,
) -> None:
    bench.put(0, own_period=36, held=10, spent=20, own_second=NOW - RING, requests=3,
              held_tokens=30, tokens=40)  # fmt: skip
    bench.put(2, own_second=NOW - RING + 1, requests=5, held_tokens=2, tokens=4)
    taken, _ = bench.slot.taken()
    assert taken == Amounts(10, 5, 30 + 6)
    assert bench.slot.money() == (0, 10)
    assert bench.slot.seconds(RING_REQUESTS, REQUESTS) == [5] + [0] * (RING - 1)
    assert bench.slot.seconds(RING_TOKENS, TOKENS)[0] == 4


def test_counts_of_a_second_to_come_are_not_of_this_minute(bench: Bench) -> None:
    bench.put(0, own_second=NOW + 1, requests=3, tokens=4, held_tokens=5)
    assert bench.slot.taken()[0] == Amounts(0, 0, 5)
    assert sum(bench.slot.seconds(RING_REQUESTS, REQUESTS)) == 0


@pytest.mark.parametrize(
    ("second", "left", "head"),
    [
        (NOW, list(range(1, 62)), NOW),
        (NOW + 1, [*range(2, 62), 0], NOW + 1),
        (NOW + 60, [61, *[0] * 60], NOW + 60),
        (NOW + 61, [0] * 61, NOW + 61),
        (NOW + 62, [0] * 61, NOW + 62),
        (NOW + 500, [0] * 61, NOW + 500),
        (NOW - 61, list(range(1, 62)), NOW),
        (NOW - 62, [0] * 61, NOW - 62),
    ],
)
def test_rings_turn_with_the_seconds(bench: Bench, second: int, left: list[int], head: int) -> None:
    for ring in (RING_REQUESTS, RING_TOKENS):
        bench.ring(ring, {NOW - 60 + n: n + 1 for n in range(61)})
    bench.slot.turn(second)
    for ring, count in ((RING_REQUESTS, REQUESTS), (RING_TOKENS, TOKENS)):
        assert bench.slot.seconds(ring, count) == left
        assert bench.words[AT + ring] == head


def test_a_lower_limit_is_never_raised(bench: Bench) -> None:
    bench.put(
        0, held=5, spent=5, spend_limit=8, requests=9, request_limit=1, tokens=9, token_limit=2
    )
    lower_limits(bench.words, bench.place(0))
    assert bench.got(0, SPEND_LIMIT, REQUEST_LIMIT, TOKEN_LIMIT) == (8, 1, 2)


def test_one_more_worker_is_seen_where_there_is_one() -> None:
    bench = Bench(workers=2)
    bench.put(2, held=9, spent=9)
    assert bench.slot.money() == (0, 0)
    assert Bench(workers=2).slot.taken()[0] == Amounts(0, 0, 0)
    assert bench.got(2, HELD, HELD_TOKENS, TOKENS, SPENT) == (9, 0, 0, 9)


def test_what_was_seen_of_a_spend_raises_it_and_never_lowers_it(bench: Bench) -> None:
    bench.words[AT + BASE] = 50
    bench.put(0, spent=20)
    bench.put(1, spent=30, own_period=36)  # of a period that is over
    bench.put(2, spent=9, own_period=36)
    bench.slot.raise_to(SeenSpend(40, 60, [10, 5, 0]))
    assert (bench.words[AT + PERIOD], bench.words[AT + BASE]) == (40, 60)
    assert [bench.got(worker, SPENT, OWN_PERIOD) for worker in range(3)] == [
        (20, 40), (5, 40), (0, 40),
    ]  # fmt: skip
    bench.slot.raise_to(SeenSpend(40, 55, [21, 4, 8]))
    assert bench.words[AT + BASE] == 60
    assert [bench.got(worker, SPENT)[0] for worker in range(3)] == [21, 5, 8]
    assert bench.slot.money() == (60 + 21 + 5 + 8, 0)


def test_a_spend_that_was_seen_begins_its_period(bench: Bench) -> None:
    bench.words[AT + PERIOD], bench.words[AT + BASE] = 36, 50
    bench.put(0, spent=20, own_period=36)
    bench.slot.raise_to(SeenSpend(40, 3, [10]))
    assert (bench.words[AT + PERIOD], bench.words[AT + BASE]) == (40, 3)
    assert bench.slot.money() == (13, 0)


def test_a_spend_is_seen_as_far_as_it_is_of_this_period(bench: Bench) -> None:
    bench.words[AT + BASE] = 5
    bench.put(0, spent=20)
    bench.put(1, spent=30, own_period=36)
    bench.put(2, spent=8)
    assert bench.slot.seen() == SeenSpend(40, 5, [20, 0, 8])


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_a_spend_is_seen_for_as_many_workers_as_there_were(bench: Bench, workers: int) -> None:
    bench.slot.raise_to(SeenSpend(40, 0, [9] * workers))
    assert [bench.got(worker, SPENT)[0] for worker in range(3)] == [
        *[9] * workers, *[0] * (3 - workers),
    ]  # fmt: skip


def test_a_spend_of_another_period_raises_nothing(bench: Bench) -> None:
    bench.words[AT + BASE] = 50
    bench.slot.raise_to(SeenSpend(36, 60, [10]))
    assert (bench.words[AT + PERIOD], bench.words[AT + BASE]) == (40, 50)
    assert bench.got(0, SPENT) == (0,)


@pytest.mark.parametrize(
    ("counts", "leased"),
    [
        ({}, False),
        ({"held": 1}, True),
        ({"held_tokens": 1}, True),
        ({"spend_limit": 6, "spent": 5}, True),
        ({"spend_limit": 5, "spent": 5}, False),
        ({"spend_limit": 4, "spent": 5}, False),
        ({"request_limit": 6, "requests": 5}, True),
        ({"request_limit": 5, "requests": 5}, False),
        ({"request_limit": 4, "requests": 5}, False),
        ({"token_limit": 6, "tokens": 5}, True),
        ({"token_limit": 5, "tokens": 5}, False),
        ({"token_limit": 4, "tokens": 5}, False),
    ],
)
def test_a_worker_has_a_lease_while_it_may_take_more(
    bench: Bench, counts: dict[str, int], leased: bool
) -> None:
    bench.put(2, **counts)
    assert has_lease(bench.words, bench.place(2)) is leased
    assert not has_lease(bench.words, bench.place(1))
