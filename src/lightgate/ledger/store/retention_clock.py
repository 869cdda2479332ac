"""The time by which the ledger's rows grow old: the wall clock, unless it has leapt ahead.

A clock that is 40 days ahead makes every row 40 days old. What has leapt is not known: the clock,
or the days for which nothing ran. So where a leap would delete much, rows grow old by the time that
the process has really run, until the clock has stayed ahead for a day; the log says so.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import msgspec
import sqlalchemy as sa

from lightgate.clock.source import SYSTEM
from lightgate.errors import LightgateError
from lightgate.ledger.store.retention import Keep, Pruned, old_ns, prune
from lightgate.ledger.store.schema import exchange_notes
from lightgate.whole_file import put

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.clock.source import Clock
    from lightgate.ledger.store.store import Ledger

FILE: Final = "retention.json"
_DAY_NS: Final = 86_400 * 1_000_000_000
LEAP_NS: Final = _DAY_NS  # a clock that is set right moves by less
CONFIRM_NS: Final = _DAY_NS  # how long it has to stay ahead
MOST_SHARE: Final = 0.2  # of the rows, which one leap may delete at once
_log = logging.getLogger(__name__)


class _Seen(msgspec.Struct):
    """The last time that was believed, and how long the clock has been ahead of it since."""

    wall_ns: int
    doubted_ns: int = 0


class RetentionClock:
    """Prunes a ledger by a time that is believed; one thread uses it.

    `doubt` is a sentence while the clock is not believed, else empty.
    """

    def __init__(
        self, ledger: Ledger, data: Path, keep: Keep | None = None, clock: Clock = SYSTEM
    ) -> None:
        self._ledger = ledger
        self._file = data / FILE
        self._keep = keep or Keep()
        self._clock = clock
        self._ran_ns = clock.now_ns()
        self._seen = self._read()  # before this life's own rows are in the ledger
        self.doubt = ""

    def prune(self) -> Pruned:
        """Delete what is too old by the time that is believed; a line tells what was deleted."""
        believed_ns = self._believed()
        pruned = prune(self._ledger, self._keep, now=lambda: believed_ns)
        if pruned.exchanges or pruned.rollups:
            _log.info(
                "Deleted what is older than retention says: %d requests, %d attempts, %d sums.",
                pruned.exchanges,
                pruned.attempts,
                pruned.rollups,
            )
        return pruned

    def _believed(self) -> int:
        wall_ns, now_ns = self._clock.wall_ns(), self._clock.now_ns()
        ran_ns, self._ran_ns = now_ns - self._ran_ns, now_ns
        if self._seen is None:
            self._seen = _Seen(wall_ns)
        seen = self._seen
        usual_ns = seen.wall_ns + ran_ns
        ahead_ns = wall_ns - usual_ns
        # Once in doubt, rows of the doubted time do not count for it.
        if ahead_ns <= LEAP_NS or not (seen.doubted_ns or self._takes_much(usual_ns, wall_ns)):
            self._believe(wall_ns)
        elif seen.doubted_ns + ran_ns >= CONFIRM_NS:
            _log.warning("The clock has stayed ahead for a day and is believed now.")
            self._believe(wall_ns)
        else:
            if not self.doubt:
                self.doubt = (
                    f"The clock is {ahead_ns / _DAY_NS:.1f} days ahead of the last request or pass."
                    " Nothing is deleted by it until it has stayed so for a day."
                )
                _log.warning("%s", self.doubt)
            seen.wall_ns, seen.doubted_ns = usual_ns, max(1, seen.doubted_ns + ran_ns)
            self._write()
        return seen.wall_ns

    def _believe(self, wall_ns: int) -> None:
        if self._seen is not None:
            self._seen.wall_ns, self._seen.doubted_ns = wall_ns, 0
        self.doubt = ""
        self._write()

    def _takes_much(self, usual_ns: int, wall_ns: int) -> bool:
        """Whether the leap makes more rows too old than a few days without traffic would."""
        noted, counted = exchange_notes.c.wall_ns, sa.func.count()
        usual, leapt = (old_ns(now, self._keep.raw_days) for now in (usual_ns, wall_ns))
        with self._ledger.reading() as connection:
            kept = connection.scalar(sa.select(counted).where(noted >= usual)) or 0
            lost = connection.scalar(sa.select(counted).where(noted >= usual, noted < leapt)) or 0
        return lost > MOST_SHARE * kept

    def _read(self) -> _Seen | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=_Seen)
        except (OSError, ValueError):
            pass
        newest = sa.select(sa.func.max(exchange_notes.c.wall_ns))
        try:
            with self._ledger.reading() as connection:
                found = connection.scalar(newest)
        except LightgateError:  # a server that is away: what it has is as old as the clock says
            return None
        return None if found is None else _Seen(found)

    def _write(self) -> None:
        try:
            put(self._file, msgspec.json.encode(self._seen))
        except OSError as error:
            _log.warning("%s cannot be written: %s.", self._file, error.strerror)
