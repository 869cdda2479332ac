"""One client's connection to the console: it may be silent for a while, but not in others' way.

uvicorn has a time-out between two requests and none within the head of one, and counts every
connection alike: 256 of them with half a head each kept everybody else out. Here a connection that
waits for a head has a deadline and a bound on its bytes. There is room for so many that wait; one
more, and the address that has the most of them loses its oldest.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

HEAD_S: Final = 10.0  # for a whole head, from the first moment or from the last response
HEAD_LIMIT: Final = 64 * 1024  # bytes
MOST_WAITING: Final = 64  # connections that wait for a head
MOST: Final = 256  # connections in all


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
        min(own, key=lambda pair: pair[0])[1].transport.abort()

    @property
    def address(self) -> str:
        """The client's address, without its port."""
        return self.client[0] if self.client else ""
