"""A client's reply with something done to it on the way; an exchange writes to it as to any other.

Subclasses change what goes through: the token counts add a header, Gemini's JSON array rewrites the
stream, and kept responses are looked at as they pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class ClientReply(Protocol):
    """A reply that an exchange writes to: a client's, or an answer that several clients share."""

    keep_alive: bool
    on_lost: Callable[[], object] | None

    @property
    def started(self) -> bool:
        """Whether the head has gone out."""
        ...

    @property
    def finished(self) -> bool:
        """Whether nothing more can be sent."""
        ...

    @property
    def send(self) -> Callable[[bytes], bool]:
        """Sends a piece of the body; whether who reads is slower."""
        ...

    @property
    def crowded(self) -> bool:
        """Whether who reads is slower than what is sent."""
        ...

    def start(
        self, status: int, headers: bytes, *, length: int | None = None, first: bytes = b""
    ) -> None:
        """Send the head."""

    def finish(self, trailer: bytes = b"", *, last: bytes = b"") -> None:
        """End the body."""

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        """Send a complete answer."""

    def abort(self) -> None:
        """Close the socket in this turn of the loop."""

    def fail(self, error: Exception | None) -> None:
        """End the reply because of a defect."""

    async def drain(self) -> None:
        """Wait while who reads is slower."""


class ReplyAround:
    """Passes everything on to a reply."""

    def __init__(self, reply: ClientReply) -> None:
        self.inner = reply
        # A token after the first is one call here; a subclass that must see each overrides it.
        self.send: Callable[[bytes], bool] = reply.send

    @property
    def started(self) -> bool:
        """Whether the head has gone out."""
        return self.inner.started

    @property
    def finished(self) -> bool:
        """Whether nothing more can be sent."""
        return self.inner.finished

    @property
    def crowded(self) -> bool:
        """Whether the client reads more slowly than it is sent to."""
        return self.inner.crowded

    @property
    def keep_alive(self) -> bool:
        """Whether the connection stays open after this reply."""
        return self.inner.keep_alive

    @keep_alive.setter
    def keep_alive(self, value: bool) -> None:
        self.inner.keep_alive = value

    @property
    def on_lost(self) -> Callable[[], object] | None:
        """What is called if the client leaves."""
        return self.inner.on_lost

    @on_lost.setter
    def on_lost(self, value: Callable[[], object] | None) -> None:
        self.inner.on_lost = value

    def start(
        self, status: int, headers: bytes, *, length: int | None = None, first: bytes = b""
    ) -> None:
        """Send the head, with the first piece of the body."""
        self.inner.start(status, headers, length=length, first=first)

    def finish(self, trailer: bytes = b"", *, last: bytes = b"") -> None:
        """End the body, with a last piece of it."""
        self.inner.finish(trailer, last=last)

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        """Send a complete answer."""
        self.inner.whole(status, headers, body)

    async def drain(self) -> None:
        """Wait while the client reads more slowly than it is sent to."""
        await self.inner.drain()

    def abort(self) -> None:
        """Close the socket in this turn of the loop."""
        self.inner.abort()

    def fail(self, error: Exception | None) -> None:
        """End the reply because of a defect."""
        self.inner.fail(error)
