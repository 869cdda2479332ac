"""Wall clocks that jump, and a ledger that somebody else holds."""

from __future__ import annotations

import sqlite3
from itertools import cycle
from typing import TYPE_CHECKING

from gateway.faulted import TIMEOUT_S, Field, model
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    import pytest

    from gateway.conftest import Start

HOUR_NS = 3_600_000_000_000


async def test_a_jump_of_the_wall_clock_moves_no_duration(start: Start) -> None:
    """F30: an hour forwards and back between any two looks at it."""
    models = model("m", ["lab/plain!status:500", "lab/plain"]) + model("h", ["lab/plain!hang"])
    field = await Field.open(start, models)
    state = field.rig.state
    true, jumps = state.wall_ns, cycle((0, HOUR_NS, -HOUR_NS))
    state.wall_ns = lambda: true() + next(jumps)
    for _ in range(6):
        answer, settled, _ = await field.fly("m")
        assert answer.status == 200
        record = settled.exchange.record(2)
        assert record.e2e_ms is not None
        assert 0 < record.e2e_ms < TIMEOUT_S * 1000
        assert record.overhead_ms is not None
        assert 0 <= record.overhead_ms <= record.e2e_ms
        for note in settled.attempts:
            attempt = note.attempt()
            assert attempt.t_send_ns is not None
            assert attempt.ttft_ms is None or 0 < attempt.ttft_ms < TIMEOUT_S * 1000
    answer, settled, took_s = await field.fly("h")  # deadlines are the monotonic clock's
    assert answer.status == 504
    assert settled.exchange.outcome == "timeout"
    assert took_s > TIMEOUT_S - 0.5


async def test_ids_go_on_when_the_clock_goes_back(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    field = await Field.open(start, model("m", ["lab/plain"]))
    for _ in range(3):
        await field.fly("m")
        true = field.rig.state.wall_ns
        field.rig.state.wall_ns = lambda true=true: true() - HOUR_NS  # type: ignore[misc]
    ids = [settled.exchange.id for settled in field.rig.settled()]
    assert sorted(set(ids)) == ids


async def test_a_ledger_that_is_held_stops_nobody(start: Start) -> None:
    """F31: the hot path writes journals only; they are shipped when the lock is gone."""
    field = await Field.open(start, model("m", ["lab/plain"]))
    data = field.rig.data
    with Ledger.open(data / "ledger.sqlite", busy_s=0.05) as ledger:
        shipper = Shipper(ledger, data / "journal")
        holder = sqlite3.connect(data / "ledger.sqlite", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        for _ in range(3):
            answer, settled, _ = await field.fly("m")
            assert answer.status == 200
            assert settled.exchange.outcome == "ok"
            assert shipper.ship().busy
        holder.execute("ROLLBACK")
        holder.close()
        shipped = shipper.drain()
    assert (shipped.exchanges, shipped.busy) == (3, False)
