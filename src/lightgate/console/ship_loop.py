"""Ship the workers' journals into the ledger every half second, and delete rows that are too old.

The work is done on one thread of its own: a page never waits for a disk, and the ledger has one
writer.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from lightgate.clock.source import SYSTEM
from lightgate.errors import LightgateError
from lightgate.ledger.failed import LedgerBusy, LedgerDamaged
from lightgate.ledger.journal.ship import Shipped, Shipper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lightgate.clock.source import Clock
    from lightgate.ledger.journal.notes import Settled
    from lightgate.ledger.store.store import Ledger

SHIP_S: Final = 0.5
PRUNE_S: Final = 3600.0
PRUNE_AGAIN_S: Final = 60.0  # where another process held what was to be deleted
FAILING_PAUSE_S: Final = 5.0
HELD_S: Final = 10.0  # for which another process may hold the ledger before it is said
CHECK_S: Final = 60.0  # between two checks of a ledger's file for damage
CHECK_SHARE: Final = 20  # a check that takes long is followed by a pause of so many times that
DAMAGED_AGAIN_S: Final = 600.0  # a file that is damaged sooner than that is no accident: it stays
JOURNALS: Final = "journal"
_log = logging.getLogger(__name__)


class ShipLoop:
    """Ship every half second and prune every hour, until `stop`; then ship once more.

    Of several processes with one ledger only the one that `leads` prunes.
    `remake` makes the tables of a ledger that has to be made anew, and what no journal has.
    `taken` gets every exchange once it is in the ledger.
    A file that was deleted, replaced or damaged is made anew and filled from the journals.
    `totals` is all that was shipped, `shipped_ns` when the last whole pass ended (monotonic).
    """

    def __init__(
        self,
        ledger: Ledger,
        data: Path,
        *,
        prune: Callable[[], object],
        remake: Callable[[], object] = lambda: None,
        taken: Callable[[Sequence[Settled]], object] = lambda _: None,
        clock: Clock = SYSTEM,
    ) -> None:
        self._ledger = ledger
        self.shipper = Shipper(ledger, data / JOURNALS, taken)
        self._prune = prune
        self.leads: Callable[[], bool] = lambda: True  # of several processes with one ledger
        self._remake = remake
        self._clock = clock
        self._pruned_ns: int | None = None
        self._stop = asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ship")
        self.totals = Shipped()
        self.failures = 0
        self.problem = ""  # why the last pass failed, in a sentence
        self.lost = 0  # how often the ledger's file was gone
        self.aside = ""  # that a damaged file was put aside, in a sentence
        self._aside_ns: int | None = None
        self.shipped_ns: int | None = None
        self._free_ns = clock.now_ns()  # when the ledger was last not held by another process

    async def run(self) -> None:
        """Work until `stop`; a pass that failed is logged and tried again."""
        loop = asyncio.get_running_loop()
        checking = asyncio.ensure_future(self._check())
        try:
            while not self._stop.is_set():
                worked = await loop.run_in_executor(self._thread, self.work)
                await self.stopped(SHIP_S if worked else FAILING_PAUSE_S)
            await loop.run_in_executor(self._thread, self.work)
        finally:
            self._stop.set()
            await checking
            self._thread.shutdown()

    async def _check(self) -> None:
        """Check the ledger's file for damage now and then, on a thread of its own, until `stop`."""
        pause_s = CHECK_S
        while not await self.stopped(pause_s):
            began_ns = self._clock.now_ns()
            try:
                await asyncio.to_thread(self._ledger.check_file, self._stop.is_set)
            except Exception:  # noqa: BLE001 - the wall of a background task: the next check tells
                _log.exception("The ledger's file could not be checked; it is tried again")
            took_s = (self._clock.now_ns() - began_ns) / 1e9
            pause_s = max(CHECK_S, CHECK_SHARE * took_s)

    def stop(self) -> None:
        """End the run after a last pass."""
        self._stop.set()

    async def stopped(self, within_s: float) -> bool:
        """Wait for so long; whether the run was told to end before that."""
        try:
            await asyncio.wait_for(self._stop.wait(), within_s)
        except TimeoutError:
            return False
        return True

    def work(self) -> bool:
        """Make one pass over all journals, and prune once an hour; False where the pass failed."""
        try:
            if self._ledger.moved():
                self._make_anew()
            else:
                self._ledger.look_at_file()
                if self._ledger.damage:
                    self._put_aside()
            done = self.shipper.drain()
            self.totals += done
            if done.orphans:
                _log.warning("%d requests of a dead worker were settled as estimated", done.orphans)
            if done.busy:
                return self._wait()
            self.shipped_ns = self._free_ns = self._clock.now_ns()
            self._prune_hourly()
        except LightgateError as error:
            self.failures += 1
            self._say(error.message)
            return False
        except Exception:  # noqa: BLE001 - the wall of a background task: journals keep everything
            self.failures += 1
            self.problem = "The journals could not be shipped."
            _log.exception("The journals could not be shipped; it is tried again")
            return False
        if self.problem:
            self.problem = ""
            _log.info("The journals reach the ledger again.")
        return True

    def _wait(self) -> bool:
        """Say that another process holds the ledger, once it has done so for long."""
        if self._clock.now_ns() - self._free_ns >= HELD_S * 1e9:
            self._say(f"{self.shipper.held} Another process holds it.")
        return True

    def _say(self, problem: str) -> None:
        """Note why journals do not reach the ledger; the log has a line for each new reason."""
        if problem != self.problem:
            self.problem = problem
            _log.error("%s The journals keep everything until then.", problem)

    def _make_anew(self) -> None:
        """Use the ledger file that is there now; one that is missing is made and refilled."""
        self.lost += 1
        _log.error(
            "The ledger's file was deleted or replaced while the gateway ran. The one that is there"
            " now, or a new one, is used and filled from the journals that are still kept."
        )
        self._ledger.leave_moved()
        self._remake()
        self._ledger.reopen()

    def _put_aside(self) -> None:
        """Put a damaged file aside under another name, and make and refill a new one."""
        why, now_ns = self._ledger.damage, self._clock.now_ns()
        since_ns = None if self._aside_ns is None else now_ns - self._aside_ns
        if since_ns is not None and since_ns < DAMAGED_AGAIN_S * 1e9:
            raise LedgerDamaged(f"The ledger's file is damaged once more: {why}. Check the disk.")
        self.lost += 1
        self._aside_ns = now_ns
        stamp = datetime.fromtimestamp(self._clock.wall_ns() // 10**9, UTC)
        aside = self._ledger.put_aside(f"{stamp:%Y%m%dT%H%M%SZ}")
        name = "another name" if aside is None else aside.name
        self.aside = f"The ledger's file was damaged and is kept as {name}; a new one is used."
        _log.error(
            "%s Its journals fill it as far as they are kept. SQLite says: %s", self.aside, why
        )
        self._remake()
        self._ledger.reopen()

    def lag_s(self) -> float | None:
        """How long ago the last whole pass ended; None before the first."""
        return None if self.shipped_ns is None else (self._clock.now_ns() - self.shipped_ns) / 1e9

    def _prune_hourly(self) -> None:
        now_ns = self._clock.now_ns()
        if not self.leads():
            return
        if self._pruned_ns is None or now_ns - self._pruned_ns >= PRUNE_S * 1e9:
            self._pruned_ns = now_ns
            try:
                self._prune()
            except LedgerBusy as error:  # somebody reads a day that is to go
                self._pruned_ns -= int((PRUNE_S - PRUNE_AGAIN_S) * 1e9)
                _log.info("Rows that are too old stay a little longer. %s", error.message)
