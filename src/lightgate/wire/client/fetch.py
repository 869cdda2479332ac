"""A plain GET, for the simulator's log, health checks and the doctor: the whole body at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.clock.marks import Marks
from lightgate.errors import TooLarge, UsageError
from lightgate.wire.client.roundtrip import Deadlines

if TYPE_CHECKING:
    from lightgate.wire.client.client import Client
    from lightgate.wire.client.roundtrip import Exchange, Headers
    from lightgate.wire.origin import Origin

BODY_LIMIT: Final = 256 * 1024 * 1024


class Fetched(NamedTuple):
    """An answer as a whole, with the marks of getting it."""

    status: int
    headers: Headers
    body: bytes
    marks: Marks


class _WholeBody:
    def __init__(self, marks: Marks) -> None:
        self.marks = marks
        self.status = 0
        self.headers: Headers = []
        self.parts: list[bytes] = []
        self._size = 0

    def on_open(self, exchange: Exchange) -> None:
        """Nothing to keep: a fetch is cancelled by its task."""

    def on_sent(self, stamp: int) -> None:
        self.marks.send = stamp

    def on_head(self, status: int, headers: Headers, stamp: int) -> None:
        self.status, self.headers, self.marks.headers = status, headers, stamp

    def on_body(self, data: bytes, stamp: int, since: int) -> None:  # noqa: ARG002 - the protocol's
        self._size += len(data)
        if self._size > BODY_LIMIT:
            raise TooLarge(f"The answer is larger than {BODY_LIMIT} bytes.")
        self.parts.append(data)

    def on_end(self, stamp: int) -> None:
        self.marks.end = stamp


async def fetch(
    client: Client,
    origin: Origin,
    path: str,
    headers: tuple[tuple[str, str], ...] = (),
    deadlines: Deadlines | None = None,
) -> Fetched:
    """GET a path; any status is an answer."""
    lines = [f"GET {path} HTTP/1.1", f"host: {origin.authority}", "accept-encoding: identity"]
    for name, value in headers:
        if any(c in "\r\n\0" for c in name + value):
            raise UsageError(f"The value of the header {name!r} has a line break in it.")
        lines.append(f"{name}: {value}")
    marks = Marks()
    collector = _WholeBody(marks)
    payload = "\r\n".join((*lines, "", "")).encode("latin-1")
    await client.exchange(origin, payload, collector, marks, deadlines or Deadlines())
    return Fetched(collector.status, collector.headers, b"".join(collector.parts), marks)
