"""A disk that is full for files which are written as a whole."""

from __future__ import annotations

import errno
import io
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


class _Full(io.FileIO):
    def write(self, content: Any) -> int:
        super().write(bytes(content)[:1])  # some of it is there before the room ends
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_disk(patch: pytest.MonkeyPatch) -> None:
    """Let every file that `lightgate.whole_file` writes be too much, until the patch is undone."""
    patch.setattr("lightgate.whole_file.os.fdopen", lambda fd, _: _Full(fd, "wb"))
