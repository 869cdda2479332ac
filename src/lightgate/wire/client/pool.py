"""The connections of one origin: which are idle, and the callers that wait for one."""

from __future__ import annotations

import asyncio
import select
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from lightgate.wire.client.response import ResponseParser
from lightgate.wire.link.timers import Deadline

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from lightgate.wire.link.link import Link
    from lightgate.wire.origin import Origin


# Of Linux: the other side has ended its half. Elsewhere an end is seen as a hang-up, always told.
_ENDED: Final = getattr(select, "POLLRDHUP", 0)
SOON_NS: Final = 50_000_000  # after an answer: an end within this time is how the server does it
CLOSES: Final = 2  # such ends in a row after which no request is risked on a kept connection
KEPT_NS: Final = 1_000_000_000  # a connection that is open so long after its answer was kept


class Trip(Protocol):
    """What a connection must be able to do to the roundtrip that it carries."""

    def expire(self) -> None:
        """Look at the deadlines."""

    def cancel(self) -> None:
        """Close the socket and end the roundtrip as cancelled."""


class Connection:
    """A pooled connection: carries one roundtrip at a time, which hears the link itself.

    The parser and the timer live as long as the connection and serve its roundtrips in turn.
    `look(0)` asks the kernel whether the server has closed; it is empty while it has not.
    `chunked` is how the last answer was framed.
    """

    __slots__ = (
        "_on_gone",
        "answered",
        "chunked",
        "gone",
        "idle_since",
        "link",
        "look",
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
        self.answered = False
        self.chunked = False
        self._on_gone = on_gone
        self.look = _watch(link)
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


def _watch(link: Link) -> Callable[[int], list[Any]]:
    """The look at one connection: a single system call, which raises nothing."""
    poll, sock = select.poll(), link.info("socket")
    if sock is not None:
        poll.register(cast("socket.socket", sock).fileno(), _ENDED)
    return poll.poll


class Pool:
    """The connections of one origin.

    Some servers close every connection after its answer and do not say so. `shut` counts such ends
    in a row, for answers that end by their length and for those that end by a last chunk (llama.cpp
    keeps the first kind). From CLOSES on, no request is sent on a kept connection of that kind; one
    of them is `watched` instead, and if it stays open the origin is trusted again.

    Under a limit, those who wait are served in their order: room is promised to the first of them
    before anybody else can take it, and a promise is kept by an idle connection or by a new one.
    """

    __slots__ = ("_limit", "idle", "open", "promised", "shut", "waiting", "watched")

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self.idle: deque[Connection] = deque()  # the newest is reused first: it is the warmest
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.open = 0  # also those that are being opened
        self.promised = 0
        self.shut = [0, 0]
        self.watched: Connection | None = None

    def may_open(self, wanted: int) -> int:
        """How many of the wanted connections there is room to open."""
        if self._limit is None:
            return wanted
        return max(0, min(wanted, self._limit - self.open - self.promised))

    def has_room(self) -> bool:
        """Whether one more caller finds an idle connection or may open one."""
        if self._limit is None:
            return True
        spare = len(self.idle) + (self.watched is not None)
        return spare + self._limit - self.open > self.promised

    def spared(self) -> Connection:
        """Take the connection that is missed least: the watched one, else the oldest idle one."""
        connection, self.watched = self.watched, None
        return self.idle.popleft() if connection is None else connection

    def ended_soon(self, connection: Connection, now_ns: int) -> None:
        """Count a connection that the server closed without a word; long after an answer none."""
        if connection.answered and now_ns - connection.idle_since < SOON_NS:
            self.shut[connection.chunked] += 1

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
