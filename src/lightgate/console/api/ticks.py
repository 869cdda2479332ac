"""The stamps of single bursts of tokens, of the newest requests: the ticks of a waterfall.

Workers note every stamp in their journals and the ledger keeps how many there were and the longest
gap. The stamps of the newest attempts stay in the memory of the console, which reads the journals
anyway: nothing is added to a request's path, and nothing to the database.
"""

from __future__ import annotations

import threading
from array import array
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.ledger.journal.notes import Settled

MOST_BYTES: Final = 4 << 20  # of stamps together: some ten thousand usual answers
MOST_STAMPS: Final = 4096  # of one attempt; of a longer answer the first


class Ticks:
    """The stamps by attempt, in ns of the worker's clock; the oldest attempt goes first."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._kept: dict[str, bytes] = {}
        self._bytes = 0
        self._most = most_bytes
        self._lock = threading.Lock()

    def take(self, settled: Sequence[Settled]) -> None:
        """Keep the stamps of exchanges that were just shipped."""
        with self._lock:
            for one in settled:
                for note in one.attempts:
                    self._keep(note.facts.id, note.bursts[: MOST_STAMPS * 8])
            while self._bytes > self._most:
                oldest = next(iter(self._kept))
                self._bytes -= len(self._kept.pop(oldest))

    def _keep(self, attempt_id: str, stamps: bytes) -> None:
        if stamps and not len(stamps) % 8:
            self._bytes += len(stamps) - len(self._kept.pop(attempt_id, b""))
            self._kept[attempt_id] = stamps

    def of(self, attempt_id: str) -> Sequence[int] | None:
        """The stamps of an attempt; None where they are not here any more."""
        with self._lock:
            kept = self._kept.get(attempt_id)
        return None if kept is None else array("q", kept)
