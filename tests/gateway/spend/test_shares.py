"""One key's words, read and written by hand: periods, rings, leases and what counts as taken."""

from __future__ import annotations

from array import array
from decimal import Decimal
from typing import Any

import pytest

from lightgate.gateway.spend import shares
from lightgate.gateway.spend.counter_file import SLOT_WORDS, Slot
from lightgate.gateway.spend.shares import (
    BASE,
    HELD,
    HELD_TOKENS,
    OWN_PERIOD,
    OWN_SECOND,
    OWN_WORDS,
    PERIOD,
    REQUEST_LIMIT,
    REQUESTS,
    RING,
    RING_REQUESTS,
    RING_TOKENS,
    SECOND_NS,
    SPEND_LIMIT,
    SPENT,
    TOKEN_LIMIT,
    TOKENS,
    UNLIMITED,
    Amounts,
    Lease,
    LockedSlot,
    lower_limits,
    place_of,
    room_s,
)
from lightgate.ledger.store.keys import KeyTerms, new_key

AT = 100  # where the slot begins, behind other words
SLOT = Slot(AT, b"", b"")


class Key:
    """The words of one key, and a view of it as worker 1 of three has it."""

    def __init__(self) -> None:
        self.words = memoryview(array("q", [0] * (AT + SLOT_WORDS + 10)))
        self.own = place_of(SLOT, 1)
        self.view = LockedSlot(self.words, AT, self.own, 3)

    def put(self, worker: int, **words: int) -> None:
        for name, value in words.items():
            self.words[place_of(SLOT, worker) + getattr(shares, name)] = value

    def got(self, worker: int, *names: str) -> list[int]:
        return [self.words[place_of(SLOT, worker) + getattr(shares, name)] for name in names]


@pytest.fixture
def key() -> Key:
    return Key()


def test_the_layout_of_a_slot() -> None:
    assert (PERIOD, BASE, RING_REQUESTS, RING_TOKENS) == (5, 6, 7, 69)
    assert (RING, OWN_WORDS, place_of(SLOT, 0), place_of(SLOT, 2)) == (61, 10, 231, 251)
    own = (OWN_PERIOD, HELD, SPENT, SPEND_LIMIT, OWN_SECOND, REQUESTS, REQUEST_LIMIT)
    assert (*own, HELD_TOKENS, TOKENS, TOKEN_LIMIT) == tuple(range(10))


@pytest.mark.parametrize(
    ("kept", "period", "base"),
    [(8, 8, 50), (12, 8, 50), (4, 8, 0), (16, 8, 0), (0, 8, 0), (9, 8, 0)],
)
def test_a_period_begins_the_spend_again(key: Key, kept: int, period: int, base: int) -> None:
    key.words[AT + PERIOD], key.words[AT + BASE] = kept, 50
    key.view.roll(period)
    assert key.words[AT + BASE] == base
    assert key.words[AT + PERIOD] == (kept if base else period)


def test_the_own_spend_begins_again_with_the_period(key: Key) -> None:
    key.words[AT + PERIOD] = 8
    key.put(1, OWN_PERIOD=8, SPENT=5, HELD=2, SPEND_LIMIT=9)
    key.view.begin_period()
    assert key.got(1, "OWN_PERIOD", "SPENT", "HELD", "SPEND_LIMIT") == [8, 5, 2, 9]
    key.words[AT + PERIOD] = 12
    key.view.begin_period()
    assert key.got(1, "OWN_PERIOD", "SPENT", "HELD", "SPEND_LIMIT") == [12, 0, 2, 2]


@pytest.mark.parametrize(("later", "kept"), [(1, True), (60, True), (61, False), (500, False)])
def test_the_own_counts_of_a_second_go_into_the_rings(key: Key, later: int, kept: bool) -> None:
    first = 1000
    key.view.begin_second(first)
    key.put(1, REQUESTS=3, TOKENS=40, HELD_TOKENS=7, REQUEST_LIMIT=5, TOKEN_LIMIT=90)
    key.view.begin_second(first)
    assert key.got(1, "REQUESTS", "TOKENS", "TOKEN_LIMIT") == [3, 40, 90]
    key.view.begin_second(first + later)
    own = key.got(1, "OWN_SECOND", "REQUESTS", "REQUEST_LIMIT", "TOKENS", "TOKEN_LIMIT")
    assert own == [first + later, 0, 0, 0, 7]
    place = 1 + first % RING
    rings = [key.words[AT + ring + place] for ring in (RING_REQUESTS, RING_TOKENS)]
    assert rings == ([3, 40] if kept else [0, 0])
    assert key.view.head() == first + later


def test_counts_of_one_second_add_up(key: Key) -> None:
    key.view.begin_second(1000)
    for _ in range(2):
        key.put(1, OWN_SECOND=999, REQUESTS=3, TOKENS=40)
        key.view.begin_second(1000)
    assert key.view.taken()[0][1:] == (6, 80)


@pytest.mark.parametrize(
    ("to", "left"),
    [(1000, 61), (1001, 60), (1059, 2), (1061, 0), (1062, 0), (999, 61), (939, 61), (938, 0)],
)
def test_a_ring_turns_and_drops_what_is_older_than_a_minute(key: Key, to: int, left: int) -> None:
    key.view.turn(1000)
    for ring in (RING_REQUESTS, RING_TOKENS):
        for place in range(RING):
            key.words[AT + ring + 1 + place] = 1
    key.view.turn(to)
    for ring in (RING_REQUESTS, RING_TOKENS):
        assert sum(key.words[AT + ring + 1 : AT + ring + 1 + RING]) == left
        assert key.words[AT + ring] == (to if not 939 <= to < 1000 else 1000)


def test_the_seconds_of_a_ring_from_the_oldest_on(key: Key) -> None:
    key.view.turn(1000)
    for back in range(RING):
        key.words[AT + RING_REQUESTS + 1 + (1000 - back) % RING] = 100 - back
    key.put(0, OWN_SECOND=1000, REQUESTS=7)
    key.put(2, OWN_SECOND=940, REQUESTS=9)  # the oldest that counts
    key.put(1, OWN_SECOND=939, REQUESTS=1000)
    found = key.view.seconds(RING_REQUESTS, REQUESTS)
    assert len(found) == RING
    assert found[0] == 40 + 9
    assert found[1:-1] == list(range(41, 100))
    assert found[-1] == 100 + 7


def test_what_is_taken_and_what_others_leased_of_it(key: Key) -> None:
    key.words[AT + PERIOD], key.words[AT + BASE] = 8, 1000
    key.view.turn(500)
    key.words[AT + RING_REQUESTS + 1] = 4
    key.words[AT + RING_TOKENS + 1] = 60
    key.put(0, OWN_PERIOD=8, HELD=5, SPENT=20, SPEND_LIMIT=30, OWN_SECOND=500, REQUESTS=2,
            REQUEST_LIMIT=6, HELD_TOKENS=3, TOKENS=10, TOKEN_LIMIT=25)  # fmt: skip
    key.put(1, OWN_PERIOD=8, HELD=1, SPENT=2, SPEND_LIMIT=99, OWN_SECOND=500, REQUESTS=1,
            REQUEST_LIMIT=99, HELD_TOKENS=4, TOKENS=5, TOKEN_LIMIT=99)  # fmt: skip
    key.put(2, OWN_PERIOD=4, HELD=7, SPENT=800, SPEND_LIMIT=0, OWN_SECOND=400, REQUESTS=50,
            REQUEST_LIMIT=40, HELD_TOKENS=6, TOKENS=70, TOKEN_LIMIT=80)  # fmt: skip
    taken, free = key.view.taken()
    assert free == (30 - 25, 6 - 2, (25 - 13) + (80 - 76))
    assert taken.nano_usd == 1000 + 25 + 3 + 7 + free.nano_usd  # of another period: reserved alone
    assert taken.requests == 4 + 2 + 1 + free.requests
    assert taken.tokens == 60 + 13 + 9 + 6 + free.tokens
    assert key.view.money() == (1000 + 20 + 2, 5 + 1 + 7)
    assert key.view.held_tokens() == 13


def test_a_lease_is_the_need_and_a_part_of_what_is_left(key: Key) -> None:
    key.put(1, SPENT=100, HELD=20, REQUESTS=3, TOKENS=40, HELD_TOKENS=7)
    key.view.lease(Amounts(6, 1, 9), Amounts(66, 13, 69))
    assert key.got(1, "SPEND_LIMIT", "REQUEST_LIMIT", "TOKEN_LIMIT") == [
        120 + 6 + 10,  # (66 - 6) // 6: half of an equal share of three
        3 + 1 + 2,
        47 + 9 + 10,
    ]
    key.view.lease(Amounts(6, 1, 9), Amounts(6, UNLIMITED, 9))
    assert key.got(1, "SPEND_LIMIT", "REQUEST_LIMIT", "TOKEN_LIMIT") == [126, UNLIMITED, 56]
    assert key.got(0, "SPEND_LIMIT") == key.got(2, "SPEND_LIMIT") == [0]


def test_leases_are_recalled_to_what_was_used(key: Key, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    monkeypatch.setattr(shares.time, "sleep", naps.append)  # type: ignore[attr-defined]
    for worker in range(3):
        key.put(worker, SPENT=5, HELD=2, SPEND_LIMIT=50, REQUESTS=3, REQUEST_LIMIT=30, TOKENS=8,
                HELD_TOKENS=1, TOKEN_LIMIT=4)  # fmt: skip
    key.view.recall()
    limits = ("SPEND_LIMIT", "REQUEST_LIMIT", "TOKEN_LIMIT")
    assert [key.got(worker, *limits) for worker in range(3)] == [
        [7, 3, 4], [50, 30, 4], [7, 3, 4],
    ]  # fmt: skip
    assert naps == [0.0001]
    lower_limits(key.words, key.own)
    assert key.got(1, *limits) == [7, 3, 4]  # never raised


@pytest.mark.parametrize(
    ("over", "wait_s"),
    [(1, 1.5), (2, 1.5), (3, 3.5), (5, 3.5), (6, 60.0)],
)
def test_the_wait_until_so_much_has_left_the_counts(over: int, wait_s: float) -> None:
    seconds = [0] * RING
    seconds[1], seconds[3] = 2, 3
    wall_ns = 1000 * SECOND_NS + SECOND_NS // 2
    assert room_s(seconds, 1000, over, wall_ns) == wait_s
    assert room_s(seconds, 990, 1, wall_ns) == 0.0


@pytest.mark.parametrize(
    ("terms", "budget", "limited"),
    [
        ({}, None, False),
        ({"budget_usd": Decimal("0.5")}, 500_000_000, False),
        ({"rpm": 1}, None, True),
        ({"tpm": 1}, None, True),
    ],
)
def test_a_lease_begins_with_nothing(
    key: Key, terms: dict[str, Any], budget: int | None, limited: bool
) -> None:
    record = new_key(KeyTerms(name="me", **terms))[1]
    lease = Lease(record, SLOT, 1, 2)
    assert (lease.budget_nano, lease.limited_per_minute, lease.kind) == (budget, limited, 2)
    assert (lease.at, lease.held_at, lease.spent_at) == (key.own, key.own + 1, key.own + 2)
    assert lease.spend_limit_at == key.own + 3
    counts = ("from_ns", "until_ns", "spent", "held", "requests", "tokens", "held_tokens")
    assert [getattr(lease, name) for name in counts] == [0] * 7
    key.put(1, SPENT=1, HELD=2, REQUESTS=3, TOKENS=4, HELD_TOKENS=5, SPEND_LIMIT=50)
    lease.read(key.words)
    assert [getattr(lease, name) for name in counts[2:]] == [1, 2, 3, 4, 5]
    lease.until_ns = 9
    lease.give_back(key.words)
    assert (lease.until_ns, key.got(1, "SPEND_LIMIT")) == (0, [3])
