"""Driving one cell: requests through `provider.call`, in a closed loop or on a plan.

In a closed loop every worker sends its next request as soon as its last one ended. On a plan every
request starts at its planned instant whatever the others do, and `marks.plan` is that instant, so
that what a slow server does to later requests stays visible. Nothing is ever sent twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.bench.load.jobs import Job, JobSource, Start, starts
from lightgate.bench.load.restraint import Restraint, is_key_refused
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.source import SYSTEM
from lightgate.errors import UsageError
from lightgate.provider.call import Call, Called
from lightgate.wire.client.roundtrip import Deadlines
from lightgate.wire.link.timers import best_alarm

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from lightgate.bench.load.shape import Pacer
    from lightgate.wire.client.client import Client
    from lightgate.wire.sse import Event

NS_PER_S: Final = 1_000_000_000
LEAD_NS: Final = 50_000_000  # before a plan begins: time to prepare its first requests
AHEAD: Final = 256  # requests that are prepared before their planned instant
BUSY_NS: Final = 2_000_000  # nearer than this to a planned instant nothing else is begun
TURN: Final = 16  # overdue requests started in one turn of the loop; then they get to run
GRAIN_NS: Final = 1_000_000  # of the loop's own timers
NEVER_NS: Final = 1 << 63  # an instant that does not come


class Driving(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a drive: how hard and for how long.

    With a duration, what is still under way `cool_down_s` after its end is cut (None: never); a
    request count alone waits for all of them. `start_ns` is the instant that durations and planned
    offsets count from; None is now. `give_up` ends the run after so many attempts in a row that
    could not connect or were refused for their key.
    """

    concurrency: int = 1  # workers of a closed loop
    ramp_s: float = 0.0  # over which they start, one after the other
    requests: int | None = None
    duration_ns: int | None = None
    cool_down_s: float | None = 0.0
    max_inflight: int | None = None  # of a plan; what cannot be sent is dropped, never sent later
    respect_429: bool = True  # closed loop: pause for as long as the provider asks
    give_up: int | None = None
    start_ns: int | None = None
    deadlines: Deadlines = Deadlines()


class Finished(msgspec.Struct, frozen=True):
    """One request that was made; `wall_ns` is the wall clock when it began."""

    job: Job
    marks: Marks
    called: Called
    worker: int  # 0 for every request of a plan
    wall_ns: int
    region: str = ""  # of the host that made it; empty where that is this machine


class Driven(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a drive; instants in nanoseconds of the monotonic clock.

    No request began after `stopped_ns`. `paused_ns` is the time for which a 429 held all workers.
    """

    begin_ns: int
    stopped_ns: int
    ended_ns: int
    started: int
    dropped: int = 0
    cut: int = 0
    paused_ns: int = 0
    gave_up: str = ""  # the error that made it end early
    key_refused: bool = False  # ... was a refusal of the key


async def drive(
    client: Client,
    jobs: Iterator[Job],
    driving: Driving,
    on_done: Callable[[Finished], None],
    pacer: Pacer | None = None,
) -> Driven:
    """Make the requests: in a closed loop, or with a pacer at its planned instants.

    `on_done` gets each one the moment it ends. Cancelling cuts what is under way, which `on_done`
    gets too, before the cancellation goes on. The i-th job goes with the i-th planned instant.
    """
    if driving.requests is not None:
        jobs = itertools.islice(jobs, driving.requests)
    return await drive_from(client, starts(jobs, pacer), driving, on_done)


async def drive_from(
    client: Client,
    source: JobSource,
    driving: Driving,
    on_done: Callable[[Finished], None],
    restraint: Restraint | None = None,
) -> Driven:
    """Make the requests of any source; see `drive`. The source counts the requests itself.

    A restraint that is given may also be held from outside.
    """
    if driving.concurrency < 1 or (driving.max_inflight or 1) < 1:
        raise UsageError("A load needs at least one request in flight.")
    if restraint is None:
        restraint = restraint_of(driving, planned=source.planned)
    return await _Driver(client, driving, on_done, restraint, source).run()


def restraint_of(driving: Driving, *, planned: bool) -> Restraint:
    """Make the restraint of a drive; a plan is never moved by one."""
    return Restraint(pauses=driving.respect_429 and not planned, give_up=driving.give_up)


class _Driver:
    """One drive under way."""

    def __init__(
        self,
        client: Client,
        driving: Driving,
        on_done: Callable[[Finished], None],
        restraint: Restraint,
        source: JobSource,
    ) -> None:
        self._client = client
        self._source = source
        self._driving = driving
        self._on_done = on_done
        self._restraint = restraint
        lead = LEAD_NS if source.planned else 0
        self._begin = driving.start_ns or SYSTEM.now_ns() + lead
        lasts = driving.duration_ns
        self._close = NEVER_NS if lasts is None else self._begin + lasts  # nothing counts after it
        self._end = NEVER_NS if source.fills else self._close  # nothing begins after it
        self._calls: set[Call] = set()  # under way
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: set[asyncio.Task[None]] = set()  # starters that are between two requests
        self._over = asyncio.Event()  # nothing is left to do, or nothing more may be done
        self._failure: BaseException | None = None
        self._stopped_ns: int | None = None
        self._cutting = False
        self._started = self._dropped = self._cut = 0

    async def run(self) -> Driven:
        """Start, stop, cool down and cut; a step is left out where nothing is left to do."""
        driving, cut_ns = self._driving, NEVER_NS
        if driving.duration_ns is not None and driving.cool_down_s is not None:
            cut_ns = self._close + int(driving.cool_down_s * NS_PER_S)
        if self._source.planned:
            self._spawn(self._dispatch(self._source))
        else:
            for number in range(driving.concurrency):
                self._spawn(self._work(number, self._source))
        try:
            await self._settle(self._close)
            over = self._source.close()
            if over or not self._source.fills:
                self._stop()
            if over:
                self._over.set()
            if self._failure is None and self._restraint.gave_up is None:
                await self._settle(cut_ns)
        finally:
            self._stop()
            self._cutting = True
            for call in list(self._calls):
                call.cancel()
            while self._tasks:
                await asyncio.wait(self._tasks)
        if self._failure is not None:
            raise self._failure
        return self._result()

    # Starting

    async def _work(self, number: int, source: JobSource) -> None:
        """Run one worker of a closed loop."""
        driving = self._driving
        ramp_ns = int(driving.ramp_s * NS_PER_S * number / driving.concurrency)
        await _sleep_until(self._begin + ramp_ns)
        task, restraint = asyncio.current_task(), self._restraint
        source.joined()
        while SYSTEM.now_ns() < self._end:
            while SYSTEM.now_ns() < restraint.until_ns:
                await _sleep_until(restraint.until_ns)
            start = await source.next()
            while (now := SYSTEM.now_ns()) < restraint.until_ns:
                await _sleep_until(restraint.until_ns)
            if start is None or task is None or now >= self._end:
                return
            self._idle.discard(task)
            call, marks = self._launch(start.job, now)
            await self._carry_out(start.job, call, marks, number)
            self._idle.add(task)

    async def _dispatch(self, source: JobSource) -> None:
        """Start every request of a plan at its instant, prepared before it."""
        bell, ahead, overdue = _Bell(), deque[Start](), 0
        try:
            while (start := ahead.popleft() if ahead else await source.next()) is not None:
                due = self._begin + (start.offset_ns or 0)
                if due >= self._end:
                    return
                await self._prepare_ahead(source, ahead, due)
                waited = await bell.until(due)
                overdue = 0 if waited else overdue + 1
                if overdue % TURN == TURN - 1:
                    await asyncio.sleep(0)
                self._send(start.job, due)
        finally:
            bell.close()

    async def _prepare_ahead(self, source: JobSource, ahead: deque[Start], due: int) -> None:
        """Use the time until the next instant to make the requests of later ones."""
        while len(ahead) < AHEAD and SYSTEM.now_ns() < due - BUSY_NS:
            try:
                async with asyncio.timeout((due - BUSY_NS - SYSTEM.now_ns()) / NS_PER_S):
                    later = await source.next()
            except TimeoutError:
                return
            if later is None:
                return
            ahead.append(later)
            if self._begin + (later.offset_ns or 0) >= self._end:
                return
            await asyncio.sleep(0)  # answers are read in between

    def _send(self, job: Job, due: int) -> None:
        limit = self._driving.max_inflight
        if limit is not None and len(self._calls) >= limit:
            self._dropped += 1
            return
        call, marks = self._launch(job, due)
        task = self._spawn(self._carry_out(job, call, marks, 0))
        self._idle.discard(task)

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        self._idle.add(task)
        task.add_done_callback(self._ended)
        return task

    # One request

    def _launch(self, job: Job, plan_ns: int) -> tuple[Call, Marks]:
        marks = Marks(plan=plan_ns)
        call = Call(job.prepared, marks, None if job.kept is None else job.kept.keep)
        self._calls.add(call)
        self._started += 1
        return call, marks

    async def _carry_out(self, job: Job, call: Call, marks: Marks, worker: int) -> None:
        wall_ns = SYSTEM.wall_ns()
        if job.cancel_ns is not None:
            _cancel_later(call, job.cancel_ns)
        try:
            called = await call.run(self._client, self._driving.deadlines)
        finally:
            self._calls.discard(call)
        if self._cutting and called.outcome is Outcome.CANCELLED:
            called = msgspec.structs.replace(called, outcome=Outcome.CUT, error=None)
            self._cut += 1
            if marks.end is None and marks.send is not None:
                marks.end = SYSTEM.now_ns()
        restraint = self._restraint
        if (called.error is not None or restraint.refused) and restraint.heed(
            called.error, SYSTEM.now_ns()
        ):
            self._stop()
            self._over.set()
        self._on_done(Finished(job, marks, called, worker, wall_ns))
        if self._source.ended(job) and not self._cutting:
            self._stop()
            self._over.set()

    # Ending

    async def _settle(self, until_ns: int) -> None:
        """Wait until nothing is left to do, or until the instant."""
        wait_s = None
        if until_ns != NEVER_NS:
            wait_s = max(0, until_ns - SYSTEM.now_ns()) / NS_PER_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._over.wait()

    def _stop(self) -> None:
        """Start nothing more; what is under way goes on."""
        if self._stopped_ns is None:
            self._stopped_ns = SYSTEM.now_ns()
            self._end = min(self._end, self._stopped_ns)
        for task in list(self._idle):
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._idle.discard(task)
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            self._failure = self._failure or failure
        if failure is not None or not self._tasks:
            self._over.set()

    def _result(self) -> Driven:
        ended = SYSTEM.now_ns()
        stopped, gave_up = self._stopped_ns or ended, self._restraint.gave_up
        return Driven(
            begin_ns=self._begin,
            stopped_ns=stopped,
            ended_ns=ended,
            started=self._started,
            dropped=self._dropped,
            cut=self._cut,
            paused_ns=self._restraint.held_ns(stopped),
            gave_up="" if gave_up is None else gave_up.message,
            key_refused=is_key_refused(gave_up),
        )


class _Bell:
    """A timer that is sharper than the loop's own, and never early."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()
        self._alarm = best_alarm(self._ring)

    async def until(self, due_ns: int) -> bool:
        """Wait for the instant; False if it was already past."""
        waited = False
        while SYSTEM.now_ns() < due_ns:
            self._rung.clear()
            self._alarm.set(due_ns)
            await self._rung.wait()
            waited = True
        return waited

    def close(self) -> None:
        """Give the timer back."""
        self._alarm.close()

    def _ring(self) -> None:
        self._alarm.clear()
        self._rung.set()


def _cancel_later(call: Call, after_ns: int) -> None:
    """Cancel a call at its first token (0), or so long after now; one that has ended stays so."""
    loop = asyncio.get_running_loop()

    def heard(data: bytes, events: list[Event], kinds: int) -> None:  # noqa: ARG001 - Sink's
        if kinds:
            call.sink = None
            loop.call_soon(call.cancel)  # not while the read that brought it is under way

    if after_ns:
        loop.call_later(after_ns / NS_PER_S, call.cancel)
    else:
        call.sink = heard


async def _sleep_until(due_ns: int) -> None:
    """Sleep, and a grain of the loop's timers longer: they may fire early by that much."""
    wait_ns = due_ns - SYSTEM.now_ns()
    if wait_ns > 0:
        await asyncio.sleep((wait_ns + GRAIN_NS) / NS_PER_S)
