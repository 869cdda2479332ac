"""Run the console as a program: open the ledger, listen, say so, work until told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import uvicorn

from lightgate.clock.source import SYSTEM
from lightgate.config.load import load_config
from lightgate.console.app import ConsoleContext, build_app
from lightgate.console.connection import MOST, ConsoleConnection, Shortage
from lightgate.console.guard import ConsoleAccess
from lightgate.console.labels import LabelNames
from lightgate.console.nodes import NodeLeader, begin_totals, follow_keys
from lightgate.console.ship_loop import ShipLoop
from lightgate.console.totals import Totals
from lightgate.console.traces import make_traces
from lightgate.console.work.orders import WorkDesk
from lightgate.console.work.own_gateway import OwnGateway
from lightgate.console.workers import Workers
from lightgate.errors import LightgateError
from lightgate.gateway.process.child import beat, end_with_parent
from lightgate.gateway.process.logs import CONSOLE_SECRET_ENV, secrets_of, start_child
from lightgate.gateway.process.port import refused, require_secret
from lightgate.gateway.served.inner import CONSOLE_ENV
from lightgate.gateway.served.snapshot import SnapshotFailed, read_snapshot
from lightgate.ledger.locate import LEDGER_ENV, LedgerPlace, locate
from lightgate.ledger.store.hourly import note_hourly_prices
from lightgate.ledger.store.keys import restore_keys
from lightgate.ledger.store.retention import Keep
from lightgate.ledger.store.retention_clock import RetentionClock
from lightgate.ledger.store.rollup import DAY_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from decimal import Decimal

    from lightgate.ledger.journal.notes import Settled
    from lightgate.ledger.store.keys import KeyRecord
    from lightgate.ledger.store.store import Ledger

LOOK_S: Final = 10.0
CLOSE_S: Final = 3
PATIENCE_S: Final = 10.0  # for one statement of a ledger's server; less than the time of an end
SNAPSHOT_LOOK_S: Final = 0.1
SNAPSHOT_LOOKS: Final = 31  # 3 s: a worker looks for its snapshot twice a second
_log = logging.getLogger(__name__)


class ConsoleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of the console's process."""

    data: Path
    host: str = "127.0.0.1"
    port: int = 8081
    config: Path | None = None
    retention_s: float | None = None  # as the configuration says, where it is not given


class _Server(uvicorn.Server):
    """A server without signal handlers of its own: a stop first lets the ship loop finish."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(options: ConsoleOptions, ledger_made: Callable[[], object] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; both are an order, so both end with 0.

    `ledger_made` waits for a process that brings the ledger up to date.
    """
    config = None if options.config is None else load_config(options.config)
    if config is not None and options.retention_s is None:
        options = msgspec.structs.replace(options, retention_s=config.ledger.retention / 1e9)
    secret = os.environ.get(CONSOLE_SECRET_ENV, "").strip()
    require_secret(options.host, os.environ)
    shared = end_with_parent(
        os.environ
    )  # the parent holds the port: it is the same in the next life
    start_child(os.environ, secrets=secrets_of(config, os.environ, also=[CONSOLE_ENV]))
    sock = _listening(options, shared=shared)
    place = LedgerPlace.of_process(os.environ, options.data)
    if config is not None and LEDGER_ENV not in os.environ:
        place = locate(config, options.data)
    if ledger_made is not None:
        ledger_made()
    with sock, place.later(patience_s=PATIENCE_S) as ledger:
        asyncio.run(_serve(sock, ledger, options, secret, place=place, supervised=shared))
    return 0


async def _serve(
    sock: socket.socket,
    ledger: Ledger,
    options: ConsoleOptions,
    secret: str,
    *,
    place: LedgerPlace,
    supervised: bool,
) -> None:
    totals = Totals(LabelNames(options.data))
    begin_totals(totals, ledger)
    traces = make_traces(os.environ)

    def taken(settled: Sequence[Settled]) -> None:
        totals.take(settled)
        traces.take(settled)

    keep = Keep() if options.retention_s is None else Keep(raw_days=options.retention_s / DAY_S)
    retention = RetentionClock(ledger, options.data, keep)
    ship_loop = ShipLoop(
        ledger,
        options.data,
        prune=retention.prune,
        remake=lambda: remake_ledger(place),
        taken=taken,
    )
    leader = NodeLeader(ledger)
    ship_loop.leads = leader.leads
    workers = Workers(options.data, SYSTEM)
    own = OwnGateway(options.data, os.environ.pop(CONSOLE_ENV, ""))
    work = WorkDesk(ledger, own, SYSTEM)
    console = ConsoleContext(
        ledger, ship_loop, totals, workers, traces, options.data,
        notice=lambda: " ".join(filter(None, (retention.doubt, ship_loop.aside))), work=work,
    )  # fmt: skip
    server = _Server(
        uvicorn.Config(
            build_app(console, ConsoleAccess(options.host, secret)),
            log_config=None, access_log=False, lifespan="off", server_header=False,
            timeout_graceful_shutdown=CLOSE_S, ws="none", limit_concurrency=MOST,
            http=ConsoleConnection, proxy_headers=False,  # nobody may choose their own address
        )
    )  # fmt: skip
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(Shortage().handle)
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    working = asyncio.ensure_future(ship_loop.run())
    serving = asyncio.ensure_future(server.serve(sockets=[sock]))
    rounds = (
        kept_up("Looking at the workers", lambda: _look(console, leader)),
        kept_up("Following keys", lambda: follow_keys(console.ledger, console.data)),
    )
    looking = [asyncio.ensure_future(work) for work in rounds]
    _say_ready(sock)
    beating = asyncio.ensure_future(_beat()) if supervised else None
    asked = asyncio.ensure_future(told.wait())
    # Nor does it go on without its way into the ledger: `up` starts another console.
    either: set[asyncio.Future[Any]] = {asked, serving, working}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    for task in looking:
        task.cancel()
    ship_loop.stop()
    await working  # the last pass first: requests are still answered meanwhile
    leader.close()
    await asyncio.to_thread(traces.close)
    server.should_exit = True
    await serving
    await work.close()
    if beating is not None:
        beating.cancel()


async def kept_up(
    name: str,
    work: Callable[[], Awaitable[None]],
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Do the work of a background task; begin it again, after a pause, where it failed."""
    while True:
        try:
            await work()
        except Exception:  # noqa: BLE001 - the wall of a background task: pages are still served
            _log.exception("%s failed; it is tried again", name)
        else:
            return
        await pause(LOOK_S)


def _say_ready(sock: socket.socket) -> None:
    """Tell the parent the port; what is here now stays, so the collector need not look again."""
    sys.stdout.write(f'{{"ready": true, "port": {sock.getsockname()[1]}}}\n')
    sys.stdout.flush()
    gc.collect()
    gc.freeze()


def remake_ledger(place: LedgerPlace, pause: Callable[[float], object] = time.sleep) -> None:
    """Make a ledger that is gone anew, with the keys of the snapshot in force.

    Where the whole folder was deleted, a worker writes the snapshot again within a second.
    """
    kept: tuple[KeyRecord, ...] = ()
    for left in reversed(range(SNAPSHOT_LOOKS)):
        try:
            kept = read_snapshot(place.data).keys
            break
        except SnapshotFailed:
            if left:
                pause(SNAPSHOT_LOOK_S)
    place.prepare()()
    if kept:
        with place.open() as ledger, ledger.writing() as connection:
            restore_keys(connection, kept)


async def _beat() -> None:
    """Tell the supervisor every second that the console still works through its events."""
    while True:
        beat()
        await asyncio.sleep(1.0)


async def _look(console: ConsoleContext, leader: NodeLeader) -> None:
    """Read the workers' gauges and note prices by the hour that have changed, now and then.

    So the last gauges of a worker that has ended are read too.
    """
    noted: dict[str, Decimal] | None = None
    said = ""
    while True:
        await asyncio.to_thread(console.workers.look)
        names = console.totals.names
        names.look()
        if leader.last and names.hourly is not None and names.hourly != noted:
            now_s = SYSTEM.wall_ns() // 1_000_000_000
            try:
                await asyncio.to_thread(note_hourly_prices, console.ledger, names.hourly, now_s)
                noted, said = names.hourly, ""
            except LightgateError as error:
                if error.message != said:  # once, for as long as a server is away
                    said = error.message
                    _log.warning("Prices by the hour are noted later: %s", said)
        await asyncio.sleep(LOOK_S)


def _listening(options: ConsoleOptions, *, shared: bool) -> socket.socket:
    """Open the listening socket: a port that is taken is said before anything starts."""
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    try:
        return socket.create_server(
            (options.host.strip("[]"), options.port),
            family=family,
            backlog=128,
            reuse_port=shared,
        )
    except OSError as reason:
        raise refused(options.host, options.port, reason, "--console-port") from None
