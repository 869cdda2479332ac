"""The worker's side of the process beside it: jobs in turn, its start, its end, its death.

The process is started at the first job and ended after a while without one. It does one job at a
time. Of several owners (keys, or addresses) that wait, each has its turn: whoever sends one large
body after the other delays others by one job at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from lightgate.errors import LightgateError
from lightgate.gateway.aside.frames import FrameReader, Segments, pieces, sliced, value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Job = Callable[..., tuple[Any, list[bytes]]]

JOB_S: Final = 30.0  # a job that takes longer is given up, and its process with it
IDLE_S: Final = 60.0  # without a job; then its memory goes back
MOST_BYTES: Final = 256 * 1024 * 1024  # of bodies that wait
_STDIN: Final = 0
_PASSED: Final = ("PATH", "PYTHONPATH", "PYTHONHOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TMPDIR")
_COMMAND: Final = ("-m", "lightgate.gateway.aside.helper")
_log = logging.getLogger(__name__)


class AsideFailed(LightgateError):  # noqa: N818 - says what happened
    """The process beside the worker could not do a job: it died, took too long, or has too much."""

    status = 503
    label = "overloaded"


class _Order(NamedTuple):
    owner: str
    job: Job
    bodies: Sequence[bytes]
    arguments: tuple[object, ...]
    done: asyncio.Future[tuple[Any, Segments]]

    @property
    def size(self) -> int:
        return sum([len(body) for body in self.bodies])


class Aside:
    """The jobs of one worker that are done beside its loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: OrderedDict[str, deque[_Order]] = OrderedDict()
        self._waiting_bytes = 0
        self._running: _Order | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._pipe: _Pipe | None = None  # of the last process
        self._starting: asyncio.Task[None] | None = None
        self._left: Iterator[memoryview] = iter(())  # of the job that runs, not handed over yet
        self._full = False  # the pipe takes no more for now
        self.jobs = 0  # that were done

    async def do(
        self, owner: str, job: Job, bodies: Sequence[bytes], *arguments: object
    ) -> tuple[Any, Segments]:
        """Do a job there: `job(*bodies, *arguments)`, a function of a module.

        Returns its value and the bodies that it made; raises the LightgateError that it raised.
        """
        order = _Order(owner, job, bodies, arguments, self._loop.create_future())
        if self._waiting_bytes and self._waiting_bytes + order.size > MOST_BYTES:
            raise AsideFailed("This gateway has as many large bodies to read as it takes.")
        self._waiting.setdefault(owner, deque()).append(order)
        self._waiting_bytes += order.size
        self._next()
        return await order.done

    async def close(self) -> None:
        """End the process; jobs that wait are given up."""
        self._fail_all("The gateway is stopping.")
        if self._starting is not None:
            await self._starting
        self._end()
        if self._pipe is not None:
            await self._pipe.gone

    def _next(self) -> None:
        """Hand over the next job, if there is one and the process is free."""
        if self._running is not None or self._starting is not None:
            return
        order = self._taken()
        self._stop_timer()
        if order is None:
            if self._transport is not None:
                self._timer = self._loop.call_later(IDLE_S, self._end)
            return
        self._running = order
        if self._transport is None:
            self._starting = self._loop.create_task(self._start())
        else:
            self._send(order)

    def _taken(self) -> _Order | None:
        """Take the first job of the owner whose turn it is; none of a client that left."""
        while self._waiting:
            owner, orders = next(iter(self._waiting.items()))
            order = orders.popleft()
            self._waiting_bytes -= order.size
            if orders:
                self._waiting.move_to_end(owner)
            else:
                del self._waiting[owner]
            if not order.done.done():
                return order
        return None

    async def _start(self) -> None:
        """Start the process and hand the job over that waits for it."""
        try:
            env = {name: os.environ[name] for name in _PASSED if name in os.environ}
            transport, self._pipe = await self._loop.subprocess_exec(
                lambda: _Pipe(self, self._loop.create_future()), sys.executable, *_COMMAND,
                env=env, stderr=None, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._starting = None
            self._fail(f"The process for large bodies cannot be started: {error.strerror}.")
            return
        self._starting = None
        self._transport = transport
        if transport.get_returncode() is not None:
            self.lost(transport)
        elif self._running is not None:
            self._send(self._running)

    def _send(self, order: _Order) -> None:
        self._timer = self._loop.call_later(JOB_S, self._too_late)
        self._left = sliced(pieces((order.job, order.arguments), order.bodies))
        self._write_on()

    def _write_on(self) -> None:
        """Hand over the next slice of the job, one in each turn of the loop, if the pipe has room.

        A process that reads as fast as it is written to never fills the pipe.
        """
        transport = self._transport
        pipe = None if transport is None else transport.get_pipe_transport(_STDIN)
        piece = None if pipe is None or self._full else next(self._left, None)
        if piece is not None:
            cast("asyncio.WriteTransport", pipe).write(piece)
            if not self._full:
                self._loop.call_soon(self._write_on)

    def flow(self, transport: asyncio.SubprocessTransport | None, *, full: bool) -> None:
        """Stop handing over while the pipe is full, and go on when it is not."""
        if transport is self._transport:
            self._full = full
            if not full:
                self._loop.call_soon(self._write_on)

    def take(self, segments: Segments) -> None:
        """Take the result of the job that runs."""
        order, self._running = self._running, None
        self.jobs += 1
        if order is not None and not order.done.done():
            good, value = value_of(segments)
            if good:
                order.done.set_result((value, segments[1:]))
            elif isinstance(value, LightgateError):
                order.done.set_exception(value)
            else:
                _log.error("A job beside the worker failed: %s", value)
                order.done.set_exception(AsideFailed("A large body could not be read."))
        self._next()

    def lost(self, transport: asyncio.SubprocessTransport | None) -> None:
        """Go on after the death of the process: the job that ran is lost, the next one starts anew.

        A body that kills the process is not tried again.
        """
        if transport is not self._transport or transport is None:
            return
        self._forget()
        transport.close()
        if self._running is not None:
            _log.error("The process for large bodies died (%s)", transport.get_returncode())
            self._fail("The process for large bodies died.")

    def _too_late(self) -> None:
        _log.error("A job beside the worker took more than %g s and is given up", JOB_S)
        self._end()
        self._fail("The body takes too long to read.")

    def _fail(self, reason: str) -> None:
        order, self._running = self._running, None
        if order is not None and not order.done.done():
            order.done.set_exception(AsideFailed(reason))
        self._next()

    def _fail_all(self, reason: str) -> None:
        while (order := self._taken()) is not None:
            order.done.set_exception(AsideFailed(reason))
        self._fail(reason)

    def _end(self) -> None:
        """End the process."""
        self._stop_timer()
        transport = self._transport
        self._forget()
        if transport is not None:
            with contextlib.suppress(ProcessLookupError):
                transport.kill()
            transport.close()

    def _forget(self) -> None:
        """Have no process, and nothing to hand over to it."""
        self._transport, self._left, self._full = None, iter(()), False

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Pipe(asyncio.SubprocessProtocol):
    """The pipes to the process."""

    def __init__(self, aside: Aside, gone: asyncio.Future[None]) -> None:
        self.gone = gone
        self._aside = aside
        self._reader = FrameReader(aside.take)
        self._transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.SubprocessTransport", transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:  # noqa: ARG002 - there is one
        """Take a piece of a result."""
        self._reader.feed(data)

    def pause_writing(self) -> None:
        """Tell that the process has not read what it was sent."""
        self._aside.flow(self._transport, full=True)

    def resume_writing(self) -> None:
        """Tell that the process has read nearly all of it."""
        self._aside.flow(self._transport, full=False)

    def process_exited(self) -> None:
        """Tell that the process is gone."""
        self.gone.set_result(None)
        self._aside.lost(self._transport)
