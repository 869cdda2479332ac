"""Equal requests under way share one call: each reads the same answer from its beginning.

The first one leads: its flight writes into the joint as if that were the client's reply. Everyone
who comes later gets what is there at once, and the rest as it comes. Nobody waits for anybody: a
reader that falls too far behind is cut, and the call ends early only when nobody reads any more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Literal, Protocol

import msgspec

from lightgate.gateway.cache import Kept

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from lightgate.wire.reply import Reply

LOG_BYTES: Final = 4 * 1024 * 1024  # of an answer that newcomers get from its beginning
BEHIND_BYTES: Final = 1024 * 1024  # that one reader may owe while others keep up
STEP_BYTES: Final = 64 * 1024  # handed to a client before a look at whether it keeps up
HEIRS: Final = 1  # followers who may try again, one after the other, when the leader got nothing
_AGAIN: Final = frozenset((408, 409, 425))  # beside 5xx: another try may end otherwise
_OWN_LINES: Final = (
    b"x-request-id:", b"x-lightgate-id:", b"x-lightgate-cache:", b"x-lightgate-overhead-ms:",
    b"x-lightgate-ttft-ms:", b"x-lightgate-cost-usd:", b"server-timing:",
)  # fmt: skip

Part = Literal["lead", "join"]


class Pilot(Protocol):
    """What a joint must know of the flight that fills it; `flight.Flight` is one."""

    @property
    def winner(self) -> object | None:
        """The attempt whose answer this is; None before the first token."""
        ...

    @property
    def refusal(self) -> object | None:
        """What went wrong."""
        ...


class Rider(msgspec.Struct, frozen=True, gc=False):
    """One client's place: where it is answered, and how it would fly by itself.

    `dress` makes header lines of its own from those of the flight. `broken` is an error event, for
    a client whose stream has begun when there is only a refusal with this status to tell.
    """

    reply: Reply
    launch: Callable[[Joint], Awaitable[None]]
    dress: Callable[[bytes, Part], bytes]
    broken: Callable[[int], bytes]


class Reader:
    """One client, reading along; `done` ends when it has everything, or will not get it."""

    __slots__ = ("_drainer", "_joint", "_sent", "at", "bereft", "cut", "done", "first_out_ns",
                 "last_out_ns", "part", "rider")  # fmt: skip

    def __init__(self, joint: Joint, rider: Rider, part: Part) -> None:
        self._joint = joint
        self._sent = 0
        self._drainer: asyncio.Task[None] | None = None
        self.rider = rider
        self.part: Part = part
        self.at = 0  # the next piece
        self.done: asyncio.Future[None] = joint.loop.create_future()
        self.bereft = False  # the leader got nothing: find another, or lead
        self.cut = False  # it was too slow
        self.first_out_ns: int | None = None
        self.last_out_ns: int | None = None

    @property
    def joint(self) -> Joint:
        """What it reads."""
        return self._joint

    @property
    def held(self) -> bool:
        """Whether its client has to catch up first."""
        return self._drainer is not None

    @property
    def owed(self) -> int:
        """Bytes that are there and not handed on."""
        return self._joint.size - self._sent

    def pump(self) -> None:
        """Hand on what there is, as long as the client takes it."""
        joint, reply = self._joint, self.rider.reply
        try:
            while self._drainer is None and not self.done.done():
                if reply.finished:  # the door closed it
                    self.end()
                    return
                data, at = joint.read(self.at)
                last = joint.finished and at == joint.end
                if not data and not last:
                    return
                self._write(data, last=last)
                self.at = at
                self._sent += len(data)
                if last:
                    self.end()
                elif reply.crowded:
                    self._drainer = joint.loop.create_task(self._drain())
        except (RuntimeError, ValueError) as error:  # of this reply: no concern of the others
            self.end(error)

    def comment(self, data: bytes) -> None:
        """Show a sign of life that is no part of the answer."""
        reply = self.rider.reply
        if self.done.done() or self.held or reply.finished:
            return
        if reply.started:
            reply.send(data)
        else:
            reply.start(self._joint.status, self._headers(), first=data)

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
        if not self.rider.reply.finished:
            self.rider.reply.abort()
        self.end()

    def _write(self, data: bytes, *, last: bool) -> None:
        joint, reply = self._joint, self.rider.reply
        if not joint.keep_alive:
            reply.keep_alive = False
        if joint.is_whole:
            if not reply.started:
                reply.whole(joint.status, self._headers(), data)
            else:
                reply.finish(last=self.rider.broken(joint.status))
        elif not reply.started:
            reply.start(joint.status, self._headers(), first=data)
            if last:
                reply.finish()
        elif last:
            reply.finish(last=data)
        else:
            reply.send(data)
        now = joint.now_ns()
        if self.first_out_ns is None:
            self.first_out_ns = now
        self.last_out_ns = now

    def _headers(self) -> bytes:
        return self.rider.dress(self._joint.headers, self.part)

    async def _drain(self) -> None:
        await self.rider.reply.drain()
        self._drainer = None
        self.pump()
        self._joint.wake()


class Joint:
    """One answer on its way to all who asked for it; to its flight it is a `wire.reply.Reply`.

    Pieces are whole events. Once there are LOG_BYTES nobody may join any more, and what all have
    read is forgotten.
    """

    def __init__(self, joints: Joints, key: bytes, heirs: int) -> None:
        self._joints = joints
        self._key = key
        self._heirs = heirs
        self.loop = joints.loop
        self.now_ns = joints.now_ns
        self._began_ns = self.now_ns()
        self._pieces: deque[bytes] = deque()
        self._stamps: list[int] = []
        self._base = 0  # pieces that were forgotten
        self._readers: dict[Reader, None] = {}  # in the order of their coming
        self._waiters: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        self._pilot: Pilot | None = None
        self.size = 0
        self.status = 200
        self.headers = b""
        self.is_whole = False
        self.started = self.finished = False
        self.keep_alive = True

    # Of the flight

    def watch(self, pilot: Pilot) -> None:
        """Learn from this flight, before it runs, whether its answer is one."""
        self._pilot = pilot

    @property
    def crowded(self) -> bool:
        """Whether nobody who reads can take more; then the provider may wait too."""
        readers = self._readers
        return bool(readers) and all(reader.held for reader in readers)

    def start(
        self, status: int, headers: bytes, *, length: int | None = None, first: bytes = b""
    ) -> None:
        """Begin the answer; a comment may come before its first piece."""
        del length
        self.started = True
        self.status, self.headers = status, headers
        self.send(first)

    def send(self, data: bytes) -> None:
        """Hand a piece to everyone; a comment only to those who are here now."""
        if not self.started or self.finished:
            raise RuntimeError("A joint's pieces go between its start and its finish.")
        if data[:1] == b":":
            for reader in tuple(self._readers):
                reader.comment(data)
        elif data:
            self._append(data)
            self._spread()

    def finish(self, trailer: bytes = b"", *, last: bytes = b"") -> None:
        """End the answer; without a winner it never was one."""
        del trailer
        if not self.started or self.finished:
            raise RuntimeError("A joint is finished once, after its start.")
        if last:
            self._append(last)
        self.finished = True
        if self._troubled:
            self._joints.close(self)
            if not self._won:
                self._bequeath(again=True)
        self._spread()

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        """Give the answer in one piece, or the refusal."""
        if self.started:
            raise RuntimeError("A joint starts once.")
        self.started = self.finished = self.is_whole = True
        self.status, self.headers = status, headers
        self._append(body)
        if status != 200:
            self._joints.close(self)
            self._bequeath(again=status >= 500 or status in _AGAIN)
        self._spread()

    def abort(self) -> None:
        """Close every client's socket."""
        self.started = self.finished = True
        self._joints.close(self)
        for reader in tuple(self._readers):
            reader.drop()

    async def drain(self) -> None:
        """Wait until somebody can take more."""
        while self.crowded:
            waiter = self.loop.create_future()
            self._waiters.append(waiter)
            await waiter

    # Of the readers

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

    def attach(self, rider: Rider, part: Part) -> Reader:
        """Read along from the beginning; what is there is handed over in this turn."""
        reader = Reader(self, rider, part)
        self._readers[reader] = None
        self.wake()
        reader.pump()
        return reader

    def detach(self, reader: Reader) -> None:
        """Stop reading; the last one to leave ends the call, unless the answer is complete."""
        reader.end()
        self._readers.pop(reader, None)
        self.wake()
        task = self._task
        if not self._readers and not self.finished and task is not None and not task.done():
            self._joints.close(self)
            task.cancel()

    def wake(self) -> None:
        """Something about who reads, and how fast, has changed."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # The call

    def fly(self, launch: Callable[[Joint], Awaitable[None]]) -> None:
        """Begin the leader's flight in a task of its own: it may outlive the leader."""
        self._task = self.loop.create_task(_run(launch, self))
        self._task.add_done_callback(self._landed)

    def kept(self, made: Made, most_bytes: int) -> Kept | None:
        """The answer as it can be given again; None where it is not all here."""
        if not self.finished or self._troubled or self.status != 200 or self._base:
            return None
        if self.size > most_bytes:
            return None
        body = b"".join(self._pieces)
        times = tuple((stamp - self._began_ns) // 1000 for stamp in self._stamps)
        return Kept(
            not self.is_whole,
            body,
            tuple(accumulate(len(piece) for piece in self._pieces)),
            times,
            made.target,
            made.tokens_in,
            made.tokens_out,
            made.cost_nano,
            self.now_ns() - self._began_ns,
            made.wall_ns,
        )

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._joints.close(self)
        error = None if task.cancelled() else task.exception()
        if self.finished:
            if error is not None:  # the answer is out; what failed is our own book-keeping
                self._tell_leader(error)
            return
        self.finished = True
        if not self.end:
            self._bequeath(again=True)
        self._tell_leader(error)
        for reader in tuple(self._readers):
            reader.drop()

    def _tell_leader(self, error: BaseException | None) -> None:
        for reader in tuple(self._readers):
            if reader.part == "lead" and error is not None:
                reader.end(error)
                self._readers.pop(reader)

    def _bequeath(self, *, again: bool) -> None:
        """Nothing came: leave the followers to one of them, or let them hear what the leader does."""
        if not again or self._heirs < 1:
            return
        for reader in tuple(self._readers):
            if reader.part == "join":
                reader.bereave()

    @property
    def heirs(self) -> int:
        """How many may still try."""
        return self._heirs

    @property
    def _troubled(self) -> bool:
        return self._pilot is not None and self._pilot.refusal is not None

    @property
    def _won(self) -> bool:
        return self._pilot is None or self._pilot.winner is not None

    def _append(self, data: bytes) -> None:
        self._pieces.append(data)
        self.size += len(data)
        if self.size <= LOG_BYTES:
            self._stamps.append(self.now_ns())
        else:
            self._joints.close(self)

    def _spread(self) -> None:
        for reader in tuple(self._readers):
            reader.pump()
        if any(reader.held for reader in self._readers) and not self.crowded:
            for reader in tuple(self._readers):
                if reader.held and reader.owed > BEHIND_BYTES:
                    reader.drop()
        if self.size > LOG_BYTES and not self.is_whole:
            self._forget()

    def _forget(self) -> None:
        read = min((reader.at for reader in self._readers), default=self.end)
        while self._base < read:
            self._pieces.popleft()
            self._base += 1


class Made(msgspec.Struct, frozen=True):
    """What is known of an answer beside its bytes; money in nano-dollars, wall time."""

    target: str
    tokens_in: int | None
    tokens_out: int | None
    cost_nano: int | None
    wall_ns: int


class Joints:
    """All answers under way that may be shared, by the key of their request."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ns: Callable[[], int]) -> None:
        self.loop = loop
        self.now_ns = now_ns
        self._open: dict[bytes, Joint] = {}
        self.led = self.joined = 0

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, key: bytes) -> bool:
        return key in self._open

    async def share(self, key: bytes, rider: Rider) -> Reader:
        """Answer a request from the call that is under way for it, or begin one.

        Cancelled when the client leaves. The reader says how it took part.
        """
        heirs = HEIRS
        while True:
            joint = self._open.get(key)
            if joint is None:
                part: Part = "lead"
                joint = self._open[key] = Joint(self, key, heirs)
                joint.fly(rider.launch)
                self.led += 1
            else:
                part = "join"
                self.joined += 1
            reader = joint.attach(rider, part)
            try:
                await reader.done
            finally:
                joint.detach(reader)
            if not reader.bereft:
                return reader
            heirs = joint.heirs - 1

    def close(self, joint: Joint) -> None:
        """Let nobody join this one any more."""
        if self._open.get(joint._key) is joint:  # noqa: SLF001 - the registry's own mark
            del self._open[joint._key]  # noqa: SLF001


def follower_lines(lines: bytes, request_id: bytes, id_: bytes) -> bytes:
    """The leader's header lines, with what is his own taken out and the follower's put in."""
    kept = [
        line for line in lines.split(b"\r\n") if line and not line.lower().startswith(_OWN_LINES)
    ]
    own = b"x-request-id: %b\r\nx-lightgate-id: %b\r\nx-lightgate-cache: join\r\n"
    return b"".join([line + b"\r\n" for line in kept]) + own % (request_id, id_)


async def _run(launch: Callable[[Joint], Awaitable[None]], joint: Joint) -> None:
    await launch(joint)
