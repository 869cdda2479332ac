"""Streams that are live at once: how many there may be, and how each is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Receive, Scope, Send


class LiveStreams:
    """The streams of a kind; there may be `most` at once.

    A place is taken before anything is waited for. A stream that is only counted when its first
    event is there lets in any number of others that ask meanwhile.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.count = 0

    def take(self) -> bool:
        """Take a place; False where there is none."""
        if self.count >= self._most:
            return False
        self.count += 1
        return True

    def leave(self) -> None:
        """Give a place back."""
        self.count -= 1


class LiveResponse(StreamingResponse):
    """A stream of events that gives its place back when it ends, or was never begun."""

    def __init__(self, events: AsyncIterator[bytes], streams: LiveStreams) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.leave()
