"""One client's connection to the console: it may be silent for a while, but not in others' way.

uvicorn has a time-out between two requests and none within the head of one, and counts every
connection alike: 256 of them with half a head each kept everybody else out. Here a connection that
waits for a head has a deadline and a bound on its bytes. There is room for so many that wait; one
more, and the address that has the most of them loses its oldest.

asyncio logs a trace for each connection that it cannot accept for want of descriptors: a hundred
at a time, and thousands in a second. `Shortage` makes one line of them.
"""

from __future__ import annotations

import errno
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lightgate.clock.source import SYSTEM

if TYPE_CHECKING:
    import asyncio

    from lightgate.clock.source import Clock

HEAD_S: Final = 10.0  # for a whole head, from the first moment or from the last response
HEAD_LIMIT: Final = 64 * 1024  # bytes
MOST_WAITING: Final = 64  # connections that wait for a head
MOST: Final = 256  # connections in all
SHORTAGE_NS: Final = 60_000_000_000  # between two lines about one shortage
_SHORT: Final = frozenset((errno.EMFILE, errno.ENFILE))
_log = logging.getLogger(__name__)


class Shortage:
    """What the loop says of its troubles; a want of descriptors once in a minute."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._said_ns: int | None = None

    def handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Say what went wrong in a callback of the loop."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _SHORT:
            loop.default_exception_handler(context)
            return
        now_ns = self._clock.now_ns()
        if self._said_ns is None or now_ns - self._said_ns >= SHORTAGE_NS:
            self._said_ns = now_ns
            _log.error("The console takes no new connections: this process may open no more files.")


class ConsoleConnection(HttpToolsProtocol):
    """A connection of the console."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.waiting_since: float | None = None  # when the wait for a head began; None: it came
        self._late: asyncio.TimerHandle | None = None
        self._size = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head, and see that no other connection is kept out by waiting ones."""
        super().connection_made(transport)
        self._wait()
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadline."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; a head may have so many."""
        super().data_received(data)
        if self.waiting_since is not None:
            self._size += len(data)
            if self._size > HEAD_LIMIT:
                self.transport.abort()

    def on_headers_complete(self) -> None:
        """Wait no more: a request is here."""
        self._stop_waiting()
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Wait for the next head."""
        super().on_response_complete()
        if not self.transport.is_closing() and self.cycle.response_complete:
            self._wait()

    def _wait(self) -> None:
        self._stop_waiting()
        self._size = 0
        self.waiting_since = self.loop.time()
        self._late = self.loop.call_later(HEAD_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        self.waiting_since = None
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _make_room(self) -> None:
        waiting = [
            (one.waiting_since, one)
            for one in self.connections
            if isinstance(one, ConsoleConnection) and one.waiting_since is not None
        ]
        if len(waiting) <= MOST_WAITING:
            return
        [(address, _)] = Counter(one.address for _, one in waiting).most_common(1)
        own = [(since, one) for since, one in waiting if one.address == address]
        min(own, key=lambda pair: pair[0])[1].give_way()

    def give_way(self) -> None:
        """Be closed for another; its end comes later, and others of this turn look for theirs."""
        self._stop_waiting()
        self.transport.abort()

    @property
    def address(self) -> str:
        """The client's address, without its port."""
        return self.client[0] if self.client else ""
