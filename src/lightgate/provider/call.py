"""The one seam: every request to a provider, from the harness or the gateway, is a `call`.

The wire stamps, the splitter and the dialect's scanner find the tokens, the marks keep the
instants, and the call says how it ended. Nothing here retries.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Tokens, count
from lightgate.dialect.kinds import ANSWER, REASONING
from lightgate.errors import (
    AttemptError,
    Cancelled,
    EmptyAnswer,
    HttpRefused,
    Malformed,
    RateLimited,
    StreamError,
    TooLarge,
    Truncated,
)
from lightgate.provider.prepare import Prepared, prepare
from lightgate.provider.retry_after import retry_after_s
from lightgate.wire.client.roundtrip import Deadlines, Exchange, Headers
from lightgate.wire.sse import Event, SseSplitter

if TYPE_CHECKING:
    from lightgate.clock.marks import Marks
    from lightgate.dialect.errors import Fault
    from lightgate.dialect.request import Request
    from lightgate.dialect.scanner import Scanner
    from lightgate.provider.target import Target
    from lightgate.wire.client.client import Client

WHOLE_LIMIT: Final = 32 * 1024 * 1024  # an answer that is not streamed
REFUSAL_LIMIT: Final = 64 * 1024  # an error answer: enough of it to understand


class Sink(Protocol):
    """Who wants the bytes of an answer too; called after the clock and the scanner had them."""

    def on_head(self, status: int, headers: Headers) -> None:
        """The status and the headers came."""

    def on_data(self, data: bytes, events: list[Event], kinds: int) -> None:
        """Body bytes of one read, the events that they complete, the kinds of token in them.

        In a stream nothing is handed on from an error event onwards, and nothing after the terminal
        marker; an answer that is not a stream has no events.
        """


class Called(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a call ended. `streamed` is what really happened, not what was asked for."""

    outcome: Outcome
    error: AttemptError | None
    status: int | None
    streamed: bool
    tokens: Tokens
    finish_reason: str | None
    kinds: int
    first_kinds: int  # what the first token-bearing read carried
    bytes_in: int
    bytes_out: int


class Call:
    """One attempt at one target, under way or about to be."""

    __slots__ = (
        "_body",
        "_cancelled",
        "_exchange",
        "_first_kinds",
        "_headers",
        "_kernel",
        "_marks",
        "_prepared",
        "_running",
        "_scanner",
        "_sink",
        "_size",
        "_sse",
        "_status",
        "_task",
        "ended",
    )

    def __init__(self, prepared: Prepared, marks: Marks, sink: Sink | None = None) -> None:
        self._prepared = prepared
        self._marks = marks
        self._sink = sink
        self._kernel = False
        self._scanner: Scanner = prepared.dialect.scanner(prepared.quirks)
        self._sse: SseSplitter | None = None  # only for an answer that is really a stream
        self._body: list[bytes] = []
        self._size = 0
        self._first_kinds = 0
        self._running = -1  # completion tokens so far, where the provider counts along
        self._status: int | None = None
        self._headers: Headers = []
        self._exchange: Exchange | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelled = False
        self.ended = False  # the terminal marker of a stream has come

    async def run(self, client: Client, deadlines: Deadlines) -> Called:
        """Carry it out; every failure of the attempt is an outcome, not an exception."""
        marks, stamper = self._marks, client.stamper
        marks.stamp_source = stamper.source
        self._kernel = stamper.source == "kernel"
        steps = stamper.steps
        if marks.plan is not None:
            marks.dispatch_lag_ns = max(0, time.monotonic_ns() - marks.plan)
        prepared = self._prepared
        error: AttemptError | None = None
        try:
            if self._cancelled:
                raise Cancelled("The call was cancelled.")
            warm = client.idle(prepared.origin)
            if warm is None:
                self._task = asyncio.current_task()  # what can be cancelled while it connects
            self._exchange = await client.exchange(
                prepared.origin, prepared.payload, self, marks, deadlines, warm
            )
            error = self._verdict()
        except AttemptError as failure:
            error = None if self._ended_well(failure) else failure
        except asyncio.CancelledError:
            if not self._cancelled or self._task is None:
                raise
            self._task.uncancel()
            error = Cancelled("The call was cancelled.")
        finally:
            self._task = None
            self._sink = None  # who holds us
        marks.void = stamper.steps != steps
        if marks.end is None and self._status is not None:
            marks.end = time.monotonic_ns()
        return self.ended_as(error)

    def cancel(self) -> None:
        """Close the socket in this turn of the loop; `run` then ends as cancelled."""
        self._cancelled = True
        if self._exchange is not None:
            self._exchange.cancel()
        elif self._task is not None:
            self._task.cancel()  # still connecting

    # Taker

    def on_open(self, exchange: Exchange) -> None:
        """The wire hands over the means to cancel."""
        self._exchange = exchange

    def on_sent(self, stamp: int) -> None:
        """Pool wait is over."""
        self._marks.send = stamp

    def on_head(self, status: int, headers: Headers, stamp: int) -> None:
        """Decide from the head whether this is a stream."""
        self._marks.headers = stamp
        self._status = status
        self._headers = headers
        if status == 200 and self._prepared.streamed:
            kind = next((v for n, v in headers if n == b"content-type"), b"")
            if kind.lower().startswith(b"text/event-stream"):
                self._sse = SseSplitter()
        if self._sink is not None:
            self._sink.on_head(status, headers)

    def on_body(self, data: bytes, stamp: int, since: int) -> None:
        """Scan one read."""
        if self._sse is None:
            self._keep(data)
            if self._sink is not None:
                self._sink.on_data(data, [], 0)
            return
        try:
            events = self._sse.feed(data)
        except TooLarge as error:
            hint = "No provider sends such events: check the base URL."
            raise TooLarge(f"{self._where}: {error.message}", hint=hint) from None
        if len(events) == 1 and self._marks.first is not None and not self._scanner.done:
            self._take_token(data, events, stamp, since)
        elif events:
            self._take(data, events, stamp, since)
        elif self._sink is not None:
            self._sink.on_data(data, events, 0)

    def _take_token(self, data: bytes, events: list[Event], stamp: int, since: int) -> None:
        """One event in one read, after the first token: what nearly every read is."""
        marks, scanner = self._marks, self._scanner
        name, event = events[0]
        kinds = scanner.event(name, event)
        if kinds:
            along = -1 if scanner.usage_running < 0 else self._counted_along()
            stood = stamp if self._kernel else since
            marks.burst(stamp, stood, 1, scanner.weight, along, kinds)
            if marks.answer is None and kinds & ANSWER:
                marks.answer = stamp
        if scanner.finish is not None or scanner.done:
            self._ending(stamp)
        if scanner.error is not None:
            raise self._error(scanner.error)
        if self._sink is not None:
            self._sink.on_data(data, events, kinds)

    def _take(self, data: bytes, events: list[Event], stamp: int, since: int) -> None:
        """Scan the events of one read, then hand them on."""
        over = self._scanner.done
        kinds = self._scan(events, stamp, since)
        if self._sink is not None and not over:
            self._sink.on_data(data, events, kinds)
        fault = self._scanner.error
        if fault is not None:
            raise self._error(fault)

    def on_end(self, stamp: int) -> None:
        """The body is complete."""
        if self._sse is not None:
            rest = self._sse.finish()
            if rest:
                self._take(b"", rest, stamp, stamp)
            self._scanner.eof()
            self.ended = self._scanner.done
        elif self._status == 200:
            body = b"".join(self._body)
            if self._scanner.whole(body):
                self._marks.last = stamp
        self._marks.closed = stamp
        if self._marks.end is None:
            self._marks.end = stamp

    def _scan(self, events: list[Event], stamp: int, since: int) -> int:
        """Clock the events; those that are not to be handed on are taken off the list."""
        marks, scanner = self._marks, self._scanner
        if marks.event is None:
            marks.event = stamp
        pieces = weight = kinds = found = 0
        for place, (name, data) in enumerate(events):
            found = scanner.event(name, data)
            if found:
                pieces += 1
                weight += scanner.weight
                kinds |= found
            if scanner.done or scanner.error is not None:
                del events[place + (scanner.error is None) :]
                break
        if pieces:
            # A kernel stamp is that of the read's last segment. Where the only token is in the last
            # event it is exact; where something follows the token, the token may have come earlier.
            if self._kernel and pieces == 1 and found:
                since = stamp
            if marks.first is None:
                self._first_kinds = kinds
            marks.burst(stamp, since, pieces, weight, self._counted_along(), kinds)
            if marks.answer is None and kinds & ANSWER:
                marks.answer = stamp
        if scanner.finish is not None or scanner.done:
            self._ending(stamp)
        return kinds

    def _counted_along(self) -> int:
        """The tokens since the last burst, where the provider counts along; else -1."""
        running = self._scanner.usage_running
        if running < 0:
            return -1
        tokens = running - max(self._running, 0)
        self._running = running
        return tokens

    def _ending(self, stamp: int) -> None:
        marks, scanner = self._marks, self._scanner
        self.ended = scanner.done
        if scanner.finish is None:
            return
        if marks.finish is None:
            marks.finish = stamp
        if scanner.done and marks.end is None:
            marks.end = stamp

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._status != 200:
            if self._size <= REFUSAL_LIMIT:
                self._body.append(data)
        elif self._size > WHOLE_LIMIT:
            self._body.clear()
            raise TooLarge(f"{self._where}: the answer is larger than {WHOLE_LIMIT} bytes.")
        else:
            self._body.append(data)

    def _ended_well(self, failure: AttemptError) -> bool:
        """Whether an answer that broke off had already said all, terminal marker included."""
        if not isinstance(failure, (Malformed, Truncated)) and failure.outcome != "reset":
            return False
        self._scanner.eof()  # where the end of the body is the marker, a finish reason says all
        self.ended = self._scanner.done
        return self._scanner.done and self._scanner.error is None and self._has_tokens()

    def _verdict(self) -> AttemptError | None:
        """What is wrong with an exchange that was complete by its own framing."""
        scanner = self._scanner
        if self._status != 200:
            return self._refused(self._where)
        if scanner.error is not None:
            if scanner.error.code == "malformed":
                return Malformed(
                    f"{self._where} did not answer in its dialect: {self._said(scanner.error)}",
                    hint="Check the base URL: it should end where /chat/completions begins.",
                )
            return self._error(scanner.error)
        if not scanner.done and self._sse is not None:
            return Truncated(f"{self._where} ended the stream without its terminal marker.")
        if not self._has_tokens():
            return EmptyAnswer(f"{self._where} answered 200 without a single token.")
        return None

    @property
    def body(self) -> bytes:
        """What came of an answer that is not a stream."""
        return b"".join(self._body)

    def pause(self) -> None:
        """Stop reading: who takes the bytes cannot take more."""
        if self._exchange is not None:
            self._exchange.pause()

    def resume(self) -> None:
        """Go on reading."""
        if self._exchange is not None:
            self._exchange.resume()

    @property
    def _where(self) -> str:
        return self._prepared.origin.authority

    def _error(self, fault: Fault) -> StreamError:
        sentence = f"{self._where} sent an error: {self._said(fault)}"
        return StreamError(sentence, code=fault.status, word=fault.code)

    def _said(self, fault: Fault) -> str:
        return self._prepared.without_key(fault.message)

    def _has_tokens(self) -> bool:
        return bool(self._scanner.kinds) or self._prepared.dialect.name == "openai-embeddings"

    def _refused(self, where: str) -> HttpRefused:
        status = self._status or 0
        fault = self._prepared.dialect.fault(status, b"".join(self._body))
        sentence = f"{where} answered {status}: {self._said(fault)}"
        wait_s = retry_after_s(self._headers)
        if status == 429:
            return RateLimited(sentence, retry_after_s=wait_s)
        hint = "Check the key for this provider." if status in {401, 403} else ""
        return HttpRefused(sentence, code=status, hint=hint, retry_after_s=wait_s)

    def ended_as(self, error: AttemptError | None) -> Called:
        """What has come so far, as an answer that ended so."""
        scanner = self._scanner
        finish = scanner.finish
        tokens = count(
            self._marks,
            scanner.usage,
            running=scanner.usage_running,
            chars=scanner.chars,
            reasoning_streamed=bool(scanner.kinds & REASONING),
        )
        return Called(
            outcome=Outcome.OK if error is None else Outcome(error.outcome),
            error=error,
            status=self._status,
            streamed=self._sse is not None,
            tokens=tokens,
            finish_reason=None if finish is None else self._prepared.without_key(finish),
            kinds=scanner.kinds,
            first_kinds=self._first_kinds,
            bytes_in=self._exchange.bytes_in if self._exchange is not None else 0,
            bytes_out=len(self._prepared.payload) if self._marks.send is not None else 0,
        )


async def call(
    target: Target,
    request: Request,
    marks: Marks,
    *,
    client: Client,
    deadlines: Deadlines | None = None,
) -> Called:
    """Send one request to one target and clock its answer into the marks."""
    attempt = Call(prepare(target, request), marks)
    return await attempt.run(client, deadlines or Deadlines())
