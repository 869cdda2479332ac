"""Equal requests under way share one call: each reads the same answer from its beginning.

The first request leads: its exchange writes into the shared answer as if that were the client's
reply. A follower gets what is there at once, and the rest as it comes. No reader waits for another:
one that falls too far behind is cut, and the call ends early only when all readers have left.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from lightgate.gateway.cache.follower import Launch, Part, Participant, SharedReader
from lightgate.gateway.cache.memory import Kept

if TYPE_CHECKING:
    from collections.abc import Callable

LOG_BYTES: Final = 4 * 1024 * 1024  # of an answer that newcomers get from its beginning
BEHIND_BYTES: Final = 1024 * 1024  # that one reader may owe while others keep up
STEP_BYTES: Final = 64 * 1024  # handed to a client before a look at whether it keeps up
HEIRS: Final = 1  # followers who may try again, one after the other, when the leader got nothing
_AGAIN: Final = frozenset((408, 409, 425))  # beside 5xx: another try may end otherwise


class LeaderExchange(Protocol):
    """What a shared answer must know of the flight that fills it; `flight.Flight` is one."""

    @property
    def winner(self) -> object | None:
        """The attempt whose answer this is; None before the first token."""
        ...

    @property
    def refusal(self) -> object | None:
        """What went wrong."""
        ...


class SharedAnswer:
    """One answer on its way to all who asked for it; to its flight it is a `wire.reply.Reply`.

    Pieces are whole events. Once there are LOG_BYTES nobody may join any more, and what all have
    read is forgotten.
    """

    def __init__(self, group: SingleFlight, key: bytes, heirs: int) -> None:
        self._group = group
        self.key = key
        self._heirs = heirs
        self.loop = group.loop
        self.now_ns = group.now_ns
        self._began_ns = self.now_ns()
        self._pieces: deque[bytes] = deque()
        self._stamps: list[int] = []
        self._base = 0  # pieces that were forgotten
        self._readers: dict[SharedReader, None] = {}  # in the order of their coming
        self._waiters: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        self._leader: LeaderExchange | None = None
        self._broken = False  # it ended with an error
        self.size = 0
        self.status = 200
        self.headers = b""
        self.is_whole = False
        self.started = self.finished = False
        self.keep_alive = True
        self.made: Made | None = None  # once the flight is settled
        self._settlers: list[Callable[[], None]] = []

    # Of the flight

    def watch(self, leader: LeaderExchange) -> None:
        """Learn from this flight, before it runs, whether its answer is one."""
        self._leader = leader

    @property
    def crowded(self) -> bool:
        """Whether nobody who reads can take more; then the provider may wait too."""
        readers = self._readers
        return bool(readers) and all(reader.held for reader in readers)

    def start(
        self, status: int, headers: bytes, *, length: int | None = None, first: bytes = b""
    ) -> None:
        """Begin the answer; a sign of life may come before its first piece."""
        del length
        self.started = True
        self.status, self.headers = status, headers
        self.send(first)

    def send(self, data: bytes) -> bool:
        """Hand a piece to everyone; a sign of life only to those who are here now.

        Whether nobody who reads can take more.
        """
        if not self.started or self.finished:
            raise RuntimeError("A shared answer's pieces go between its start and its finish.")
        if data[:1] == b":" or data.isspace():  # events begin with a word
            for reader in tuple(self._readers):
                reader.comment(data)
        elif data:
            self._append(data)
            self._spread()
        return self.crowded

    def finish(self, trailer: bytes = b"", *, last: bytes = b"") -> None:
        """End the answer; without a winner it never was one."""
        del trailer
        if not self.started or self.finished:
            raise RuntimeError("A shared answer is finished once, after its start.")
        if last:
            self._append(last)
        self.finished = True
        leader, self._leader = self._leader, None  # the flight holds us: not each other for ever
        self._broken = leader is not None and leader.refusal is not None
        if leader is not None and self._broken:
            self._group.close(self)
            if leader.winner is None:
                self._bequeath(again=True)
        self._spread()

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        """Give the answer in one piece, or the refusal."""
        if self.started:
            raise RuntimeError("A shared answer starts once.")
        self.started = self.finished = self.is_whole = True
        self._leader = None
        self.status, self.headers = status, headers
        self._append(body)
        if status != 200:
            self._group.close(self)
            self._bequeath(again=status >= 500 or status in _AGAIN)
        self._spread()

    def abort(self) -> None:
        """Close every client's socket."""
        self.started = self.finished = True
        self._group.close(self)
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

    def attach(self, participant: Participant, part: Part) -> SharedReader:
        """Read along from the beginning; what is there is handed over in this turn."""
        reader = SharedReader(self, participant, part)
        self._readers[reader] = None
        self.wake()
        reader.pump()
        return reader

    def detach(self, reader: SharedReader) -> None:
        """Stop reading; the last one to leave ends the call, unless the answer is complete."""
        reader.end()
        self._readers.pop(reader, None)
        self.wake()
        task = self._task
        if not self._readers and not self.finished and task is not None and not task.done():
            self._group.close(self)
            task.cancel()

    def wake(self) -> None:
        """Something about who reads, and how fast, has changed."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # The call

    def fly(self, launch: Launch) -> None:
        """Begin the leader's flight in a task of its own: it may outlive the leader."""
        self._task = self._group.hold(self.loop.create_task(launch(self)))
        self._task.add_done_callback(self._landed)

    def when_landed(self, settle: Callable[[], None]) -> None:
        """Call this once the flight is settled; `made` is there then, if it got an answer."""
        if self._task is None or self._task.done():
            settle()
        else:
            self._settlers.append(settle)

    def kept(self, made: Made, most_bytes: int) -> Kept | None:
        """The answer as it can be given again; None where it is not all here."""
        partial = not self.finished or self._base or len(self._stamps) != len(self._pieces)
        if partial or self._broken or self.status != 200 or self.size > most_bytes:
            return None
        body = b"".join(self._pieces)
        return Kept(
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
        )

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._group.close(self)
        for settle in self._settlers:
            settle()
        self._settlers.clear()
        self._leader = None
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
            if not reader.done.done():
                reader.drop()

    def _tell_leader(self, error: BaseException | None) -> None:
        for reader in tuple(self._readers):
            if reader.part == "lead" and error is not None:
                reader.end(error)
                self._readers.pop(reader)

    def _bequeath(self, *, again: bool) -> None:
        """Nothing came: one of the followers may try, or all hear what the leader hears."""
        if not again or self._heirs < 1:
            return
        for reader in tuple(self._readers):
            if reader.part == "join":
                reader.bereave()

    @property
    def heirs(self) -> int:
        """How many may still try."""
        return self._heirs

    def _append(self, data: bytes) -> None:
        self._pieces.append(data)
        self.size += len(data)
        if self.size <= LOG_BYTES:
            self._stamps.append(self.now_ns())
        else:
            self._group.close(self)

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


class SingleFlight:
    """All answers under way that may be shared, by the key of their request."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ns: Callable[[], int]) -> None:
        self.loop = loop
        self.now_ns = now_ns
        self._open: dict[bytes, SharedAnswer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.led = self.joined = 0

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, key: bytes) -> bool:
        return key in self._open

    async def share(self, key: bytes, participant: Participant) -> SharedReader:
        """Answer a request from the call that is under way for it, or begin one.

        Cancelled when the client leaves. The reader says how it took part.
        """
        heirs = HEIRS
        while True:
            shared = self._open.get(key)
            if shared is None:
                part: Part = "lead"
                shared = self._open[key] = SharedAnswer(self, key, heirs)
                shared.fly(participant.launch)
                self.led += 1
            else:
                part = "join"
                self.joined += 1
            reader = shared.attach(participant, part)
            try:
                await reader.done
            finally:
                shared.detach(reader)
            if not reader.bereft:
                return reader
            heirs = shared.heirs - 1

    def hold(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        """Keep a flight's task alive until it is over."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def landed(self, within_s: float) -> bool:
        """Wait until every flight is settled; whether that came to pass."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)
        return not self._tasks

    def close(self, shared: SharedAnswer) -> None:
        """Let nobody join this one any more."""
        if self._open.get(shared.key) is shared:
            del self._open[shared.key]
