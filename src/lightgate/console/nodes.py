"""Consoles of several nodes with one ledger: who cleans up, and whose keys are known."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from lightgate.clock.source import SYSTEM
from lightgate.errors import LightgateError
from lightgate.gateway.served.snapshot import follow_keys as put_keys
from lightgate.ledger.failed import LedgerNoRoom
from lightgate.ledger.store.keys import read_keys

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.clock.source import Clock
    from lightgate.console.totals import Totals
    from lightgate.ledger.database.leader import Leader
    from lightgate.ledger.store.keys import KeyRecord
    from lightgate.ledger.store.store import Ledger

KEYS_S: Final = 1.0  # between two looks for keys that another node has changed
UNSEEN_NS: Final = 10_000_000_000  # for which looks may fail before it is said
_log = logging.getLogger(__name__)


def begin_totals(totals: Totals, ledger: Ledger) -> None:
    """Give the dearest keys their series; those of a ledger that cannot be used now have none."""
    try:
        totals.begin(ledger)
    except LightgateError as error:
        if ledger.postgres is None and not isinstance(error, LedgerNoRoom):
            raise
        _log.warning("%s The console waits for it.", error.message)


class NodeLeader:
    """Whether this console leads: alone with a SQLite ledger it does, else the server decides."""

    def __init__(self, ledger: Ledger) -> None:
        self._elected: Leader | None = None
        if ledger.postgres is not None:
            from lightgate.ledger.database.leader import Leader

            self._elected = Leader(ledger.postgres)
        self.last = self._elected is None

    def leads(self) -> bool:
        """Ask the server now and then; called by the thread that ships."""
        if self._elected is not None:
            self.last = self._elected.leads()
        return self.last

    def close(self) -> None:
        """Stand down."""
        if self._elected is not None:
            self._elected.close()


async def follow_keys(ledger: Ledger, data: Path, clock: Clock = SYSTEM) -> None:
    """Put keys that another node has made or revoked into this node's snapshot.

    A ledger without a key changes nothing: one that was emptied must not open the gateway.
    """
    known: tuple[KeyRecord, ...] | None = None
    seen_ns, said = clock.now_ns(), False
    while ledger.postgres is not None:
        try:
            found = await asyncio.to_thread(_keys_of, ledger)
            if found and found != known:
                await asyncio.to_thread(put_keys, data, found)
                known = found
            if said:
                _log.warning("Keys that other nodes make or revoke are seen again.")
            seen_ns, said = clock.now_ns(), False
        except LightgateError as error:
            known = None
            if not said and clock.now_ns() - seen_ns >= UNSEEN_NS:
                said = True
                _log.warning("Keys that other nodes make or revoke are not seen: %s", error.message)
        await asyncio.sleep(KEYS_S)


def _keys_of(ledger: Ledger) -> tuple[KeyRecord, ...]:
    with ledger.reading() as connection:
        return read_keys(connection)
