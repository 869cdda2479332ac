"""Share one call between equal requests that run at the same time.

The first request leads: its exchange writes into the shared answer as if that were the client's
reply. A follower reads the answer from its beginning: what is there at once, the rest as it comes.
No reader waits for another: one that falls too far behind is cut, and the call ends early only when
all readers have left.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from lightgate.gateway.cache.follower import (
    LOG_BYTES,
    AnswerLog,
    LeadCall,
    Made,
    Part,
    Participant,
    SharedReader,
)

if TYPE_CHECKING:
    from collections.abc import Callable

BEHIND_BYTES: Final = 1024 * 1024  # that one client may be behind while others keep up
RETRIES: Final = 1  # calls that followers may make, one after another, when a leader got nothing
_AGAIN: Final = frozenset((408, 409, 425))  # beside 5xx: another call may get an answer


class LeaderExchange(Protocol):
    """What a shared answer must know of the leader's exchange."""

    @property
    def winner(self) -> object | None:
        """The attempt whose answer this is; None before its first token."""
        ...

    @property
    def refusal(self) -> object | None:
        """The refusal that the client gets, if any."""
        ...


class SharedAnswer(AnswerLog):
    """One answer on its way to all who asked for it; the leader's exchange sees a `Reply`.

    Pieces are whole events. An answer of more than LOG_BYTES cannot be joined any more, and its
    pieces are dropped once every reader has them.
    """

    def __init__(self, group: SingleFlight, key: bytes, retries: int) -> None:
        super().__init__(group.loop, group.now_ns)
        self._group = group
        self.key = key
        self._retries = retries
        self._readers: dict[SharedReader, None] = {}  # in the order of joining
        self._task: asyncio.Task[None] | None = None
        self._leader: LeaderExchange | None = None
        self.made: Made | None = None  # once the call is settled
        self._settlers: list[Callable[[], None]] = []

    # For the leader's exchange

    def watch(self, leader: LeaderExchange) -> None:
        """Take the leader's exchange, which knows whether its answer is one; before it runs."""
        self._leader = leader

    @property
    def crowded(self) -> bool:
        """Whether no reader can take more; then the provider may wait too."""
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

    def send(self, data: bytes) -> bool:
        """Hand a piece to every reader; a comment only to those who are here now.

        Whether no reader can take more.
        """
        if not self.started or self.finished:
            raise RuntimeError("A shared answer's pieces go between its start and its finish.")
        if data[:1] == b":" or data.isspace():  # events begin with a word
            for reader in tuple(self._readers):
                reader.comment(data)
        elif data:
            self.append(data)
            self._spread()
        return self.crowded

    def finish(self, trailer: bytes = b"", *, last: bytes = b"") -> None:
        """End the answer; without a winner there was none."""
        del trailer
        if not self.started or self.finished:
            raise RuntimeError("A shared answer is finished once, after its start.")
        if last:
            self.append(last)
        self.finished = True
        leader, self._leader = self._leader, None  # its exchange holds this object: no cycle
        self.broken = leader is not None and leader.refusal is not None
        if leader is not None and self.broken:
            self._group.close(self)
            if leader.winner is None:
                self._let_followers_retry(again=True)
        self._spread()

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        """Give the answer in one piece, or the refusal."""
        if self.started:
            raise RuntimeError("A shared answer starts once.")
        self.started = self.finished = self.is_whole = True
        self.status, self.headers = status, headers
        self.append(body)
        if status != 200:
            self._group.close(self)
            self._let_followers_retry(again=status >= 500 or status in _AGAIN)
        self._spread()

    def fail(self, error: Exception | None) -> None:
        """End the answer because of a defect of the exchange that fills it."""
        self._tell_leader(error)
        self.abort()

    def abort(self) -> None:
        """Close every client's socket."""
        self.started = self.finished = True
        self._group.close(self)
        for reader in tuple(self._readers):
            reader.drop()

    async def drain(self) -> None:
        """Wait until a reader can take more."""
        while self.crowded:
            await self.waiting()

    # For the readers

    def attach(self, participant: Participant, part: Part) -> SharedReader:
        """Read the answer from its beginning; what is there is handed over in this turn."""
        reader = SharedReader(self, participant, part)
        self._readers[reader] = None
        self.wake()
        reader.pump()
        return reader

    def detach(self, reader: SharedReader) -> None:
        """Stop a reader; the last one to leave ends the call, unless the answer is complete."""
        reader.end()
        self._readers.pop(reader, None)
        self.wake()
        task = self._task
        if not self._readers and not self.finished and task is not None and not task.done():
            self._group.close(self)
            task.cancel()

    # The call

    def begin(self, call: LeadCall) -> None:
        """Begin the leader's call in a task of its own: it may outlive the leader's client."""
        self._task = self._group.hold(self.loop.create_task(call(self)))
        self._task.add_done_callback(self._ended)

    def when_settled(self, settle: Callable[[], None]) -> None:
        """Call `settle` once the call is settled; `made` is there then, if it got an answer."""
        if self._task is None or self._task.done():
            settle()
        else:
            self._settlers.append(settle)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._group.close(self)
        for settle in self._settlers:
            settle()
        self._settlers.clear()
        self._leader = None
        error = None if task.cancelled() else task.exception()
        if self.finished:
            if error is not None:  # the answer is out: what failed came after it
                self._tell_leader(error)
            return
        self.finished = True
        if not self.end:
            self._let_followers_retry(again=True)
        self._tell_leader(error)
        for reader in tuple(self._readers):
            if not reader.done.done():
                reader.drop()

    def _tell_leader(self, error: BaseException | None) -> None:
        for reader in tuple(self._readers):
            if reader.part == "lead" and error is not None:
                reader.end(error)
                self._readers.pop(reader)

    def _let_followers_retry(self, *, again: bool) -> None:
        """Let the followers make another call where nothing came and a call is left."""
        if not again or self._retries < 1:
            return
        for reader in tuple(self._readers):
            if reader.part == "join":
                reader.let_retry()

    @property
    def retries(self) -> int:
        """How many calls followers may still make."""
        return self._retries

    def append(self, data: bytes) -> None:
        """Add a piece; a long answer cannot be joined any more."""
        super().append(data)
        if self.size > LOG_BYTES:
            self._group.close(self)

    def _spread(self) -> None:
        for reader in tuple(self._readers):
            reader.pump()
        if any(reader.held for reader in self._readers) and not self.crowded:
            for reader in tuple(self._readers):
                if reader.held and reader.owed > BEHIND_BYTES:
                    reader.drop()
        if self.size > LOG_BYTES and not self.is_whole:
            self.forget(min((reader.at for reader in self._readers), default=self.end))


class SingleFlight:
    """All answers under way that may be shared, by the cache key of their request."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now_ns: Callable[[], int]) -> None:
        self.loop = loop
        self.now_ns = now_ns
        self._open: dict[bytes, SharedAnswer] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._open)

    def __contains__(self, key: bytes) -> bool:
        return key in self._open

    async def share(
        self, key: bytes, participant: Participant
    ) -> tuple[SharedAnswer, SharedReader]:
        """Answer a request from the call that is under way for it, or begin one.

        Cancelled when the client leaves. The reader says which part it had.
        """
        retries = RETRIES
        while True:
            shared = self._open.get(key)
            if shared is None:
                part: Part = "lead"
                shared = self._open[key] = SharedAnswer(self, key, retries)
                shared.begin(participant.call)
            else:
                part = "join"
            reader = shared.attach(participant, part)
            try:
                await reader.done
            finally:
                shared.detach(reader)
            if not reader.retry:
                return shared, reader
            retries = shared.retries - 1

    def hold(self, task: asyncio.Task[None]) -> asyncio.Task[None]:
        """Keep a call's task alive until it is over."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def settled(self, within_s: float) -> bool:
        """Wait until every call is settled; whether all are within the time."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)
        return not self._tasks

    def close(self, shared: SharedAnswer) -> None:
        """Let no request join this answer any more."""
        if self._open.get(shared.key) is shared:
            del self._open[shared.key]
