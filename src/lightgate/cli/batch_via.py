"""The way of lines in `lightgate batch run --via`: by a provider's batch API, or not."""

from __future__ import annotations

import asyncio
import math
import signal
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.cli.output import note
from lightgate.clock.source import SYSTEM
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lightgate.batch.finish import Via, ViaFacts, Way
    from lightgate.batch.history import PastTimes
    from lightgate.batch.job_log import JobLog
    from lightgate.batch.journal import Checkpoint
    from lightgate.batch.lines import BatchLine, LineRules
    from lightgate.batch.summary import BatchSummary
    from lightgate.batch.via import ProviderJobs, ViaOrder, ViaSummary
    from lightgate.ledger.journal.notes import Settled
    from lightgate.provider.target import Target
    from lightgate.wire.client.client import Client

NS: Final = 1_000_000_000
LOOKED_AT: Final = 200  # lines by which the size of all of them is estimated
USUAL_OUT: Final = 256  # tokens of an answer that no limit is named for
BYTES_PER_TOKEN: Final = 4
SHOWN_S: Final = 60.0  # between two words about jobs under way
SOON_S: Final = 86_400.0  # before results are deleted, that this is said
_CAPS: Final = ("max_completion_tokens", "max_output_tokens", "max_tokens")


class ViaWish(NamedTuple):
    """What the command line says about the way of lines.

    `deadline_ns` is an instant of the machine's clock; `total` are the lines of the file. `data` is
    the folder that keeps what runs took, None where nothing is to be kept.
    """

    via: Via
    file: Path
    out: Path
    data: Path | None
    total: int
    deadline_ns: int | None = None
    max_cost_nano: int | None = None
    anthropic: bool = False
    once: bool = True


class ViaParts(NamedTuple):
    """What jobs work with: the targets, the files of the run, the ledger, the client."""

    targets: tuple[Target, ...]
    files: Checkpoint
    settle: Callable[[Settled], object]
    rules: LineRules
    client: Client


class _Sized(NamedTuple):
    """The lines of a run by those that were looked at: mean tokens in, most tokens out."""

    tokens_in: float
    tokens_out: float
    first: BatchLine | None


class BatchWay:
    """The jobs of a run at a provider, before the engine and after it.

    Jobs of an earlier start are taken up in any case: with `parallel` they are cancelled, and what
    they have done is kept.
    """

    def __init__(self, wish: ViaWish, parts: ViaParts) -> None:
        from lightgate.batch.job_log import SUFFIX

        self._wish = wish
        self._parts = parts
        self._log = wish.out.with_name(wish.out.name + SUFFIX)
        self._before = self._by_jobs = 0

    async def first(self) -> bool:
        """Send the lines that are to go by batch; True where an interrupt ended it."""
        summary = None
        if self._wish.via == "parallel":
            summary = await self._give_up()
        else:
            from lightgate.batch.job_log import JobLog

            with JobLog(self._log) as log:
                summary = await self._by_batch(log)
        self._before = self._done
        if summary is None:
            return False
        self._by_jobs = summary.answered
        return summary.stopped == "interrupted"

    async def last(self, summary: BatchSummary) -> BatchSummary:
        """Look at jobs that were left behind, and write down how fast lines went in parallel."""
        import msgspec

        from lightgate.batch.history import PastTime, PastTimes

        lines = self._done - self._before - summary.copied
        if len(self._parts.targets) == 1 and lines:
            name, now_s = self._parts.targets[0].name, SYSTEM.wall_ns() / NS
            entry = PastTime("parallel", name, lines, summary.seconds, now_s)
            PastTimes(self._wish.data).add([entry])
        late = None if summary.stopped else await self._give_up()
        if late is not None and late.doubles:
            note(f"lightgate: {late.doubles:,} lines were answered by a cancelled job as well.")
        return msgspec.structs.replace(summary, by_batch=self._by_jobs)

    @property
    def _done(self) -> int:
        return self._parts.files.answered + self._parts.files.failed

    def _read(self) -> Iterator[BatchLine]:
        """Read the good lines of the file from the beginning."""
        from lightgate.batch.lines import BatchLine, LineReader

        with self._wish.file.open("rb") as file:
            for line in LineReader(self._parts.rules).lines(file):
                if isinstance(line, BatchLine):
                    yield line

    async def _by_batch(self, log: JobLog) -> ViaSummary | None:
        from lightgate.batch.finish import choose, fallback_s
        from lightgate.batch.history import PastTime, PastTimes
        from lightgate.batch.via import JOB_BYTES, JOB_LINES, ViaOrder

        sized, past = _sized(self._read()), PastTimes(self._wish.data)
        taken_up = {job.planned.target for job in log.live}
        target = _target(self._parts.targets, sized, taken_up)
        offer = target.provider.batch
        facts = self._facts(target, sized, past)
        way = choose(self._wish.via, facts)
        if not taken_up:
            _tell(way, target)
        if offer is None or (way.via == "parallel" and not taken_up):
            return None
        now_s, left_s = SYSTEM.wall_ns() / NS, facts.left_s
        order = ViaOrder(
            job_lines=min(JOB_LINES, offer.lines),
            job_bytes=min(JOB_BYTES, offer.bytes or JOB_BYTES),
            most_lines=0 if way.via == "parallel" else self._affordable(facts.batch_nano),
            once=self._wish.once,
            keep_s=None if offer.keep_h is None else 3600.0 * offer.keep_h,
            safe_s=None if left_s is None else now_s + left_s - fallback_s(facts.parallel_s),
        )
        summary = await self._run(log, target, order)
        name, now_s = target.provider.name, SYSTEM.wall_ns() / NS
        past.add([PastTime("job", name, 0, took_s, now_s) for took_s in summary.took_s])
        return summary

    def _facts(self, target: Target, sized: _Sized, past: PastTimes) -> ViaFacts:
        """What is known for the choice between a target's batch API and all targets in parallel."""
        from lightgate.batch.finish import FinishTimes, ViaFacts, parallel_s
        from lightgate.batch.via import JOB_LINES
        from lightgate.batch.words import BatchWords

        wish, offer = self._wish, target.provider.batch
        lines = max(1, wish.total - self._done)
        times = FinishTimes(
            3600.0 * (24 if offer is None else offer.window_h), past.jobs_s(target.provider.name)
        )
        costs = [_cost_nano(one, sized, lines) for one in self._parts.targets]
        left_ns = None if wish.deadline_ns is None else wish.deadline_ns - SYSTEM.now_ns()
        return ViaFacts(
            missing="" if sized.first is None else BatchWords(target).missing(sized.first),
            batch_nano=_cost_nano(target, sized, lines, batch=True),
            parallel_nano=min((cost for cost in costs if cost is not None), default=None),
            left_s=None if left_ns is None else left_ns / NS,
            finish_s=times.all_done_s(math.ceil(lines / JOB_LINES)),
            parallel_s=parallel_s(lines, past.lines_per_s(target.name)),
        )

    def _affordable(self, batch_nano: int | None) -> int | None:
        """The lines that may go into jobs before --max-cost is reached; None without a limit."""
        if self._wish.max_cost_nano is None:
            return None
        if batch_nano is None:
            return 0  # what a job will cost is not known, and a job that was submitted is paid
        each = max(1.0, batch_nano / max(1, self._wish.total - self._done))
        return max(0, int((self._wish.max_cost_nano - self._parts.files.cost_nano) / each))

    async def _give_up(self) -> ViaSummary | None:
        """Cancel the jobs that are still under way and keep what they have done."""
        if not self._log.exists():
            return None
        from lightgate.batch.job_log import DroppedJob, JobLog
        from lightgate.batch.via import ViaOrder

        with JobLog(self._log) as log:
            live = log.live
            names = {target.name: target for target in self._parts.targets}
            target = names.get(live[0].planned.target) if live else None
            order = ViaOrder(
                most_lines=0, safe_s=SYSTEM.wall_ns() / NS, late="lines go in parallel"
            )
            try:
                if target is not None:
                    return await self._run(log, target, order)
            except UsageError as error:
                note(f"lightgate: {error.message}")
            for job in log.live:
                note(f"lightgate: the batch job {' or '.join(job.ids)} is given up.")
                log.write(DroppedJob(job.planned.tag, "given up"))
            return None

    async def _run(self, log: JobLog, target: Target, order: ViaOrder) -> ViaSummary:
        """Run the jobs; an interrupt leaves them at the provider."""
        from lightgate.batch.job_desk import JobDesk
        from lightgate.batch.via import ProviderJobs, ViaAround
        from lightgate.batch.words import BatchWords
        from lightgate.provider.batch.registry import job_api

        parts, words = self._parts, BatchWords(target)
        desk = JobDesk(parts.files, words, anthropic=self._wish.anthropic, settle=parts.settle)
        around = ViaAround(told=lambda said: note(f"lightgate: {said}"))
        jobs = ProviderJobs(job_api(target, parts.client), words, log, desk, order, around)
        loop = asyncio.get_running_loop()
        work = loop.create_task(jobs.run(self._read))
        shown = loop.create_task(_show(jobs, log))
        with _interrupts(work):
            try:
                return await work
            except asyncio.CancelledError:
                left = len([job for job in log.live if job.ids])
                note(
                    f"lightgate: batch jobs go on at {target.provider.title} ({left}). The same"
                    " command collects them; with --via parallel it cancels them."
                )
                jobs.summary.stopped = "interrupted"
                return jobs.summary
            finally:
                shown.cancel()
                await asyncio.gather(shown, return_exceptions=True)


@contextmanager
def _interrupts(work: asyncio.Task[ViaSummary]) -> Iterator[None]:
    """Let Ctrl-C end the work."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, work.cancel)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def _show(jobs: ProviderJobs, log: JobLog) -> None:
    """Say how the jobs stand, and which results will not be kept much longer."""
    while True:
        await asyncio.sleep(SHOWN_S)
        live = log.live
        note(f"batch jobs under way: {len(live)}, {jobs.summary.answered:,} lines answered")
        now_s = SYSTEM.wall_ns() / NS
        for job in live:
            until_s = None if job.over is None else job.over.until_s
            if until_s is not None and until_s - now_s < SOON_S:
                hours = max(0.0, until_s - now_s) / 3600
                note(f"The results of {job.ids[0]} are not collected, and kept for {hours:.0f} h.")


def _tell(way: Way, target: Target) -> None:
    by = f"by batch at {target.name}" if way.via == "batch" else "in parallel"
    note(f"lightgate: lines go {by}: {way.reason}.")


def _sized(lines: Iterator[BatchLine]) -> _Sized:
    """Look at the first lines: how long they are, and how long their answers may be."""
    import msgspec

    seen = list(islice(lines, LOOKED_AT))
    sizes = [len(line.body) / BYTES_PER_TOKEN for line in seen] or [1.0]
    caps = []
    for line in seen:
        fields = msgspec.json.decode(line.body, type=dict[str, msgspec.Raw])
        cap = msgspec.json.decode(next((fields[n] for n in _CAPS if n in fields), b"null"))
        caps.append(float(cap) if isinstance(cap, int) else float(USUAL_OUT))
    most_out = sum(caps) / len(caps) if caps else float(USUAL_OUT)
    return _Sized(sum(sizes) / len(sizes), most_out, seen[0] if seen else None)


def _target(targets: tuple[Target, ...], sized: _Sized, taken_up: set[str]) -> Target:
    """The target whose batch is cheapest; where jobs are under way, that of those jobs."""
    for target in targets:
        if target.name in taken_up:
            return target
    if taken_up:
        raise UsageError(
            f"Batch jobs of this run are at {', '.join(sorted(taken_up))}, which is not named now.",
            hint="Name that target too; with --via parallel the jobs are given up.",
        )
    offered = [target for target in targets if target.provider.batch is not None]
    priced = [(_cost_nano(target, sized, 1, batch=True), target) for target in offered]
    known = [(cost, target) for cost, target in priced if cost is not None]
    if known:
        return min(known, key=lambda pair: pair[0])[1]
    return (offered or list(targets))[0]


def _cost_nano(target: Target, sized: _Sized, lines: int, *, batch: bool = False) -> int | None:
    """Nano-dollars of so many lines, by their mean sizes; None where no price is known."""
    from lightgate.batch.words import nano
    from lightgate.clock.tokens import Usage

    usage = Usage(
        tokens_in=round(sized.tokens_in * lines), tokens_out=round(sized.tokens_out * lines)
    )
    return nano(target.cost(usage, datetime.now(UTC), batch=batch).cost_usd)
