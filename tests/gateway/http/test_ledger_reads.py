"""What clients ask of the ledger, in both databases, and of a server that is away."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ledger.notes import attempt_note, settled
from lightgate.clock.source import ManualClock
from lightgate.gateway.http.ledger_reads import REST_NS, LedgerReads
from lightgate.ledger.failed import LedgerAway, LedgerBusy
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.journal.ship import Shipper
from lightgate.ledger.locate import LEDGER_ENV, LedgerPlace
from lightgate.ledger.store.queries import exchange_by_id, usage_of_key
from redis_server import free_port

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.ledger.store.store import Ledger


def _exchange(wanted: str, ledger: Ledger) -> tuple[Any, Any] | None:
    return exchange_by_id(ledger, wanted)


def _usage(key_id: str, ledger: Ledger) -> list[Any]:
    return list(usage_of_key(ledger, key_id))


async def test_a_request_and_the_use_of_a_key(
    ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEDGER_ENV, ledger_url)
    reads = LedgerReads(tmp_path)
    if ledger_url == "sqlite":
        assert await reads.read(lambda _: 1, 2) == 2  # there is none yet, and a look makes none
    with LedgerPlace(ledger_url, tmp_path).open() as ledger:
        journal = Journal(tmp_path / "journal", 0)
        for name in ("x-1", "x-2"):
            journal.write(settled(name, attempt_note(name)))
        journal.close()
        Shipper(ledger, tmp_path / "journal").drain()
    for wanted in ("x-2", "req-x-2"):  # its own id, and the client's
        found = await reads.read(partial(_exchange, wanted), None)
        assert found is not None
        exchange, attempts = found
        assert (exchange.id, exchange.tokens_out, exchange.overhead_ms) == ("x-2", 4, 1.5)
        assert [attempt.target for attempt in attempts] == ["lab/s1"]
    assert await reads.read(partial(_exchange, "x-3"), None) is None
    rows: list[Any] = await reads.read(partial(_usage, "k-1"), [])
    (row,) = rows
    assert (row.model, row.requests, row.ok, row.tokens_in, row.tokens_out) == ("fast", 2, 2, 24, 8)
    assert await reads.read(partial(_usage, "k-2"), []) == []
    reads.close()


async def test_a_server_that_is_away_is_left_alone_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEDGER_ENV, f"postgresql://u:p@127.0.0.1:{free_port()}/ledger")
    clock, opened = ManualClock(), []
    reads, real = LedgerReads(tmp_path, clock), LedgerPlace.open

    def count(place: LedgerPlace, *, patience_s: float | None = None) -> Ledger:
        opened.append(place)
        return real(place, patience_s=patience_s)

    monkeypatch.setattr(LedgerPlace, "open", count)
    for passed_ns, tries in ((0, 1), (REST_NS - 1, 1), (1, 2)):
        clock.advance(passed_ns)
        with pytest.raises(LedgerAway, match="is away"):
            await reads.read(lambda _: 1, 2)
        assert len(opened) == tries
    reads.close()


async def test_tables_that_somebody_holds_are_left_alone_for_a_moment(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every look waits for as long as the lock; two threads would soon have a queue of them."""
    monkeypatch.setenv(LEDGER_ENV, postgres_url)
    clock, opened = ManualClock(), []
    reads, real = LedgerReads(tmp_path, clock), LedgerPlace.open

    def open_hastily(place: LedgerPlace, *, patience_s: float | None = None) -> Ledger:
        opened.append(place)
        return real(place, busy_s=0.05, patience_s=patience_s)

    monkeypatch.setattr(LedgerPlace, "open", open_hastily)
    with LedgerPlace(postgres_url, tmp_path).open() as ledger, ledger.writing() as connection:
        connection.exec_driver_sql("LOCK TABLE key_rollups IN ACCESS EXCLUSIVE MODE")
        for _ in range(2):
            with pytest.raises(LedgerBusy) as failed:
                await reads.read(partial(_usage, "k-1"), [])
            assert failed.value.status == 503
    assert len(opened) == 1 + 1  # that which holds the lock, and one look
    clock.advance(REST_NS)
    assert await reads.read(partial(_usage, "k-1"), []) == []
    reads.close()
