"""The simulator as a program: start, announce, serve until a signal."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.errors import LightgateError, UsageError
from lightgate.sim.server.routes import base_urls
from lightgate.sim.server.server import SimServer
from lightgate.sim.world_file import load

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.sim.world import World

STDIN: Final = 0
TIDY_S: Final = 5.0


class SimOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the simulator; `until_eof` stops it with standard input, so with its parent."""

    world: str = "tables-2025"
    host: str = "127.0.0.1"
    port: int = 0
    seed: int = 1
    own_ports: bool = False
    trouble: bool = False
    until_eof: bool = False
    cpu: int | None = None  # run on this core alone, where the system can


class SimFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a running simulator that its clients need."""

    port: int
    host: str
    pid: int
    world: str
    seed: int
    providers: dict[str, str]  # name to base URL
    trouble_ports: dict[str, int]


def serve(options: SimOptions, announce: Callable[[SimFacts, World], None]) -> int:
    """Serve until SIGINT (130), SIGTERM (0) or, if wanted, the end of standard input (0)."""
    import uvloop

    world = load(options.world)
    if options.cpu is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {options.cpu})
    code: int = uvloop.run(_serve(options, world, announce))
    return code


async def _serve(
    options: SimOptions, world: World, announce: Callable[[SimFacts, World], None]
) -> int:
    server = SimServer(
        world, seed=options.seed, own_ports=options.own_ports, trouble=options.trouble
    )
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not stop.done():
            stop.set_result(code)

    try:
        port = await server.start(options.host, options.port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise LightgateError(
                f"Port {options.port} on {options.host} is in use by another program.",
                hint="Choose another with --port, or 0 for a free one.",
            ) from None
        raise UsageError(
            f"The simulator cannot listen on {options.host}:{options.port}: {error.strerror}.",
            hint="Name an address of this machine with --host, such as 127.0.0.1.",
        ) from None
    loop.add_signal_handler(signal.SIGINT, end, 130)
    loop.add_signal_handler(signal.SIGTERM, end, 0)
    if options.until_eof:  # orders to reload are for the process that has started this one
        for number in (signal.SIGHUP, signal.SIGUSR2):
            loop.add_signal_handler(number, lambda: None)
        loop.add_reader(STDIN, _watch_stdin, end)
    # A collection in the middle of a thousand streams stops all of them for milliseconds (up to 6,
    # in one run on a busy machine) to free next to nothing, so it waits until nothing is planned.
    gc.collect()
    gc.freeze()
    gc.disable()
    tidying = loop.create_task(_tidy(server))
    facts = SimFacts(
        port=port,
        host=options.host,
        pid=os.getpid(),
        world=world.name,
        seed=options.seed,
        providers=base_urls(world, options.host, port, server.ports),
        trouble_ports=server.trouble_ports,
    )
    try:
        announce(facts, world)
        return await stop
    finally:
        tidying.cancel()
        await server.close()


async def _tidy(server: SimServer) -> None:
    while True:
        await asyncio.sleep(TIDY_S)
        if server.idle:
            gc.collect()


def _watch_stdin(end: Callable[[int], None]) -> None:
    if not os.read(STDIN, 4096):
        asyncio.get_running_loop().remove_reader(STDIN)
        end(0)
