"""One client of a shared answer: it reads at its own speed, from the beginning."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from lightgate.wire.door.reply import Reply

if TYPE_CHECKING:
    import asyncio

    from lightgate.gateway.cache.single_flight import SharedAnswer

# What a flight says about its own request alone.
_OWN: Final = frozenset(
    (b"x-request-id", b"x-lightgate-id", b"x-lightgate-attempts", b"x-lightgate-cache",
     b"x-lightgate-overhead-ms", b"x-lightgate-ttft-ms", b"x-lightgate-cost-usd", b"server-timing")
)  # fmt: skip

Part = Literal["lead", "join"]
Launch = Callable[[Any], Coroutine[Any, Any, None]]  # flies a request into a SharedAnswer


class Participant(msgspec.Struct, frozen=True, gc=False):
    """One client's place: where it is answered, and how it would fly by itself.

    `dress` makes header lines of its own from those of the flight. `broken` is an error event, for
    a client whose stream has begun when there is only a refusal with this status to tell.
    """

    reply: Reply
    launch: Launch
    dress: Callable[[bytes, Part], bytes]
    broken: Callable[[int], bytes]


class SharedReader:
    """One client, reading along; `done` ends when it has everything, or will not get it."""

    __slots__ = ("_drainer", "_sent", "_shared", "at", "bereft", "cut", "done", "first_out_ns",
                 "last_out_ns", "part", "participant")  # fmt: skip

    def __init__(self, shared: SharedAnswer, participant: Participant, part: Part) -> None:
        self._shared = shared
        self._sent = 0
        self._drainer: asyncio.Task[None] | None = None
        self.participant = participant
        self.part: Part = part
        self.at = 0  # the next piece
        self.done: asyncio.Future[None] = shared.loop.create_future()
        self.bereft = False  # the leader got nothing: find another, or lead
        self.cut = False  # it was too slow
        self.first_out_ns: int | None = None
        self.last_out_ns: int | None = None

    @property
    def shared(self) -> SharedAnswer:
        """What it reads."""
        return self._shared

    @property
    def held(self) -> bool:
        """Whether its client has to catch up first."""
        return self._drainer is not None

    @property
    def owed(self) -> int:
        """Bytes that are there and not handed on."""
        return self._shared.size - self._sent

    def pump(self) -> None:
        """Hand on what there is, as long as the client takes it."""
        shared, reply = self._shared, self.participant.reply
        try:
            while self._drainer is None and not self.done.done():
                if reply.finished:  # the door closed it
                    self.end()
                    return
                data, at = shared.read(self.at)
                last = shared.finished and at == shared.end
                if not data and not last:
                    return
                self._write(data, last=last)
                self.at = at
                self._sent += len(data)
                if last:
                    self.end()
                elif reply.crowded:
                    self._drainer = shared.loop.create_task(self._drain())
        except (RuntimeError, ValueError) as error:  # of this reply: no concern of the others
            self.end(error)

    def comment(self, data: bytes) -> None:
        """Show a sign of life that is no part of the answer."""
        reply = self.participant.reply
        if self.done.done() or self.held or reply.finished:
            return
        if reply.started:
            reply.send(data)
        else:
            reply.start(self._shared.status, self._headers(), first=data)

    def end(self, error: BaseException | None = None) -> None:
        """Let the client's handler go on."""
        if self._drainer is not None:
            self._drainer.cancel()
            self._drainer = None
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)

    def bereave(self) -> None:
        """The leader got nothing and another try is worth it."""
        self.bereft = True
        self.end()

    def drop(self) -> None:
        """Close the client's socket: it cannot be served to the end."""
        self.cut = True
        if not self.participant.reply.finished:
            self.participant.reply.abort()
        self.end()

    def _write(self, data: bytes, *, last: bool) -> None:
        shared, reply = self._shared, self.participant.reply
        if not shared.keep_alive:
            reply.keep_alive = False
        if shared.is_whole:
            if not reply.started:
                reply.whole(shared.status, self._headers(), data)
            else:
                reply.finish(last=self.participant.broken(shared.status))
        elif not reply.started:
            reply.start(shared.status, self._headers(), first=data)
            if last:
                reply.finish()
        elif last:
            reply.finish(last=data)
        else:
            reply.send(data)
        now = shared.now_ns()
        if self.first_out_ns is None:
            self.first_out_ns = now
        self.last_out_ns = now

    def _headers(self) -> bytes:
        return self.participant.dress(self._shared.headers, self.part)

    async def _drain(self) -> None:
        await self.participant.reply.drain()
        self._drainer = None
        self.pump()
        self._shared.wake()


def follower_lines(lines: bytes, request_id: bytes, id_: bytes) -> bytes:
    """The leader's header lines, with what is his own taken out and the follower's put in."""
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
