"""Counters that were lost, filled again from the ledger and from journals that are not shipped."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from ledger.notes import T0, reserved, settled
from lightgate.clock.source import ManualClock
from lightgate.errors import LightgateError
from lightgate.gateway.spend import recount as module
from lightgate.gateway.spend.counters import SpendCounters
from lightgate.gateway.spend.denial import RECOUNT_S
from lightgate.gateway.spend.recount import Recounting, known_spend
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.locate import LedgerPlace
from lightgate.ledger.store.keys import KeyTerms, new_key

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.ledger.store.keys import KeyRecord

DOLLAR = 1_000_000_000


def key(budget: int | None = 100) -> KeyRecord:
    dollars = None if budget is None else Decimal(budget)
    return new_key(KeyTerms(name="n", budget_usd=dollars), clock=ManualClock())[1]


def test_what_is_shipped_and_what_waits_are_counted_once(tmp_path: Path) -> None:
    one, other, free = key(), key(), key(None)
    place = LedgerPlace("sqlite", tmp_path)
    journal = Journal(tmp_path / "journal", 0)
    for number, record in enumerate((one, one, other, free)):
        journal.write(reserved(f"x-{number}", key_id=record.id, nano_usd=9 * DOLLAR, wall_ns=T0))
    journal.write(settled("x-0", key_id=one.id, cost_nano=2 * DOLLAR, wall_ns=T0))
    with place.open() as ledger:
        Shipper(ledger, tmp_path / "journal").drain()
        keys = (one, other, free)
        assert known_spend(place, keys, T0) == {one.id: 11 * DOLLAR, other.id: 9 * DOLLAR}
        # Not shipped yet: the end of the second, and a third that is only reserved.
        journal.write(settled("x-1", key_id=one.id, cost_nano=3 * DOLLAR, wall_ns=T0))
        journal.write(reserved("x-9", key_id=one.id, nano_usd=4 * DOLLAR, wall_ns=T0))
        assert known_spend(place, keys, T0) == {one.id: 9 * DOLLAR, other.id: 9 * DOLLAR}
        Shipper(ledger, tmp_path / "journal").drain()
        assert known_spend(place, keys, T0) == {one.id: 9 * DOLLAR, other.id: 9 * DOLLAR}
    journal.close()


def test_a_ledger_that_is_not_there_is_waited_for(tmp_path: Path) -> None:
    with pytest.raises(LightgateError, match="not there"):
        known_spend(LedgerPlace("sqlite", tmp_path), (key(),), T0)


def test_a_ledger_that_is_written_to_without_a_pause_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, shipped = LedgerPlace("sqlite", tmp_path), iter(range(99))
    place.open().close()
    waiting = "lightgate.ledger.journal.waiting.shipped_places"
    monkeypatch.setattr(waiting, lambda _: {"a": (next(shipped), False)})
    with pytest.raises(LightgateError, match="without a pause"):
        known_spend(place, (), T0)


async def test_keys_are_let_in_again_when_the_ledger_has_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock, record = ManualClock(now_ns=5, wall_ns=T0), key(10)
    answers: list[LightgateError | dict[str, int]] = [
        LightgateError("away."), LightgateError("away."), {record.id: 8 * DOLLAR},
    ]  # fmt: skip

    def answer(*_: object) -> dict[str, int]:
        found = answers.pop(0)
        if isinstance(found, LightgateError):
            raise found
        return found

    monkeypatch.setattr(module, "known_spend", answer)
    with SpendCounters.open(tmp_path / "spend", 0, [record], clock=clock) as spend:
        recounting = Recounting(spend, lambda: (record,), tmp_path, clock)
        asked = [recounting._asking]
        recounting.look()  # nothing is missing
        asked.append(recounting._asking)
        spend.mark_lost()
        recounting.look()  # other workers may not have come over yet
        asked.append(recounting._asking)
        assert asked == [None, None, None]
        clock.advance(int(RECOUNT_S * 1e9))
        for _ in range(3):
            denied = spend.admit(record, T0, 0, DOLLAR)
            assert denied is not None
            assert denied.reason == "counters"
            recounting.look()
            asking = recounting._asking
            recounting.look()
            assert recounting._asking is asking  # it is being asked
            assert asking is not None
            await asyncio.wait_for(asking, 60)
        assert spend.admit(record, T0, 0, 2 * DOLLAR) is None
        assert spend.admit(record, T0, 0, 1) is not None
    assert ["away." in message for message in caplog.messages] == [True, False]
    Recounting(None, tuple, tmp_path).look()


async def test_a_ledger_of_all_machines_is_not_taken_for_the_spend_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, record = ManualClock(now_ns=5, wall_ns=T0), key(10)
    monkeypatch.setattr(module, "known_spend", lambda *_: {record.id: 9 * DOLLAR})
    monkeypatch.setattr(SpendCounters, "shares", True)
    with SpendCounters.open(tmp_path / "spend", 0, [record], clock=clock) as spend:
        spend.mark_lost()
        clock.advance(int(RECOUNT_S * 1e9))
        recounting = Recounting(spend, lambda: (record,), tmp_path, clock)
        recounting.look()
        assert recounting._asking is not None
        await recounting._asking
        assert spend.admit(record, T0, 0, 9 * DOLLAR) is None
