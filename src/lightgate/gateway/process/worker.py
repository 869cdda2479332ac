"""One worker process: the door, the gateway behind it, and an orderly end.

    python -m lightgate.gateway.process.worker --data DIR --index I --host H --port P

It prints one line of JSON when it serves, then an empty one a second. SIGTERM drains it; SIGUSR1
too, but for idle connections, which get one more answer. SIGHUP makes it look at the snapshot at
once; it looks by itself twice a second. It ends with its parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import uvloop

from lightgate.errors import LightgateError, UsageError
from lightgate.gateway.cache.disk import BUSY_S, DiskCache
from lightgate.gateway.exchange.journal import JournalWriter
from lightgate.gateway.exchange.state import State
from lightgate.gateway.http.app import Gateway
from lightgate.gateway.process.child import beat, end_with_parent
from lightgate.gateway.process.gauges import GaugeFile
from lightgate.gateway.process.lock import unready
from lightgate.gateway.process.logs import secrets_of, start_child
from lightgate.gateway.process.probe import Prober
from lightgate.gateway.process.sharing import SHARE_TICKS, FlyingCounts, FormSharing
from lightgate.gateway.process.shelter import most_connections
from lightgate.gateway.request.prints import PromptPrints
from lightgate.gateway.served.inner import CONSOLE_ENV, SECRET_ENV, InnerCaller
from lightgate.gateway.served.served import Served
from lightgate.gateway.served.snapshot import FILE, SnapshotFailed, put_back, read_snapshot
from lightgate.gateway.shared.answers import SharedAnswerStore
from lightgate.gateway.shared.counters import SharedCounters
from lightgate.gateway.shared.live import LiveSharing
from lightgate.gateway.shared.store import SharedStore
from lightgate.gateway.spend.counter_file import CounterFileFailed
from lightgate.gateway.spend.counters import SpendCounters
from lightgate.gateway.spend.recount import Recounting
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.locate import LedgerPlace
from lightgate.provider.cloud.tokens import TokenKeepers
from lightgate.provider.engine_follower import EngineFollower
from lightgate.provider.kept_lists import WANTED
from lightgate.wire.client.client import Client
from lightgate.wire.door.crowd import CrowdLimits
from lightgate.wire.door.door import Door, DoorLimits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.ledger.store.store import Ledger

logger = logging.getLogger(__name__)
TRAFFIC_NS: Final = 10_000_000_000  # after a request, engines are still asked for their load
CHARGE_TICKS: Final = 10  # seconds between two looks for workers that died with reservations
TOO_LARGE: Final = " Raise max_body_bytes under [gateway] in lightgate.toml, or send less."
LOOK_S: Final = 0.5  # between two looks at the snapshot
TOKEN_S: Final = 5.0  # for the first tokens of the clouds, before requests are taken
COURTESY_S: Final = 1.0  # at the end, for which kept connections are answered once more


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the supervisor decides."""

    data: Path
    index: int = 0
    place: int | None = None  # among the workers; `index` is another one in each generation
    host: str = "127.0.0.1"
    port: int = 0
    drain_s: float = 30.0
    flying: int | None = None  # memory in which all workers count what they have in flight
    fds: tuple[int, ...] = ()  # listening sockets, opened by the supervisor; none: it opens its own
    probes: bool = False  # asks targets that nobody asks
    console: str = ""  # the address of the console
    supervised: bool = False


class Worker:
    """A gateway that serves until it is told to stop."""

    def __init__(self, options: WorkerOptions) -> None:
        self._options = options
        self._stop = asyncio.Event()
        self._gentle = False
        self._look = asyncio.Event()
        self._seen = self._mark()
        self._disk: DiskCache | None = None
        self._keepers = TokenKeepers()
        served = Served(read_snapshot(options.data), os.environ, self._keepers)
        self.client = Client(watch_lag=False)
        self.state = State(
            served,
            client=self.client,
            journal=JournalWriter(Journal(options.data / "journal", options.index)),
            spend=None,
            worker=options.index,
        )
        self._share_state(served)
        self.state.prints = PromptPrints.of_folder(options.data)
        self.state.inner = InnerCaller.of(os.environ, options.host)
        self._keep_answers(served)
        self._learn()
        limits = DoorLimits(body_bytes=served.terms.max_body_bytes, body_hint=TOO_LARGE)
        gateway = Gateway(
            self.state, options.data, lambda: unready(options.data), console=options.console
        )
        self._gateway = gateway
        own = served.terms.limits
        crowd = CrowdLimits(
            connections=own.connections or most_connections(),
            connections_per_address=own.connections_per_address,
            body_bytes=own.body_bytes,
        )
        self._door = Door(gateway.handle, limits=limits, gate=gateway.gate, crowd=crowd)
        self._door.sink_bodies(gateway.sink_of)
        self._gauges = GaugeFile(options.data, self.state, self._door, options.place)

    def _share_state(self, served: Served) -> None:
        """Open the counters of keys, and what machines share where they do."""
        options, state, learned = self._options, self.state, self.state.learned
        self._live: LiveSharing | None = None
        store = SharedStore.of_process(os.environ, options.data, options.index, state.now_ns)
        state.store, state.spend = store, _counters(options, served, store)
        if store is not None and isinstance(state.spend, SharedCounters):
            state.shared_spend = state.spend
            self._live = LiveSharing(store, state.spend, learned.forms, learned.breakers)
            state.cache.memory.shared_tier = SharedAnswerStore(store)

    def _learn(self) -> None:
        """Know what the last life and the other workers know, and look where nobody has looked."""
        options, state = self._options, self.state
        self._sharing = FormSharing(options.data, options.index, state.learned.forms, state.now_ns)
        self._sharing.adopt(own=True)
        self._flying: FlyingCounts | None = None
        if options.flying is not None:
            try:
                self._flying = FlyingCounts(
                    options.flying, options.index, state.learned.forms, state.now_ns
                )
            except OSError as error:  # a limit on the size of files is one on this memory too
                logger.warning("what other workers have in flight is not known: %s", error.strerror)
        self._ticks = 0
        self._charging = False  # a dead worker's keys are not all looked at yet
        self._keeping: asyncio.Future[None] | None = None
        self._gauging: asyncio.Future[None] | None = None
        state.each_second.append(state.journal.keep_in_place)
        state.each_second.append(self._keep_counters)
        recounting = Recounting(state.spend, lambda: state.served.snapshot.keys, options.data)
        state.each_second.append(recounting.look)
        self._uncounted = ""  # why the counters could not be written again, as it was last said
        state.each_second.append(self._tell_shortage)
        state.each_second.append(self._show_gauges)
        state.each_second.append(self._share)
        state.each_second.append(self._want_lists)
        if options.supervised:
            state.each_second.append(beat)
        self._engines = EngineFollower(state.learned.forms.engine, self._has_traffic)
        state.each_second.append(self._follow_engines)
        if options.probes:
            prober = Prober(state, self.client, state.learned.observer, state.journal)
            state.each_second.append(lambda: None if self._gentle else prober.look())

    def _share(self) -> None:
        self._ticks += 1
        spend = self.state.spend
        if spend is not None and (self._ticks % CHARGE_TICKS == 0 or self._charging):
            self._charging = spend.charge_dead()
        if self._ticks % SHARE_TICKS:
            return
        if self._keeping is None or self._keeping.done():
            news = self._sharing.news()
            if news is not None:
                loop = self.state.loop
                self._keeping = loop.run_in_executor(None, self._sharing.keep, news)
        self._sharing.adopt()

    def _has_traffic(self) -> bool:
        state = self.state
        return bool(state.exchanges) or state.now_ns() - state.learned.asked_ns < TRAFFIC_NS

    def _follow_engines(self) -> None:
        """Follow the engines of the targets that are served now."""
        self._engines.follow(self.state.served.engine_pages())

    def _keep_counters(self) -> None:
        """Count in a file that others find, where the counter file was deleted."""
        spend, problem = self.state.spend, ""
        try:
            if spend is not None and spend.keep_in_place():
                logger.error("the counters of budgets were deleted or damaged while the gateway"
                             " ran; they were written again")  # fmt: skip
        except CounterFileFailed as error:
            problem = error.message
        if problem and problem != self._uncounted:
            logger.error("the counters of budgets were deleted or damaged: %s", problem)
        self._uncounted = problem

    def _tell_shortage(self) -> None:
        self.state.load.tell(self._door.crowd.refused)

    def _show_gauges(self) -> None:
        """Write the gauges for the console, unless the disk has not taken the last ones yet."""
        if self._gauging is None or self._gauging.done():
            write, content = self._gauges.write, self._gauges.content()
            self._gauging = self.state.loop.run_in_executor(None, write, content)

    def _want_lists(self) -> None:
        """Tell the supervisor that a model was asked for that no list has."""
        names = self.state.served.names
        if names.missed:
            names.missed = False
            with contextlib.suppress(OSError):
                (self._options.data / WANTED).touch(mode=0o600)

    def _keep_answers(self, served: Served) -> None:
        """Open the cache's second tier once some model needs it; in a thread, and lazily."""
        rules = [alias.cache for alias in served.snapshot.aliases]
        needed = any(rule.mode != "off" and rule.store == "ledger" for rule in rules)
        if needed and self._disk is None:
            self._disk = self.state.cache.memory.second_tier = DiskCache(self._ledger)
            self._disk.start()

    def _ledger(self) -> Ledger:
        return LedgerPlace.of_process(os.environ, self._options.data).open(busy_s=BUSY_S)

    async def run(self) -> None:
        """Serve; returns when drained."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        loop.add_signal_handler(signal.SIGINT, self._stop.set)
        loop.add_signal_handler(signal.SIGUSR1, self._retire)
        loop.add_signal_handler(signal.SIGHUP, self._look.set)
        await asyncio.to_thread(self._keepers.settle, TOKEN_S)
        options = self._options
        if options.fds:
            sockets = [socket.socket(fileno=fd) for fd in options.fds]
            for sock in sockets:
                sock.setblocking(False)
            port = await self._door.accept_from(sockets)
        else:
            port = await self._door.listen(options.host, options.port, reuse_port=True)
        background = (self.state.tick(), self._watch(), self.state.load.watch())
        tasks = [loop.create_task(work) for work in background]
        if self._live is not None:
            tasks.append(loop.create_task(self._live.run()))
        if self._flying is not None:
            tasks.append(loop.create_task(self._flying.run()))
        sys.stdout.write(json.dumps({"ready": True, "port": port}) + "\n")
        sys.stdout.flush()
        gc.collect()
        gc.freeze()  # what is here now stays; the collector need not look at it again
        _give_back()
        self.state.turns.start()
        await self._stop.wait()
        await self._end(tasks)

    def _retire(self) -> None:
        """Leave the place to a successor, which accepts from the same sockets already."""
        self._gentle = True
        self._stop.set()

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        """Not ready, no new connections, streams finish within the budget, the rest are told.

        A worker with a successor goes on as it was meanwhile: it may still get requests.
        """
        state, budget_s = self.state, self._options.drain_s
        state.turns.close()
        state.draining = not self._gentle
        for task in () if self._gentle else tasks:
            task.cancel()
        drained = asyncio.create_task(
            self._door.drain(budget_s, gentle=self._gentle, courtesy_s=COURTESY_S)
        )
        done, _ = await asyncio.wait({drained}, timeout=max(0.0, budget_s - 0.5))
        if not done:
            for exchange in tuple(state.exchanges):
                exchange.stop()
        await drained
        for task in tasks:
            task.cancel()
        await state.cache.single_flight.settled(1.0)  # exchanges that outlived their clients
        await self._engines.close()
        await self.client.close()
        for writing in (self._keeping, self._gauging):
            if writing is not None:
                await writing  # or it would write over the last word
        self._sharing.share()
        self._gauges.write(self._gauges.content())
        if self._disk is not None:
            self._disk.close()
        self._gateway.close()
        await state.aside.close()
        state.journal.close()
        if self._live is not None:
            await self._live.leave()
        if state.spend is not None:
            state.spend.close()

    async def _watch(self) -> None:
        """Take in a new snapshot when there is one."""
        while True:
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._look.wait()
            except TimeoutError:
                pass
            self._look.clear()
            mark = self._mark()
            if mark is None:
                await self._put_back()
            if mark is None or mark == self._seen:
                continue
            self._seen = mark
            try:
                served = Served(read_snapshot(self._options.data), os.environ, self._keepers)
                await asyncio.to_thread(self._keepers.settle, TOKEN_S)
                self.state.move(served)
                self._keepers.keep_only(served.signers.values())
                self._keep_answers(served)
            except LightgateError as error:
                logger.error("the snapshot is not taken in: %s", error.message)  # noqa: TRY400

    async def _put_back(self) -> None:
        """Write the snapshot in force again: its file was deleted while the gateway ran."""
        try:
            put = await asyncio.to_thread(put_back, self._options.data, self.state.served.snapshot)
        except SnapshotFailed as error:
            if self._seen is not None:  # once, until it can be written
                logger.error("the snapshot was deleted: %s", error.message)  # noqa: TRY400
            self._seen = None
            return
        if put:
            logger.error("the snapshot was deleted while the gateway ran; it was written again")

    def _mark(self) -> tuple[int, int] | None:
        try:
            found = (self._options.data / FILE).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns


def _give_back() -> None:
    """Give the memory that only the start needed back to the system, where the C library can."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _key_variables(data: Path) -> list[str]:
    """Which variables hold providers' keys, so that no log line ever shows one."""
    try:
        reaches = read_snapshot(data).providers.values()
    except LightgateError:
        return [SECRET_ENV, CONSOLE_ENV]  # the worker itself says why it cannot start
    return [
        SECRET_ENV,
        CONSOLE_ENV,
        *(name for reach in reaches for name in reach.secret_variables),
    ]


def _counters(
    options: WorkerOptions, served: Served, store: SharedStore | None = None
) -> SpendCounters:
    """The spend counters; what an earlier life of this worker had reserved counts as spent."""
    path, keys = options.data / "spend", served.snapshot.keys
    if store is None:
        spend = SpendCounters.open(path, options.index, keys)
        if spend.fresh and options.supervised:  # `up` fills a file before a worker begins
            spend.mark_lost()
    else:
        spend = shared = SharedCounters.share(path, options.index, keys, store)
        shared.know_ledger(options.data)
    spend.charge_own()
    return spend


def read_options(words: Sequence[str]) -> WorkerOptions:
    """The options of a worker from its command line, which the supervisor writes.

    Each is a flag with the name of its field and a value; `argparse` would take half a megabyte of
    every worker for that.
    """
    given: dict[str, object] = {}
    left = iter(words)
    for word in left:
        name = word.removeprefix("--").replace("-", "_")
        given[name] = name == "probes" or next(left, None)
    try:
        if "fds" in given:
            given["fds"] = [int(fd) for fd in str(given["fds"]).split(",") if fd]
        return msgspec.convert(
            given, WorkerOptions, strict=False, dec_hook=lambda kind, value: kind(value)
        )
    except (ValueError, TypeError) as error:
        raise UsageError(f"A worker cannot be started so: {error}.") from None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one worker; the exit code."""
    try:
        options = read_options(sys.argv[1:] if arguments is None else arguments)
    except UsageError as error:
        sys.stderr.write(f"{error.message}\n")
        return error.exit_code
    options = msgspec.structs.replace(options, supervised=end_with_parent(os.environ))

    async def serve() -> None:
        await Worker(options).run()

    start_child(os.environ, secrets=secrets_of(None, os.environ, also=_key_variables(options.data)))
    try:
        uvloop.run(serve())
    except LightgateError as error:
        sys.stderr.write(f"{error.message}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
