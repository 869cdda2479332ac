"""Limits of a key at their edges, and the sentences of a denial."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lightgate.clock.source import ManualClock
from lightgate.gateway.spend.counters import Orphaned, SpendCounters, limited
from lightgate.gateway.spend.denial import beyond_share, too_dear, too_many, too_often
from lightgate.gateway.spend.shares import (
    REQUEST_LIMIT,
    SPEND_LIMIT,
    TOKEN_LIMIT,
    UNLIMITED,
    WORKERS,
)
from lightgate.ledger.store.keys import KeyRecord, KeyTerms, new_key

if TYPE_CHECKING:
    from pathlib import Path

S = 1_000_000_000
DAY = 86_400 * S
NOW = 19_675 * DAY + 15 * 3600 * S  # 2023-11-14, a Tuesday afternoon


def key(**terms: Any) -> KeyRecord:
    return new_key(KeyTerms(name="n", **terms), clock=ManualClock())[1]


class Desk:
    """One worker's counters, with a clock that is set by hand."""

    def __init__(self, folder: Path, *keys: KeyRecord, worker: int = 0) -> None:
        self.clock = ManualClock(wall_ns=NOW)
        self.counters = SpendCounters.open(folder / "spend", worker, keys, clock=self.clock)

    def admit(self, record: KeyRecord, nano: int, tokens: int = 0) -> str | None:
        denied = self.counters.admit(record, self.clock.wall_ns(), tokens, nano)
        return None if denied is None else denied.reason


def test_a_budget_is_spent_to_its_last_nano_dollar(tmp_path: Path) -> None:
    record = key(budget_usd=Decimal("0.000001"))  # 1,000 nano-dollars
    desk = Desk(tmp_path, record)
    assert desk.admit(record, 1001) == "budget"
    assert desk.admit(record, 600) is None
    assert desk.admit(record, 401) == "budget"
    assert desk.admit(record, 400) is None
    assert desk.admit(record, 1) == "budget"
    assert desk.admit(record, 0) is None
    desk.counters.settle(record.id, 600, 100, 0, 0)
    standing = desk.counters.standing(record.id)
    assert standing is not None
    assert (standing.spent_nano, standing.held_nano) == (100, 400)
    assert desk.admit(record, 501) == "budget"
    assert desk.admit(record, 500) is None
    desk.counters.settle(record.id, 900, 2000, 0, 0)  # the provider billed more than was asked
    standing = desk.counters.standing(record.id)
    assert standing is not None
    assert (standing.spent_nano, standing.held_nano) == (2100, 0)
    assert desk.admit(record, 1) == "budget"
    desk.counters.close()


@pytest.mark.parametrize(
    ("period", "step"), [("day", 9 * 3600 * S), ("month", 16 * DAY + 9 * 3600 * S)]
)
def test_a_budget_begins_again_with_its_period(tmp_path: Path, period: Any, step: int) -> None:
    record = key(budget_usd=Decimal("0.000001"), budget_period=period)
    desk = Desk(tmp_path, record)
    assert desk.admit(record, 1000) is None
    desk.counters.settle(record.id, 1000, 1000, 0, 0)
    assert desk.admit(record, 1) == "budget"
    desk.clock.advance(step - 1)
    assert desk.admit(record, 1) == "budget"
    desk.clock.advance(1)
    assert desk.admit(record, 1000) is None
    assert desk.admit(record, 1) == "budget"
    desk.counters.close()


def test_requests_of_a_minute(tmp_path: Path) -> None:
    record = key(rpm=2)
    desk = Desk(tmp_path, record)
    assert [desk.admit(record, 0) for _ in range(3)] == [None, None, "rpm"]
    desk.clock.advance(60 * S - 1)
    assert desk.admit(record, 0) == "rpm"
    desk.clock.advance(2 * S)
    assert [desk.admit(record, 0) for _ in range(3)] == [None, None, "rpm"]
    standing = desk.counters.standing(record.id)
    assert standing is not None
    assert standing.requests == 2
    desk.counters.close()


def test_tokens_of_a_minute(tmp_path: Path) -> None:
    record = key(tpm=100)
    desk = Desk(tmp_path, record)
    assert desk.admit(record, 0, 101) == "tpm"
    assert desk.admit(record, 0, 60) is None
    assert desk.admit(record, 0, 41) == "tpm"
    assert desk.admit(record, 0, 40) is None
    desk.counters.settle(record.id, 0, 0, 60, 10)
    standing = desk.counters.standing(record.id)
    assert standing is not None
    assert (standing.tokens, standing.held_tokens) == (10, 40)
    assert desk.admit(record, 0, 51) == "tpm"
    assert desk.admit(record, 0, 50) is None
    desk.counters.settle(record.id, 0, 0, 500, 0)
    standing = desk.counters.standing(record.id)
    assert standing is not None
    assert standing.held_tokens == 0
    desk.counters.close()


def test_the_first_limit_that_is_met_is_told(tmp_path: Path) -> None:
    record = key(rpm=1, tpm=10, budget_usd=Decimal("0.000001"))
    desk = Desk(tmp_path, record)
    assert desk.admit(record, 1001, 11) == "tpm"
    assert desk.admit(record, 1001, 10) == "budget"
    assert desk.admit(record, 1000, 10) is None
    assert desk.admit(record, 9999, 99) == "rpm"
    desk.counters.close()


def test_a_key_without_limits_is_not_counted(tmp_path: Path) -> None:
    record = key()
    desk = Desk(tmp_path, record)
    assert not limited(record)
    assert all(
        limited(key(**terms)) for terms in ({"rpm": 1}, {"tpm": 1}, {"budget_usd": Decimal(1)})
    )
    assert desk.admit(record, 10**30, 10**30) is None
    assert desk.counters.standing(record.id) is None
    desk.counters.settle(record.id, 1, 1, 1, 1)
    desk.counters.load_spend(record.id, 5)
    desk.counters.close()


def test_wishes_beyond_all_measure_are_counted_as_much(tmp_path: Path) -> None:
    record = key(budget_usd=Decimal(10**9), tpm=2**51)
    desk = Desk(tmp_path, record)
    assert desk.admit(record, 10**30, 10**30) is None
    standing = desk.counters.standing(record.id)
    assert standing is not None
    assert (standing.held_nano, standing.held_tokens) == (2**50, 2**50)
    desk.counters.settle(record.id, 10**30, 10**30, 10**30, 10**30)
    standing = desk.counters.standing(record.id)
    assert standing is not None
    assert (standing.spent_nano, standing.held_nano) == (2**50, 0)
    assert (standing.tokens, standing.held_tokens) == (2**50, 0)
    desk.counters.close()


def test_what_the_ledger_knows_raises_the_spend_and_never_lowers_it(tmp_path: Path) -> None:
    record = key(budget_usd=Decimal("0.000001"))
    desk = Desk(tmp_path, record)
    for known, spent in ((700, 700), (600, 700), (701, 701)):
        desk.counters.load_spend(record.id, known)
        standing = desk.counters.standing(record.id)
        assert standing is not None
        assert standing.spent_nano == spent
    assert desk.admit(record, 300) == "budget"
    assert desk.admit(record, 299) is None
    desk.counters.close()


def test_what_a_dead_worker_held_is_told_and_freed(tmp_path: Path) -> None:
    record = key(budget_usd=Decimal("0.000001"), tpm=100)
    dead, desk = Desk(tmp_path, record, worker=1), Desk(tmp_path, record)
    assert dead.admit(record, 400, 30) is None
    assert desk.counters.workers == 2
    assert desk.admit(record, 601) == "budget"
    assert desk.counters.clear_worker(1) == {record.id: Orphaned(400, 30)}
    assert desk.counters.clear_worker(1) == {}
    assert desk.admit(record, 1000, 100) is None
    assert desk.counters.clear_worker(0) == {record.id: Orphaned(1000, 100)}
    assert desk.counters._leases[record.id].until_ns == 0  # nothing is leased to it any more
    assert desk.admit(record, 1000, 100) is None
    dead.counters.close()
    desk.counters.close()


def test_charging_a_dead_worker_leaves_what_the_living_one_holds(tmp_path: Path) -> None:
    record = key(budget_usd=Decimal("0.000001"), tpm=100)
    dead, desk = Desk(tmp_path, record, worker=1), Desk(tmp_path, record)
    assert dead.admit(record, 5, 6) is None
    assert desk.admit(record, 7, 9) is None
    dead.counters._file.close()  # as a killed process leaves it
    desk.counters.charge_dead()
    standing = desk.counters.standing(record.id)
    assert standing is not None
    assert (standing.spent_nano, standing.held_nano) == (5, 7)
    assert (standing.tokens, standing.held_tokens) == (6, 9)
    desk.counters.close()


def test_what_was_leased_to_a_dead_worker_can_be_leased_again(tmp_path: Path) -> None:
    record = key(budget_usd=Decimal("0.000001"), rpm=100, tpm=100)
    dead, desk = Desk(tmp_path, record, worker=1), Desk(tmp_path, record)
    assert dead.admit(record, 400, 30) is None
    dead.counters.settle(record.id, 400, 300, 30, 20)
    assert dead.admit(record, 5, 5) is None
    words, at = desk.counters._file.words, dead.counters._leases[record.id].at
    limits = (SPEND_LIMIT, REQUEST_LIMIT, TOKEN_LIMIT)
    assert all(words[at + limit] > least for limit, least in zip(limits, (305, 2, 25), strict=True))
    assert desk.counters.clear_worker(1) == {record.id: Orphaned(5, 5)}
    assert [words[at + limit] for limit in limits] == [300, 2, 20]
    dead.counters.close()
    desk.counters.close()


@pytest.mark.parametrize("worker", [-1, WORKERS])
def test_a_worker_has_a_number(tmp_path: Path, worker: int) -> None:
    with pytest.raises(ValueError, match="a worker is a number"):
        Desk(tmp_path, worker=worker)


# Sentences


def test_what_a_denial_says() -> None:
    often = too_often(12.2, 5)
    assert (often.reason, often.retry_after_s) == ("rpm", 12.2)
    assert "5 requests in a minute; try again in 13 s" in often.message
    assert too_often(61.0, 5).retry_after_s == 60.0
    many = too_many(7.5, 100, 100)
    assert (many.reason, many.retry_after_s) == ("tpm", 7.5)
    assert "may take 100; try again in 8 s, or ask for fewer" in many.message
    assert "may take 101; ask for fewer" in too_many(99.0, 100, 101).message
    assert too_many(99.0, 100, 101).retry_after_s == 60.0
    share = beyond_share(2.1)
    assert (share.reason, share.retry_after_s) == ("share", 2.1)
    assert "share is used up; try again in 3 s" in share.message


@pytest.mark.parametrize(
    ("period", "wait_s", "span", "again"),
    [
        ("total", 86_400.0, "", ""),
        ("day", 9 * 3600.0, " for today", "2023-11-15"),
        ("month", (16 * 24 + 9) * 3600.0, " for this month", "2023-12-01"),
    ],
)
def test_what_a_denial_of_money_says(period: Any, wait_s: float, span: str, again: str) -> None:
    record = key(budget_usd=Decimal(5), budget_period=period)
    denied = too_dear(record, NOW, 1_000_000_001, 250_000_000)
    assert (denied.reason, denied.retry_after_s) == ("budget", wait_s)
    assert denied.message.startswith("This key has $1.000000001 left ")
    full = f"; the budget is full again on {again} (UTC)" if again else ""
    words = f"its budget of $5{span}, and this request may cost $0.25{full}."
    assert denied.message.endswith(words)
    assert "has $0.00 left" in too_dear(record, NOW, -5, 1).message
    assert "may cost $0.000000001" in too_dear(record, NOW, 0, 1).message


def test_december_is_followed_by_january() -> None:
    record = key(budget_usd=Decimal(5), budget_period="month")
    denied = too_dear(record, NOW + 30 * DAY, 0, 1)
    assert "again on 2024-01-01" in denied.message
    assert denied.retry_after_s == (17 * 24 + 9) * 3600.0


def test_a_month_ends_in_utc_wherever_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    record = key(budget_usd=Decimal(5), budget_period="month")
    try:
        with monkeypatch.context() as abroad:
            abroad.setenv("TZ", "FAR-9")  # clocks there are nine hours ahead
            time.tzset()
            denied = too_dear(record, NOW, 0, 1)
    finally:
        time.tzset()
    assert "again on 2023-12-01" in denied.message
    assert denied.retry_after_s == (16 * 24 + 9) * 3600.0


@pytest.mark.parametrize(
    ("nano", "tokens"), [(10**30, 5), (5, 10**30), (2**50 + 1, 2**50), (2**50, 2**50 + 1)]
)
def test_one_wish_beyond_all_measure_is_given_back_as_it_was_counted(
    tmp_path: Path, nano: int, tokens: int
) -> None:
    """Each number is counted as 2**50 at most, whatever the other one is."""
    record = key(budget_usd=Decimal(10**9), tpm=2**53)
    desk = Desk(tmp_path, record)
    most_nano, most_tokens = min(nano, 2**50), min(tokens, 2**50)
    for held in (1, 2):
        assert desk.admit(record, nano, tokens) is None
        standing = desk.counters.standing(record.id)
        assert standing is not None
        assert (standing.held_nano, standing.held_tokens) == (held * most_nano, held * most_tokens)
    desk.counters.settle(record.id, nano, nano, tokens, tokens)
    standing = desk.counters.standing(record.id)
    assert standing is not None
    assert (standing.held_nano, standing.held_tokens) == (most_nano, most_tokens)
    assert (standing.spent_nano, standing.tokens) == (most_nano, most_tokens)
    desk.counters.close()


def test_what_is_settled_at_midnight_is_of_the_new_day(tmp_path: Path) -> None:
    record = key(budget_usd=Decimal("0.000001"), budget_period="day")
    desk = Desk(tmp_path, record)
    assert desk.admit(record, 600) is None
    desk.clock.advance(9 * 3600 * S)
    desk.counters.settle(record.id, 600, 500, 0, 0)
    standing = desk.counters.standing(record.id)
    assert standing is not None
    assert (standing.spent_nano, standing.held_nano) == (500, 0)
    desk.counters.close()


def test_what_is_settled_at_the_turn_of_a_second_is_of_the_new_second(tmp_path: Path) -> None:
    record = key(tpm=100)
    desk = Desk(tmp_path, record)
    assert desk.admit(record, 0, 60) is None
    desk.clock.advance(S)
    desk.counters.settle(record.id, 0, 0, 60, 60)
    desk.clock.advance(61 * S - 1)  # the second of its settlement has not left the minute
    assert desk.admit(record, 0, 41) == "tpm"
    desk.clock.advance(1)
    assert desk.admit(record, 0, 100) is None
    desk.counters.close()


def test_the_keys_of_a_file(tmp_path: Path) -> None:
    free, some = key(), [key(rpm=1), key(budget_usd=Decimal(1))]
    desk = Desk(tmp_path, free, *some)
    desk.counters.close()
    assert SpendCounters.keys_in(tmp_path / "spend") == {record.id for record in some}


def test_what_is_left_of_a_budget(tmp_path: Path) -> None:
    record, often, free = key(budget_usd=Decimal("0.000001")), key(rpm=1), key()
    desk = Desk(tmp_path, record, often)
    assert desk.counters.left_nano(record) == 1000
    assert desk.admit(record, 300) is None
    assert desk.admit(record, 50) is None
    desk.counters.settle(record.id, 300, 200, 0, 0)
    assert desk.counters.left_nano(record) == 1000 - 200 - 50
    assert [desk.counters.left_nano(one) for one in (often, free)] == [UNLIMITED, UNLIMITED]
    desk.counters.close()


def test_a_minute_passes_where_nobody_asks(tmp_path: Path) -> None:
    record = key(rpm=5, tpm=100)
    desk = Desk(tmp_path, record)
    assert desk.admit(record, 0, 9) is None
    desk.counters.settle(record.id, 0, 0, 9, 7)
    for step, counted in ((0, (1, 7)), (60 * S, (1, 7)), (1 * S, (0, 0)), (3600 * S, (0, 0))):
        desk.clock.advance(step)
        standing = desk.counters.standing(record.id)
        assert standing is not None
        assert (standing.requests, standing.tokens) == counted
    desk.counters.close()


@pytest.mark.parametrize(("nano", "limit"), [(675, 325), (676, 100)])
def test_a_lease_is_recalled_where_the_rest_is_not_enough(
    tmp_path: Path, nano: int, limit: int
) -> None:
    """Of 1,000 the other has 100 and a quarter of the other 900: 675 are nobody's."""
    record = key(budget_usd=Decimal("0.000001"))
    desk, other = Desk(tmp_path, record), Desk(tmp_path, record, worker=1)
    assert other.admit(record, 100) is None
    words, at = desk.counters._file.words, other.counters._leases[record.id].at
    assert words[at + SPEND_LIMIT] == 325
    assert desk.admit(record, nano) is None
    assert words[at + SPEND_LIMIT] == limit
    other.counters.close()
    desk.counters.close()


def test_how_long_a_key_waits_whose_limit_was_lowered(tmp_path: Path) -> None:
    """Five requests in five seconds, and two a minute from now on: four of them have to leave."""
    record = key(rpm=5)
    desk = Desk(tmp_path, record)
    for _ in range(5):
        assert desk.admit(record, 0) is None
        desk.clock.advance(S)
    lower = msgspec.structs.replace(record, rpm=2)
    denied = desk.counters.admit(lower, desk.clock.wall_ns(), 0, 0)
    assert denied is not None
    assert (denied.reason, denied.retry_after_s) == ("rpm", 3 + 61 - 5)
    desk.counters.close()


@pytest.mark.parametrize(("tokens", "wait_s"), [(11, 41), (65, 41), (70, 41), (71, 51), (100, 51)])
def test_how_long_tokens_wait(tmp_path: Path, tokens: int, wait_s: int) -> None:
    """Of 100 in a minute 60 are used now and 30 ten seconds later; 10 are left."""
    record = key(tpm=100)
    desk = Desk(tmp_path, record)
    for used in (60, 30):
        assert desk.admit(record, 0, used) is None
        desk.counters.settle(record.id, 0, 0, used, used)
        desk.clock.advance(10 * S)
    denied = desk.counters.admit(record, desk.clock.wall_ns(), tokens, 0)
    assert denied is not None
    assert (denied.reason, denied.retry_after_s) == ("tpm", wait_s)
    assert desk.admit(record, 0, 10) is None
    desk.counters.close()
