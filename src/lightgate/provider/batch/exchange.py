"""Requests to a provider's batch API: JSON both ways, files up, and lines down as they come.

Everything goes to the target's own origin with the target's own key. No redirect is followed, and
no request is sent a second time here: a submission that was answered by silence may have been paid.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lightgate import __version__
from lightgate.clock.marks import Marks
from lightgate.dialect.errors import fault
from lightgate.errors import HttpRefused, Malformed, RateLimited, TooLarge, UsageError
from lightgate.provider.retry_after import retry_after_s
from lightgate.provider.secret import without_secrets
from lightgate.wire.client.roundtrip import Deadlines, Outbound
from lightgate.wire.origin import split_url

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from lightgate.provider.target import Target
    from lightgate.wire.client.client import Client
    from lightgate.wire.client.response import Headers
    from lightgate.wire.client.roundtrip import Roundtrip

DOCUMENT_LIMIT: Final = 32 * 1024 * 1024  # bytes of a JSON answer
LINE_LIMIT: Final = 32 * 1024 * 1024  # bytes of one result
REFUSAL_LIMIT: Final = 64 * 1024
HELD: Final = 4 * 1024 * 1024  # bytes of results in memory, before reading pauses
DEADLINES: Final = Deadlines(connect_s=10, first_byte_s=300, idle_s=60, total_s=900)
STREAM: Final = Deadlines(connect_s=10, first_byte_s=300, idle_s=120, total_s=None)
_BOUNDARY: Final = "lightgate-batch-7f3a91c5e2d8"
Pairs = tuple[tuple[str, str], ...]


class BatchAnswer(NamedTuple):
    """An answer of status 2xx: its document, and the header fields beside it."""

    tree: Any
    headers: Headers

    def header(self, name: bytes) -> str:
        """The value of a header, empty where there is none."""
        return next((value.decode("latin-1") for key, value in self.headers if key == name), "")


class BatchExchange:
    """Sends the requests of one target's batch API."""

    def __init__(self, client: Client, target: Target) -> None:
        self._client = client
        self.target = target
        self._origin, root = split_url(target.base_url)
        self.root = root.rstrip("/")

    def path_of(self, url: str) -> str:
        """The path of an address that a provider names; UsageError where it leads elsewhere."""
        if url.startswith("/"):
            return url
        origin, path = split_url(url)
        if origin != self._origin:
            raise Malformed(
                f"{self._origin.authority} names an address at {origin.authority};"
                " results and uploads stay at the provider's own."
            )
        return path

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Pairs = (),
    ) -> BatchAnswer:
        """Send a request with a JSON document, or with none, and wait for the answer."""
        raw = () if body is None else (msgspec.json.encode(body),)
        kind = (("content-type", "application/json"),) if raw else ()
        return await self.send(method, path, raw, (*kind, *headers))

    async def send(
        self, method: str, path: str, pieces: Sequence[bytes], headers: Pairs
    ) -> BatchAnswer:
        """Send a body in pieces, and wait for the answer, which is a JSON document or empty."""
        taker = _WholeAnswer()
        await self._run(method, path, pieces, headers, taker)
        body = b"".join(taker.parts)
        if not 200 <= taker.status < 300:
            raise self._refused(taker, body)
        try:
            return BatchAnswer(msgspec.json.decode(body) if body.strip() else {}, taker.headers)
        except ValueError:
            authority = self._origin.authority
            raise Malformed(f"{authority} answered with a document that is not JSON.") from None

    async def form(
        self, path: str, fields: dict[str, str], name: str, pieces: Sequence[bytes]
    ) -> Any:
        """Send a file with fields beside it; the answer's document."""
        edge = f"--{_BOUNDARY}\r\ncontent-disposition: form-data; name="
        head = "".join(f'{edge}"{key}"\r\n\r\n{value}\r\n' for key, value in fields.items())
        head += f'{edge}"file"; filename="{name}"\r\ncontent-type: application/jsonl\r\n\r\n'
        body = (head.encode(), *pieces, f"\r\n--{_BOUNDARY}--\r\n".encode())
        kind = (("content-type", f"multipart/form-data; boundary={_BOUNDARY}"),)
        return (await self.send("POST", path, body, kind)).tree

    async def lines(self, path: str) -> AsyncGenerator[bytes, None]:
        """Read a file line by line; reading pauses while the caller is slower than the provider."""
        taker = _LineTaker()
        trip = self._start("GET", path, (), (), taker, STREAM)
        taker.trip = trip
        try:
            while True:
                line = await taker.next()
                if line is None:
                    break
                yield line
        finally:
            trip.cancel()
        if taker.status != 200:
            raise self._refused(taker, b"".join(taker.parts))

    async def _run(
        self, method: str, path: str, pieces: Sequence[bytes], headers: Pairs, taker: _WholeAnswer
    ) -> None:
        trip = self._start(method, path, pieces, headers, taker, DEADLINES)
        try:
            await taker.done
        finally:
            trip.cancel()

    def _start(
        self,
        method: str,
        path: str,
        pieces: Sequence[bytes],
        headers: Pairs,
        taker: _WholeAnswer,
        deadlines: Deadlines,
    ) -> Roundtrip:
        size = sum(map(len, pieces))
        lines = [
            f"{method} {self.target.path(path)} HTTP/1.1",
            f"host: {self._origin.authority}",
            f"user-agent: lightgate/{__version__}",
            "accept-encoding: identity",
        ]
        if method != "GET":
            lines.append(f"content-length: {size}")
        for name, value in (*headers, *self.target.headers()):
            if any(c in "\r\n\0" for c in name + value):
                raise UsageError(f"The value of the header {name!r} has a line break in it.")
            lines.append(f"{name}: {value}")
        payload = "\r\n".join((*lines, "", "")).encode("latin-1")
        out = Outbound(
            self._origin,
            payload,
            taker,
            Marks(),
            deadlines,
            taker.over,
            rest=tuple(pieces),
            once=method != "GET",
        )
        return self._client.send(out)

    def _refused(self, taker: _WholeAnswer, body: bytes) -> HttpRefused:
        status, where = taker.status, self._origin.authority
        said = without_secrets(fault(status, body).message, self.target.secrets)
        if 300 <= status < 400:
            said = "it points to another address, which is not followed"
        wait_s = retry_after_s(taker.headers)
        if status == 429:
            return RateLimited(f"{where} answered 429: {said}", retry_after_s=wait_s)
        hint = "Check the key for this provider." if status in {401, 403} else ""
        sentence = f"{where} answered {status}: {said}"
        return HttpRefused(sentence, code=status, hint=hint, retry_after_s=wait_s)


class _WholeAnswer:
    """Takes a whole answer within a limit."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Headers = []
        self.parts: list[bytes] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._size = 0

    def on_sent(self, stamp: int) -> None:
        """Nothing is clocked here."""

    def on_head(self, status: int, headers: Headers, stamp: int) -> None:  # noqa: ARG002 - the protocol's
        self.status, self.headers = status, headers

    def on_body(self, data: bytes, stamp: int, since: int) -> None:  # noqa: ARG002 - the protocol's
        self._size += len(data)
        if self.status >= 300 and self._size > REFUSAL_LIMIT:
            return
        if self._size > DOCUMENT_LIMIT:
            raise TooLarge(f"The answer is larger than {DOCUMENT_LIMIT:,} bytes.")
        self.parts.append(data)

    def on_end(self, stamp: int) -> None:
        """The roundtrip says the end itself."""

    def over(self, error: BaseException | None) -> None:
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


class _LineTaker(_WholeAnswer):
    """Takes an answer line by line; at most `HELD` bytes and one line wait in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.trip: Roundtrip | None = None
        self._ready: deque[bytes] = deque()
        self._held = 0
        self._tail: list[bytes] = []  # of a line whose end has not come
        self._tail_size = 0
        self._wake = asyncio.Event()
        self._error: BaseException | None = None
        self._paused = False

    def on_body(self, data: bytes, stamp: int, since: int) -> None:
        if self.status != 200:
            super().on_body(data, stamp, since)
            return
        *whole, tail = data.split(b"\n")
        if whole:
            whole[0] = b"".join((*self._tail, whole[0]))
            self._tail, self._tail_size = [], 0
            for line in filter(None, map(bytes.strip, whole)):
                self._ready.append(line)
                self._held += len(line)
            self._wake.set()
        self._tail.append(tail)
        self._tail_size += len(tail)
        if self._tail_size > LINE_LIMIT:
            raise TooLarge(f"One result is larger than {LINE_LIMIT:,} bytes.")
        if self._held > HELD and not self._paused and self.trip is not None:
            self._paused = True
            self.trip.pause()

    def over(self, error: BaseException | None) -> None:
        self._error = error
        if error is None and self.status == 200:
            last = b"".join(self._tail).strip()
            if last:
                self._ready.append(last)
        if not self.done.done():
            self.done.set_result(None)
        self._wake.set()

    async def next(self) -> bytes | None:
        """The next line; None at the end. An answer that broke off raises its error."""
        while not self._ready:
            if self.done.done():
                if self._error is not None:
                    raise self._error
                return None
            self._wake.clear()
            await self._wake.wait()
        line = self._ready.popleft()
        self._held -= len(line)
        if self._paused and self._held < HELD // 2 and self.trip is not None:
            self._paused = False
            self.trip.resume()
        return line
