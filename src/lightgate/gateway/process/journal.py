"""Write a worker's notes to its journal, and keep them in memory while the disk takes none."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from lightgate.ledger.journal.journal import JournalFailed

if TYPE_CHECKING:
    from lightgate.ledger.journal.journal import Journal
    from lightgate.ledger.journal.notes import Note

logger = logging.getLogger(__name__)
BACKLOG: Final = 1000  # notes kept in memory while the disk takes none


class JournalWriter:
    """Writes notes; keeps up to BACKLOG of them while the disk refuses.

    With a full backlog `accepts` is False, and no request that costs money is admitted.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._waiting: deque[Note] = deque()

    @property
    def accepts(self) -> bool:
        """Whether the notes of another request can be kept."""
        return len(self._waiting) < BACKLOG or self._flush()

    def write(self, note: Note) -> None:
        """Write a note, or keep it until the disk takes it."""
        if self._waiting and not self._flush():
            self._waiting.append(note)
            return
        try:
            self._journal.write(note)
        except JournalFailed as failure:
            logger.error("%s Notes are kept in memory.", failure.message)  # noqa: TRY400 - no trace needed
            self._waiting.append(note)

    def close(self) -> None:
        """Write the notes that wait, then close the file."""
        if self._waiting and not self._flush():
            logger.error("%d notes are lost: the journal cannot be written", len(self._waiting))
        self._journal.close()

    def _flush(self) -> bool:
        try:
            while self._waiting:
                self._journal.write(self._waiting[0])
                self._waiting.popleft()
        except JournalFailed:
            return False
        return True
