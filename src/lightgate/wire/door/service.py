"""What all connections of one door share."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, Protocol

from lightgate.clock.source import SYSTEM, Clock
from lightgate.wire.door.crowd import Crowd, CrowdLimits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from lightgate.wire.door.inbound import DoorLimits, Inbound
    from lightgate.wire.door.intake import SinkOf
    from lightgate.wire.door.reply import Reply

    Handler = Callable[[Inbound, Reply], None]
    AsyncHandler = Callable[[Inbound, Reply], Awaitable[None]]
    # Refuses a request by its head, or names the owner of its body (None: the client's address).
    Gate = Callable[[Inbound, Reply], Hashable]


_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = (
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
)  # fmt: skip


def http_date(second: int) -> bytes:
    """The value of a Date field (RFC 9110, 5.6.7); `email.utils` has it with all of e-mail."""
    at = time.gmtime(second)
    day = f"{_DAYS[at.tm_wday]}, {at.tm_mday:02d} {_MONTHS[at.tm_mon - 1]} {at.tm_year:04d}"
    return f"{day} {at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d} GMT".encode()


class DoorConnection(Protocol):
    """A connection, as the door sees it."""

    @property
    def idle(self) -> bool:
        """Whether nothing of a request has come since the last reply."""

    def retire(self) -> None:
        """Close if idle; a running reply closes after itself."""

    def give_up(self) -> None:
        """Wait no longer for a request: an unfinished one is refused, and may be sent again."""

    def abort(self) -> None:
        """Close the socket and tell the handler now."""


class Service:
    """The handler and its terms, and who is connected."""

    __slots__ = (
        "_clock",
        "_date",
        "_second",
        "closing",
        "connections",
        "crowd",
        "emptied",
        "ending",
        "gate",
        "handler",
        "limits",
        "sink_of",
    )

    def __init__(
        self,
        handler: Handler,
        limits: DoorLimits,
        clock: Clock = SYSTEM,
        gate: Gate | None = None,
        crowd: CrowdLimits | None = None,
    ) -> None:
        self.handler = handler
        self.gate = gate
        self.sink_of: SinkOf | None = None  # set before the first connection
        self.limits = limits
        self.closing = False  # every reply from here on says that it is its connection's last
        self.ending = False  # connections end now, also those whose last reply did not say so
        self.connections: set[DoorConnection] = set()
        self.crowd = Crowd(crowd or CrowdLimits())
        self.emptied = asyncio.Event()
        self._clock = clock
        self._second = -1
        self._date = b""

    def date(self) -> bytes:
        """The value of the Date field, made once a second."""
        second = self._clock.wall_ns() // 1_000_000_000
        if second != self._second:
            self._second = second
            self._date = http_date(second)
        return self._date

    def close(self, *, gentle: bool) -> None:
        """Let connections end: now, or after a reply that says so."""
        self.closing = True
        self.ending = not gentle

    def forget(self, connection: DoorConnection) -> None:
        """The connection and its handler are over."""
        self.connections.discard(connection)
        if not self.connections:
            self.emptied.set()
