"""Carries notes from the journals into the ledger, each exactly once.

The records of a batch, the sums that they change and the new place in the journal are one
transaction: after a kill at any instant the next pass goes on where the last commit stood. A file
is removed only when all of it is in the ledger that lies in its place now. What a dead worker had
announced and never settled becomes an exchange that was cut, at the price that was reserved.
"""

from __future__ import annotations

import gc
import logging
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import sqlalchemy as sa
from msgspec.structs import asdict

from lightgate.ledger.failed import LedgerBusy, LedgerConflict
from lightgate.ledger.journal.journal import Frames, alive, journals, life_of
from lightgate.ledger.journal.node import keep_node, node_of
from lightgate.ledger.journal.notes import (
    STAMP_BYTES,
    VERSION,
    Announced,
    ExchangeNote,
    Opened,
    Reserved,
    Settled,
)
from lightgate.ledger.store import schema
from lightgate.ledger.store.rollup import Rollup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lightgate.ledger.journal.notes import AttemptNote, Note
    from lightgate.ledger.store.store import Ledger

logger = logging.getLogger(__name__)
LIMIT: Final = 4000  # notes in one transaction: more would only take more memory
SERVER_LIMIT: Final = 8000  # the same for a server, which is asked some 40 times in each
ORPHANED: Final = "The gateway stopped before the answer was settled."
ESTIMATED: Final = "estimated"
MANY: Final = 16  # bursts from which on a library is quicker than a loop
_IDS_AT_ONCE: Final = 500  # in one IN (…)

# Made once: how to cache a statement that SQLAlchemy has not seen costs more than running it.
_PLACES: Final = sa.select(
    schema.shipped.c.journal, schema.shipped.c.offset, schema.shipped.c.finished
).where(schema.shipped.c.node.in_(sa.bindparam("nodes")))
_PLACE: Final = (
    sa.select(schema.shipped.c.offset, schema.shipped.c.finished)
    .where(schema.shipped.c.journal == sa.bindparam("name"))
    .with_for_update()
)
_NEW_PLACE: Final = schema.shipped.insert()
_MOVE: Final = (
    schema.shipped.update()
    .where(schema.shipped.c.journal == sa.bindparam("name"))
    .values(offset=sa.bindparam("offset"), finished=sa.bindparam("finished"))
)
_FORGET: Final = schema.shipped.delete().where(schema.shipped.c.journal.in_(sa.bindparam("names")))
_UNRESERVE: Final = schema.reservations.delete().where(
    schema.reservations.c.exchange_id.in_(sa.bindparam("ids"))
)


class Shipped(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass did.

    `orphans` were announced by a worker that died, `duplicates` were in the ledger already,
    `refused` could not be read as records, `damaged` are files with a frame that is not what was
    written. `more` when notes are waiting still, `busy` when another process held the ledger.
    """

    records: int = 0
    exchanges: int = 0
    attempts: int = 0
    orphans: int = 0
    duplicates: int = 0
    refused: int = 0
    damaged: int = 0
    removed: int = 0
    more: bool = False
    busy: bool = False

    def __add__(self, other: Shipped) -> Shipped:
        mine, theirs = asdict(self), asdict(other)
        return Shipped(
            **{
                name: mine[name] or theirs[name]
                if name in {"more", "busy"}
                else mine[name] + theirs[name]
                for name in mine
            }
        )


class _Raced(Exception):  # noqa: N818 - names the event
    """Another shipper was faster; this batch is dropped, nothing is lost."""


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """One journal file as this pass found it; `over` when nothing more will be written to it."""

    path: Path
    life: str
    over: bool
    dead: bool  # and neither will its writer write to another one
    offset: int
    known: bool  # there is a row for it


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """How far a journal has been read."""

    offset: int
    finished: bool


class Shipper:
    """Reads the journals of one folder into one ledger; several at once do no harm.

    `taken` gets the exchanges of each batch once they are in the ledger, with those that were
    settled as estimated.
    """

    def __init__(
        self,
        ledger: Ledger,
        folder: Path,
        taken: Callable[[Sequence[Settled]], object] = lambda _: None,
    ) -> None:
        self._ledger = ledger
        self._folder = folder
        self._taken = taken
        self._offsets: dict[str, int] = {}  # by file: how far it has been read
        self._warned: set[Path] = set()
        self.held = ""  # what the ledger said when the last pass found it held, in a sentence

    @cached_property
    def _node(self) -> str:
        """This data folder: places of other nodes are theirs to forget."""
        return node_of(self._folder.parent)

    def ship(self, limit: int | None = None) -> Shipped:
        """Make one pass: at most `limit` notes of every file."""
        limit = limit or at_once(self._ledger)
        total = Shipped()
        try:
            places = self._places()
            keep_node(self._folder.parent, self._node)  # it may have been deleted
            for life, paths in groupby(journals(self._folder), life_of):
                total += self._ship_life(life, list(paths), places, limit)
            self._forget(places)
        except LedgerBusy as error:
            self.held = error.message
            return total + Shipped(busy=True)
        return total

    def drain(self, limit: int | None = None) -> Shipped:
        """Make passes until nothing is waiting, or the ledger is held by somebody else."""
        total = self.ship(limit)
        again = total.more and not total.busy
        while again:
            once = self.ship(limit)
            total = msgspec.structs.replace(total + once, more=once.more)
            again = once.more and not once.busy
        return total

    def _ship_life(
        self, life: str, paths: list[Path], places: dict[str, tuple[int, bool]], limit: int
    ) -> Shipped:
        """Ship the files of one process life in their order; the next one only after the last."""
        total = Shipped()
        # A writer makes its next file before it lets go of the last: only if there is no new one
        # now was nobody holding the files a sign of death.
        dead = not any(alive(path) for path in paths)
        dead = dead and journals(self._folder, life) == paths
        for path in paths:
            last = path is paths[-1]
            offset, finished = places.get(path.name, (0, False))
            if finished:  # the pass that finished it died before it could remove it
                path.unlink(missing_ok=True)
                continue
            file = _File(
                path=path, life=life, over=dead or not last, dead=dead and last,
                offset=offset, known=path.name in places,
            )  # fmt: skip
            with _uncollected():
                once = self._ship_file(file, limit)
            total += once
            if once.more:
                break
        return total

    def _ship_file(self, file: _File, limit: int) -> Shipped:
        frames = Frames(file.path, file.offset)
        try:
            notes = [note for note, _ in islice(frames, limit)]
        except FileNotFoundError:
            return Shipped()
        if file.offset == 0 and notes and _is_newer(notes[0]):
            self._warn(file.path, "was written by a newer Lightgate")
            return Shipped(refused=1)
        more = len(notes) == limit
        done = file.over and not more
        damaged = frames.damaged and not more
        if damaged:
            self._warn(file.path, f"is damaged at byte {frames.offset}")
        if not notes and not done:
            return Shipped(damaged=int(damaged))
        batch = _Batch(file.life, notes, settles=done and file.dead)
        place = _Place(offset=frames.offset, finished=done)
        try:
            try:
                written = self._write(batch, file, place, careful=False)
            except LedgerConflict:
                written = self._write(batch, file, place, careful=True)
        except _Raced:
            return Shipped()
        self._offsets[file.path.name] = place.offset
        self._taken(batch.taken)
        if done and not self._ledger.moved():  # else the rows are in a file that is gone
            self._remove(file.path, damaged=damaged)
        return written + Shipped(damaged=int(damaged), removed=int(done), more=more)

    def _write(self, batch: _Batch, file: _File, place: _Place, *, careful: bool) -> Shipped:
        """Write a batch and the new place in its journal, both or neither.

        A crash of the database may take back a batch whose journal is still there.
        """
        with self._ledger.appending() as connection:
            if not place.finished:
                self._ledger.hurry(connection)
            self._move(connection, file, place)
            return batch.write(self._ledger, connection, careful=careful)

    def _move(self, connection: sa.Connection, file: _File, place: _Place) -> None:
        """Move the place in a journal on, if it is still where this batch began."""
        now = connection.execute(_PLACE, {"name": file.path.name}).first()
        if (now is None) if file.known else (now is not None):
            raise _Raced
        if now is None:
            row = {"journal": file.path.name, "node": self._node, **asdict(place)}
            connection.execute(_NEW_PLACE, row)
            return
        if (now.offset, now.finished) != (file.offset, False):
            raise _Raced
        connection.execute(_MOVE, {"name": file.path.name, **asdict(place)})

    def waiting_bytes(self, written: Mapping[str, int]) -> int:
        """Bytes in the journals that are not in the ledger yet.

        `written` has the bytes of notes in a file that is still being written, where they are
        known: such a file has room for more at its end.
        """
        total = 0
        for path in journals(self._folder):
            with suppress(FileNotFoundError):
                size = written.get(path.name) or path.stat().st_size
                total += max(0, size - self._offsets.get(path.name, 0))
        return total

    def _places(self) -> dict[str, tuple[int, bool]]:
        with self._ledger.reading() as connection:
            rows = connection.execute(_PLACES, {"nodes": ["", self._node]}).all()
        self._offsets = {name: offset for name, offset, _ in rows}
        return {name: (offset, finished) for name, offset, finished in rows}

    def _forget(self, places: dict[str, tuple[int, bool]]) -> None:
        """Drop the rows of files that are finished and gone; no name is ever used again."""
        gone = [
            name
            for name, (_, finished) in places.items()
            if finished and not (self._folder / name).exists()
        ]
        if gone:
            with self._ledger.writing() as connection:
                for names in _chunks(gone):
                    connection.execute(_FORGET, {"names": names})

    def _remove(self, path: Path, *, damaged: bool) -> None:
        """Take a finished file away; a damaged one is kept for whoever wants to look at it."""
        if damaged:
            path.rename(path.with_suffix(".damaged"))
        else:
            path.unlink(missing_ok=True)

    def _warn(self, path: Path, what: str) -> None:
        if path not in self._warned:
            self._warned.add(path)
            logger.warning("The journal %s %s; the rest of it is not read.", path.name, what)


class _Batch:
    """The notes of one batch, sorted into what they change."""

    def __init__(self, life: str, notes: Sequence[Note], *, settles: bool) -> None:
        self._life = life
        self._settles = settles  # the worker is dead: what is open stays open for ever
        worker = life.partition("-")[0]
        self._worker = int(worker) if worker.isdigit() else 0
        self._notes = len(notes)
        self._opened: dict[str, Reserved | Announced] = {}
        self._settled: dict[str, Settled] = {}
        self._closed: list[str] = []  # settled here, announced in an earlier batch or never
        self._duplicates = 0
        self.taken: list[Settled] = []  # what the last `write` has put into the ledger
        for note in notes:
            if isinstance(note, Settled):
                self._settle(note)
            elif not isinstance(note, Opened):
                self._opened[note.exchange_id] = note

    def _settle(self, note: Settled) -> None:
        made = note.exchange.id
        if self._opened.pop(made, None) is None:
            self._closed.append(made)
        if made in self._settled:
            self._duplicates += 1
        else:
            self._settled[made] = note

    def write(self, ledger: Ledger, connection: sa.Connection, *, careful: bool) -> Shipped:
        """Put all of it into the ledger, inside the caller's transaction.

        `careful` passes over what is there already; else that is a conflict.
        """
        rollup, exchanges, attempts = Rollup(), [], []
        self.taken = []
        refused, duplicates = 0, self._duplicates
        known = _known(connection, [*self._settled, *self._opened]) if careful else {}
        stalls = _stalls(self._settled.values())
        for made, note in self._settled.items():
            before = known.get(made)
            if before is not None and before.error != ORPHANED:
                duplicates += 1
                continue
            try:
                rows = [_row(attempt, stalls) for attempt in note.attempts]
            except ValueError as error:
                logger.warning("The exchange %s cannot be kept: %s", made, error)
                refused += 1
                continue
            if before is not None:
                _take_back(connection, rollup, before)
            exchanges.append(note.exchange.row(len(note.attempts)))
            attempts += rows
            rollup.add(note.exchange, note.attempts)
            self.taken.append(note)
        ledger.insert(connection, schema.exchange_notes, exchanges)
        ledger.insert(connection, schema.attempt_notes, attempts)
        self._reserve(ledger, connection, known)
        orphans = self._settle_orphans(ledger, connection, rollup) if self._settles else 0
        ledger.lock(connection)  # as late as can be: other nodes add to the same sums
        rollup.write(ledger, connection)
        return Shipped(
            records=self._notes, exchanges=len(exchanges), attempts=len(attempts),
            orphans=orphans, duplicates=duplicates, refused=refused,
        )  # fmt: skip

    def _reserve(
        self, ledger: Ledger, connection: sa.Connection, known: Mapping[str, ExchangeNote]
    ) -> None:
        """Keep what is announced and not settled; drop what is settled now."""
        opened = [note for made, note in self._opened.items() if made not in known]
        # One that is announced twice is announced once.
        for ids in _chunks([*self._closed, *(note.exchange_id for note in opened)]):
            connection.execute(_UNRESERVE, {"ids": ids})
        reserved = [self._reservation(note) for note in opened]
        ledger.insert(connection, schema.reservations, reserved)

    def _reservation(self, note: Reserved | Announced) -> tuple[Any, ...]:
        return (
            note.exchange_id, self._life, self._worker, note.key_id, note.wall_ns,
            note.nano_usd if isinstance(note, Reserved) else None,
            " ".join(note.targets) if isinstance(note, Reserved) else "",
            note.request_id, note.model_asked, note.dialect,
        )  # fmt: skip

    def _settle_orphans(self, ledger: Ledger, connection: sa.Connection, rollup: Rollup) -> int:
        """Turn what the dead worker left open into exchanges, at the price that was reserved."""
        table = schema.reservations
        here = table.c.life == self._life
        rows = connection.execute(table.select().where(here).order_by(table.c.exchange_id)).all()
        known = _known(connection, [row.exchange_id for row in rows])
        orphans = [_orphan(row) for row in rows if row.exchange_id not in known]
        for orphan in orphans:
            rollup.add(orphan)
            self.taken.append(Settled(orphan, ()))
        ledger.insert(connection, schema.exchange_notes, [orphan.row(0) for orphan in orphans])
        connection.execute(table.delete().where(here))
        return len(orphans)


def at_once(ledger: Ledger) -> int:
    """How many notes are shipped in one transaction."""
    return LIMIT if ledger.postgres is None else SERVER_LIMIT


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the garbage collector from walking over thousands of rows that live for one batch."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _stalls(settled: Iterable[Settled]) -> dict[str, int]:
    """The longest gap between bursts, by attempt, for those of many bursts: all at once."""
    many = [
        attempt
        for note in settled
        for attempt in note.attempts
        if len(attempt.bursts) >= MANY * STAMP_BYTES and not len(attempt.bursts) % STAMP_BYTES
    ]
    if not many:
        return {}
    stamps = np.frombuffer(b"".join([attempt.bursts for attempt in many]), np.int64)
    gaps = stamps[1:] - stamps[:-1]
    ends = np.cumsum([len(attempt.bursts) // STAMP_BYTES for attempt in many])
    gaps[ends[:-1] - 1] = np.iinfo(np.int64).min  # from one attempt to the next
    longest = np.maximum.reduceat(gaps, np.concatenate(([0], ends[:-1]))).tolist()
    return dict(zip([attempt.facts.id for attempt in many], longest, strict=True))


def _row(attempt: AttemptNote, stalls: Mapping[str, int]) -> tuple[Any, ...]:
    stall_ns = stalls.get(attempt.facts.id)
    return attempt.row() if stall_ns is None else attempt.row_with(stall_ns)


def _is_newer(note: Note) -> bool:
    return isinstance(note, Opened) and note.version > VERSION


def _known(connection: sa.Connection, ids: Sequence[str]) -> dict[str, ExchangeNote]:
    """The exchanges among these that are in the ledger already."""
    table = schema.exchange_notes
    return {
        row.id: ExchangeNote(*(row._mapping[name] for name in ExchangeNote.__struct_fields__))  # noqa: SLF001 - public
        for some in _chunks(ids)
        for row in connection.execute(table.select().where(table.c.id.in_(some)))
    }


def _take_back(connection: sa.Connection, rollup: Rollup, estimate: ExchangeNote) -> None:
    """Remove an estimate for which the truth has come after all."""
    rollup.take_back(estimate)
    table = schema.exchange_notes
    connection.execute(table.delete().where(table.c.id == estimate.id))


def _orphan(row: sa.Row[Any]) -> ExchangeNote:
    """What is known of an exchange that its worker never settled; 0 is no status."""
    return ExchangeNote(
        row.exchange_id, row.request_id, row.key_id, row.model_asked, "", row.targets, None,
        "off", 0, "cut", ORPHANED, row.dialect, False, row.wall_ns,
        None, None, None, None, None, None, None, None, None, None,
        None, None, row.nano_usd, None if row.nano_usd is None else ESTIMATED, None, None,
        row.worker,
    )  # fmt: skip


def _chunks(ids: Iterable[str]) -> Iterable[list[str]]:
    rest = list(ids)
    return (rest[at : at + _IDS_AT_ONCE] for at in range(0, len(rest), _IDS_AT_ONCE))
