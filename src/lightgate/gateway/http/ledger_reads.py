"""Reads of the ledger for clients, on two threads of their own.

A ledger on a server may be away, frozen or held by somebody else. Then a look-up waits and fails;
the threads on which a worker resolves names and writes its gauges stay free, and after one failure
the server is left alone for a moment.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from lightgate.clock.source import SYSTEM
from lightgate.ledger.failed import LedgerFailed
from lightgate.ledger.locate import LedgerPlace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lightgate.clock.source import Clock
    from lightgate.ledger.store.store import Ledger

T = TypeVar("T")
THREADS: Final = 2
REST_NS: Final = 5_000_000_000  # after a failure
PATIENCE_S: Final = 5.0


class LedgerReads:
    """The ledger of a worker's data folder, opened for each read."""

    def __init__(self, data: Path, clock: Clock = SYSTEM) -> None:
        self._data = data
        self._clock = clock
        self._pool = ThreadPoolExecutor(THREADS, "lightgate-ledger")
        self._failed: tuple[int, LedgerFailed] | None = None

    async def read(self, ask: Callable[[Ledger], T], otherwise: T) -> T:
        """Ask the ledger; `otherwise` where it has not been made yet."""
        return await asyncio.get_running_loop().run_in_executor(
            self._pool, lambda: self._read(ask, otherwise)
        )

    def close(self) -> None:
        """Let the threads end."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _read(self, ask: Callable[[Ledger], T], otherwise: T) -> T:
        if self._failed is not None and self._clock.now_ns() < self._failed[0]:
            raise self._failed[1]
        place = LedgerPlace.of_process(os.environ, self._data)
        if place.missing:
            return otherwise
        try:
            with place.open(patience_s=PATIENCE_S) as ledger:
                return ask(ledger)
        except LedgerFailed as failed:
            self._failed = self._clock.now_ns() + REST_NS, failed
            raise
