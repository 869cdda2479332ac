"""A plain request, for the simulator's log, the doctor and webhooks: the whole answer at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.clock.marks import Marks
from lightgate.errors import TooLarge, UsageError
from lightgate.wire.client.roundtrip import Deadlines

if TYPE_CHECKING:
    from lightgate.wire.client.client import Client
    from lightgate.wire.client.response import Headers
    from lightgate.wire.origin import Origin

BODY_LIMIT: Final = 256 * 1024 * 1024  # the simulator's log of a long run
POSTED_LIMIT: Final = 1024 * 1024  # an answer to a POST: its status is what matters


class Fetched(NamedTuple):
    """An answer as a whole, with the marks of getting it."""

    status: int
    headers: Headers
    body: bytes
    marks: Marks


class _WholeBody:
    status: int  # once the head is there
    headers: Headers

    def __init__(self, marks: Marks, limit: int) -> None:
        self.marks = marks
        self.parts: list[bytes] = []
        self._limit = limit
        self._size = 0

    def on_sent(self, stamp: int) -> None:
        self.marks.send = stamp

    def on_head(self, status: int, headers: Headers, stamp: int) -> None:
        self.status, self.headers, self.marks.headers = status, headers, stamp

    def on_body(self, data: bytes, stamp: int, since: int) -> None:  # noqa: ARG002 - the protocol's
        self._size += len(data)
        if self._size > self._limit:
            raise TooLarge(f"The answer is larger than {self._limit} bytes.")
        self.parts.append(data)

    def on_end(self, stamp: int) -> None:
        self.marks.end = stamp


async def fetch(
    client: Client,
    origin: Origin,
    path: str,
    headers: tuple[tuple[str, str], ...] = (),
    deadlines: Deadlines | None = None,
    body: bytes | None = None,
) -> Fetched:
    """GET a path, or POST a body to it; any status is an answer, no redirect is followed."""
    limit = BODY_LIMIT if body is None else POSTED_LIMIT
    asked = Asked(path, headers, body, limit)
    return await fetch_bounded(client, origin, asked, deadlines or Deadlines())


class Asked(NamedTuple):
    """A plain request; `limit` is the most bytes that its answer may have."""

    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    limit: int = BODY_LIMIT


async def fetch_bounded(
    client: Client, origin: Origin, asked: Asked, deadlines: Deadlines
) -> Fetched:
    """Send a plain request; TooLarge where its answer is larger than it may be."""
    path, headers, body, limit = asked
    method = "GET" if body is None else "POST"
    lines = [f"{method} {path} HTTP/1.1", f"host: {origin.authority}", "accept-encoding: identity"]
    if body is not None:
        lines.append(f"content-length: {len(body)}")
    for name, value in headers:
        if any(c in "\r\n\0" for c in name + value):
            raise UsageError(f"The value of the header {name!r} has a line break in it.")
        lines.append(f"{name}: {value}")
    payload = "\r\n".join((*lines, "", "")).encode("latin-1") + (body or b"")
    return await fetch_whole(client, origin, payload, limit, deadlines)


async def fetch_whole(
    client: Client, origin: Origin, payload: bytes, limit: int, deadlines: Deadlines | None = None
) -> Fetched:
    """Send a request that is ready to be written, and wait for the whole answer."""
    marks = Marks()
    collector = _WholeBody(marks, limit)
    await client.ask(origin, payload, collector, marks, deadlines or Deadlines())
    return Fetched(collector.status, collector.headers, b"".join(collector.parts), marks)
