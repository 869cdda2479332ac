"""A compressed answer between the wire and its taker, unpacked a piece in each turn of the loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from lightgate.errors import AttemptError

if TYPE_CHECKING:
    from lightgate.wire.client.coding import Inflater, Unread
    from lightgate.wire.client.response import Headers
    from lightgate.wire.link.link import Link


class Taker(Protocol):
    """The receiver of an answer as it comes.

    An AttemptError that a method raises ends the roundtrip with that error. So does any other
    exception, which is a defect: the loop's own handler hears of it too.
    """

    def on_sent(self, stamp: int) -> None:
        """The first byte of the request is about to be written; pool wait is over."""

    def on_head(self, status: int, headers: Headers, stamp: int) -> None:
        """The status line and the headers came; the list is the taker's to keep."""

    def on_body(self, data: bytes, stamp: int, since: int) -> None:
        """All body bytes of one read."""

    def on_end(self, stamp: int) -> None:
        """The answer is complete by its own framing."""


class Unpacked(Protocol):
    """The roundtrip whose answer is unpacked."""

    over: bool
    paused: bool
    bytes_in: int

    @property
    def link(self) -> Link:
        """The connection that the answer comes on."""
        ...

    def fail(self, error: BaseException) -> None:
        """End the roundtrip with an error."""

    def finish(self, stamp: int) -> None:
        """End the roundtrip well: the answer is complete."""


class Unpacking:
    """A taker of a compressed answer, which hands on what it stands for.

    `busy`: bytes that have come wait for their turn. Nothing is read from the socket meanwhile.
    """

    __slots__ = (
        "_at",
        "_due",
        "_ended",
        "_inflater",
        "_packed",
        "_taker",
        "_trip",
        "busy",
        "on_head",
        "on_sent",
    )

    def __init__(self, trip: Unpacked, taker: Taker, inflater: Inflater | Unread) -> None:
        self._trip = trip
        self._inflater = inflater
        self._taker = taker
        self._at = (0, 0)  # the stamps of the bytes that wait
        self._ended: int | None = None  # when the answer was complete
        self._packed = 0  # compressed bytes for which nothing was handed on yet
        self._due = False  # the next turn is asked for
        self.busy = False
        self.on_sent, self.on_head = taker.on_sent, taker.on_head

    def on_body(self, data: bytes, stamp: int, since: int) -> None:
        """Hand on the first piece of what the bytes of one read stand for."""
        self._at = (stamp, since)
        self._packed += len(data)
        self._hand_on(data)

    def on_end(self, stamp: int) -> None:
        """See that nothing of the compressed answer is missing."""
        self._inflater.end()
        self._taker.on_end(stamp)

    def puts_off(self, stamp: int) -> bool:
        """Whether the end of the answer has to wait: it then comes by itself."""
        if self.busy:
            self._ended = stamp
        return self.busy

    def read_on(self) -> None:
        """Hand the next piece on in the next turn of the loop."""
        if not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._next)

    def _hand_on(self, data: bytes) -> None:
        """Hand a piece on as if so many bytes had come; the next one waits for its turn."""
        plain = self._inflater.read(data)
        if self._inflater.more != self.busy:
            self.busy = self._inflater.more
            if self.busy:
                self._trip.link.pause_reading()
            elif not self._trip.paused:
                self._trip.link.resume_reading()
        if self.busy:
            self.read_on()
        if plain:
            self._trip.bytes_in += max(0, len(plain) - self._packed)
            self._packed = max(0, self._packed - len(plain))
            self._taker.on_body(plain, *self._at)

    def _next(self) -> None:
        self._due, trip = False, self._trip
        if trip.over or trip.paused or not self.busy:
            return
        try:
            self._hand_on(b"")
        except AttemptError as error:
            trip.fail(error)
        except BaseException as error:
            trip.fail(error)
            raise
        else:
            if self._ended is not None and not self._inflater.more and not trip.over:
                trip.finish(self._ended)
