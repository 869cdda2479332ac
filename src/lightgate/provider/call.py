"""The call of a target: the one seam through which every request to a provider goes.

The wire stamps, the splitter and the dialect's scanner find the tokens, the marks keep the
instants, and the call says how it ended. Nothing here retries. The harness awaits a call (`run`);
the gateway's attempts are calls too, and are told the end by `over`.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from lightgate.clock.outcome import End, Outcome
from lightgate.clock.tokens import Tokens, count
from lightgate.dialect.errors import NOT_UTF8
from lightgate.dialect.kinds import ANSWER, AUDIO, NONE, REASONING
from lightgate.dialect.scanner import Scanner
from lightgate.errors import (
    AttemptError,
    Cancelled,
    EmptyAnswer,
    ErrorWords,
    HttpRefused,
    Malformed,
    RateLimited,
    StreamError,
    TooLarge,
    Truncated,
)
from lightgate.provider.prepare import Prepared, prepare
from lightgate.provider.retry_after import retry_after_s
from lightgate.wire.client.roundtrip import Deadlines, Outbound
from lightgate.wire.sse import EVENT_LIMIT, Event, SseSplitter

if TYPE_CHECKING:
    from lightgate.clock.marks import Marks
    from lightgate.dialect.errors import Fault
    from lightgate.dialect.request import Request
    from lightgate.provider.secret import Secret
    from lightgate.provider.target import Target
    from lightgate.wire.client.client import Client
    from lightgate.wire.client.response import Headers
    from lightgate.wire.client.roundtrip import Roundtrip
    from lightgate.wire.link.stamps import Anchor

WHOLE_LIMIT: Final = 32 * 1024 * 1024  # an answer that is not streamed
# Finish reasons that hold no secret, whoever says them.
_PLAIN_FINISHES: Final = frozenset(("stop", "length", "tool_calls", "end_turn", "STOP", None))
# Header fields with a provider's own name for a request, the best one first: OpenAI and most
# others, Anthropic, Azure, Bedrock, Mistral, DeepSeek, NVIDIA, Cloudflare in front of any of them.
ID_FIELDS: Final = {
    b"x-request-id": 0,
    b"request-id": 1,
    b"apim-request-id": 2,
    b"x-amzn-requestid": 3,
    b"mistral-correlation-id": 4,
    b"x-ds-trace-id": 5,
    b"nvcf-reqid": 6,
    b"cf-ray": 7,
}
# What is left of a rate limit; the values are numbers, times and words.
LIMIT_FIELDS: Final = (b"x-ratelimit-", b"anthropic-ratelimit-", b"ratelimit-")
MOST_LIMITS: Final = 32
LONGEST_LIMIT: Final = 80  # characters of such a name
_SSE: Final = b"text/event-stream"
_CR: Final = 0x0D
_SOUND_ID: Final = re.compile(rb"[!-~]{1,128}")
_SOUND_LIMIT: Final = re.compile(rb"[ -~]{1,128}")
REFUSAL_LIMIT: Final = 64 * 1024  # an error answer: enough of it to understand


# The body bytes of one read, the events that they complete and the kinds of token in them, for an
# owner who wants them too: called after the clock and the scanner had them. In a stream nothing is
# handed on from an error event onwards, and nothing after the terminal marker; an answer that is
# not a stream has no events.
Sink = Callable[[bytes, list[Event], int], None]


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
    end: End | None = None  # of a complete answer: what said so
    provider_request_id: str | None = None


class Call:
    """One call of one target, under way or about to be.

    `complete`: a stream has said all, its terminal marker included, where it has one. `pass_on`,
    where the owner has set it, gets the bytes of a read that is one plain token event, past the
    sink; it returns whether the receiver is slower than the provider, and then `crowded` is called.
    """

    __slots__ = (
        "_anchor",
        "_body",
        "_cancelled",
        "_done",
        "_first_kinds",
        "_kernel",
        "_later",
        "_raw",
        "_running",
        "_scanner",
        "_size",
        "_sse",
        "_steps",
        "_trip",
        "complete",
        "headers",
        "limits",
        "marks",
        "pass_on",
        "prepared",
        "said_id",
        "sink",
        "status",
    )

    reads: ClassVar[int] = WHOLE_LIMIT  # bytes of a whole answer that are read without asking

    def __init__(self, prepared: Prepared, marks: Marks, sink: Sink | None = None) -> None:
        self.prepared = prepared
        self.marks = marks
        self.sink = sink
        self.pass_on: Callable[[bytes], bool] | None = None
        self._kernel = False
        self._later = False  # the answer is complete, and read elsewhere
        self._scanner = Scanner(prepared.dialect.reader)
        self._sse: SseSplitter | None = None  # only for an answer that is really a stream
        self._body: list[bytes] = []
        self._size = 0
        self._first_kinds = 0
        self._running = -1  # completion tokens so far, where the provider counts along
        self.headers: Headers = []
        self.said_id = b""  # the provider's own name for the request
        self.limits: list[tuple[bytes, bytes]] = []  # header fields about its rate limits
        self._trip: Roundtrip | None = None
        self._anchor: Anchor | None = None  # of kernel stamps
        self._steps = 0
        self._cancelled = False
        self._raw = False  # the answer is bytes of sound: the first of them is its first token
        self._done: asyncio.Future[Called] | None = None
        self.status: int | None = None
        self.complete = False

    def start(self, client: Client, deadlines: Deadlines) -> None:
        """Send the request; `over` is called once, at the earliest before this returns."""
        marks, stamper, prepared = self.marks, client.stamper, self.prepared
        marks.stamp_source = stamper.source
        if stamper.source == "kernel":
            self._kernel = True
        anchor = self._anchor = stamper.anchor
        if anchor is not None:
            self._steps = anchor.steps
        if marks.plan is not None:
            lag_ns = time.monotonic_ns() - marks.plan
            marks.dispatch_lag_ns = lag_ns if lag_ns > 0 else 0  # noqa: FURB136 - cheaper
        if self._cancelled:
            self.over(self.ended_as(Cancelled("The call was cancelled.")))
            return
        self._trip = client.send(
            Outbound(
                prepared.origin,
                prepared.payload,
                self,
                marks,
                deadlines,
                self._over,
                prepared.rest,
            )
        )

    async def run(self, client: Client, deadlines: Deadlines) -> Called:
        """Carry the call out; every failure of it is an outcome, not an exception."""
        self._done = asyncio.get_running_loop().create_future()
        self.start(client, deadlines)
        try:
            return await self._done
        except BaseException:
            self.cancel()
            raise

    def over(self, called: Called) -> None:
        """The call has ended, well or not; an owner that does not await it overrides this."""
        if self._done is not None and not self._done.done():
            self._done.set_result(called)

    def broke(self, defect: BaseException) -> None:
        """The call has ended by a defect of our own code."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(defect)

    def crowded(self) -> None:
        """What `pass_on` hands to is slower than the provider."""

    def read_later(self, stamp: int) -> bool:  # noqa: ARG002 - for those that can
        """Whether a large whole answer, complete at this instant, is read by `read_aside`."""
        return False

    def read_aside(self) -> None:
        """Read a large whole answer elsewhere, then end the call with `_over`."""

    def cancel(self) -> None:
        """Close the socket in this turn of the loop; the call then ends as cancelled."""
        self._cancelled = True
        if self._trip is not None:
            self._trip.cancel()

    def _over(self, failure: BaseException | None) -> None:
        """Say how the roundtrip ended, at once or when its answer has been read."""
        if self._later:
            self._later = False
            self.read_aside()
            return
        scanner, marks = self._scanner, self.marks
        self.sink = self.pass_on = None
        if failure is None:
            fine = self.status == 200 and scanner.kinds and scanner.done and scanner.error is None
            error = None if fine else self._verdict()
        elif isinstance(failure, AttemptError):
            error = None if self._ended_well(failure) else failure
        else:
            self.broke(failure)
            return
        if self._anchor is not None:
            marks.void = self._anchor.steps != self._steps
        if marks.end is None and self.status is not None:
            marks.end = time.monotonic_ns()
        try:
            self.over(self.ended_as(error))
        except Exception as defect:  # noqa: BLE001 - the outer wall of a request
            self.broke(defect)

    def on_sent(self, stamp: int) -> None:
        """Pool wait is over."""
        self.marks.send = stamp

    def on_head(self, status: int, headers: Headers, stamp: int) -> None:
        """Decide from the head whether this is a stream."""
        self.marks.headers = stamp
        self.status = status
        self.headers = headers
        best, kind = len(ID_FIELDS), b""
        for name, value in headers:
            rank = ID_FIELDS.get(name)
            if rank is not None:
                if rank < best and _SOUND_ID.fullmatch(value):
                    best, self.said_id = rank, value
            elif name == b"content-type":
                kind = kind or value
            elif name.startswith(LIMIT_FIELDS) and len(self.limits) < MOST_LIMITS:
                self._keep_limit(name, value)
        if self.said_id or self.limits:
            for secret in self.prepared.secrets:
                self._hide_key(secret)
        if self.limits:
            self.on_limits()
        if status == 200 and self.prepared.streamed:
            self._stream_of(kind)

    def _stream_of(self, kind: bytes) -> None:
        """Read the body as what its content type says: events, or else sound."""
        if kind.lower().startswith(_SSE):
            self._sse = SseSplitter()
        else:
            self._raw = bool(self.prepared.dialect.sound)

    def _keep_limit(self, name: bytes, value: bytes) -> None:
        if len(name) <= LONGEST_LIMIT and _SOUND_LIMIT.fullmatch(value):
            self.limits.append((name, value))

    def on_limits(self) -> None:
        """Take in that the head states limits; whoever routes by them overrides this."""

    def _hide_key(self, key: Secret) -> None:
        """Forget header fields in which a provider repeats our key."""
        if not key.in_bytes(b" ".join([self.said_id, *map(b" ".join, self.limits)])):
            return
        if key.in_bytes(self.said_id):
            self.said_id = b""
        self.limits = [pair for pair in self.limits if not key.in_bytes(b" ".join(pair))]

    def on_body(self, data: bytes, stamp: int, since: int) -> None:  # noqa: C901, PLR0912, PLR0915 - for every token: no calls that can be spared
        """Scan one read."""
        sse, scanner = self._sse, self._scanner
        if sse is None:
            if self._raw:
                self._hear(stamp, since)
                return
            self._size += len(data)
            if self.status == 200 and self._size <= WHOLE_LIMIT:
                self._body.append(data)
            else:
                self._keep(data)
            if self.sink is not None:
                self.sink(data, [], 0)
            return
        marks, pass_on = self.marks, self.pass_on
        if sse.at_rest and marks.first is not None and not scanner.done:
            # One event: what nearly every read is. A sink that wants the events has them read.
            event: bytes | None = None
            kinds = NONE if pass_on is None and self.sink is not None else scanner.again(data)
            if not kinds and _is_line(data):
                event = data[6:-2]
                kinds = scanner.event(b"", event)
            if kinds or event is not None:
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
                if kinds and pass_on is not None:
                    if pass_on(data):
                        self.crowded()
                elif self.sink is not None:
                    self.sink(data, [(b"", event or b"")], kinds)
                return
        try:
            events = sse.feed(data)
        except TooLarge as error:
            hint = "No provider sends such events: check the base URL."
            raise TooLarge(f"{self._where}: {error.message}", hint=hint) from None
        if events:
            self._take(data, events, stamp, since)
        elif not data.startswith(b":"):  # not a comment: a part of an event, or noise
            self._size += len(data)

    def _hear(self, stamp: int, since: int) -> None:
        """Clock one read of sound."""
        marks = self.marks
        if marks.first is None:
            marks.event = marks.answer = stamp
            self._scanner.kinds = self._first_kinds = AUDIO
        marks.burst(stamp, since, 1, 0, -1, AUDIO)

    def _take(self, data: bytes, events: list[Event], stamp: int, since: int) -> None:
        """Scan the events of one read, then hand them on."""
        over = self._scanner.done
        kinds = self._scan(events, stamp, since)
        if self.sink is not None and not over:
            self.sink(data, events, kinds)
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
            self.complete = self._scanner.done
        elif self._raw:
            self.complete = True
        elif self.status == 200:
            self._later = self._size > self.reads and self.read_later(stamp)
            if not self._later and (self._scanner.whole(b"".join(self._body)) or self._has_answer):
                self.marks.last = stamp
        self.marks.closed = stamp
        if self.marks.end is None:
            self.marks.end = stamp

    def _scan(self, events: list[Event], stamp: int, since: int) -> int:
        """Clock the events; those that are not to be handed on are taken off the list."""
        marks, scanner = self.marks, self._scanner
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
            # A kernel stamp is that of the read's last segment, so a token at its very end has an
            # exact one; where something follows a token, the token may have come earlier.
            exact = self._kernel and found and self._at_rest()
            if exact and pieces == 1:
                since = stamp
            if marks.first is None:
                self._first_kinds = kinds
            marks.burst(stamp, since, pieces, weight, self._counted_along(), kinds)
            marks.last_since = stamp if exact else since
            if marks.answer is None and kinds & ANSWER:
                marks.answer = stamp
        if scanner.finish is not None or scanner.done:
            self._ending(stamp)
        return kinds

    def _at_rest(self) -> bool:
        """Whether the read ended with an event, so that its stamp is that of its last token."""
        return self._sse is not None and self._sse.at_rest

    def _counted_along(self) -> int:
        """The tokens since the last burst, where the provider counts along; else -1."""
        running = self._scanner.usage_running
        if running < 0:
            return -1
        tokens = running - max(self._running, 0)
        self._running = running
        return tokens

    def _ending(self, stamp: int) -> None:
        marks, scanner = self.marks, self._scanner
        self.complete = scanner.done
        if scanner.finish is None:
            return
        if marks.finish is None:
            marks.finish = stamp
        if scanner.done and marks.end is None:
            marks.end = stamp

    def _keep(self, data: bytes) -> None:
        """Keep what is needed of an error answer; an answer that is too large ends the call."""
        if self.status != 200:
            if self._size <= REFUSAL_LIMIT:
                self._body.append(data)
        elif self._size > WHOLE_LIMIT:
            self._body.clear()
            raise TooLarge(f"{self._where}: the answer is larger than {WHOLE_LIMIT} bytes.")

    def _ended_well(self, failure: AttemptError) -> bool:
        """Whether an answer that broke off had already said all, terminal marker included."""
        if not isinstance(failure, (Malformed, Truncated)) and failure.outcome != "reset":
            return False
        return self._scanner.done and self._scanner.error is None and self._answers()

    def _verdict(self) -> AttemptError | None:
        """What is wrong with an exchange that was complete by its own framing."""
        scanner = self._scanner
        if self.status != 200:
            return self._refused(self._where)
        if scanner.error is not None:
            if scanner.error.code == "malformed" and scanner.error is not NOT_UTF8:
                return Malformed(
                    f"{self._where} did not answer in its dialect: {self._said(scanner.error)}",
                    hint="Check the base URL: it should end where /chat/completions begins.",
                )
            return self._error(scanner.error)
        began = self.marks.event is not None or self._size > 0
        if not scanner.done and self._sse is not None and began:
            return Truncated(
                f"{self._where} ended the stream without its terminal marker or a finish reason."
            )
        if not scanner.kinds and (self._raw or not self._answers()):
            lacks = "a byte of sound" if self._raw else "a token or a reason for that"
            return EmptyAnswer(f"{self._where} answered 200 without {lacks}.")
        return None

    @property
    def _has_answer(self) -> bool:
        """Whether a whole answer holds what was asked for: tokens, or what has none (a vector)."""
        scanner = self._scanner
        return bool(scanner.kinds) or (scanner.error is None and not self.prepared.dialect.tokens)

    @property
    def body(self) -> bytes:
        """What came of an answer that is not a stream."""
        return b"".join(self._body)

    def pause(self) -> None:
        """Stop reading: who takes the bytes cannot take more."""
        if self._trip is not None:
            self._trip.pause()

    def resume(self) -> None:
        """Go on reading."""
        if self._trip is not None:
            self._trip.resume()

    @property
    def _where(self) -> str:
        return self.prepared.origin.authority

    def _error(self, fault: Fault) -> AttemptError:
        if fault is NOT_UTF8:
            return Malformed(f"{self._where} sent bytes that are not UTF-8.")
        sentence = f"{self._where} sent an error: {self._said(fault)}"
        return StreamError(sentence, code=fault.status, word=fault.code, words=self._words(fault))

    def misread(self, fault: Fault) -> StreamError:
        """The error for an answer that ended in a fault when it was translated."""
        said, words = self._said(fault), self._words(fault)
        return StreamError(said, code=fault.status, word=fault.code, words=words)

    def _words(self, fault: Fault) -> ErrorWords:
        """The provider's words for its error, without our key."""
        code, kind, param, _, details = fault.words
        without = self.prepared.without_key
        return ErrorWords(
            without(code) if isinstance(code, str) else code,
            without(kind),
            without(param),
            self.prepared.dialect.family,
            without(details),
        )

    def _said(self, fault: Fault) -> str:
        return self.prepared.without_key(fault.message)

    def _answers(self) -> bool:
        """Whether there is an answer: tokens, or a finish reason that says why there are none."""
        scanner = self._scanner
        return bool(scanner.kinds) or scanner.explains or not self.prepared.dialect.tokens

    def _refused(self, where: str) -> HttpRefused:
        status = self.status or 0
        fault = self.prepared.dialect.fault(status, b"".join(self._body))
        sentence = f"{where} answered {status}: {self._said(fault)}"
        wait_s, words = retry_after_s(self.headers), self._words(fault)
        if status == 429:
            return RateLimited(sentence, retry_after_s=wait_s, words=words)
        hint = self._key_hint() if status in {401, 403} else ""
        return HttpRefused(sentence, code=status, hint=hint, retry_after_s=wait_s, words=words)

    def _key_hint(self) -> str:
        if self.prepared.secrets:
            return "Check the key for this provider."
        return "No key was sent; name its variable: --key-env VAR, or api_key in lightgate.toml."

    def _said_finish(self, finish: str | None) -> str | None:
        return None if finish is None else self.prepared.without_key(finish)

    def ended_as(self, error: AttemptError | None) -> Called:
        """What has come so far, as an answer that ended so."""
        scanner = self._scanner
        finish = scanner.finish
        tokens = count(
            self.marks,
            scanner.usage,
            running=scanner.usage_running,
            chars=scanner.chars,
            reasoning_streamed=bool(scanner.kinds & REASONING),
        )
        prepared = self.prepared
        bytes_out = prepared.size if prepared.rest else len(prepared.payload)
        return Called(
            outcome=Outcome.OK if error is None else Outcome(error.outcome),
            error=error,
            status=self.status,
            streamed=self._sse is not None or self._raw,
            tokens=tokens,
            finish_reason=finish if finish in _PLAIN_FINISHES else self._said_finish(finish),
            kinds=scanner.kinds,
            first_kinds=self._first_kinds,
            bytes_in=0 if self._trip is None else self._trip.bytes_in,
            bytes_out=bytes_out if self.marks.send is not None else 0,
            end=scanner.ended_by if error is None else None,
            provider_request_id=self.said_id.decode("ascii") or None,
        )


def _is_line(data: bytes) -> bool:
    """Whether a read is one event without a name, in one line of data."""
    return (
        data.startswith(b"data: ")
        and data.find(b"\n") == len(data) - 2
        and data.endswith(b"\n\n")
        and _CR not in data
        and len(data) <= EVENT_LIMIT
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
