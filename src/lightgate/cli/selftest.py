"""`lightgate selftest`: the proof of the clock on this machine."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from lightgate.cli.options import json_option
from lightgate.cli.output import Column, emit_json, emit_table, note
from lightgate.errors import ThresholdMissed, UsageError

if TYPE_CHECKING:
    from lightgate.bench.load.drive import Finished
    from lightgate.bench.selftest.plan import SelftestCell
    from lightgate.bench.selftest.result import CellResult, ErrorSpread
    from lightgate.clock.marks import StampSource

STAMPS = {"kernel": ("kernel",), "read": ("read",), "both": ("kernel", "read")}


@click.command("selftest", epilog="Example: lightgate selftest --quick")
@click.option("--quick", is_flag=True, help="Fewer requests: about three minutes instead of six.")
@click.option(
    "--stamps",
    type=click.Choice(sorted(STAMPS)),
    help="Take times from the kernel or at the read; both by default.",
)
@click.option(
    "--concurrency",
    default="1,32,256,1024",
    show_default=True,
    help="Streams at once; one row for each number.",
)
@click.option("--scenario", "only", multiple=True, help="Only this one, e.g. S3; repeatable.")
@click.option("--pin/--no-pin", default=True, help="Keep client and simulator on their own cores.")
@json_option
def command(
    *,
    quick: bool,
    stamps: str | None,
    concurrency: str,
    only: tuple[str, ...],
    pin: bool,
    as_json: bool,
) -> None:
    """Measure our own error against a simulator whose every write is known.

    Errors are against the instants at which the simulator really wrote, in its own log, so its
    own delays are not ours. A cell that misses the error budget is run once more; exit code 6 if
    it misses it again.
    """
    from lightgate.bench.selftest.plan import cells
    from lightgate.bench.selftest.result import BUSY_SHARE

    wanted = _scenarios(only)
    plan = [
        cell
        for cell in cells(stamps=_sources(stamps), concurrency=_numbers(concurrency), quick=quick)
        if not wanted or cell.scenario.name.lower() in wanted
    ]
    if not plan:
        raise UsageError(
            f"No scenario of {', '.join(only)} runs at --concurrency {concurrency}.",
            hint="slow needs more than 256 streams, the others at most that many.",
        )
    results = _run(plan, pin=pin)
    if as_json:
        emit_json({"ok": not any(result.misses for result in results), "cells": results, **_peak()})
    else:
        emit_table(_COLUMNS, [_row(result) for result in results], caption=_CAPTION, names=3)
        note(f"Peak memory of this process: {_peak()['peak_rss_mb']:.0f} MB")
    busy = sum(result.unsure_share > BUSY_SHARE and not result.hog for result in results)
    if busy:
        note(
            f"The machine was busy: in {busy} cells many samples have wide bounds. They were held"
            " to their bounds; medians were judged by the others, and the load was not."
        )
    misses = [
        f"{result.scenario} at {result.concurrency} ({result.stamps}): {miss}"
        for result in results
        for miss in result.misses
    ]
    if misses:
        more = f" (and {len(misses) - 1} more)" if len(misses) > 1 else ""
        raise ThresholdMissed(f"The error budget was missed: {misses[0]}{more}.")
    note(_held(len(results)))


def _held(cells: int) -> str:
    where = "its one cell" if cells == 1 else f"all {cells} cells"
    return f"The clock holds its error budget in {where}."


def _run(plan: list[SelftestCell], *, pin: bool) -> list[CellResult]:
    import uvloop
    from msgspec.structs import replace

    from lightgate.bench.selftest.run import (
        WORLD,
        Lab,
        pin_cores,
        run_cell,
        settle,
        wake_time_ns,
    )
    from lightgate.sim.server.serve import SimOptions
    from lightgate.sim.server.spawn import SimProcess

    progress = _SelftestProgress(plan)

    async def every() -> list[CellResult]:
        results = []
        wake_ns = await wake_time_ns()
        note(f"This machine wakes a sleeping reader in {wake_ns / 1e6:.3f} ms.")
        for cell in plan:
            await settle()
            progress.begin(cell)
            result = await run_cell(cell, lab, progress.tick, wake_ns=wake_ns)
            if result.misses:
                progress.repeat(result)
                await settle()
                again = await run_cell(cell, lab, progress.tick, wake_ns=wake_ns)
                result = replace(again, first_misses=result.misses)
            results.append(result)
            progress.end(result)
        return results

    core = pin_cores() if pin else None
    with SimProcess(SimOptions(world=WORLD, cpu=core)) as sim:
        lab = Lab(sim.facts)
        results: list[CellResult] = uvloop.run(every())
    return results


class _SelftestProgress:
    """One line on stderr that fills up, where a person looks; else one line per cell."""

    def __init__(self, plan: list[SelftestCell]) -> None:
        self._cells = len(plan)
        self._number = 0
        self._done = 0
        self._shown = 0.0
        self._cell: SelftestCell | None = None
        self._live = sys.stderr.isatty()

    def begin(self, cell: SelftestCell) -> None:
        self._cell, self._done = cell, 0
        self._number += 1
        self._show()

    def tick(self, done: Finished) -> None:
        del done
        self._done += 1
        if time.monotonic() - self._shown > 0.5:
            self._show()

    def repeat(self, result: CellResult) -> None:
        self._clear()
        note(f"[{self._number}/{self._cells}] {result.scenario}: once more: {result.misses[0]}")
        self._done = 0

    def _clear(self) -> None:
        if self._live:
            click.echo("\r\x1b[2K", nl=False, err=True)

    def end(self, result: CellResult) -> None:
        ttft = result.ttft_ms
        error = "" if ttft is None else f"ttft error p99 {ttft.p99:.3f} ms"
        verdict = "ok" if not result.misses else "; ".join(result.misses)
        self._clear()
        note(
            f"[{self._number}/{self._cells}] {result.scenario:<13} {result.concurrency:>4} streams"
            f" {result.stamps:<6} {error}  {verdict}"
        )

    def _show(self) -> None:
        if self._live and self._cell is not None:
            self._shown = time.monotonic()
            text = (
                f"\r\x1b[2K[{self._number}/{self._cells}] {self._cell.name}"
                f" {self._cell.concurrency} streams: {self._done} of {self._cell.requests}"
            )
            click.echo(text, nl=False, err=True)


_COLUMNS = (
    Column("scenario"),
    Column("streams", "right"),
    Column("stamps"),
    Column("n", "right"),
    Column("ttft ms p50", "right"),
    Column("p99", "right", joined=True),
    Column("max", "right", joined=True),
    Column("speed % p50", "right"),
    Column("p99", "right", joined=True),
    Column("max", "right", joined=True),
    Column("e2e ms p50", "right"),
    Column("p99", "right", joined=True),
    Column("max", "right", joined=True),
    Column("beyond p99", "right"),
    Column("unsure", "right"),
    Column("send ms p50", "right"),
    Column("offered", "right"),
    Column("CPU ms/1k tok", "right"),
    Column("verdict"),
)
_CAPTION = (
    "Errors against the simulator's own write instants. beyond: how far the truth lies outside the"
    " bounds of the stamps, ms; unsure: samples whose bounds are wider than a millisecond; send:"
    " from t_send to the arrival at the simulator."
)


def _row(result: CellResult) -> tuple[str, ...]:
    return (
        result.scenario,
        str(result.concurrency),
        result.stamps,
        str(result.requests),
        *_three(result.ttft_ms, 1.0, 3),
        *_three(result.speed, 100.0, 3),
        *_three(result.e2e_ms, 1.0, 3),
        *_three(result.beyond_ms, 1.0, 3)[1:2],
        f"{result.unsure_share:.1%}",
        *_three(result.send_ms, 1.0, 3)[:1],
        "·" if result.offered is None else f"{result.offered:.1%}",
        f"{result.cpu_us_per_token:.1f}",
        _verdict(result),
    )


def _verdict(result: CellResult) -> str:
    if result.misses:
        return "MISSED"
    return "ok the second time" if result.first_misses else "ok"


def _three(spread: ErrorSpread | None, factor: float, digits: int) -> tuple[str, str, str]:
    if spread is None:
        return "·", "·", "·"
    p50, p99, most = (f"{v * factor:.{digits}f}" for v in (spread.p50, spread.p99, spread.max))
    return p50, p99, most


def _sources(stamps: str | None) -> tuple[StampSource, ...]:
    from lightgate.wire.link.stamper import best_source

    if stamps is None:
        stamps = "both" if best_source() == "kernel" else "read"
    return STAMPS[stamps]  # type: ignore[return-value] # the table holds nothing else


def _scenarios(only: tuple[str, ...]) -> set[str]:
    from lightgate.bench.selftest.plan import SCENARIOS, SLOW

    known = {scenario.name.lower() for scenario in (*SCENARIOS, SLOW)}
    for name in only:
        if name.lower() not in known:
            raise UsageError(f"There is no scenario {name!r}.", hint="S1 to S8, S10, S12 or slow.")
    return {name.lower() for name in only}


def _numbers(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1 or max(numbers) > 4096:
        raise UsageError(
            f"--concurrency {text!r} is no list of numbers from 1 to 4096.",
            hint="Write it like 1,32,256.",
        )
    return numbers


def _peak() -> dict[str, float]:
    import resource

    return {"peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}
