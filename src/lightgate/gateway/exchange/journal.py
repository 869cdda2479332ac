"""Write a worker's notes to its journal, and keep them in memory while the disk takes none.

Once a second the writer looks whether the journal still lies in its place; a deleted one is written
anew from the file that is still open. Of one that was cut off or written over what was settled last
is written again, since the ledger may not have it yet; the ledger takes every exchange once.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from lightgate.ledger.journal.journal import JournalDamaged, JournalFailed

if TYPE_CHECKING:
    from lightgate.ledger.journal.journal import Journal
    from lightgate.ledger.journal.notes import Note, Settled
    from lightgate.route.plan.plan import Plan

logger = logging.getLogger(__name__)
_FULL: Final = "The disk is full: requests get 503 until there is room for the journal."
_DELETED: Final = "The journal %s was deleted or replaced while the gateway ran."
_CUT: Final = "The journal %s was cut off or written over while the gateway ran."
RECENT: Final = 2000  # exchanges that /v1/requests can tell without the ledger


class JournalWriter:
    """Writes notes; keeps in memory what a full disk refuses.

    The journal has room ahead of its notes. When half of that is used up and the disk gives no
    more, `short` is True and no request is admitted: what is left is for those under way. So a
    worker that is killed on a full disk loses nothing either. The same holds while the journal is
    `lost`: deleted, and not to be written anew.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        # For /v1/requests; the plan is None where no target was asked.
        self.recent: OrderedDict[str, tuple[Settled, Plan | None]] = OrderedDict()
        self.waiting: deque[Note] = deque()
        self.short = journal.short
        self._problem = ""  # why the journal is lost, as it was last said
        if self.short:
            logger.error(_FULL)

    @property
    def lost(self) -> bool:
        """Whether the journal was deleted and could not be written anew."""
        return self._journal.lost

    def keep_in_place(self) -> None:
        """Look whether the journal was deleted or replaced, and write it anew; log it once.

        While that fails no request is admitted: the end of this process would take its notes along.
        """
        try:
            anew = self._journal.keep_in_place()
        except JournalDamaged:
            self._begin_anew()
            return
        except JournalFailed as failure:
            self.short = True
            if failure.message != self._problem:
                self._problem = failure.message
                said = f"{_DELETED} %s Requests get 503 until it can be written anew."
                logger.error(said, self._journal.path.name, failure.message)  # noqa: TRY400
            return
        self._problem = ""
        if anew:
            said = f"{_DELETED} It was written anew, with all of its notes."
            logger.error(said, self._journal.path.name)

    def place(self) -> tuple[str, int]:
        """The name of the file that is written now, and the bytes of notes in it."""
        return self._journal.path.name, self._journal.size

    def accepts(self) -> bool:
        """Whether the notes of another request can be kept; asks the disk where they could not."""
        if self.short:
            self.short = not (self._journal.regain() and self._flush())
        return not self.short

    def tight(self) -> bool:
        """Whether the disk gives no more room, and only the spare is left; asks it again.

        A load balancer that hears of it in time sends no request that would have to be refused.
        """
        if self._journal.tight:
            self._journal.regain()
        return self._journal.tight

    def write(self, note: Note) -> None:
        """Write a note, or keep it until the disk takes it."""
        if self.waiting and not self._flush():
            self.waiting.append(note)
            return
        try:
            try:
                self._journal.write(note)
            except JournalDamaged:
                self._write_anew(note)
        except JournalFailed as failure:
            logger.error("%s Notes are kept in memory.", failure.message)  # noqa: TRY400 - no trace needed
            self.waiting.append(note)
            self.short = True
            return
        if self._journal.short and not self.short:
            logger.error(_FULL)
            self.short = True

    def _write_anew(self, note: Note) -> None:
        """Write a note into a new file, as the journal was damaged; JournalFailed without one."""
        if not self._begin_anew():
            raise JournalFailed(_CUT % self._journal.path.name)
        self._journal.write(note)

    def _begin_anew(self) -> bool:
        """Go on in a new file, with what was settled last; whether there is one."""
        name = self._journal.path.name
        try:
            self._journal.begin_anew()
            for settled, _ in self.recent.values():
                self._journal.write(settled)
        except JournalFailed as failure:
            self.short = True
            if failure.message != self._problem:
                self._problem = failure.message
                said = f"{_CUT} %s Requests get 503 until it can be written anew."
                logger.error(said, name, failure.message)  # noqa: TRY400 - no trace needed
            return False
        self._problem = ""
        said = f"{_CUT} The last %d exchanges were written again."
        logger.error(said, name, len(self.recent))
        return True

    def settle(self, settled: Settled, plan: Plan | None = None) -> None:
        """Write an exchange that is over, and keep it and its plan at hand for a while."""
        self.write(settled)
        recent = self.recent
        recent[settled.exchange.id] = settled, plan
        if len(recent) > RECENT:
            recent.popitem(last=False)

    def close(self) -> None:
        """Write the notes that wait, then close the file."""
        if self.waiting and not self._flush():
            logger.error("%d notes are lost: the journal cannot be written", len(self.waiting))
        self.keep_in_place()
        try:
            self._journal.close()
        except JournalFailed as failure:
            logger.error("The journal is lost. %s", failure.message)  # noqa: TRY400 - no trace needed

    def _flush(self) -> bool:
        try:
            while self.waiting:
                try:
                    self._journal.write(self.waiting[0])
                except JournalDamaged:
                    self._write_anew(self.waiting[0])
                self.waiting.popleft()
        except JournalFailed:
            return False
        return True
