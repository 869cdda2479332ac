"""Periodic benchmarks: the file of schedules, the scheduler, its history and its alerts.

The schedules are one JSON file in the data folder, changed under a lock. A due schedule is claimed
by moving its next time before it runs, so two processes never run it twice. Times are wall clock,
RFC 3339 in UTC. An alert holds measured numbers and names, never a key or a prompt.
"""

from __future__ import annotations

import asyncio
import fcntl
import ipaddress
import os
import re
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec
import numpy as np

from lightgate import __version__
from lightgate.bench.statistics.drift import TOLERANCE, Drift, drift
from lightgate.clock.attempt import wall_time
from lightgate.clock.quantile import quantile, smallest_n
from lightgate.clock.source import SYSTEM, Clock
from lightgate.config.notation import parse_duration
from lightgate.errors import ConfigError, HttpRefused, LightgateError, UsageError
from lightgate.ledger.runs.folder import RUN, DiskFailed, RunFolder
from lightgate.ledger.runs.history import HISTORY, History
from lightgate.whole_file import put
from lightgate.wire.client.fetch import fetch
from lightgate.wire.client.roundtrip import Deadlines
from lightgate.wire.origin import split_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

    from lightgate.ledger.runs.run import Run
    from lightgate.wire.client.client import Client

VERSION: Final = 1
FILE: Final = "schedules.json"
RUNS: Final = "runs"
WATCHED: Final = ("ttft_ms", "speed_tps", "e2e_ms")
SHORTEST_NS: Final = 60 * 1_000_000_000
DEADLINES: Final = Deadlines(connect_s=5.0, first_byte_s=10.0, idle_s=10.0, total_s=15.0)
_LONGEST_WAIT_S: Final = 60.0  # then the file is read again: it may have changed
_HEADERS: Final = (
    ("user-agent", f"lightgate/{__version__}"),
    ("content-type", "application/json"),
)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """One periodic benchmark; `arguments` are those of `lightgate bench`."""

    name: str
    every: str
    arguments: tuple[str, ...]
    jitter: str = ""  # at most so long after each due time, by chance
    webhook: str = ""
    tolerance: float = TOLERANCE
    due: str
    last_started: str | None = None
    last_run: str | None = None  # the folder
    last_result: str = ""


class ScheduleFile(msgspec.Struct, frozen=True, kw_only=True):
    """All schedules, as they are on disk."""

    version: int = VERSION
    schedules: tuple[Schedule, ...] = ()


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert: a drift of one metric of one cell, or a run that failed."""

    schedule: str
    kind: str  # drift | failed
    sentence: str
    at: str
    run_id: str | None = None
    target: str | None = None
    load: str | None = None
    metric: str | None = None
    drift: Drift | None = None
    exit_code: int | None = None


class Runner(Protocol):
    """Runs `lightgate bench ARGUMENTS --out FOLDER`; its exit code."""

    def __call__(self, arguments: Sequence[str], folder: Path) -> Awaitable[int]:
        """Begin one run."""
        ...


class SchedulerEffects(NamedTuple):
    """Effects of a scheduler on the world, as functions: run, post, speak, wait, draw."""

    run: Runner
    post: Callable[[str, bytes], Awaitable[None]]
    say: Callable[[str], None]
    chance: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    clock: Clock = SYSTEM


class Schedules:
    """The file of schedules in a data folder."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self._path = data / FILE

    def all(self) -> tuple[Schedule, ...]:
        """Every schedule, in the order of adding."""
        return self._book().schedules

    def add(self, schedule: Schedule) -> None:
        """Add a schedule; its name must be new."""
        with self._changing() as book:
            if any(known.name == schedule.name for known in book):
                raise UsageError(
                    f"There is a schedule {schedule.name!r} already.",
                    hint=f"lightgate schedule remove {schedule.name}",
                )
            book.append(schedule)

    def remove(self, name: str) -> None:
        """Remove a schedule; what it measured stays in the history."""
        with self._changing() as book:
            kept = [schedule for schedule in book if schedule.name != name]
            if len(kept) == len(book):
                names = ", ".join(schedule.name for schedule in book)
                raise UsageError(
                    f"There is no schedule {name!r}.",
                    hint=f"There are: {names}."
                    if names
                    else "There is none at all; `lightgate schedule add` makes one.",
                )
            book[:] = kept

    def claim(self, now_ns: int, chance: Callable[[], float]) -> list[Schedule]:
        """Claim the schedules that are due: move their next time."""
        with self._changing() as book:
            due = [schedule for schedule in book if unix_ns(schedule.due) <= now_ns]
            for at, schedule in enumerate(book):
                if schedule in due:
                    book[at] = msgspec.structs.replace(
                        schedule,
                        due=wall_time(next_due(schedule, now_ns, chance)),
                        last_started=wall_time(now_ns),
                    )
        return due

    def settle(self, name: str, folder: Path, result: str) -> None:
        """Keep how the last run of a schedule ended; it may have been removed meanwhile."""
        with self._changing() as book:
            for at, schedule in enumerate(book):
                if schedule.name == name:
                    book[at] = msgspec.structs.replace(
                        schedule, last_run=str(folder), last_result=result
                    )

    def _book(self) -> ScheduleFile:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return ScheduleFile()
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be read: {error.strerror}.") from None
        try:
            book = msgspec.json.decode(data, type=ScheduleFile)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{self._path} holds no schedules: {error}.") from None
        if book.version > VERSION:
            raise ConfigError(f"{self._path} was written by a newer Lightgate.")
        return book

    @contextmanager
    def _changing(self) -> Iterator[list[Schedule]]:
        """Read the file, let its schedules be changed, and replace it, all under one lock."""
        try:
            self.data.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.data / f"{FILE}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DiskFailed(f"{self.data} cannot be written: {error.strerror}.") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            book = list(self._book().schedules)
            yield book
            self._replace(ScheduleFile(schedules=tuple(book)))
        finally:
            os.close(lock)

    def _replace(self, book: ScheduleFile) -> None:
        try:
            # A webhook's path is often its secret: the file is its owner's alone.
            put(self._path, msgspec.json.format(msgspec.json.encode(book)) + b"\n")
        except OSError as error:
            raise DiskFailed(f"{self._path} cannot be written: {error.strerror}.") from None


def new_schedule(
    name: str,
    arguments: Sequence[str],
    *,
    every: str,
    now_ns: int,
    jitter: str = "",
    webhook: str = "",
) -> Schedule:
    """Check what was asked for; it is due at once."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name a schedule.", hint="Use letters, digits, '-', '_' and '.'."
        )
    if not arguments or not any(not word.startswith("-") for word in arguments):
        raise UsageError(
            "A schedule needs the arguments of a benchmark.",
            hint=f"lightgate schedule add {name} --every 6h -- groq/llama-3.3-70b-versatile",
        )
    if "--out" in arguments or any(word.startswith("--out=") for word in arguments):
        raise UsageError("A schedule chooses --out itself.", hint="Leave --out away.")
    period = _duration("--every", every)
    if period < SHORTEST_NS:
        raise UsageError(f"--every {every} is too often.", hint="A minute is the shortest.")
    if jitter and _duration("--jitter", jitter) >= period:
        raise UsageError(f"--jitter {jitter} is not shorter than --every {every}.")
    if webhook:
        check_webhook(webhook)
    return Schedule(
        name=name,
        every=every,
        arguments=tuple(arguments),
        jitter=jitter,
        webhook=webhook,
        due=wall_time(now_ns),
    )


def next_due(schedule: Schedule, now_ns: int, chance: Callable[[], float]) -> int:
    """The next time: a period after the last one, and a chance part of the jitter.

    Periods that were slept through are not caught up with.
    """
    period = parse_duration(schedule.every)
    planned = unix_ns(schedule.due)
    missed = max(0, now_ns - planned) // period
    base = planned + (missed + 1) * period
    jitter = parse_duration(schedule.jitter) if schedule.jitter else 0
    return base + round(chance() * jitter)


class Scheduler:
    """Runs due schedules, keeps their history, and sends alerts of drift."""

    def __init__(self, data: Path, outside: SchedulerEffects) -> None:
        self._schedules = Schedules(data)
        self._data = data
        self._outside = outside

    async def once(self) -> list[Alert]:
        """Run what is due now, one after the other: two at once would disturb each other."""
        out = self._outside
        alerts: list[Alert] = []
        for schedule in self._schedules.claim(out.clock.wall_ns(), out.chance):
            found = await self._one(schedule)
            alerts += found
            for alert in found:
                out.say(f"ALERT {alert.sentence}")
                await self._tell(schedule, alert)
        return alerts

    async def forever(self, on_alert: Callable[[Alert], None]) -> None:
        """Run what becomes due, until cancelled."""
        while True:
            for alert in await self.once():
                on_alert(alert)
            await self._outside.sleep(self._wait_s())

    def _wait_s(self) -> float:
        now = self._outside.clock.wall_ns()
        waits = [(unix_ns(s.due) - now) / 1e9 for s in self._schedules.all()]
        return min(_LONGEST_WAIT_S, max(0.0, min(waits, default=_LONGEST_WAIT_S)))

    async def _one(self, schedule: Schedule) -> list[Alert]:
        out = self._outside
        stamp = wall_time(out.clock.wall_ns())
        folder = self._data / RUNS / f"{schedule.name}-{re.sub(r'[^0-9]', '', stamp)[:17]}"
        out.say(f"{schedule.name}: running into {folder}")
        code = await out.run(schedule.arguments, folder)
        alerts = []
        if code != 0:
            said = f"{schedule.name}: the benchmark ended with exit code {code}."
            alerts.append(
                Alert(
                    schedule=schedule.name, kind="failed", sentence=said, at=stamp, exit_code=code
                )
            )
        if (folder / RUN).exists():
            alerts += self._keep(schedule, folder, stamp)
        result = "; ".join(alert.sentence for alert in alerts) or "steady"
        self._schedules.settle(schedule.name, folder, result)
        out.say(f"{schedule.name}: {'done' if not alerts else f'{len(alerts)} alerts'}")
        return alerts

    def _keep(self, schedule: Schedule, folder: Path, stamp: str) -> list[Alert]:
        """Put the run into the history and look for drift."""
        files = RunFolder(folder)
        run = files.run()
        with History(self._data / HISTORY) as history:
            history.append(run, files.attempts(), files.recordings(), schedule=schedule.name)
            return list(_drifts(schedule, run, history, stamp))

    async def _tell(self, schedule: Schedule, alert: Alert) -> None:
        """Post an alert; a failure of that is told, and is no failure of the benchmark."""
        if not schedule.webhook:
            return
        try:
            await self._outside.post(schedule.webhook, msgspec.json.encode(alert))
        except LightgateError as error:
            self._outside.say(f"{schedule.name}: the webhook was not reached: {error.message}")


class _MedianSeries(NamedTuple):
    """The medians of one metric of one cell, run by run; the newest run is the last."""

    target: str
    load: str
    metric: str
    medians: list[float]

    def judged(self, tolerance: float, looks: int, *, before: int = 0) -> Drift:
        """Judge the newest run, or the one `before` it; the same dice every time."""
        taken = self.medians[: len(self.medians) - before]
        times = [1.0 / m for m in taken] if self.metric.endswith("_tps") else taken
        return drift(times, rng=np.random.default_rng(1), tolerance=tolerance, looks=looks)


def _series(schedule: Schedule, run: Run, history: History) -> Iterator[_MedianSeries]:
    enough = smallest_n(0.5)
    for target, load in history.cells(run.id):
        for metric in WATCHED:
            found = history.samples(metric, target=target, load=load, schedule=schedule.name)
            kept = [(run_id, values) for run_id, values in found if len(values) >= enough]
            medians = [quantile(values, 0.5) or 0.0 for _, values in kept]
            if kept and kept[-1][0] == run.id and min(medians) > 0.0:
                yield _MedianSeries(target, load, metric, medians)


def _drifts(schedule: Schedule, run: Run, history: History, stamp: str) -> Iterator[Alert]:
    series = list(_series(schedule, run, history))
    for row in series:
        found = row.judged(schedule.tolerance, len(series))
        if not found.alarming or _is_known(row, found, schedule.tolerance, len(series)):
            continue
        where = f"{row.target} {row.load}".strip()
        said = _words(found, row.medians[-1])
        yield Alert(
            schedule=schedule.name,
            kind="drift",
            sentence=f"{schedule.name}: {where}: {row.metric} {said}",
            at=stamp,
            run_id=run.id,
            target=row.target,
            load=row.load,
            metric=row.metric,
            drift=found,
        )


def _is_known(row: _MedianSeries, found: Drift, tolerance: float, looks: int) -> bool:
    """Whether a creep was told of already: it stays in the window for many runs."""
    if not found.call.startswith("creeping"):
        return False
    return row.judged(tolerance, looks, before=1).alarming


def _words(found: Drift, median: float) -> str:
    """The newest median, and how it compares in time taken."""
    change = found.creep
    if found.call.startswith("creeping") and change is not None:
        return (
            f"is {found.call}: median {median:.4g}, the last {change.since} runs took"
            f" {change.ratio:.2f} times as long as those before"
        )
    ratio, interval = found.ratio or 1.0, found.interval
    ends = "" if interval is None else f" ({interval.low:.2f} to {interval.high:.2f})"
    return (
        f"is {found.call}: median {median:.4g}, {ratio:.2f} times as long{ends}"
        f" as in the {found.runs} runs before"
    )


def check_webhook(url: str) -> None:
    """Refuse what would carry an alert in plain text beyond this machine."""
    origin, _ = split_url(url)
    if not origin.secure and not _is_loopback(origin.host):
        raise UsageError(
            f"The webhook at {origin} is not https.",
            hint="Plain http is for 127.0.0.1 and localhost alone.",
        )


def shown(url: str) -> str:
    """Show a webhook without its path, which may be a secret."""
    return str(split_url(url)[0]) if url else ""


async def post(client: Client, url: str, body: bytes) -> None:
    """POST JSON; anything but a 2xx is an error. No redirect is followed."""
    check_webhook(url)
    origin, path = split_url(url)
    answer = await fetch(client, origin, path or "/", _HEADERS, DEADLINES, body)
    if not 200 <= answer.status < 300:
        raise HttpRefused(f"{origin} answered {answer.status}.", code=answer.status)


def unix_ns(text: str) -> int:
    """Nanoseconds since the epoch of RFC 3339 text."""
    return round(datetime.fromisoformat(text).timestamp() * 1_000_000) * 1_000


def _duration(option: str, text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as reason:
        raise UsageError(f"{option} {text!r} is wrong: {reason}.") from None


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
