"""Files that are written as a whole: a reader sees the old content or the new one, never a part."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

NO_ROOM: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))  # what a full disk says
SPARE_BYTES: Final = 64 * 1024  # by which the room beside a file grows
_SPARE: Final = ".spare"
_OLD: Final = ".old"  # for a moment, the file that is replaced


def put(
    path: Path, content: bytes, *, mode: int = 0o600, unborn: str = "", sync: bool = False
) -> None:
    """Put a file in its place by a rename; OSError leaves the old one, and no part of the new.

    It is written under another name first, `unborn`: its own with ".new" unless one is given. What
    a killed process left there is written over by the next. Where several processes may write the
    same file at once, each needs a name of its own (`own_name`). With `sync` it is on the disk
    before it is in its place.
    """
    first = path.with_name(unborn or f"{path.name}.new")
    try:
        descriptor = os.open(first, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(descriptor)
        first.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            first.unlink()  # a full disk needs the room
        raise


def put_always(path: Path, content: bytes) -> None:
    """Put a file in its place as `put` does with `sync`; on a full disk, into room set aside.

    The room is a file beside it, NAME.spare, which takes its place then; the old file is the next
    one's room. Only one process at a time may write the file.
    """
    try:
        put(path, content, unborn=own_name(path), sync=True)
    except OSError as error:
        if error.errno not in NO_ROOM or not _put_spare(path, content):
            raise
        return
    with contextlib.suppress(OSError):  # there may be room next time
        _set_aside(path, len(content))


def _put_spare(path: Path, content: bytes) -> bool:
    """Write into the room beside a file and let that take its place; whether there was enough."""
    spare, old = path.with_name(path.name + _SPARE), path.with_name(path.name + _OLD)
    try:
        descriptor = os.open(spare, os.O_WRONLY | os.O_CLOEXEC)
        try:
            if os.pwrite(descriptor, content, 0) < len(content):
                return False
            os.ftruncate(descriptor, len(content))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        old.unlink(missing_ok=True)  # of a process that was killed here
        with contextlib.suppress(OSError):  # a disk without links, or no file to keep
            old.hardlink_to(path)  # so that nobody else gets its room
        spare.replace(path)
        with contextlib.suppress(OSError):
            old.replace(spare)
    except OSError:
        return False
    return True


def _set_aside(path: Path, size: int) -> None:
    """Have room beside a file for its next content, which may be longer by a half."""
    wanted = -(-size * 3 // 2 // SPARE_BYTES) * SPARE_BYTES
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    descriptor = os.open(path.with_name(path.name + _SPARE), flags, 0o600)
    try:
        have = os.fstat(descriptor).st_size
        if have < wanted:  # by writing: a hole in a file is no room
            os.pwrite(descriptor, bytes(wanted - have), have)
    finally:
        os.close(descriptor)


def own_name(path: Path) -> str:
    """Return the name under which this process alone writes a file that others write too."""
    return f"{path.name}.{os.getpid()}.new"
