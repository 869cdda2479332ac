"""Watch the file of a SQLite ledger, which may be deleted or replaced while it is open.

A process that has a deleted file open goes on writing into it without an error, and what it writes
is lost with it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_BESIDE: Final = ("-wal", "-shm")  # SQLite's own files beside a database
Identity = tuple[int, int] | None


class FileWatch:
    """The identity of a database file and of the files beside it, as they were when it was opened.

    SQLite does not delete the files of a database that has moved, so an old `-wal` may lie beside
    a new database, which would take the old one's pages for its own.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: Identity = None
        self._beside: set[Identity] = set()
        self._looked: tuple[Identity, int] | None = None  # a descriptor, and the file that it is of

    def note(self) -> None:
        """Remember the files as they are now: call it while the database is open."""
        self._known = _identity(str(self._path))
        self._note_beside()

    def moved(self) -> bool:
        """Whether another file, or none, lies where the one that was opened lay."""
        found = _identity(str(self._path))
        if found == self._known:
            self._note_beside()
            return False
        return True

    def head(self, size: int) -> tuple[bytes, int] | None:
        """The first bytes of the file and its length; None where it cannot be read.

        The descriptor for it is never closed: with any of them a process loses the locks that
        SQLite has on the file, and then another process takes the database for its own alone.
        """
        found = _identity(str(self._path))
        try:
            if self._looked is None or self._looked[0] != found:
                self._looked = found, os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            descriptor = self._looked[1]
            return os.pread(descriptor, size, 0), os.fstat(descriptor).st_size
        except OSError:
            return None

    def clear(self) -> None:
        """Remove what the old database left beside its place; what came with a new one stays."""
        for end in _BESIDE:
            name = f"{self._path}{end}"
            if _identity(name) in self._beside:
                os.unlink(name)  # noqa: PTH108 - a name, not a path of pathlib's
        self._beside.clear()

    def put_aside(self, stamp: str) -> Path:
        """Give the files another name, never one that is taken; the new name of the database.

        The database goes last: a new one that a reader makes in its place must not find the old
        `-wal`, whose pages it would take for its own.
        """
        for count in itertools.count(1):
            end = f".damaged-{stamp}" if count == 1 else f".damaged-{stamp}-{count}"
            aside = self._path.with_name(self._path.name + end)
            if not aside.exists():
                break
        for beside in (*_BESIDE, ""):
            with contextlib.suppress(FileNotFoundError):
                os.rename(f"{self._path}{beside}", f"{aside}{beside}")  # noqa: PTH104 - as below
        self._beside.clear()
        return aside

    def _note_beside(self) -> None:
        found = {_identity(f"{self._path}{end}") for end in _BESIDE} - {None}
        self._beside |= found


def _identity(name: str) -> Identity:
    try:
        found = os.stat(name)  # noqa: PTH116 - twice a second
    except OSError:
        return None
    return found.st_dev, found.st_ino
