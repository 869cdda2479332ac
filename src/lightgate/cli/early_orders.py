"""Orders to reload that come while `lightgate up` begins: they are kept, and end nothing."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Self

from lightgate.gateway.process.handover import ORDERS

if TYPE_CHECKING:
    from types import TracebackType


class EarlyOrders:
    """A stretch in which SIGHUP and SIGUSR2 are noted; by default both end the process.

    A service manager reloads as soon as it has started, and the first second goes to imports, the
    configuration and the lock. The supervisor takes the signals over, and asks for those before.
    """

    def __init__(self) -> None:
        self._come: list[int] = []
        self._before: dict[int, Any] = {}
        self._held: set[int] = set()

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._note) for number in ORDERS}
        # Held back since the first moment, and by `__exit__` to the last one.
        self._held = signal.pthread_sigmask(signal.SIG_UNBLOCK, ORDERS) & set(ORDERS)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, self._held)
        for number, before in self._before.items():
            signal.signal(number, before)

    def taken(self) -> list[int]:
        """The signals that have come, in their order."""
        return list(self._come)

    def _note(self, number: int, frame: object) -> None:
        del frame
        self._come.append(number)
