"""Lines by way of a provider's batch API: jobs are made, watched, collected, and given up in time.

Lines go into jobs of about a thousand: less expires with one of them, results come earlier, and a
process that dies loses less. Each job is in the record before and after it is submitted. What a job
does not answer (it expired, failed, was refused or was cancelled at the last safe moment) is left
open, for the engine to send in parallel. An answer is handed over once: a line that has one keeps
it, and what comes later is counted as a double. Time and the provider's API are passed in.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from lightgate.batch.job_log import (
    CollectedJob,
    DroppedJob,
    LeftJob,
    OverJob,
    PlannedJob,
    SubmittedJob,
    SubmittingJob,
    fingerprint,
)
from lightgate.clock.ids import Ids
from lightgate.clock.source import SYSTEM
from lightgate.errors import AttemptError, HttpRefused, LightgateError, UsageError
from lightgate.provider.batch.job import JobAsked, JobLine, JobState, surely_not_made

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from lightgate.batch.job_log import JobFacts, JobLog
    from lightgate.batch.lines import BatchLine
    from lightgate.batch.words import BatchWords
    from lightgate.clock.source import Clock
    from lightgate.provider.batch.job import JobApi, JobResult, JobStatus

NS: Final = 1_000_000_000
JOB_LINES: Final = 1000
JOB_BYTES: Final = 16 * 1024 * 1024  # of bodies, in one job; they are in memory while it is sent
MOST_JOBS: Final = 100  # under way at once
FIRST_POLL_S: Final = 5.0
LONGEST_POLL_S: Final = 60.0
POLL_GROWTH: Final = 1.5
FIND_PAUSES_S: Final = (2.0, 10.0, 30.0)  # a job may be listed later than it was made
REFUSED_S: Final = 30.0  # after a refusal that names no wait
MOST_REFUSALS: Final = 10  # in a row, with no job under way whose end could make room
MISSED: Final = 5  # answers "there is no such job" in a row, before that is believed
GRACE_S: Final = 30.0  # for cancelled jobs to end
_AGAIN: Final = frozenset((408, 409, 425, 429))  # errors of a line that another attempt may mend


class KeptLine(NamedTuple):
    """A line in a job, without its body: `key` is what identical lines share."""

    line: BatchLine
    key: bytes


class Desk(Protocol):
    """Where lines come from and answers go to."""

    def key_of(self, line: BatchLine) -> bytes:
        """Return what a line shares with those that ask the same."""
        ...

    def is_done(self, number: int, key: bytes) -> bool:
        """Whether a line has its result already."""
        ...

    async def answer(self, kept: KeptLine, result: JobResult, status: JobStatus) -> bool:
        """Take what became of a line; False where it is not the end: another way may help."""
        ...


class ViaOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What the jobs of a run are to keep to; instants are wall-clock seconds.

    `safe_s` is the last moment at which lines can still be sent in parallel and be in time, None
    without a deadline. `most_lines` go into jobs at all, None for as many as there are: what is
    submitted will be paid. `once`: identical lines are asked once. `keep_s` is how long results are
    kept.
    """

    job_lines: int = JOB_LINES
    job_bytes: int = JOB_BYTES
    most_jobs: int = MOST_JOBS
    most_lines: int | None = None
    once: bool = True
    keep_s: float | None = None
    safe_s: float | None = None
    late: str = "the deadline is near"  # why jobs are cancelled at `safe_s`


class ViaSummary(msgspec.Struct, kw_only=True):
    """What came of the jobs of a run.

    `back` are lines that go another way; `doubles` were answered twice, the second time for money.
    """

    jobs: int = 0
    answered: int = 0
    back: int = 0
    doubles: int = 0
    dropped: list[str] = []  # reasons, in the order in which jobs were given up
    took_s: list[float] = []  # of jobs that came to their end by themselves
    stopped: str = ""


class _Filled(NamedTuple):
    """The lines of a job that is about to be made, with their bodies in the provider's words."""

    rows: list[tuple[KeptLine, bytes]]
    endpoint: str


class _Live:
    """A job that the provider has, and when it is to be asked about."""

    def __init__(self, facts: JobFacts, made_s: float) -> None:
        self.facts = facts
        self.made_s = made_s
        self.pause_s = FIRST_POLL_S
        self.due_s = 0.0
        self.missed = 0
        self.cancelled = False


class ViaAround(NamedTuple):
    """What the jobs of a run need of the world; `told` gets sentences for the user."""

    clock: Clock = SYSTEM
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    told: Callable[[str], None] = lambda _: None


class ProviderJobs:
    """Runs lines through one target's batch API."""

    def __init__(
        self,
        api: JobApi,
        words: BatchWords,
        log: JobLog,
        desk: Desk,
        order: ViaOrder,
        around: ViaAround | None = None,
    ) -> None:
        around = around or ViaAround()
        self._api = api
        self._words = words
        self._log = log
        self._desk = desk
        self._order = order
        self._clock, self._sleep, self._told = around
        self._ids = Ids(around.clock)
        self._key = fingerprint(words.target.api_key)
        self._live: list[_Live] = []
        self._lines: dict[int, KeptLine] = {}  # of live jobs, without bodies
        self._known: set[bytes] = set()  # keys of lines in jobs: identical lines are asked once
        self._held: BatchLine | None = None
        self._refilled: _Filled | None = None  # a job that was refused, to be submitted later
        self._refusals = 0  # in a row
        self._wait_s = 0.0  # until which nothing is submitted
        self._closed = ""  # why nothing more is submitted at all
        self._filled = 0  # lines that went into jobs
        self.summary = ViaSummary()

    async def run(self, read: Callable[[], Iterator[BatchLine]]) -> ViaSummary:
        """Bring all open lines through jobs; what is open after it must go another way.

        `read` reads the lines from the beginning, as often as it is called.
        """
        claimed = await self._resume()
        if claimed:
            for line in read():  # results need the ids of their lines
                if line.number in claimed:
                    self._keep(line)
        lines = (line for line in read() if line.number not in claimed)
        exhausted = False
        while True:
            while not exhausted and self._may_submit():
                exhausted = not await self._submit_next(lines)
            if not self._live and (exhausted or self._closed):
                break
            if self._past_safe():
                await self._give_up()
                break
            await self._watch()
        if self._refilled is not None:
            self.summary.back += len(self._refilled.rows)
        self.summary.stopped = self._closed
        return self.summary

    # A second start

    async def _resume(self) -> set[int]:
        """Take up the jobs of earlier processes; return the numbers of the lines in them."""
        claimed: set[int] = set()
        for facts in self._log.live:
            planned = facts.planned
            if facts.submitting is None:
                self._drop(facts, "it was never submitted")
                continue
            if planned.key != self._key or planned.target != self._words.target.name:
                raise UsageError(
                    f"A batch job of this run is at {planned.target}, under another key"
                    f" ({planned.key or 'none'}, and not {self._key or 'none'}).",
                    hint="Set that key, or give the job up with --via parallel.",
                )
            if not facts.ids:
                await self._look_for(facts)
            if facts.live:
                self._live.append(_Live(facts, facts.submitting.wall_s))
                claimed.update(planned.numbers)
        if self._live:
            self._told(f"{len(self._live)} batch jobs of an earlier start are taken up again.")
        return claimed

    async def _look_for(self, facts: JobFacts) -> None:
        """Find a job whose submission was answered by silence, or learn that there is none."""
        if facts.submitting is None:
            return
        found: list[JobStatus] = []
        for pause_s in FIND_PAUSES_S:
            await self._sleep(pause_s)
            found = await self._api.find(_asked(facts))
            others = [one for one in self._log.jobs.values() if one is not facts]
            known = {name for one in others for name in one.ids}
            found = [job for job in found if job.id not in known]
            if found:
                break
        if found:
            ids, asked = tuple(job.id for job in found), _asked(facts)
            sure = all(job.tag == asked.tag or job.file == asked.file != "" for job in found)
            self._log.write(SubmittedJob(facts.planned.tag, ids, sure=sure))
            self._told(f"The batch job {' or '.join(ids)} was found again.")
        else:
            self._drop(facts, "its submission was lost, and no job was made")

    # Submitting

    def _may_submit(self) -> bool:
        if self._closed or len(self._live) >= self._order.most_jobs or self._past_safe():
            return False
        return self._now_s() >= self._wait_s

    async def _submit_next(self, lines: Iterator[BatchLine]) -> bool:
        """Fill and submit one job; False where there are no more lines."""
        filled, self._refilled, more = self._refilled, None, True
        if filled is None:
            filled, more = self._fill(lines)
        if not filled.rows:
            return more
        tag = f"lg-{self._ids.new()}"
        numbers = tuple(kept.line.number for kept, _ in filled.rows)
        target = self._words.target.name
        self._log.write(PlannedJob(tag, target, filled.endpoint, self._key, numbers))
        facts = self._log.jobs[tag]
        rows = [JobLine(_line_id(tag, place), body) for place, (_, body) in enumerate(filled.rows)]
        for kept, _ in filled.rows:
            self._lines[kept.line.number] = kept
        await self._submit(facts, rows)
        if facts.live:
            self._refusals = 0
            return more
        if not self._closed:
            self._refilled = filled
            return True
        self._release(facts)
        return more

    def _fill(self, lines: Iterator[BatchLine]) -> tuple[_Filled, bool]:
        """The lines of the next job, all for one endpoint, and whether the file has more."""
        rows: list[tuple[KeptLine, bytes]] = []
        endpoint, size, most = "", 0, self._order.job_lines
        if self._order.most_lines is not None:
            most = min(most, self._order.most_lines - self._filled)
            if most <= 0:
                self._closed = "no more may be spent"
        while len(rows) < most and size < self._order.job_bytes:
            line = self._held or next(lines, None)
            self._held = None
            if line is None:
                return _Filled(rows, endpoint), False
            key = self._desk.key_of(line)
            twin = self._order.once and key in self._known
            if twin or self._desk.is_done(line.number, key):
                continue
            try:
                written = self._words.write(line)
            except LightgateError:  # the engine says what is wrong with it, line by line
                self.summary.back += 1
                continue
            if endpoint and written.endpoint != endpoint:
                self._held = line
                break
            endpoint = written.endpoint
            size += len(written.body)
            self._known.add(key)
            slim = msgspec.structs.replace(line, body=b"")
            rows.append((KeptLine(slim, key), written.body))
            self._filled += 1
        return _Filled(rows, endpoint), True

    async def _submit(self, facts: JobFacts, rows: list[JobLine]) -> None:
        """Submit a job; after silence it is looked for before anything else is done."""
        planned = facts.planned
        asked = JobAsked(planned.tag, planned.endpoint, len(rows), since_s=self._now_s())
        try:
            file = await self._api.upload(asked, rows)
        except AttemptError as error:
            self._refused(facts, error)
            return
        self._log.write(SubmittingJob(planned.tag, file, asked.since_s))
        try:
            status = await self._api.submit(asked._replace(file=file), rows)
        except AttemptError as error:
            if surely_not_made(error):
                self._refused(facts, error)
                return
            self._told(f"A submission was not answered: {error.message}")
            try:
                await self._look_for(facts)
            except AttemptError as again:
                # Whether the job was made is not known: it stays in the record, and a later look,
                # here or after another start, will tell.
                self._told(f"The job cannot be looked for: {again.message}")
        else:
            self._log.write(SubmittedJob(planned.tag, (status.id,)))
        if facts.live:
            self._live.append(_Live(facts, asked.since_s))
            self.summary.jobs += 1

    def _refused(self, facts: JobFacts, error: AttemptError) -> None:
        """Give up a job that was not made; a wait may help the next one, or nothing will."""
        self._drop(facts, error.message)
        wait_s = error.retry_after_s if isinstance(error, HttpRefused) else None
        final = isinstance(error, HttpRefused) and error.code < 500 and error.code not in _AGAIN
        self._refusals += 1
        if final or (not self._live and self._refusals >= MOST_REFUSALS):
            self._closed = error.message
        else:
            self._wait_s = self._now_s() + (wait_s or REFUSED_S)

    # Watching

    async def _watch(self) -> None:
        """Wait until the next job is due, then ask about all that are."""
        now_s = self._now_s()
        due_s = min((one.due_s for one in self._live), default=self._wait_s)
        if self._wait_s > now_s:
            due_s = min(due_s, self._wait_s)
        if self._order.safe_s is not None:
            due_s = min(due_s, self._order.safe_s)
        if due_s > now_s:
            await self._sleep(due_s - now_s)
        for one in [one for one in self._live if one.due_s <= self._now_s()]:
            await self._poll(one)

    async def _poll(self, one: _Live) -> None:
        """Ask about one job, or about all that may be it; collect what is over."""
        one.due_s = self._now_s() + one.pause_s
        one.pause_s = min(one.pause_s * POLL_GROWTH, LONGEST_POLL_S)
        name = ""
        try:
            if not one.facts.ids:
                await self._look_for(one.facts)
                if not one.facts.ids:
                    self.summary.back += len(one.facts.planned.numbers)
                    self._forget(one)
            for name in one.facts.ids:
                status = await self._api.poll(name)
                one.missed = 0
                if status.state.over and await self._collect(one, status):
                    break
        except AttemptError as error:
            self._troubled(one, name, error)

    def _troubled(self, one: _Live, name: str, error: AttemptError) -> None:
        """Count an answer that says that there is no such job; any other trouble passes."""
        if not isinstance(error, HttpRefused) or error.code not in {404, 410}:
            return
        one.missed += 1
        if one.missed >= MISSED:
            self._strike(one, name, f"the provider no longer has it: {error.message}")

    async def _collect(self, one: _Live, status: JobStatus) -> bool:
        """Take the results of a job that is over, each of them once; False: it is not this job."""
        tag = one.facts.planned.tag
        now_s = self._now_s()
        if one.facts.over is None:
            until_s = None if self._order.keep_s is None else now_s + self._order.keep_s
            self._log.write(OverJob(tag, status.id, status.state.value, now_s, until_s))
            if not one.cancelled:
                self.summary.took_s.append(now_s - one.made_s)
        numbers = one.facts.planned.numbers
        if not status.results and len(one.facts.ids) > 1:
            self._strike(one, status.id, "it has no results")
            return False
        answered = before = doubles = 0
        async with aclosing(self._api.results(status)) as results:
            async for result in results:
                number = _number_of(result.id, tag, numbers)
                if number is None:
                    self._strike(one, status.id, "its lines are not ours")
                    return False
                kept = self._lines.get(number)
                if kept is None or self._desk.is_done(number, kept.key):
                    # Taken from this job before, when reading it broke off; or, where the job had
                    # been left, answered another way meanwhile, and so twice.
                    before += 1
                    doubles += one.facts.left and result.end == "answer"
                elif await self._taken(kept, result, status):
                    answered += 1
        self._log.write(CollectedJob(tag, answered, doubles))
        self.summary.answered += answered
        self.summary.doubles += doubles
        self.summary.back += len(numbers) - answered - before
        if status.state is JobState.FAILED:
            reason = status.error or "the provider says no reason"
            self.summary.dropped.append(reason)
            self._told(f"The batch job {status.id} failed: {reason}")
        self._forget(one)
        return True

    async def _taken(self, kept: KeptLine, result: JobResult, status: JobStatus) -> bool:
        """Hand over the end of a line, unless another way may do better."""
        if result.end in {"expired", "cancelled"}:
            return False
        if result.end == "error" and (result.status >= 500 or result.status in _AGAIN | {0}):
            return False
        return await self._desk.answer(kept, result, status)

    def _strike(self, one: _Live, name: str, reason: str) -> None:
        """Leave out a job that is not the one that was submitted; without another give up."""
        facts = one.facts
        left = tuple(other for other in facts.ids if other != name)
        if left:
            facts.over = None
            self._log.write(SubmittedJob(facts.planned.tag, left, sure=facts.sure))
            return
        self._drop(facts, reason)
        self.summary.back += len(facts.planned.numbers)
        self._forget(one)

    # The last safe moment

    def _past_safe(self) -> bool:
        return self._order.safe_s is not None and self._now_s() >= self._order.safe_s

    async def _give_up(self) -> None:
        """Cancel all jobs, take what they have, and leave the rest open.

        A job that does not end at once stays in the record; a later start counts what it did.
        """
        self._told(f"{len(self._live)} batch jobs are cancelled: {self._order.late}.")
        self._closed = self._order.late
        for one in self._live:
            one.cancelled = True
            try:
                if one.facts.ids and one.facts.sure:
                    await self._api.cancel(one.facts.ids[0])
            except AttemptError as error:
                self._told(f"A batch job cannot be cancelled: {error.message}")
        until_s = self._now_s() + GRACE_S
        pause_s = 1.0
        while self._live and self._now_s() < until_s:
            for one in list(self._live):
                await self._poll(one)
            if self._live:
                await self._sleep(pause_s)
                pause_s *= POLL_GROWTH
        for one in list(self._live):
            self._log.write(LeftJob(one.facts.planned.tag))
            self.summary.back += len(one.facts.planned.numbers)
            self._live.remove(one)

    # Small parts

    def _drop(self, facts: JobFacts, reason: str) -> None:
        self._log.write(DroppedJob(facts.planned.tag, reason))
        self.summary.dropped.append(reason)

    def _release(self, facts: JobFacts) -> None:
        """Let the lines of a job that was not made go another way."""
        self.summary.back += len(facts.planned.numbers)
        for number in facts.planned.numbers:
            kept = self._lines.pop(number, None)
            if kept is not None:
                self._known.discard(kept.key)

    def _forget(self, one: _Live) -> None:
        if one in self._live:
            self._live.remove(one)
            for number in one.facts.planned.numbers:
                self._lines.pop(number, None)

    def _keep(self, line: BatchLine) -> None:
        key = self._desk.key_of(line)
        self._known.add(key)
        self._lines[line.number] = KeptLine(msgspec.structs.replace(line, body=b""), key)

    def _now_s(self) -> float:
        return self._clock.wall_ns() / NS


def _asked(facts: JobFacts) -> JobAsked:
    planned, submitting = facts.planned, facts.submitting
    if submitting is None:
        raise ValueError("a job that was never submitted")
    return JobAsked(
        planned.tag, planned.endpoint, len(planned.numbers), submitting.file, submitting.wall_s
    )


def _line_id(tag: str, place: int) -> str:
    """The id of a line at the provider: every API takes these characters, and at most 64."""
    return f"{tag}-{place}"


def _number_of(name: str, tag: str, numbers: tuple[int, ...]) -> int | None:
    """The number of the line behind an id; None where the id is not one of this job."""
    head, _, place = name.rpartition("-")
    if head != tag or not place.isdecimal() or int(place) >= len(numbers):
        return None
    return numbers[int(place)]
