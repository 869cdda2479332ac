"""Exit codes: what a script may rely on."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """How a command ended."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    CONFIG = 3
    UNREACHABLE = 4
    CREDENTIALS = 5
    THRESHOLD = 6
    INTERRUPTED = 130
