"""A bound on the processor time of a piece of a test, for inputs that could hold it up for long.

It is no measurement: the bound is many times what the code takes, and a small part of what it took
when its time grew with the square of the input.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def within_cpu_s(seconds: float) -> Iterator[None]:
    """Fail where what stands inside takes more time of the processor."""

    def over(*_: object) -> None:
        raise AssertionError(f"it took more than {seconds:g} s of the processor")

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
