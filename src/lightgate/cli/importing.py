"""The command's first moments: Ctrl-C while modules are loaded ends it at once, and quietly."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


class Importing:
    """A stretch in which modules are imported and an interrupt ends the process by its signal.

    A KeyboardInterrupt in the middle of an import is a traceback, may come out as another error,
    and is lost where Python swallows what a callback of its import locks raises. Nothing has been
    begun yet that would have to be put in order. A shell shows status 130, as for an interrupt
    later on. Where the command was started to ignore interrupts, it goes on doing so.
    """

    def __enter__(self) -> None:
        self._before = signal.getsignal(signal.SIGINT)
        if self._before is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before)
