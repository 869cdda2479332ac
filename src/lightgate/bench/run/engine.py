"""Carrying a benchmark out: calibrate, drive every load, keep every attempt, conclude."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import time
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.bench.checks.rates import AskedCase
from lightgate.bench.load.blocks import Blocks, InBlock, Interleaved, Lane, LaneTurn
from lightgate.bench.load.drive import Driving, Finished
from lightgate.bench.load.jobs import Job
from lightgate.bench.load.processes import (
    SPARE,
    LoadProcesses,
    drive_processes_from,
    processes_for,
)
from lightgate.bench.load.quiet import quiet
from lightgate.bench.load.sessions import Sessions
from lightgate.bench.load.trace import Trace
from lightgate.bench.run.client_cpu import ClientCpu
from lightgate.bench.run.doctor import not_found
from lightgate.bench.run.explore import requests_for
from lightgate.bench.run.findings import Measured, cells, conclude
from lightgate.bench.run.forecast import Forecast
from lightgate.bench.run.order import (
    TWIN,
    cut,
    environment,
    target_facts,
    usual_size,
    with_twin,
)
from lightgate.bench.run.record import Recorder
from lightgate.bench.statistics.measured import stamp_bounds
from lightgate.bench.statistics.summary import CellFacts, glance
from lightgate.bench.workload.calibrate import is_lasting
from lightgate.bench.workload.workload import SIZES, USUAL, Calibrating, Size, Workload, calibrated
from lightgate.clock.attempt import wall_time
from lightgate.clock.ids import Ids
from lightgate.clock.outcome import Outcome
from lightgate.clock.source import SYSTEM
from lightgate.errors import (
    CredentialsError,
    DeadlineMissed,
    HttpRefused,
    LightgateError,
    Unreachable,
)
from lightgate.ledger.runs.hosts import HostHealth, worst_of
from lightgate.ledger.runs.run import Health, Run
from lightgate.provider.answer import Kept
from lightgate.provider.prepare import prepare
from lightgate.wire.client.client import Client
from lightgate.wire.origin import split_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lightgate.bench.checks.cases import CaseSet
    from lightgate.bench.load.hosts import LoadHost
    from lightgate.bench.run.order import Explorer, Loading, RunObserver, RunOrder
    from lightgate.bench.workload.conversation import Talk
    from lightgate.bench.workload.conversation import Turn as SessionTurn
    from lightgate.ledger.runs.folder import RunFolder
    from lightgate.ledger.runs.run import CellSummary
    from lightgate.provider.target import Target

STARTS_PER_S: Final = 400  # workers of a closed loop begin no faster: all at once would queue here
STAGGERED: Final = (
    "The workers of a closed loop began over the time of one request, so that answers of equal"
    " length do not all end at once; --no-stagger begins them together."
)
SAY_EVERY_S: Final = 5  # while nothing else shows that a run goes on
GIVE_UP: Final = 20  # failures to connect, or refusals of the key, in a row


class Bench:
    """One run under way; `run` is its record so far, also after an interruption."""

    def __init__(
        self,
        order: RunOrder,
        folder: RunFolder | None,
        observer: RunObserver,
        explorer: Explorer | None = None,
        hosts: Sequence[LoadHost] = (),
    ) -> None:
        self._order = order
        self._hosts = tuple(hosts)  # that make the load; none: this machine
        self._host_health: list[HostHealth] = []
        self._explorer = explorer
        self._loads = list(order.loads)  # and those that the explorer adds
        self._folder = folder
        self._observer = observer
        self._ids = Ids()
        self._targets = {target.name: target for target in with_twin(order)}
        self._dropped: dict[str, dict[str, int]] = {}
        self._began = time.monotonic_ns()
        self._cpu = ClientCpu()
        self._steps = 0
        self._gone: dict[str, set[str]] = {}  # by load: targets that were given up there
        self._takes_ns: dict[str, dict[str, int]] = {}  # by load and target: the time of a request
        self._notes: list[str] = []
        self.given_up: list[LightgateError] = []  # targets that went away, or refused their key
        self.asked: list[AskedCase] = []  # of the user's own cases, with their answers
        self.run = Run(
            id=self._ids.new(),
            started=wall_time(SYSTEM.wall_ns()),
            environment=environment(order.stamps),
            options=order.options,
            targets=tuple(target_facts(target, order) for target in self._targets.values()),
        )
        self._recorder = Recorder(order, self.run.id, self._targets, folder, observer)
        self._forecast = Forecast(order, observer.say)

    @property
    def measured(self) -> Measured:
        """Every attempt so far."""
        return self._recorder.measured

    def take_up(self, folder: RunFolder) -> None:
        """Go on with a run: what it measured already counts."""
        before = folder.run()
        self._recorder.take_up(folder)
        self._recorder.run_id = before.id
        self.run = msgspec.structs.replace(self.run, id=before.id, started=before.started)

    async def carry_out(self) -> Run:
        """Measure everything; what is measured stays in `run` whatever happens."""
        client = Client(stamp=self._order.stamps)
        try:
            with quiet():
                await self._measure(client)
            self.run = msgspec.structs.replace(self.run, finished=wall_time(SYSTEM.wall_ns()))
        finally:
            self._steps += client.stamper.steps
            await client.close()
            self._conclude()
        return self.run

    async def _measure(self, client: Client) -> None:
        workload = await self._calibrated(client)
        self._skip(workload)
        await self._check(workload)
        lines = workload.calibrations.values()
        self._recorder.paid(sum((line.cost_usd or Decimal(0) for line in lines), Decimal(0)))
        count = max((load.requests or 0 for load in self._order.loads), default=0) or 1000
        self._notes += workload.notes(count)
        facts = workload.facts(self._targets.values(), min(count, 1000))
        self.run = msgspec.structs.replace(self.run, workload=facts)
        for load in self._next_loads():
            if not self._recorder.may_spend or not self._recorder.has_room:
                self._say_once(self._recorder.spent)
                break
            self._keep()
            if self._order.talk is None:
                await self._drive(client, load, workload)
                await self._refine(client, load, workload)
            else:
                await self._converse(client, load, workload, self._order.talk)

    async def _calibrated(self, client: Client) -> Workload:
        """Find the sizes of the prompts; where that takes long, say for which target."""
        waiting = {name for name in self._targets if not name.endswith(TWIN)}
        wishes = Calibrating(waiting.discard, self._order.patience_s)
        targets, wish = self._targets.values(), self._order.wish
        task = asyncio.ensure_future(calibrated(client, targets, wish, wishes))
        try:
            for seconds in itertools.count(SAY_EVERY_S, SAY_EVERY_S):
                await asyncio.wait({task}, timeout=SAY_EVERY_S)
                if task.done():
                    break
                names = ", ".join(sorted(waiting))
                self._observer.say(
                    f"Calibrating prompts: {names} has not answered its probes for {seconds} s;"
                    " --skip-slow 30s would leave it out."
                )
            return await task
        finally:
            task.cancel()

    def _skip(self, workload: Workload) -> None:
        """Leave out the targets that were too slow for --skip-slow, unless none would be left."""
        if self._order.patience_s is None:
            return
        slow = {
            name
            for name in self._targets
            if isinstance(workload.calibration(name).failure, DeadlineMissed)
        }
        if len(slow) == len(self._targets):
            return
        for name in sorted(slow):
            del self._targets[name]
            self._notes.append(
                f"{name} was left out: its probes took longer than {self._order.patience_s:g} s."
            )
        kept = tuple(row for row in self.run.targets if row.name not in slow)
        self.run = msgspec.structs.replace(self.run, targets=kept)

    def _next_loads(self) -> Iterator[Loading]:
        """Yield the loads that were asked for, then those that the explorer wants to see."""
        yield from self._order.loads
        while self._explorer is not None:
            facts = [load.facts({}, self._cpu) for load in self._loads]
            load = self._explorer.next(
                cells(self.run.targets, self.measured, facts, self._order.slo)
            )
            if load is None:
                self._notes.append(self._explorer.said)
                return
            self._loads.append(load)
            yield load

    async def _check(self, workload: Workload) -> None:
        """Raise for a target that cannot be called at all, before the run begins.

        A target that is busy or broken right now is measured: how often it is, is what a run is
        for.
        """
        for target in self._targets.values():
            failure = workload.calibration(target.name).failure
            if isinstance(failure, HttpRefused) and failure.code in {401, 403}:
                raise CredentialsError(failure.message, hint=failure.hint)
            if isinstance(failure, HttpRefused) and failure.code == 404:
                raise await not_found(target, failure.message)
            if failure is not None and is_lasting(failure):
                raise failure

    async def _drive(self, client: Client, load: Loading, workload: Workload) -> None:
        order, names = self._order, self._names(load)
        processes = processes_for(load.concurrency or 1, order.processes, len(self._hosts))
        apart = processes > 1 or bool(self._hosts)
        together = order.together or load.pacer is not None
        unbroken = together or apart or len(names) == 1
        reached = self._recorder.reached(load.label, names, unbroken=unbroken)
        asked = load.cap if load.requests is None else load.requests
        left = None if asked is None else asked - reached.done
        if not names or (left is not None and left <= 0):
            return
        lanes = [
            Lane(name, self._jobs(self._targets[name], load, workload, reached.sent))
            for name in names
        ]
        if order.stagger and (load.concurrency or 1) > 1:
            self._say_once(STAGGERED)
        self._begin(lanes, load, left if load.requests is not None else None)
        size = usual_size(load, len(self._order.targets))
        plan = Blocks(
            sizes=cut(load, left, len(self._order.targets)),
            size=size,
            warmup=0 if load.block is not None or load.pacer else max(order.warmup, 1),
            seed=order.seed + reached.begun,
            together=together,
            stagger=order.stagger,
        )
        driving = Driving(
            concurrency=load.concurrency or 1,
            ramp_s=(load.concurrency or 1) / STARTS_PER_S,
            duration_ns=load.duration_ns,
            max_inflight=load.max_inflight,
            give_up=min(GIVE_UP, max(size, 3)),  # a whole turn, where turns are short
            cool_down_s=30.0,
            deadlines=order.deadlines,
        )
        take = self._foretold(self._recorder.taker(load, reached.begun, unbroken=unbroken), names)
        if order.cases is not None:
            take = self._keeper(take, load, workload, order.cases)
        run = Interleaved(client, plan, driving, take, load.pacer)
        run.takes_ns = self._takes_ns.setdefault(load.label, {})
        if apart:
            work = self._by_processes(lanes, run, processes)
        else:
            await self._warm(client, lanes, load)
            work = run.run(lanes)
        task = asyncio.ensure_future(work)
        self._recorder.on_spent = task.cancel
        with self._cpu.over(load.label, processes):
            await self._settle(task, load, lanes)

    def _foretold(
        self, take: Callable[[InBlock], None], names: list[str]
    ) -> Callable[[InBlock], None]:
        """Make the function that also says, after the first answers, how long the run will be."""

        def foretell(item: InBlock) -> None:
            take(item)
            self._forecast.take(self.measured.attempts[-1], names)

        return foretell

    def _names(self, load: Loading) -> list[str]:
        """List the targets of a load; of a plan there is no second half of an A/A pair."""
        gone = self._gone.get(load.label, ())
        return [
            name
            for name in self._targets
            if name not in gone and (load.pacer is None or not name.endswith(TWIN))
        ]

    def _begin(self, lanes: list[Lane], load: Loading, total: int | None) -> None:
        for lane in lanes:
            self._recorder.under_way[lane.name] = 0
            self._observer.begin_cell(
                lane.name,
                load.label,
                total=total,
                duration_s=None if load.duration_ns is None else load.duration_ns / 1e9,
                # A plan prepares its requests ahead: there, those made are not those under way.
                inflight=partial(self._recorder.under_way.__getitem__, lane.name)
                if load.concurrency
                else None,
            )

    async def _refine(self, client: Client, load: Loading, workload: Workload) -> None:
        """Drive as many requests more as the intervals need to be as narrow as was wished."""
        if load.precision is None or load.requests is None or not self._recorder.may_spend:
            return
        done = load.requests
        made = cells(self.run.targets, self.measured, [load.facts({})], self._order.slo)
        wanted = min(requests_for(load.precision, made, done), load.most or done)
        if wanted <= done:
            return
        self._notes.append(
            f"{load.label}: {wanted} requests instead of {done}, for medians within"
            f" {load.precision:.1%}."
        )
        size = usual_size(load, len(self._order.targets))
        more = msgspec.structs.replace(load, requests=wanted, block=size)
        await self._drive(client, more, workload)

    async def _warm(self, client: Client, lanes: list[Lane], load: Loading) -> None:
        """Open the connections before anything is clocked."""
        for lane in lanes:
            origin, _ = split_url(self._targets[lane.name].base_url)
            await client.warm(origin, load.concurrency or 1, self._order.deadlines.connect_s)

    async def _by_processes(
        self, lanes: list[Lane], run: Interleaved, processes: int
    ) -> list[LaneTurn]:
        """Drive one target after the other, each from several processes."""
        turns = await run.warm(lanes)
        for lane in lanes:
            origin, _ = split_url(self._targets[lane.name].base_url)
            crew = LoadProcesses(
                processes=processes,
                stamp=self._order.stamps,
                warm=(origin,),
                hosts=self._hosts,
            )
            source, driving, finished = run.unbroken(lane, spare=SPARE * processes)
            driven = await drive_processes_from(source, driving, crew, finished)
            for lost in driven.lost:
                self._notes.append(
                    f"A process of {lane.name} was lost with {lost.unfinished} requests."
                )
            self._steps += driven.clock_steps
            self._host_health += driven.hosts
            for health in driven.hosts:
                for doubt in health.doubts():
                    self._say_once(doubt)
            turns.append(LaneTurn(lane.name, None, warmup=False, driven=driven.driven))
        return turns

    async def _settle(
        self, task: asyncio.Task[list[LaneTurn]], load: Loading, lanes: list[Lane]
    ) -> None:
        """Wait for a load; a spent budget ends it early, and that is no error."""
        turns: list[LaneTurn] = []
        try:
            turns = await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if (current is not None and current.cancelling()) or self._recorder.has_room:
                raise
            self._say_once(self._recorder.spent)
        finally:
            task.cancel()
            for lane in lanes:
                self._observer.end_cell(lane.name, self._glance(lane.name, load))
        for turn in turns:
            dropped = self._dropped.setdefault(load.label, {})
            dropped[turn.lane] = dropped.get(turn.lane, 0) + turn.driven.dropped
            if turn.driven.gave_up:
                kind = CredentialsError if turn.driven.key_refused else Unreachable
                given_up = kind(f"{turn.lane} at {load.label} was given up: {turn.driven.gave_up}")
                self._notes.append(given_up.message)
                self.given_up.append(given_up)
                self._gone.setdefault(load.label, set()).add(turn.lane)

    async def _converse(
        self, client: Client, load: Loading, workload: Workload, talk: Talk
    ) -> None:
        """Hold whole conversations in a closed loop, one target after the other."""
        take = self._recorder.taker(load, 0, unbroken=True)
        size = usual_size(load, len(self._order.targets))
        sessions, total = talk.sessions(load.requests or size, self._order.wish.own)
        lanes = [
            Lane(target.name, self._jobs(target, load, workload, 0))
            for target in self._targets.values()
        ]
        await self._warm(client, lanes, load)
        for lane in lanes:
            target = self._targets[lane.name]
            self._observer.begin_cell(lane.name, load.label, total=total)
            turns = Sessions(client, target, talk, workload, self._order.deadlines)
            first = workload.first_number(load.label, twin=target.name.endswith(TWIN))

            def on_turn(
                number: int, worker: int, turn: SessionTurn, target: Target = target
            ) -> None:
                identity = self._ids.new()
                self._recorder.under_way[target.name] = 1
                job = Job(identity, prepare(target, turn.request), turn.number)
                wall = SYSTEM.wall_ns() - (SYSTEM.now_ns() - (turn.marks.plan or SYSTEM.now_ns()))
                done = Finished(job, turn.marks, turn.called, worker, wall)
                take(InBlock(target.name, number % SIZES * talk.turns // size, done))

            numbers = range(first, first + sessions)
            self._notes += await turns.run(load.concurrency or 1, numbers, on_turn)
            self._observer.end_cell(lane.name, self._glance(lane.name, load))

    def _glance(self, target: str, load: Loading) -> CellSummary | None:
        """Sum up what the table will say of a cell; None where nothing was measured."""
        attempts = self.measured.at(target, load.label)
        if not attempts:
            return None
        row = next(row for row in self.run.targets if row.name == target)
        facts = CellFacts(target=row, load=load.label, concurrency=load.concurrency)
        return glance(attempts, self.measured.recordings, facts)

    def _jobs(
        self, target: Target, load: Loading, workload: Workload, offset: int
    ) -> Callable[[int], Job]:
        """Make the function that makes the jobs of one target, by their number."""
        entries = load.pacer.entries if isinstance(load.pacer, Trace) else ()
        first = offset + workload.first_number(load.label, twin=target.name.endswith(TWIN))

        def job(index: int) -> Job:
            size = USUAL
            if entries:
                entry = entries[index % len(entries)]
                size = Size(entry.tokens_in, entry.tokens_out)
            identity = self._ids.new()
            self._recorder.under_way[target.name] += 1
            request = workload.request(target, index + first, size)
            prepared = prepare(target, request, (("x-request-id", identity),))
            cancel_ns = workload.wish.cancel_ns(index + first)
            kept = None if self._order.cases is None else Kept()
            return Job(identity, prepared, index, cancel_ns=cancel_ns, kept=kept)

        return job

    def _keeper(
        self, take: Callable[[InBlock], None], load: Loading, workload: Workload, cases: CaseSet
    ) -> Callable[[InBlock], None]:
        """Make the function that also keeps the answers to the user's own cases."""

        def keep(item: InBlock) -> None:
            take(item)
            job, called = item.finished.job, item.finished.called
            if job.kept is None or job.part != "counted":
                return
            answer, error = None, called.error
            if called.outcome is Outcome.OK:
                answer = job.kept.answer(job.prepared.dialect.name, streamed=called.streamed)
            number = job.number + workload.first_number(load.label, twin=item.lane.endswith(TWIN))
            self.asked.append(
                AskedCase(
                    item.lane,
                    load.label,
                    job.id,
                    number % len(cases.cases),
                    answer,
                    "" if error is None else error.message,
                )
            )

        return keep

    def _in_one_piece(self) -> Iterator[str]:
        """Name the targets that answer in one piece although a stream was asked for."""
        streamed: dict[str, bool] = {}
        for attempt in self.measured.attempts:
            if attempt.outcome is Outcome.OK and self._order.wish.streams:
                streamed[attempt.target] = streamed.get(attempt.target, False) or attempt.streamed
        for name, any_streamed in streamed.items():
            if not any_streamed:
                yield (
                    f"{name} does not stream: a stream was asked for, and every answer came in one"
                    " piece, so it has no time to the first token and no decode speed."
                )

    def _say_once(self, note: str) -> None:
        if note not in self._notes:
            self._notes.append(note)

    def _keep(self) -> None:
        if self._folder is not None:
            self._folder.write_run(self.run)

    def _conclude(self) -> None:
        """Conclude from what there is, and keep it."""
        wall = max(1, time.monotonic_ns() - self._began)
        middle, worst = stamp_bounds(self.measured.attempts)
        health = Health(
            stamp_source=self._order.stamps,
            clock_steps=self._steps,
            cpu_share=self._cpu.spent_ns() / wall,
            peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            cores=os.cpu_count() or 1,
            bound_p50_ms=middle,
            bound_p99_ms=worst,
        )
        notes = (*self._notes, *self._in_one_piece())
        hosts = worst_of(self._host_health)
        run = msgspec.structs.replace(self.run, health=health, notes=notes, hosts=hosts)
        loads = [load.facts(self._dropped.get(load.label, {}), self._cpu) for load in self._loads]
        self.run = conclude(run, self.measured, loads, slo=self._order.slo, seed=self._order.seed)
        self._keep()
