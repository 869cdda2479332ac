"""The process beside a worker: one job after the other, until its input ends.

    python -m lightgate.gateway.aside.helper

It ends with its worker, whose death closes the pipe. It has no key, no socket and no file.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from typing import Final

from lightgate.errors import LightgateError, UsageError
from lightgate.gateway.aside.frames import FrameReader, Segments, pieces, value_of

_STDIN: Final = 0
_STDOUT: Final = 1
_READ: Final = 1 << 20
NICE: Final = 5  # the loop's turn comes first where both want the same core


def main() -> int:
    """Do jobs until the pipe is closed; the exit code."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C and orders to reload are others' affair
    with contextlib.suppress(OSError):
        os.nice(NICE)
    reader = FrameReader(_do)
    while True:
        data = os.read(_STDIN, _READ)
        if not data:
            return 0
        reader.feed(data)


def _do(segments: Segments) -> None:
    """Do one job and write its result: what it returned, and whether that is an error."""
    bodies: list[bytes] = []
    try:
        job, arguments = value_of(segments)
        value, bodies = job(*segments[1:], *arguments)
        answer = (True, value)
    except LightgateError as error:
        answer = (False, error)
    except RecursionError:
        answer = (False, UsageError("The body is nested too deeply."))
    except Exception:  # noqa: BLE001 - the wall of a process
        answer = (False, RuntimeError(traceback.format_exc(limit=-4)))
    for piece in pieces(answer, bodies):
        left = memoryview(piece)
        while left:
            left = left[os.write(_STDOUT, left) :]


if __name__ == "__main__":
    sys.exit(main())
