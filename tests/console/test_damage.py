"""A ledger whose file is damaged while it is used: noticed, kept under another name, made anew."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from lightgate.clock.source import ManualClock
from lightgate.console import ship_loop as shipping
from lightgate.console.ship_loop import DAMAGED_AGAIN_S, ShipLoop
from lightgate.ledger.database.file_check import damage_of
from lightgate.ledger.failed import LedgerDamaged
from lightgate.ledger.store.schema import exchanges
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from console.conftest import Traffic

SIZE = 16 * 1024
ENDS = ("-wal", "-shm")


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open("sqlite", tmp_path) as ledger:
        yield ledger


def rows(ledger: Ledger) -> int:
    with ledger.reading() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(exchanges)).scalar_one()


def harm(path: Path) -> bytes:
    """Write 16 KB of random bytes into the middle of a file; what it holds then."""
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    base.close()
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 // SIZE * SIZE)
        file.write(random.Random(5).randbytes(SIZE))  # noqa: S311 - the same in every run
    return path.read_bytes()


def found(data: Path) -> list[Path]:
    """The files that were put aside, without those of SQLite beside them."""
    return [path for path in data.glob("ledger.sqlite.damaged-*") if path.name[-4:] not in ENDS]


async def test_damage_that_nobody_reads_is_found_and_the_file_is_kept_and_made_anew(
    kept: Ledger,
    tmp_path: Path,
    traffic: Traffic,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(shipping, "CHECK_S", 0.01)
    loop = ShipLoop(kept, tmp_path, prune=lambda: None)
    traffic(600)
    assert loop.work()
    assert rows(kept) == 600
    harmed = harm(tmp_path / "ledger.sqlite")
    assert loop.work()  # no pass reads that page
    assert loop.lost == 0
    running = asyncio.ensure_future(loop.run())
    async with asyncio.timeout(60):
        while loop.totals.exchanges < 1200:  # each of the 600 a second time, into the new file
            await asyncio.sleep(0.01)
        loop.stop()
        await running
    assert rows(kept) == 600  # from the journal that is still kept
    (aside,) = found(tmp_path)
    assert aside.read_bytes() == harmed
    assert loop.aside == (
        f"The ledger's file was damaged and is kept as {aside.name}; a new one is used."
    )
    assert loop.aside in caplog.text
    assert damage_of(tmp_path / "ledger.sqlite", lambda: False) == ""


def test_what_sqlite_says_itself_is_enough(kept: Ledger, tmp_path: Path, traffic: Traffic) -> None:
    clock = ManualClock()
    loop = ShipLoop(kept, tmp_path, prune=lambda: None, clock=clock)
    traffic(40)
    assert loop.work()
    path = tmp_path / "ledger.sqlite"
    for place in range(2):
        kept.close()  # the pages that are in memory
        path.write_bytes(path.read_bytes()[:100] + b"\xff" * (path.stat().st_size - 100))
        with pytest.raises(LedgerDamaged):
            rows(kept)
        if place:  # so soon again it is no accident
            assert not loop.work()
            assert "damaged once more" in loop.problem
            clock.advance(int(DAMAGED_AGAIN_S * 1e9))
        assert loop.work()
        assert loop.problem == ""
        assert rows(kept) == 40
    assert loop.lost == 2
    assert len(found(tmp_path)) == 2


def test_no_file_that_was_put_aside_is_overwritten(kept: Ledger, tmp_path: Path) -> None:
    names = []
    for _ in range(3):
        aside = kept.put_aside("x")
        kept.reopen()
        assert aside is not None
        names.append(aside.name)
    assert names == [f"ledger.sqlite.damaged-x{end}" for end in ("", "-2", "-3")]
    assert all((tmp_path / name).exists() for name in names)


def test_a_check_is_given_up_and_makes_no_file(kept: Ledger, tmp_path: Path) -> None:
    harm(tmp_path / "ledger.sqlite")
    assert damage_of(tmp_path / "ledger.sqlite", lambda: False) != ""
    missing = tmp_path / "other.sqlite"
    assert damage_of(missing, lambda: False) == ""
    assert not missing.exists()
    kept.check_file(lambda: False)
    assert kept.damage
    kept.damage = "known"
    kept.check_file(lambda: False)
    assert kept.damage == "known"
