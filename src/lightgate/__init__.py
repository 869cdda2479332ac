"""Lightgate: one stopwatch for LLMs, in the benchmark harness and in the gateway."""

import contextlib
import os
import sys

__version__ = "0.1.0"

_ROOM_BYTES = 32 << 20  # all compiled modules of one environment, with room to spare


def _short_of_room() -> bool:
    """Whether a compiled module might not fit where Python keeps it, or not as a whole."""
    import resource  # not on every system

    most, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if most != resource.RLIM_INFINITY and most < _ROOM_BYTES:
        return True
    found = os.statvfs(sys.pycache_prefix or os.path.dirname(__file__))  # noqa: PTH120 - no pathlib
    return found.f_bavail * found.f_frsize < _ROOM_BYTES


# Python 3.11 keeps the part of a compiled module that a full disk took, and no process can import
# that module ever again, however much room there is.
with contextlib.suppress(ImportError, OSError):
    sys.dont_write_bytecode = sys.dont_write_bytecode or _short_of_room()
