"""One load process: makes its share of the requests, as the parent says through standard input.

    python -m lightgate.bench.load.child

Requests carry keys, so they come through the pipe and never by argv or the environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
from typing import TYPE_CHECKING, get_args

import msgspec

from lightgate.bench.load.drive import Driven, Finished, drive_from, restraint_of
from lightgate.bench.load.frames import (
    DOWN,
    ClockAsk,
    ClockTold,
    Down,
    Go,
    HoldFrame,
    JobFrame,
    Over,
    Ready,
    Setup,
    Tell,
    Up,
    frame,
    pack,
    receive,
)
from lightgate.bench.load.jobs import AtHand, Job, Start
from lightgate.bench.load.quiet import FULL, breathe, quiet
from lightgate.clock.source import SYSTEM
from lightgate.dialect.registry import Dialect, Family, dialect_for
from lightgate.dialect.request import Kind
from lightgate.errors import UsageError
from lightgate.provider.prepare import Prepared
from lightgate.wire.client.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.bench.load.restraint import Restraint


class _Inbox(AtHand):
    """The requests that came through the pipe."""

    def __init__(self, *, planned: bool) -> None:
        super().__init__(iter(()), planned=planned)
        self.orders: asyncio.Queue[JobFrame | None] = asyncio.Queue()  # None is the end of them
        self._dialects = _dialects()

    async def next(self) -> Start | None:
        """Wait for the next request; None after the last one."""
        order = await self.orders.get()
        if order is None:
            self.orders.put_nowait(None)  # for the other workers
            return None
        dialect = self._dialects[order.dialect]
        prepared = Prepared(order.origin, order.payload, dialect, order.quirks, order.streamed)
        job = Job(str(order.number), prepared, cancel_ns=order.cancel_ns)
        return Start(job, order.offset_ns)


def _dialects() -> dict[str, Dialect]:
    found: list[Dialect] = []
    for family, kind in itertools.product(get_args(Family), get_args(Kind)):
        with contextlib.suppress(UsageError):  # not every family has every endpoint
            found.append(dialect_for(family, kind))
    return {dialect.name: dialect for dialect in found}


async def _pipes() -> tuple[asyncio.BaseTransport, asyncio.StreamReader, asyncio.StreamWriter]:
    """Open both ends of the way to the parent; writes wait in memory, so the clock never does."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    source, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer
    )
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), sys.stdout.buffer
    )
    return source, reader, asyncio.StreamWriter(transport, protocol, None, loop)


async def serve() -> int:
    """Do a share of the work, as the parent says through standard input."""
    source, reader, writer = await _pipes()
    setup = await receive(reader, DOWN)
    if not isinstance(setup, Setup):
        source.close()
        writer.close()
        return 2
    client = Client(stamp=setup.stamp)

    def say(message: Up) -> None:
        if not writer.is_closing():  # the parent is still there
            writer.write(frame(message))

    try:
        for origin in setup.warm:
            await client.warm(origin, setup.connections)
        with quiet():
            say(Ready())
            go = await _after_clocks(reader, say)
            if isinstance(go, Go):
                say(await _work(reader, say, client, setup, go.start_ns))
                if setup.timed:
                    await _after_clocks(reader, say)
    finally:
        await client.close()
        source.close()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    return 0


async def _after_clocks(reader: asyncio.StreamReader, say: Callable[[Up], None]) -> Down | None:
    """Tell the time as often as it is asked for; the first other message, None at the end."""
    while isinstance(message := await receive(reader, DOWN), ClockAsk):
        say(ClockTold(SYSTEM.now_ns(), SYSTEM.wall_ns()))
    return message


async def _work(
    reader: asyncio.StreamReader,
    say: Callable[[Up], None],
    client: Client,
    setup: Setup,
    start_ns: int,
) -> Over:
    inbox = _Inbox(planned=setup.planned)
    driving = msgspec.structs.replace(setup.driving, start_ns=start_ns)

    def finished(item: Finished) -> None:
        say(pack(int(item.job.id), item, setup.first_worker + item.worker))
        breathe(FULL)

    restraint = restraint_of(driving, planned=setup.planned)
    work = asyncio.ensure_future(drive_from(client, inbox, driving, finished, restraint))
    listening = asyncio.ensure_future(_listen(reader, inbox, work, restraint))
    driven: Driven | None = None
    try:
        driven = await work
    except asyncio.CancelledError:
        if not work.cancelled():
            raise
    finally:
        listening.cancel()
    return Over(driven=driven, clock_steps=client.stamper.steps)


async def _listen(
    reader: asyncio.StreamReader,
    inbox: _Inbox,
    work: asyncio.Future[Driven],
    restraint: Restraint,
) -> None:
    """Take requests until there are no more; the end of the pipe means halt."""
    while True:
        message = await receive(reader, DOWN)
        if isinstance(message, JobFrame):
            inbox.orders.put_nowait(message)
        elif isinstance(message, HoldFrame):
            restraint.hold(message.until_ns, SYSTEM.now_ns())
        elif message == Tell("no more"):
            inbox.orders.put_nowait(None)
        else:
            work.cancel()
            return


if __name__ == "__main__":
    import uvloop

    sys.exit(uvloop.run(serve()))
