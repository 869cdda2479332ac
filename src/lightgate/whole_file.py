"""Files that are written as a whole: a reader sees the old content or the new one, never a part."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


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


def own_name(path: Path) -> str:
    """Return the name under which this process alone writes a file that others write too."""
    return f"{path.name}.{os.getpid()}.new"
