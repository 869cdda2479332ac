"""The connections of one origin: which are idle, and the callers that wait for one."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Protocol

from lightgate.wire.client.response import ResponseParser
from lightgate.wire.link.timers import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.wire.link.link import Link
    from lightgate.wire.origin import Origin


class Trip(Protocol):
    """What a connection must be able to do to the roundtrip that it carries."""

    def expire(self) -> None:
        """Look at the deadlines."""

    def cancel(self) -> None:
        """Close the socket and end the roundtrip as cancelled."""


class Connection:
    """A pooled connection: carries one roundtrip at a time, which hears the link itself.

    The parser and the timer live as long as the connection and serve its roundtrips in turn.
    """

    __slots__ = (
        "_on_gone",
        "gone",
        "idle_since",
        "link",
        "origin",
        "pooled",
        "response",
        "timer",
        "trip",
    )

    def __init__(self, link: Link, origin: Origin, on_gone: Callable[[Connection], None]) -> None:
        self.link = link
        self.origin = origin
        self.response = ResponseParser()
        self.timer = Deadline(asyncio.get_running_loop(), self._expire)
        self.trip: Trip | None = None
        self.idle_since = 0
        self.pooled = False  # has been idle: the server may have closed it meanwhile
        self.gone = False
        self._on_gone = on_gone
        link.attach(self)

    def close(self) -> None:
        """Give the timer back and let go of the roundtrip."""
        self.timer.close()
        self.trip = None

    def _expire(self) -> None:
        if self.trip is not None:
            self.trip.expire()

    # The link's peer, while it is idle

    def on_read(self, data: bytes, stamp: int, since: int) -> None:  # noqa: ARG002 - Peer's signature
        """Bytes that nobody asked for end the connection."""
        self.link.abort()
        self._on_gone(self)

    def on_eof(self) -> None:
        """The server closed."""
        self.link.abort()
        self._on_gone(self)

    def on_lost(self, error: Exception | None) -> None:  # noqa: ARG002 - an idle one is not missed
        """The connection broke."""
        self._on_gone(self)

    def pause_writing(self) -> None:
        """Nothing is written."""

    def resume_writing(self) -> None:
        """See `pause_writing`."""


class Pool:
    """The connections of one origin.

    Under a limit, those who wait are served in their order: room is promised to the first of them
    before anybody else can take it, and a promise is kept by an idle connection or by a new one.
    """

    __slots__ = ("_limit", "idle", "open", "promised", "waiting")

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self.idle: deque[Connection] = deque()  # the newest is reused first: it is the warmest
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.open = 0  # also those that are being opened
        self.promised = 0

    def may_open(self, wanted: int) -> int:
        """How many of the wanted connections there is room to open."""
        if self._limit is None:
            return wanted
        return max(0, min(wanted, self._limit - self.open - self.promised))

    def has_room(self) -> bool:
        """Whether one more caller finds an idle connection or may open one."""
        return self._limit is None or len(self.idle) + self._limit - self.open > self.promised

    def is_full(self) -> bool:
        """Whether no connection may be opened unless another one closes."""
        return self._limit is not None and self.open >= self._limit

    def wake(self) -> None:
        """Promise the room that there is to those who have waited longest."""
        while self.waiting and self.has_room():
            waiter = self.waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self.promised += 1
