"""Ask the ledger what keys have spent, where the counters of budgets were damaged under a worker.

Keys with a budget are refused until the ledger has answered: nobody else knows what they spent.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Final, get_args

from lightgate.clock.source import SYSTEM
from lightgate.errors import LightgateError
from lightgate.ledger.failed import LedgerNoRoom
from lightgate.ledger.locate import LedgerPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lightgate.clock.source import Clock
    from lightgate.gateway.spend.counters import SpendCounters
    from lightgate.ledger.store.keys import KeyRecord
    from lightgate.ledger.store.store import Ledger

TRIES: Final = 5  # to read between two shipments, of which there is one in a second
AT_ONCE: Final = 500  # keys that are counted in one turn of the loop: some 10 ms
PATIENCE_S: Final = 5.0  # for one statement of a server
_NANO: Final = 1_000_000_000
logger = logging.getLogger(__name__)


class Recounting:
    """The look of a worker, once a second, at counters that wait for the ledger."""

    def __init__(
        self,
        spend: SpendCounters | None,
        keys: Callable[[], Sequence[KeyRecord]],
        data: Path,
        clock: Clock = SYSTEM,
    ) -> None:
        self._spend = spend
        self._keys = keys
        self._place = LedgerPlace.of_process(os.environ, data)
        self._clock = clock
        self._asking: asyncio.Task[None] | None = None
        self._failed = ""

    def look(self) -> None:
        """Ask the ledger, unless nothing is missing or it is being asked."""
        spend, asking = self._spend, self._asking
        if spend is None or not spend.recounts or (asking is not None and not asking.done()):
            return
        self._asking = asyncio.get_running_loop().create_task(self._recount(spend))

    async def _recount(self, spend: SpendCounters) -> None:
        keys, wall_ns = self._keys(), self._clock.wall_ns()
        try:
            # Where machines share budgets their store knows the rest, and the ledger has it of all.
            if spend.shares:
                known = dict[str, int]()
            else:
                known = await asyncio.to_thread(known_spend, self._place, keys, wall_ns)
            told = [key for key in keys if key.id in known]
            for first in range(0, len(told), AT_ONCE):
                part = told[first : first + AT_ONCE]
                spend.recount(part, {key.id: known[key.id] for key in part}, last=False)
                await asyncio.sleep(0)
            spend.recount((), {})
        except LightgateError as error:
            if error.message != self._failed:
                say = "keys with a budget are refused, since what they have spent is not known: %s"
                logger.error(say, error.message)  # noqa: TRY400 - our own sentence
            self._failed = error.message
            return
        self._failed = ""
        logger.error("the counters of budgets were damaged while the gateway ran; the ledger has"
                     " said what was spent, and keys with a budget are let in again")  # fmt: skip


def known_spend(place: LedgerPlace, keys: Sequence[KeyRecord], wall_ns: int) -> dict[str, int]:
    """Tell what each key has spent and reserved in its period, in nano-dollars.

    The ledger and the journals that are not shipped yet are read together: where something was
    shipped meanwhile, they are read again.
    """
    if place.missing:
        raise LightgateError("The ledger is not there.")
    try:
        opened = place.open(patience_s=PATIENCE_S)
    except LedgerNoRoom:
        opened = place.open_alone()
    from lightgate.ledger.journal.waiting import shipped_places

    with opened as ledger:
        for _ in range(TRIES):
            before = shipped_places(ledger)
            known = _read(ledger, place.data, keys, wall_ns)
            if shipped_places(ledger) == before:
                return known
    raise LightgateError("The ledger is written to without a pause.")


def _read(ledger: Ledger, data: Path, keys: Sequence[KeyRecord], wall_ns: int) -> dict[str, int]:
    from lightgate.ledger.journal.waiting import waiting_spend
    from lightgate.ledger.store.keys import Period, period_start
    from lightgate.ledger.store.queries import spend_per_key

    known: dict[str, int] = {}
    for period in get_args(Period):
        budgeted = [key for key in keys if key.budget_usd is not None]
        of_period = [key.id for key in budgeted if key.budget_period == period]
        if not of_period:
            continue
        start = period_start(period, wall_ns)
        since_ns = 0 if start is None else int(start.timestamp()) * _NANO
        waits = waiting_spend(ledger, data / "journal", since_ns)
        spent = spend_per_key(ledger, start)
        for key_id in of_period:
            nano_usd = int(spent.get(key_id, 0) * _NANO) + waits.get(key_id, 0)
            if nano_usd > 0:
                known[key_id] = nano_usd
    return known
