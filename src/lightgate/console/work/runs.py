"""Benchmark runs of the data folder: their list, one with its cells and verdicts, two compared."""

from __future__ import annotations

import contextlib
import re
import shlex
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from lightgate.bench.run.schedule import RUNS, Schedules, shown
from lightgate.console.api.figures import Figure
from lightgate.console.work.run_note import RunNote, read_note
from lightgate.errors import LightgateError, UsageError
from lightgate.gateway.served.example import example_name
from lightgate.ledger.runs.folder import ATTEMPTS, RUN, RunFolder
from lightgate.report.tables.arrange import loads, targets

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lightgate.bench.run.schedule import Schedule
    from lightgate.console.work.own_gateway import OwnGateway
    from lightgate.ledger.runs.run import CellSummary, Estimate, Run

MOST_SHOWN: Final = 200  # runs of a list, the newest
MOST_COMPARED: Final = 64 * 1024 * 1024  # bytes of a run's attempts that a page may ask for
SEED: Final = 1  # of the resampling, as `lightgate compare` has it
RunState = Literal["running", "finished", "interrupted", "failed"]
_STAMP: Final = re.compile(r"-[0-9]{17}$")
_SAFE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


class RunUnknown(LightgateError):  # noqa: N818 - names the event
    """There is no such run in the data folder."""

    label = "unknown"


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the list; figures are of the lightest load, of the target with the least TTFT.

    `requests` counts what ended, `total` what was asked for where that is known.
    """

    id: str
    started: str | None
    finished: str | None
    state: RunState
    source: str  # console, a schedule's name, or bench
    targets: tuple[str, ...]
    loads: tuple[str, ...]
    requests: int
    total: int | None
    failed: int
    best: str | None
    ttft_p50: Figure
    ttft_p95: Figure
    speed_p50: Figure
    verdicts: tuple[str, ...]
    problem: str


class RunList(msgspec.Struct, frozen=True, kw_only=True):
    """The newest runs first; `more` says that there are older ones."""

    rows: list[RunRow]
    more: bool
    try_line: str


class RunCell(msgspec.Struct, frozen=True, kw_only=True):
    """One target under one load; `region` is where the load came from, empty: all of it."""

    region: str
    target: str
    load: str
    concurrency: int | None
    rate: float | None
    requests: int
    failed: int
    ttft_p50: Figure
    ttft_p95: Figure
    speed_p50: Figure
    speed_p05: Figure
    e2e_p95: Figure
    throughput_tps: float | None
    retain: float | None
    goodput: float | None
    cost_1k: str | None
    steady: bool | None
    note: str


class RunVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Why a target behaves as it does under load, with the numbers that say so."""

    target: str
    name: str
    sentence: str
    evidence: tuple[str, ...]


class OneRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run with everything that its page shows; `line` is the command that made it.

    `regions` has the cells once more for each region, where the load came from several.
    """

    row: RunRow
    cells: list[RunCell]
    regions: list[RunCell]
    verdicts: list[RunVerdict]
    answers: list[str]
    notes: list[str]
    health: list[str]
    setting: dict[str, str]
    line: str


class RunChange(msgspec.Struct, frozen=True, kw_only=True):
    """One figure in two runs; `worse` is a ratio above 1, of shares a difference above 0."""

    target: str
    load: str
    figure: str
    n_old: int
    n_new: int
    old: float | None
    new: float | None
    worse: float | None
    low: float | None
    high: float | None
    in_points: bool
    verdict: str


class RunComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs against each other, and what weakens that."""

    old: str
    new: str
    changes: list[RunChange]
    differs: list[str]
    warnings: list[str]


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A periodic benchmark; `last_run` is the id of its last run, where it is in the list."""

    name: str
    every: str
    due: str
    last_started: str | None
    last_result: str
    last_run: str | None
    webhook: str
    line: str


class ScheduleList(msgspec.Struct, frozen=True, kw_only=True):
    """All schedules."""

    rows: list[ScheduleRow]
    try_line: str


class _Seen(NamedTuple):
    """A run's folder with what stands in it."""

    path: Path
    run: Run | None
    note: RunNote | None
    problem: str = ""


def run_list(own: OwnGateway) -> RunList:
    """List the runs of a gateway's data folder."""
    data = own.data.absolute()  # for who copies the command elsewhere
    folders = sorted(_folders(data), key=_when, reverse=True)
    rows = [_row(_seen(path)) for path in folders[:MOST_SHOWN]]
    return RunList(
        rows=rows,
        more=len(folders) > MOST_SHOWN,
        try_line=shlex.join(
            ["lightgate", "bench", *_example(own), "--out", str(data / RUNS / "a")]
        ),
    )


def one_run(data: Path, id_: str) -> OneRun:
    """One run with its cells, verdicts and what weakens it."""
    seen = _seen(folder_of(data, id_))
    run = seen.run
    if run is None:
        return OneRun(
            row=_row(seen), cells=[], regions=[], verdicts=[], answers=[], notes=_said(seen.note),
            health=[], setting={}, line="" if seen.note is None else seen.note.line,
        )  # fmt: skip
    return OneRun(
        row=_row(seen),
        cells=_cells(run, run.cells),
        regions=[
            cell for part in run.regions for cell in _cells(run, part.cells, region=part.region)
        ],
        verdicts=[
            RunVerdict(target=v.target, name=v.name, sentence=v.sentence, evidence=v.evidence)
            for v in run.verdicts
        ],
        answers=[f"{one.question} {one.text}" for one in run.answers],
        notes=[*run.notes, *(_said(seen.note) if run.finished is None else ())],
        health=_health(run),
        setting={**run.options, **run.workload},
        line=seen.note.line if seen.note is not None else _line(run),
    )


def compare(data: Path, old: str, new: str) -> RunComparison:
    """Compare two runs, as `lightgate compare` does."""
    if not old or not new or old == new:
        raise UsageError("Name two runs to compare: a=OLD and b=NEW.")
    import numpy as np

    from lightgate.bench.statistics.regress import IN_POINTS, Side, compare_runs

    sides = []
    for id_ in (old, new):
        path = folder_of(data, id_)
        try:
            size = (path / ATTEMPTS).stat().st_size
        except OSError:
            size = 0
        if size > MOST_COMPARED:
            raise UsageError(f"{id_} is too long for a page: lightgate compare takes any length.")
        folder = RunFolder(path)
        sides.append(Side(folder.run(), folder.attempts(), folder.recordings()))
    found = compare_runs(*sides, rng=np.random.default_rng(SEED))
    return RunComparison(
        old=old,
        new=new,
        changes=[
            RunChange(
                target=one.target,
                load=one.load,
                figure=_figure_name(one.metric, one.q),
                n_old=one.n_old,
                n_new=one.n_new,
                old=one.old,
                new=one.new,
                worse=one.worse,
                low=None if one.interval is None else one.interval.low,
                high=None if one.interval is None else one.interval.high,
                in_points=one.metric in IN_POINTS,
                verdict=one.call,
            )
            for one in found.changes
        ],
        differs=_differs(sides[0].run, sides[1].run),
        warnings=list(found.warnings),
    )


def schedule_list(own: OwnGateway) -> ScheduleList:
    """List the schedules of a gateway's data folder."""
    known = {path.name for path in _folders(own.data)}
    words = [
        "lightgate",
        "schedule",
        "add",
        "nightly",
        "--every",
        "6h",
        "--data",
        str(own.data.absolute()),
    ]
    return ScheduleList(
        rows=[_schedule(one, known) for one in Schedules(own.data).all()],
        try_line=shlex.join([*words, "--", *_example(own)]),
    )


def _example(own: OwnGateway) -> list[str]:
    """The arguments of a benchmark that can be copied: of the gateway, else of a simulation."""
    short = ["--requests", "20", "--concurrency", "1,4"]
    with contextlib.suppress(LightgateError):
        snapshot = own.snapshot()
        name = example_name(snapshot)
        if own.address and name is not None:
            key = ["--key-env", "LIGHTGATE_KEY"] if snapshot.keys else []
            return [f"gateway={own.address}/v1#{name}", *key, *short]
    return ["--world", "tables-2025", *short]


def folder_of(data: Path, id_: str) -> Path:
    """The folder of a run; a name that is no name of a folder is unknown."""
    path = data / RUNS / id_
    if not _SAFE.fullmatch(id_) or not path.is_dir():
        raise RunUnknown(f"There is no run {id_[:128]} in {data / RUNS}.")
    return path


def _folders(data: Path) -> list[Path]:
    try:
        return [path for path in (data / RUNS).iterdir() if _SAFE.fullmatch(path.name)]
    except OSError:
        return []


def _when(path: Path) -> float:
    for name in (ATTEMPTS, RUN, ""):
        try:
            return (path / name).stat().st_mtime
        except OSError:
            continue
    return 0.0


def _seen(path: Path) -> _Seen:
    note = read_note(path)
    try:
        found = (path / RUN).stat()
    except OSError:
        return _Seen(path, None, note)
    try:
        return _Seen(path, _read(path, found.st_mtime_ns, found.st_size), note)
    except LightgateError as error:
        return _Seen(path, None, note, error.message)


@lru_cache(maxsize=MOST_SHOWN)
def _read(path: Path, written_ns: int, size: int) -> Run:
    """A run's record; one that was replaced is read again."""
    del written_ns, size
    return RunFolder(path).run()


def _row(seen: _Seen) -> RunRow:
    run, note = seen.run, seen.note
    best = None if run is None else _best(run)
    shown_cells = [] if run is None else [c for c in run.cells if c.target in targets(run)]
    ended = sum(cell.requests for cell in shown_cells)
    return RunRow(
        id=seen.path.name,
        started=run.started if run is not None else None if note is None else note.started,
        finished=None if run is None else run.finished,
        state=_state(seen),
        source=_source(seen),
        targets=tuple(targets(run)) if run is not None else () if note is None else note.targets,
        loads=tuple(loads(run)) if run is not None else () if note is None else note.loads,
        requests=ended if run is not None else count_lines(seen.path / ATTEMPTS),
        total=None if note is None else note.total,
        failed=sum(_failed(cell) for cell in shown_cells),
        best=None if best is None else best.target,
        ttft_p50=_figure(best, "ttft_ms", 0.5),
        ttft_p95=_figure(best, "ttft_ms", 0.95),
        speed_p50=_figure(best, "speed_tps", 0.5),
        verdicts=() if run is None else tuple(dict.fromkeys(v.name for v in run.verdicts)),
        problem=seen.problem or (note.problem if note is not None and run is None else ""),
    )


def _state(seen: _Seen) -> RunState:
    if seen.note is not None and seen.note.runs:
        return "running"
    if seen.run is not None:
        return "interrupted" if seen.run.finished is None else "finished"
    return "failed" if seen.note is not None or seen.problem else "interrupted"


def _source(seen: _Seen) -> str:
    if seen.note is not None:
        return "console"
    return _STAMP.sub("", seen.path.name) if _STAMP.search(seen.path.name) else "bench"


def _best(run: Run) -> CellSummary | None:
    """The cell of the lightest load whose median first token came soonest."""
    order = loads(run)
    cells = [c for c in run.cells if order and c.load == order[0] and c.target in targets(run)]
    known = [cell for cell in cells if cell.value("ttft_ms", 0.5) is not None]
    return min(known, key=lambda cell: cell.value("ttft_ms", 0.5) or 0.0, default=None)


def _cells(run: Run, found: Iterable[CellSummary], region: str = "") -> list[RunCell]:
    """The cells of the run's own targets, by target and load."""
    order = {load: at for at, load in enumerate(loads(run))}
    names = targets(run)
    cells = [cell for cell in found if cell.target in names]
    cells.sort(key=lambda cell: (names.index(cell.target), order[cell.load]))
    return [_cell(cell, region) for cell in cells]


def _cell(cell: CellSummary, region: str) -> RunCell:
    return RunCell(
        region=region,
        target=cell.target,
        load=cell.load,
        concurrency=cell.concurrency,
        rate=cell.rate,
        requests=cell.requests,
        failed=_failed(cell),
        ttft_p50=_figure(cell, "ttft_ms", 0.5),
        ttft_p95=_figure(cell, "ttft_ms", 0.95),
        speed_p50=_figure(cell, "speed_tps", 0.5),
        speed_p05=_figure(cell, "speed_tps", 0.05),
        e2e_p95=_figure(cell, "e2e_ms", 0.95),
        throughput_tps=cell.throughput_tps,
        retain=cell.retain,
        goodput=cell.goodput,
        cost_1k=None if cell.cost.per_1k is None else format(cell.cost.per_1k, "f"),
        steady=cell.steady,
        note=cell.steady_note,
    )


def _failed(cell: CellSummary) -> int:
    return sum(count for outcome, count in cell.outcomes.items() if outcome != "ok")


def _figure(cell: CellSummary | None, metric: str, q: float) -> Figure:
    found: Estimate | None = None if cell is None else cell.estimate(metric, q)
    if found is None:
        return Figure(None, None, None, 0)
    ends = found.interval
    low, high = (None, None) if ends is None else (ends.low, ends.high)
    return Figure(found.value, low, high, found.n)


def _health(run: Run) -> list[str]:
    said = []
    if (health := run.health) is not None:
        said.append(f"Stamps are the {health.stamp_source}'s, on {health.cores} cores.")
        if health.bound_p99_ms is not None:
            said.append(f"The client saw 99 % of tokens within {health.bound_p99_ms:.2f} ms.")
        if health.clock_steps:
            said.append(f"The clock was set {health.clock_steps} times meanwhile.")
    for one in run.hosts:
        said.append(f"{one.host} in {one.region}: its clock is known to {one.bound_ms:.2f} ms.")
        said.extend(one.doubts())
    return said


def _said(note: RunNote | None) -> list[str]:
    return [] if note is None else list(note.said)


def _line(run: Run) -> str:
    """The command of a run, as far as its record tells it."""
    named = [
        f"--{name.replace('_', '-')} {value}"
        for name, value in run.options.items()
        if name not in {"targets", "shape"} and value not in {"True", "False"}
    ]
    return " ".join(("lightgate bench", *run.options.get("targets", "").split(","), *named))


def _figure_name(metric: str, q: float | None) -> str:
    if q is None:
        return metric
    return f"{metric} {'slow 5 %' if q < 0.5 else f'p{q * 100:g}'}"


def _differs(old: Run, new: Run) -> list[str]:
    """What was not the same in the two settings, in words."""
    said = []
    for name in sorted({*old.options, *new.options} - {"seed", "targets"}):
        before, after = old.options.get(name), new.options.get(name)
        if before != after:
            said.append(
                f"{name.replace('_', ' ')}: {before or 'not given'}, then {after or 'not given'}"
            )
    return said


def _schedule(one: Schedule, known: set[str]) -> ScheduleRow:
    last = None if one.last_run is None else one.last_run.rstrip("/").rpartition("/")[2]
    return ScheduleRow(
        name=one.name,
        every=one.every,
        due=one.due,
        last_started=one.last_started,
        last_result=one.last_result,
        last_run=last if last in known else None,
        webhook=shown(one.webhook),
        line=f"lightgate bench {' '.join(one.arguments)}",
    )


def count_lines(path: Path) -> int:
    """Lines of a file that are whole; 0 where there is none."""
    try:
        with path.open("rb") as file:
            return sum(piece.count(b"\n") for piece in iter(lambda: file.read(1 << 20), b""))
    except OSError:
        return 0
