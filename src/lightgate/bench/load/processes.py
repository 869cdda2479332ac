"""Driving one cell from several processes, for more streams than one core can carry.

The parent owns the plan and the jobs: each job goes to exactly one child (`child.py`), with its
offset from one start on the monotonic clock that all processes of a machine share. Children send
every request that ended back at once, marks and all, so the parent sees what one process would have
seen. What a killed child had finished is kept; what it had not is counted as lost and never sent
again. Both sides speak `frames` over the child's standard input and output. Children may stand on
other hosts (`hosts`): their clocks are then compared with ours, and every instant is put on ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lightgate.bench.load.drive import Driven, Driving, Finished, restraint_of
from lightgate.bench.load.frames import (
    UP,
    ClockAsk,
    ClockTold,
    Down,
    Go,
    HoldFrame,
    JobFrame,
    Over,
    Ready,
    Result,
    Setup,
    Tell,
    frame,
    receive,
    unpack,
)
from lightgate.bench.load.hosts import PINGS, HostClock, Ping, health_of, host_of
from lightgate.bench.load.jobs import Job, JobSource, Start, Stretch, starts
from lightgate.bench.load.restraint import is_key_refused
from lightgate.clock.outcome import Outcome
from lightgate.clock.source import SYSTEM
from lightgate.errors import LightgateError, UsageError
from lightgate.ledger.runs.hosts import HostHealth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lightgate.bench.load.hosts import HostPlace, LoadHost, LoadProcessHandle
    from lightgate.bench.load.shape import Pacer
    from lightgate.clock.marks import StampSource
    from lightgate.wire.origin import Origin

NS_PER_S: Final = 1_000_000_000
CHILD: Final = "lightgate.bench.load.child"  # the module that a child runs
READY_S: Final = 30.0  # for a child to start and to open its connections
START_NS: Final = 200_000_000  # between the order to go and the start
FEED_NS: Final = 2 * NS_PER_S  # a planned request reaches its child so long before its instant
# Jobs that wait in a child of a stretch, so that no worker waits for one. Not where a plain count
# ends the drive: a job that waits in one child while others are idle would make it longer.
SPARE: Final = 2
GRACE_S: Final = 10.0  # for a child that was told to stop
MOST: Final = 64  # processes
ONE_PROCESS: Final = 1_000  # streams that one process carries without being late


class LoadProcesses(NamedTuple):
    """Settings of the load processes: their number, their stamps, their warm connections.

    `connections` are for all of them together and to each origin; None is one for each worker.
    """

    processes: int
    stamp: StampSource = "read"
    warm: tuple[Origin, ...] = ()
    connections: int | None = None
    hosts: tuple[LoadHost, ...] = ()  # that run them, in turns; none: this machine


class Lost(msgspec.Struct, frozen=True):
    """A child that ended before its work did; its `unfinished` requests are not in the results."""

    process: int
    pid: int
    exit_code: int | None  # negative: the signal
    unfinished: int


class DrivenByProcesses(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a drive by several processes: sums over those that came to their end."""

    driven: Driven
    lost: tuple[Lost, ...] = ()
    clock_steps: int = 0
    hosts: tuple[HostHealth, ...] = ()


def shares(total: int, processes: int) -> list[int]:
    """Split into whole parts that differ by at most one; no part is empty."""
    parts = min(total, processes)
    return [total // parts + (number < total % parts) for number in range(parts)]


def processes_for(streams: int, asked: int | None = None, hosts: int = 0) -> int:
    """Count the processes to use: those asked for, else one for every 1,000 streams begun.

    With hosts it is at least one for each of them.
    """
    wanted = min(MOST, max(1, -(-streams // ONE_PROCESS))) if asked is None else asked
    return max(wanted, hosts)


async def drive_processes(
    jobs: Iterator[Job],
    driving: Driving,
    wanted: LoadProcesses,
    on_done: Callable[[Finished], None],
    pacer: Pacer | None = None,
) -> DrivenByProcesses:
    """Make the requests from several processes; `on_done` gets each one as it comes back.

    A closed loop's workers, or a plan's requests, are split among them. Cancelling halts them all,
    and `on_done` gets what they cut before the cancellation goes on.
    """
    if driving.requests is not None:
        jobs = itertools.islice(jobs, driving.requests)
    return await drive_processes_from(starts(jobs, pacer), driving, wanted, on_done)


async def drive_processes_from(
    source: JobSource,
    driving: Driving,
    wanted: LoadProcesses,
    on_done: Callable[[Finished], None],
) -> DrivenByProcesses:
    """Make the requests of any source; see `drive_processes`."""
    if not 1 <= wanted.processes <= MOST:
        raise UsageError(f"--processes is a number from 1 to {MOST}.")
    if driving.concurrency < 1 or (driving.max_inflight or 1) < 1:
        raise UsageError("A load needs at least one request in flight.")
    return await _Parent(driving, wanted, on_done, source).run()


class _LoadProcess:
    """One process as the parent sees it."""

    def __init__(
        self, number: int, room: int, process: LoadProcessHandle, place: HostPlace | None
    ) -> None:
        self.number = number
        self.process = process
        self.place = place  # None: this machine
        self.clock: HostClock | None = None  # of another host, at the start
        self.clock_after: HostClock | None = None  # and at the end
        self.room = asyncio.Semaphore(room)  # of a closed loop: jobs that it may hold
        self.held: dict[int, Job] = {}
        self.finished = self.cut = 0
        self.over: Over | None = None
        self.gone = False

    def send(self, message: Down) -> None:
        """Write a message; nothing is written to a process that is gone."""
        stdin = self.process.stdin
        if stdin is not None and not self.gone and not stdin.is_closing():
            stdin.write(frame(message))

    async def compared(self) -> HostClock:
        """Compare the clock of its host with ours; the process does nothing else meanwhile."""
        pings = []
        for _ in range(PINGS):
            asked_ns = SYSTEM.now_ns()
            self.send(ClockAsk())
            told = await receive(self.process.stdout, UP)
            if not isinstance(told, ClockTold):
                raise LightgateError("A load process did not tell its time; it was lost.")
            pings.append(
                Ping(asked_ns, told.now_ns, told.wall_ns, SYSTEM.now_ns(), SYSTEM.wall_ns())
            )
        return HostClock.of(pings)

    def taken(self, result: Result, job: Job) -> Finished:
        """Make the finished request of a result, on our clock."""
        if self.clock is None or self.place is None:
            return unpack(result, job)
        wall_ns = result.wall_ns - self.clock.wall_offset_ns
        result = msgspec.structs.replace(result, wall_ns=wall_ns)
        finished = unpack(result, job, self.place.region)
        self.clock.put_marks(finished.marks)
        return finished

    def at(self, instant_ns: int) -> int:
        """Put an instant of our clock on that of the process."""
        return instant_ns if self.clock is None else self.clock.theirs(instant_ns)

    def health(self) -> HostHealth | None:
        """Make the record of its clock; None for a process of this machine."""
        if self.clock is None or self.place is None:
            return None
        steps = 0 if self.over is None else self.over.clock_steps
        return health_of(self.place, self.number, (self.clock, self.clock_after), steps)


class _Parent:
    """The process that feeds the others and takes what they send."""

    def __init__(
        self,
        driving: Driving,
        wanted: LoadProcesses,
        on_done: Callable[[Finished], None],
        source: JobSource,
    ) -> None:
        self._driving = driving
        self._source = source
        self._wanted = wanted
        self._on_done = on_done
        self._numbers = itertools.count()
        self._children: list[_LoadProcess] = []
        self._halted = False
        self._restraint = restraint_of(driving, planned=source.planned)

    async def run(self) -> DrivenByProcesses:
        """Start the children, feed them, take what they send, and see them end."""
        source = self._source
        try:
            await self._spawn(planned=source.planned)
            start_ns = self._driving.start_ns or SYSTEM.now_ns() + START_NS
            if isinstance(source, Stretch):
                source.full_from(start_ns + int(self._driving.ramp_s * NS_PER_S))
            for _ in range(self._driving.concurrency):
                source.joined()
            for child in self._children:
                child.send(Go(child.at(start_ns)))
            loop = asyncio.get_running_loop()
            reading = [loop.create_task(self._read(child)) for child in self._children]
            feeding = loop.create_task(self._feed(source, start_ns))
            ending = loop.create_task(self._end_in_time(start_ns))
            try:
                await self._all_of(reading, feeding)
            except asyncio.CancelledError:
                feeding.cancel()
                self._halt()
                await asyncio.wait(reading, timeout=GRACE_S)
                raise
            finally:
                tasks = (feeding, ending, *reading)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        except BaseException:
            for child in self._children:
                with contextlib.suppress(ProcessLookupError):
                    child.process.kill()
            raise
        finally:
            await self._end_children()
        return self._summed(start_ns)

    async def _spawn(self, *, planned: bool) -> None:
        driving, wanted = self._driving, self._wanted
        parts = shares(driving.concurrency, wanted.processes)
        if planned:
            parts = [1] * min(wanted.processes, driving.max_inflight or wanted.processes)
        limits = shares(driving.max_inflight, len(parts)) if driving.max_inflight else None
        spare = SPARE if self._source.fills else 0
        for number, share in enumerate(parts):
            host = host_of(wanted.hosts, number)
            process = await (start_here() if host is None else host.start())
            child = _LoadProcess(number, share + spare, process, host.place if host else None)
            self._children.append(child)
            own = msgspec.structs.replace(
                driving,
                concurrency=share,
                max_inflight=limits[number] if limits else None,
                give_up=None,  # the parent gives up: it sees the errors of all children
                duration_ns=None if self._source.fills else driving.duration_ns,
            )
            setup = Setup(
                driving=own,
                stamp=wanted.stamp,
                planned=planned,
                first_worker=0 if planned else sum(parts[:number]),
                warm=wanted.warm,
                connections=-(-(wanted.connections or sum(parts)) // len(parts)),
                timed=host is not None,
            )
            child.send(setup)
        try:
            async with asyncio.timeout(READY_S):
                for child in self._children:
                    answer = await receive(child.process.stdout, UP)
                    if not isinstance(answer, Ready):
                        raise LightgateError("A load process did not start; its reason is above.")
                    if child.place is not None:
                        child.clock = await child.compared()
        except TimeoutError:
            raise LightgateError(f"A load process was not ready in {READY_S:g} s.") from None

    async def _feed(self, source: JobSource, start_ns: int) -> None:
        if source.planned:
            await self._feed_plan(source, start_ns)
        else:
            await asyncio.gather(*(self._feed_child(source, child) for child in self._children))
        for child in self._children:
            child.send(Tell("no more"))

    async def _feed_plan(self, source: JobSource, start_ns: int) -> None:
        """Deal the plan out in turn, a little before each instant."""
        turn = itertools.count()
        while (start := await source.next()) is not None:
            offset = start.offset_ns or 0
            if self._driving.duration_ns is not None and offset >= self._driving.duration_ns:
                return
            early_ns = start_ns + offset - FEED_NS - SYSTEM.now_ns()
            await asyncio.sleep(max(0, early_ns) / NS_PER_S)
            alive = [child for child in self._children if not child.gone]
            if not alive or self._restraint.gave_up is not None:
                return
            await self._hand(alive[next(turn) % len(alive)], start)

    async def _feed_child(self, source: JobSource, child: _LoadProcess) -> None:
        """Give one child of a closed loop its next job as soon as it has room for one."""
        while True:
            await child.room.acquire()
            if child.gone or self._restraint.gave_up is not None:
                return
            if (start := await source.next()) is None:
                return
            await self._hand(child, start)

    async def _hand(self, child: _LoadProcess, start: Start) -> None:
        number, prepared = next(self._numbers), start.job.prepared
        child.held[number] = start.job
        order = JobFrame(
            number=number,
            offset_ns=start.offset_ns,
            origin=prepared.origin,
            payload=prepared.payload,
            dialect=prepared.dialect.name,
            quirks=prepared.quirks,
            streamed=prepared.streamed,
            cancel_ns=start.job.cancel_ns,
        )
        child.send(order)
        if child.process.stdin is not None:
            with contextlib.suppress(ConnectionError):
                await child.process.stdin.drain()

    async def _read(self, child: _LoadProcess) -> None:
        """Take what a child sends until it ends; what it has sent back is no longer held."""
        while (message := await receive(child.process.stdout, UP)) is not None:
            if isinstance(message, Result):
                job = child.held.pop(message.number)
                child.finished += 1
                child.cut += message.called.outcome is Outcome.CUT
                self._heed(child, message)
                child.room.release()
                self._on_done(child.taken(message, job))
                self._ended(job)
            elif isinstance(message, Over):
                child.over = message
                if child.place is not None:
                    await self._take_leave(child)
        child.gone = True
        for job in child.held.values():  # of a child that was lost
            self._ended(job)
        child.room.release()  # so that feeding it ends too

    async def _take_leave(self, child: _LoadProcess) -> None:
        """Compare the clock of another host once more, and let its process end."""
        with contextlib.suppress(LightgateError, TimeoutError):  # its results are all here
            async with asyncio.timeout(GRACE_S):
                child.clock_after = await child.compared()
        if child.process.stdin is not None:
            child.process.stdin.close()

    def _ended(self, job: Job) -> None:
        """Halt all children where a request was the last that counts."""
        if self._source.ended(job):
            self._halt()

    def _halt(self) -> None:
        if self._halted:
            return
        self._halted = True
        for child in self._children:
            child.send(Tell("halt"))

    async def _end_in_time(self, start_ns: int) -> None:
        """Close a source that fills after the duration, and halt the children after a pause."""
        driving = self._driving
        if not self._source.fills or driving.duration_ns is None:
            return
        await asyncio.sleep(max(0, start_ns + driving.duration_ns - SYSTEM.now_ns()) / NS_PER_S)
        if not self._source.close():
            if driving.cool_down_s is None:
                return
            await asyncio.sleep(driving.cool_down_s)
        self._halt()

    def _heed(self, child: _LoadProcess, result: Result) -> None:
        """Hold or halt all children, where the error of one child's request asks for it."""
        restraint = self._restraint
        before = restraint.until_ns
        enough = restraint.heed(result.called.error, SYSTEM.now_ns())
        if restraint.until_ns > before:
            for other in self._children:
                if other is not child:
                    other.send(HoldFrame(other.at(restraint.until_ns)))
        if enough:
            self._halt()

    async def _all_of(self, reading: list[asyncio.Task[None]], feeding: asyncio.Task[None]) -> None:
        """Wait until every child has ended; a failure on our side ends the wait at once."""
        left: set[asyncio.Task[None]] = {feeding, *reading}
        while not all(task.done() for task in reading):
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.gather(*done)

    async def _end_children(self) -> None:
        """Close the input of every child, which tells it to end; kill it after a grace."""
        for child in self._children:
            process = child.process
            if process.stdin is not None:
                process.stdin.close()
            try:
                async with asyncio.timeout(GRACE_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()

    def _summed(self, start_ns: int) -> DrivenByProcesses:
        overs = [child.over for child in self._children if child.over is not None]
        parts = [
            child.over.driven if child.clock is None else child.clock.put_driven(child.over.driven)
            for child in self._children
            if child.over is not None and child.over.driven is not None
        ]
        fallen = [child for child in self._children if child.over is None]
        # A child that was told to halt has no sums of its own.
        halted = [child for child in self._children if child.over and child.over.driven is None]
        gave_up = self._restraint.gave_up
        now = SYSTEM.now_ns()
        return DrivenByProcesses(
            driven=Driven(
                begin_ns=start_ns,
                stopped_ns=max((part.stopped_ns for part in parts), default=now),
                ended_ns=max((part.ended_ns for part in parts), default=now),
                started=sum(part.started for part in parts)
                + sum(child.finished for child in (*fallen, *halted)),
                dropped=sum(part.dropped for part in parts),
                cut=sum(part.cut for part in parts) + sum(child.cut for child in halted),
                paused_ns=max((part.paused_ns for part in parts), default=0),
                gave_up="" if gave_up is None else gave_up.message,
                key_refused=is_key_refused(gave_up),
            ),
            lost=tuple(
                Lost(child.number, child.process.pid, child.process.returncode, len(child.held))
                for child in fallen
            ),
            clock_steps=max((over.clock_steps for over in overs), default=0),
            hosts=tuple(filter(None, (child.health() for child in self._children))),
        )


async def start_here() -> asyncio.subprocess.Process:
    """Start a load process on this machine."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        CHILD,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C reaches the parent alone, which then says halt
    )
