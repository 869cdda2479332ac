"""Record a shared answer, and hand it to each of its clients at the client's own speed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from lightgate.gateway.cache.memory import KeptAnswer
from lightgate.gateway.request.around import ClientReply

if TYPE_CHECKING:
    import asyncio


# Header lines of the leader that say something about its own request alone.
_OWN: Final = frozenset(
    (b"x-request-id", b"x-lightgate-id", b"x-lightgate-attempts", b"x-lightgate-cache",
     b"x-lightgate-overhead-ms", b"x-lightgate-ttft-ms", b"x-lightgate-cost-usd", b"server-timing")
)  # fmt: skip

_DROPPED: Final = b"\r\nx-lightgate-dropped: "
LOG_BYTES: Final = 4 * 1024 * 1024  # of an answer that can still be joined
STEP_BYTES: Final = 64 * 1024  # handed to a client before asking whether it keeps up
Part = Literal["lead", "join"]
LeadCall = Callable[[Any], Coroutine[Any, Any, None]]  # makes the call, into a SharedAnswer


class Made(msgspec.Struct, frozen=True):
    """What is known of an answer beside its bytes; money in nano-dollars, wall time."""

    target: str
    tokens_in: int | None
    tokens_out: int | None
    cost_nano: int | None
    wall_ns: int


class AnswerLog:
    """What has come of a shared answer: its head, its pieces, and when each came.

    A piece is one or more whole events. `keep_alive` is False where a client's connection has to be
    closed after the answer.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ns: Callable[[], int]) -> None:
        self.loop = loop
        self.now_ns = now_ns
        self._began_ns = now_ns()
        self._pieces: deque[bytes] = deque()
        self._stamps: list[int] = []
        self._base = 0  # pieces that were dropped
        self._waiters: list[asyncio.Future[None]] = []
        self.size = 0
        self.status = 200
        self.headers = b""
        self.is_whole = False
        self.started = self.finished = False
        self.broken = False  # ended with an error
        self.keep_alive = True
        self.on_lost: Callable[[], object] | None = None  # unused: the call outlives a client

    @property
    def end(self) -> int:
        """The place behind the last piece."""
        return self._base + len(self._pieces)

    def read(self, at: int) -> tuple[bytes, int]:
        """Pieces from a place on, about STEP_BYTES of them, and the place behind them."""
        taken: list[bytes] = []
        size = 0
        while at < self.end and size < STEP_BYTES:
            piece = self._pieces[at - self._base]
            taken.append(piece)
            size += len(piece)
            at += 1
        return taken[0] if len(taken) == 1 else b"".join(taken), at

    def append(self, data: bytes) -> None:
        """Add a piece."""
        self._pieces.append(data)
        self.size += len(data)
        if self.size <= LOG_BYTES:
            self._stamps.append(self.now_ns())

    def kept(self, made: Made, most_bytes: int) -> KeptAnswer | None:
        """The answer as the cache keeps it; None where a part is missing or was an error."""
        partial = not self.finished or self._base or len(self._stamps) != len(self._pieces)
        if partial or self.broken or self.status != 200 or self.size > most_bytes:
            return None
        body = b"".join(self._pieces)
        return KeptAnswer(
            not self.is_whole,
            body,
            tuple(accumulate(len(piece) for piece in self._pieces)),
            tuple((stamp - self._began_ns) // 1000 for stamp in self._stamps),
            made.target,
            made.tokens_in,
            made.tokens_out,
            made.cost_nano,
            self.now_ns() - self._began_ns,
            made.wall_ns,
            _dropped(self.headers),
        )

    def waiting(self) -> asyncio.Future[None]:
        """A future that ends with the next `wake`."""
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiters.append(waiter)
        return waiter

    def wake(self) -> None:
        """Wake the exchange: a reader has come, left or caught up."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def forget(self, at: int) -> None:
        """Drop the pieces before a place."""
        while self._base < at:
            self._pieces.popleft()
            self._base += 1


class Participant(msgspec.Struct, frozen=True, gc=False):
    """One client of a shared answer: where it is answered, and the call that it would make.

    `own_headers` makes the client's header lines from the leader's. `error_event` is for a client
    whose stream has begun when there is only a refusal with this status to tell.
    """

    reply: ClientReply
    call: LeadCall
    own_headers: Callable[[bytes, Part], bytes]
    error_event: Callable[[int], bytes]


class SharedReader:
    """Read a shared answer for one client; `done` ends with its last byte, or when it gets none."""

    __slots__ = (
        "_drainer",
        "_log",
        "_sent",
        "at",
        "cut",
        "done",
        "first_out_ns",
        "last_out_ns",
        "part",
        "participant",
        "retry",
    )  # fmt: skip

    def __init__(self, log: AnswerLog, participant: Participant, part: Part) -> None:
        self._log = log
        self._sent = 0
        self._drainer: asyncio.Task[None] | None = None
        self.participant = participant
        self.part: Part = part
        self.at = 0  # the next piece
        self.done: asyncio.Future[None] = log.loop.create_future()
        self.retry = False  # the leader got nothing: join another call, or lead one
        self.cut = False  # the client was too slow
        self.first_out_ns: int | None = None
        self.last_out_ns: int | None = None

    @property
    def held(self) -> bool:
        """Whether the client has to catch up first."""
        return self._drainer is not None

    @property
    def owed(self) -> int:
        """Bytes of the answer that are not handed to the client yet."""
        return self._log.size - self._sent

    def pump(self) -> None:
        """Hand the client what there is, as long as it takes more."""
        log, reply = self._log, self.participant.reply
        try:
            while self._drainer is None and not self.done.done():
                if reply.finished:  # the door closed it
                    self.end()
                    return
                data, at = log.read(self.at)
                last = log.finished and at == log.end
                if not data and not last:
                    return
                self._write(data, last=last)
                self.at = at
                self._sent += len(data)
                if last:
                    self.end()
                elif reply.crowded:
                    self._drainer = log.loop.create_task(self._drain())
        except (RuntimeError, ValueError) as error:  # of this reply alone: the other clients go on
            self.end(error)

    def comment(self, data: bytes) -> None:
        """Send the client a comment, which is no part of the answer."""
        reply = self.participant.reply
        if self.done.done() or self.held or reply.finished:
            return
        if reply.started:
            reply.send(data)
        else:
            reply.start(self._log.status, self._headers(), first=data)

    def end(self, error: BaseException | None = None) -> None:
        """End the reading, and let the client's handler go on."""
        if self._drainer is not None:
            self._drainer.cancel()
            self._drainer = None
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)

    def let_retry(self) -> None:
        """End the reading: the leader got nothing, and another call may get an answer."""
        self.retry = True
        self.end()

    def drop(self) -> None:
        """Close the client's socket: the rest of the answer cannot be sent."""
        self.cut = True
        if not self.participant.reply.finished:
            self.participant.reply.abort()
        self.end()

    def _write(self, data: bytes, *, last: bool) -> None:
        log, reply = self._log, self.participant.reply
        if not log.keep_alive:
            reply.keep_alive = False
        if log.is_whole:
            if not reply.started:
                reply.whole(log.status, self._headers(), data)
            else:
                reply.finish(last=self.participant.error_event(log.status))
        elif not reply.started:
            reply.start(log.status, self._headers(), first=data)
            if last:
                reply.finish()
        elif last:
            reply.finish(last=data)
        else:
            reply.send(data)
        now = log.now_ns()
        if self.first_out_ns is None:
            self.first_out_ns = now
        self.last_out_ns = now

    def _headers(self) -> bytes:
        return self.participant.own_headers(self._log.headers, self.part)

    async def _drain(self) -> None:
        await self.participant.reply.drain()
        self._drainer = None
        self.pump()
        self._log.wake()


def _dropped(lines: bytes) -> bytes:
    """The value of `x-lightgate-dropped` among header lines; empty where it is not there."""
    return lines.partition(_DROPPED)[2].partition(b"\r\n")[0]


def follower_lines(lines: bytes, request_id: bytes, id_: bytes) -> bytes:
    """A follower's header lines: the leader's, with the ids of the follower's own request."""
    kept = []
    for line in lines.split(b"\r\n"):
        name = line.partition(b":")[0].lower()
        if name == b"request-id":  # Anthropic's name for it, where their SDK looks
            kept.append(b"request-id: %b\r\n" % request_id)
        elif line and name not in _OWN:
            kept.append(line + b"\r\n")
    own = (
        b"x-request-id: %b\r\nx-lightgate-id: %b\r\nx-lightgate-attempts: 0\r\n"
        b"x-lightgate-cache: join\r\n"
    )
    return b"".join(kept) + own % (request_id, id_)
