from __future__ import annotations

import shutil
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import sqlalchemy as sa

from ledger.notes import T0, attempt_note, journal_of, reserved, settled
from lightgate.ledger.journal.journal import Journal, journals, read_frames
from lightgate.ledger.journal.notes import Announced, Opened, Settled
from lightgate.ledger.journal.ship import ORPHANED, Shipped, Shipper
from lightgate.ledger.sqlite import FILE
from lightgate.ledger.store import schema
from lightgate.ledger.store.queries import exchange_by_id, spend_per_key
from lightgate.ledger.store.store import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def ledger(tmp_path: Path, ledger_url: str) -> Iterator[Ledger]:
    with Ledger.open(ledger_url, tmp_path, busy_s=0.05) as opened:
        yield opened


@pytest.fixture
def shipper(ledger: Ledger, tmp_path: Path) -> Shipper:
    return Shipper(ledger, tmp_path / "journal")


def everything(ledger: Ledger) -> dict[str, list[Any]]:
    """All that shipping writes, but for the places in the journals."""
    tables = (schema.exchanges, schema.attempts, schema.rollups, schema.key_rollups)
    with ledger.reading() as connection:
        return {
            table.name: list(connection.execute(table.select().order_by(*table.primary_key)))
            for table in (*tables, schema.reservations)
        }


def test_notes_become_rows_once(ledger: Ledger, shipper: Shipper, tmp_path: Path) -> None:
    journal = journal_of(tmp_path, reserved("x-1"), settled("x-1"), Announced("x-2", T0))
    assert shipper.ship() == Shipped(records=4, exchanges=1, attempts=1)
    assert shipper.ship() == Shipped()
    journal.write(settled("x-2"))
    assert shipper.ship() == Shipped(records=1, exchanges=1, attempts=1)
    found = exchange_by_id(ledger, "x-1")
    assert found is not None
    assert found[0] == settled("x-1").exchange.record(1)
    assert found[1] == [attempt_note("x-1").attempt()]
    assert everything(ledger)["reservations"] == []
    journal.close()
    assert shipper.ship() == Shipped(removed=1)
    assert journals(tmp_path / "journal") == []
    assert shipper.ship() == Shipped()
    with ledger.reading() as connection:
        assert connection.execute(schema.shipped.select()).all() == []


def test_a_dead_worker_pays_what_it_reserved(
    ledger: Ledger, shipper: Shipper, tmp_path: Path
) -> None:
    journal = journal_of(tmp_path, reserved("x-1", nano_usd=7000), Announced("x-2", T0, "req-2"))
    assert shipper.ship().orphans == 0  # the worker lives: it may settle yet
    assert spend_per_key(ledger) == {"k-1": Decimal("0.000007")}
    journal.close()
    assert shipper.ship() == Shipped(orphans=2, removed=1)
    paid, free = (exchange_by_id(ledger, made) for made in ("x-1", "req-2"))
    assert paid is not None
    assert free is not None
    assert (paid[0].outcome, paid[0].error, paid[0].status) == ("cut", ORPHANED, 0)
    assert (paid[0].cost_usd, paid[0].cost_source) == (Decimal("0.000007"), "estimated")
    assert (paid[0].request_id, paid[0].model_asked, paid[0].plan) == ("req-x-1", "fast", "lab/s1")
    assert (free[0].id, free[0].cost_usd, free[1]) == ("x-2", None, [])
    assert spend_per_key(ledger) == {"k-1": Decimal("0.000007")}


def test_the_truth_replaces_an_estimate(ledger: Ledger, shipper: Shipper, tmp_path: Path) -> None:
    journal_of(tmp_path, reserved("x-1")).close()
    assert shipper.ship().orphans == 1
    journal_of(tmp_path, settled("x-1"), settled("x-2")).close()
    assert shipper.ship() == Shipped(records=3, exchanges=2, attempts=2, removed=1)
    after = everything(ledger)
    other = Ledger.open(tmp_path / "other.sqlite")
    journal_of(tmp_path, settled("x-1"), settled("x-2")).close()
    Shipper(other, tmp_path / "journal").ship()
    assert after == everything(other)
    other.close()


def test_the_same_notes_again_change_nothing(
    ledger: Ledger, shipper: Shipper, tmp_path: Path
) -> None:
    notes = (reserved("x-1"), settled("x-1"), settled("x-2"), settled("x-2"), reserved("x-3"))
    journal_of(tmp_path, *notes).close()
    assert shipper.ship() == Shipped(
        records=6, exchanges=2, attempts=2, orphans=1, duplicates=1, removed=1
    )
    before = everything(ledger)
    journal_of(tmp_path, *notes).close()
    assert shipper.ship() == Shipped(records=6, duplicates=3, removed=1)
    assert everything(ledger) == before


def test_a_batch_is_limited_and_parts_keep_their_order(
    ledger: Ledger, shipper: Shipper, tmp_path: Path
) -> None:
    notes = [make(f"x-{at}") for at in range(6) for make in (reserved, settled)]
    journal = journal_of(tmp_path, *notes, rotate_bytes=900)
    paths = journals(tmp_path / "journal")
    assert len(paths) > 2
    first = shipper.ship(limit=2)
    assert (first.records, first.more) == (2, True)
    done = shipper.drain(limit=2)
    assert first.records + done.records == len(notes) + len(paths)
    assert (done.more, first.removed + done.removed) == (False, len(paths) - 1)
    assert everything(ledger)["reservations"] == []
    journal.close()
    assert shipper.ship() == Shipped(removed=1)
    assert len(everything(ledger)["exchanges"]) == 6


def test_a_reservation_is_settled_in_a_later_part(
    ledger: Ledger, shipper: Shipper, tmp_path: Path
) -> None:
    journal = journal_of(tmp_path, reserved("x-1"), settled("x-0"), rotate_bytes=300)
    journal.write(settled("x-1"))
    journal.close()
    assert len(journals(tmp_path / "journal")) == 2
    done = shipper.ship()
    assert (done.exchanges, done.orphans, done.removed) == (2, 0, 2)


def test_a_torn_tail_waits_for_the_rest_or_for_death(
    ledger: Ledger, shipper: Shipper, tmp_path: Path
) -> None:
    journal = journal_of(tmp_path, reserved("x-1"), settled("x-1"))
    whole = journal.path.read_bytes()[: journal.size]
    journal.path.write_bytes(whole[:-13])
    assert shipper.ship() == Shipped(records=2)
    journal.path.write_bytes(whole)
    assert shipper.ship() == Shipped(records=1, exchanges=1, attempts=1)
    journal.path.write_bytes(whole + whole[-50:])
    journal.close()
    assert shipper.ship() == Shipped(removed=1)


def test_a_damaged_journal_is_kept_and_said(
    ledger: Ledger, shipper: Shipper, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = journal_of(tmp_path, reserved("x-1"), settled("x-1"))
    data = bytearray(journal.path.read_bytes()[: journal.size])
    data[-9] ^= 1
    journal.path.write_bytes(bytes(data))
    assert shipper.ship() == Shipped(records=2, damaged=1)
    assert shipper.ship() == Shipped(damaged=1)
    journal.close()
    assert shipper.ship() == Shipped(orphans=1, damaged=1, removed=1)
    assert [path.suffix for path in (tmp_path / "journal").iterdir()] == [".damaged"]
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"The journal {journal.path.name} is damaged at byte ")


def test_a_newer_journal_is_left_alone(
    shipper: Shipper, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = journal_of(tmp_path)
    newer = Journal(tmp_path / "spare", 0)
    newer.write(Opened(99, 0, 1, T0))
    newer.write(reserved("x-1"))
    newer.close()
    first = next(offset for _, offset in read_frames(newer.path))
    journal.path.write_bytes(newer.path.read_bytes()[first:])
    journal.close()
    for _ in range(2):
        assert shipper.ship().refused == 1
    assert journal.path.exists()
    (said,) = [record.getMessage() for record in caplog.records]  # once
    assert said.startswith(f"The journal {journal.path.name} was written by a newer Lightgate;")


def test_a_locked_ledger_leaves_the_journal(
    ledger: Ledger, shipper: Shipper, tmp_path: Path, ledger_url: str
) -> None:
    journal = journal_of(tmp_path, settled("x-1"))
    data = journal.path.read_bytes()
    with Ledger.open(ledger_url, tmp_path) as other, other.writing():
        assert shipper.drain() == Shipped(busy=True)
        assert journal.path.read_bytes() == data
        assert everything(ledger)["exchanges"] == []  # a reader never waits
    assert shipper.drain() == Shipped(records=2, exchanges=1, attempts=1)
    journal.close()


class Crash(BaseException):
    """The process dies here."""


def crash_at(ledger: Ledger, when: int) -> Callable[[], None]:
    """Die before the statement or commit of this number; gives what takes the trap away."""
    seen = iter(range(10_000))

    def step(*_: object) -> None:
        if next(seen) == when:
            raise Crash

    for event in ("before_cursor_execute", "commit"):
        sa.event.listen(ledger._engine, event, step)

    def undo() -> None:
        for event in ("before_cursor_execute", "commit"):
            sa.event.remove(ledger._engine, event, step)

    return undo


def script(tmp_path: Path) -> None:
    """Two lives: one with orphans and several files, one that settled all, and one thing twice."""
    dead = Journal(tmp_path / "journal", 1, rotate_bytes=700)
    for note in (
        reserved("a-1"),
        settled("a-1"),
        reserved("a-2"),
        settled("a-3"),
        Announced("a-4", T0),
    ):
        dead.write(note)
    dead.close()
    journal_of(tmp_path, reserved("b-1"), settled("b-1"), settled("b-1")).close()


def expected(tmp_path: Path) -> dict[str, list[Any]]:
    with Ledger.open(tmp_path / "expected.sqlite") as ledger:
        Shipper(ledger, tmp_path / "journal").drain(3)
        return everything(ledger)


def test_exactly_once_whatever_dies_when(tmp_path: Path) -> None:
    script(tmp_path)
    files = {path.name: path.read_bytes() for path in journals(tmp_path / "journal")}
    truth = expected(tmp_path)
    assert len(truth["exchanges"]) == 5
    Ledger.open("sqlite", tmp_path / "empty").close()
    points = 0
    while True:
        folder = tmp_path / f"at-{points}"
        (folder / "journal").mkdir(parents=True)
        for name, data in files.items():
            (folder / "journal" / name).write_bytes(data)
        shutil.copy(tmp_path / "empty" / FILE, folder)
        ledger = Ledger.open("sqlite", folder)
        undo = crash_at(ledger, points)
        crashed = False
        try:
            Shipper(ledger, folder / "journal").drain(3)
        except Crash:
            crashed = True
        undo()
        ledger.close()
        with Ledger.open("sqlite", folder) as again:
            Shipper(again, folder / "journal").drain(3)
            assert everything(again) == truth, points
        assert journals(folder / "journal") == []
        if not crashed:
            break
        points += 1
    assert points > 40


@pytest.mark.parametrize("spared", range(3))
def test_a_death_between_commit_and_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spared: int
) -> None:
    script(tmp_path)
    files = {path.name: path.read_bytes() for path in journals(tmp_path / "journal")}
    truth = expected(tmp_path)
    for name, data in files.items():
        (tmp_path / "journal" / name).write_bytes(data)
    left = iter(range(spared))

    def unlink(self: Path, missing_ok: bool = False) -> None:
        if next(left, None) is None:
            raise Crash
        real(self, missing_ok)

    real = Path.unlink
    with Ledger.open("sqlite", tmp_path) as ledger:
        monkeypatch.setattr(Path, "unlink", unlink)
        with pytest.raises(Crash):
            Shipper(ledger, tmp_path / "journal").drain(3)
        monkeypatch.undo()
        Shipper(ledger, tmp_path / "journal").drain(3)
        assert everything(ledger) == truth
    assert journals(tmp_path / "journal") == []


def test_two_shippers_do_no_harm(tmp_path: Path, ledger: Ledger, shipper: Shipper) -> None:
    """The second one finds out that the first was faster, in every order of their steps."""
    journal = journal_of(tmp_path, settled("x-1"), settled("x-2"), settled("x-3"))
    rival = Shipper(ledger, tmp_path / "journal")
    places = shipper._places()
    assert rival.ship(limit=2).records == 2
    paths = journals(tmp_path / "journal")
    assert shipper._ship_life(journal.life, paths, places, 3) == Shipped()
    places = shipper._places()
    rival.drain()
    assert shipper._ship_life(journal.life, paths, places, 3) == Shipped()
    journal.close()
    rival.drain()
    assert shipper._ship_life(journal.life, paths, places, 3) == Shipped()
    assert len(everything(ledger)["exchanges"]) == 3


def test_a_note_that_is_no_record_stops_nothing(
    ledger: Ledger, shipper: Shipper, tmp_path: Path
) -> None:
    bad = msgspec.structs.replace(attempt_note("x-1"), bursts=b"odd")
    journal = journal_of(tmp_path, Settled(settled("x-1").exchange, (bad,)), settled("x-2"))
    assert shipper.ship() == Shipped(records=3, exchanges=1, attempts=1, refused=1)
    journal.close()
