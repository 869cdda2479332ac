"""Write a worker's notes to its journal, and keep them in memory while the disk takes none.

Once a second the writer looks whether the journal still lies in its place; a deleted one is written
anew from the file that is still open. Of one that was cut off or written over what was settled last
is written again, since the ledger may not have it yet; the ledger takes every exchange once.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.ledger.journal.journal import JournalDamaged, JournalFailed
from lightgate.ledger.journal.notes import Settled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.ledger.journal.journal import Journal
    from lightgate.ledger.journal.notes import Note
    from lightgate.route.plan.plan import Plan

    Kept = tuple[Settled, Plan | None]  # the plan is None where no target was asked

logger = logging.getLogger(__name__)
_FULL: Final = "The disk is full: requests get 503 until there is room for the journal."
_DELETED: Final = "The journal %s was deleted or replaced while the gateway ran."
_CUT: Final = "The journal %s was cut off or written over while the gateway ran."
RECENT: Final = 2000  # exchanges that /v1/requests can tell without the ledger
_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder(Settled).decode


class Recent:
    """The exchanges that were settled last, by id, the oldest first.

    They are kept as the journal has them: as objects 2,000 of them take 3 MB more. `packed` is read
    and written for every request; whoever asks for one has it unpacked.
    """

    __slots__ = ("packed",)

    def __init__(self) -> None:
        self.packed: OrderedDict[str, tuple[bytes, Plan | None]] = OrderedDict()

    def __len__(self) -> int:
        return len(self.packed)

    def __iter__(self) -> Iterator[Settled]:
        return (_unpack(packed) for packed, _ in self.packed.values())

    def get(self, id_: str) -> Kept | None:
        """The exchange of an id, with its plan."""
        found = self.packed.get(id_)
        return None if found is None else (_unpack(found[0]), found[1])

    def named(self, request_id: str, key_id: str | None) -> Kept | None:
        """The last exchange of a key to which its client gave this name."""
        name = request_id.encode("utf-8", "replace")
        for packed, plan in reversed(self.packed.values()):
            if packed.find(name) < 0:  # to unpack all would hold the loop for 10 ms
                continue
            settled = _unpack(packed)
            if (settled.exchange.request_id, settled.exchange.key_id) == (request_id, key_id):
                return settled, plan
        return None


class JournalWriter:
    """Writes notes; keeps in memory what a full disk refuses.

    The journal has room ahead of its notes. When half of that is used up and the disk gives no
    more, `short` is True and no request is admitted: what is left is for those under way. So a
    worker that is killed on a full disk loses nothing either. The same holds while the journal is
    `lost`: deleted, and not to be written anew.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.recent = Recent()  # for /v1/requests
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

    def write(self, note: Note) -> bytes | None:
        """Write a note and return it as it was packed; None where it waits for the disk."""
        if self.waiting and not self._flush():
            self.waiting.append(note)
            return None
        try:
            try:
                packed = self._journal.write(note)
            except JournalDamaged:
                packed = self._write_anew(note)
        except JournalFailed as failure:
            logger.error("%s Notes are kept in memory.", failure.message)  # noqa: TRY400 - no trace needed
            self.waiting.append(note)
            self.short = True
            return None
        if self._journal.short and not self.short:
            logger.error(_FULL)
            self.short = True
        return packed

    def _write_anew(self, note: Note) -> bytes:
        """Write a note into a new file, as the journal was damaged; JournalFailed without one."""
        if not self._begin_anew():
            raise JournalFailed(_CUT % self._journal.path.name)
        return self._journal.write(note)

    def _begin_anew(self) -> bool:
        """Go on in a new file, with what was settled last; whether there is one."""
        name = self._journal.path.name
        try:
            self._journal.begin_anew()
            for settled in self.recent:
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
        packed = self.write(settled) or _pack(settled)
        recent = self.recent.packed
        recent[settled.exchange.id] = packed, plan
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
