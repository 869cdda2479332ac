"""A disk that is full: for files which are written as a whole, or for all of them."""

from __future__ import annotations

import errno
import io
import os
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


class _Full(io.FileIO):
    def write(self, content: Any) -> int:
        super().write(bytes(content)[:1])  # some of it is there before the room ends
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_disk(patch: pytest.MonkeyPatch) -> None:
    """Let every file that `lightgate.whole_file` writes be too much, until the patch is undone."""
    patch.setattr("lightgate.whole_file.os.fdopen", lambda fd, _: _Full(fd, "wb"))


@contextmanager
def no_room(most: int = 0) -> Iterator[None]:
    """Let no file of this process get a byte: what a full disk does to SQLite, which is not ours.

    `most` is up to where a file can be written, which may be what it has. A file in memory or a
    pipe takes all the same. Nothing may be printed meanwhile.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
