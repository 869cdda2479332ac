"""`lightgate up`: the simulated providers, clocked live."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from typing import TYPE_CHECKING

import click

from lightgate.cli.output import emit_json, note
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from lightgate.bench.watch import Row, Watch
    from lightgate.provider.target import Target

BARS = "▁▂▃▄▅▆▇█"
REFRESH_S = 0.5


@click.command("up", epilog="Example: lightgate up --world weather-2026")
@click.option("--world", default="tables-2025", show_default=True, help="Name or TOML file.")
@click.option(
    "--port",
    default=0,
    type=click.IntRange(0, 65535),
    help="Port of the simulator; a free one by default.",
)
@click.option("--seed", default=1, show_default=True, help="The world's chance.")
@click.option(
    "--visitors",
    default=2,
    show_default=True,
    type=click.IntRange(1, 256),
    help="Simultaneous users per provider.",
)
@click.option("--for", "seconds", type=float, help="Stop after so many seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print the last table as JSON at the end.")
def command(
    *, world: str, port: int, seed: int, visitors: int, seconds: float | None, as_json: bool
) -> None:
    """Start the simulated providers and clock them live.

    Light traffic goes to every provider of the world through the same code that benches and
    routes real ones. Press Ctrl-C to stop.
    """
    import uvloop

    from lightgate.bench.simulated import targets
    from lightgate.sim.serve import Options
    from lightgate.sim.spawn import SimProcess
    from lightgate.sim.world import load

    if seconds is not None and not 0 < seconds < 1e9:  # also what is not a number
        raise UsageError(f"--for {seconds:g} is no time to run.", hint="Give seconds, like 30.")
    made = load(world)  # before there is a child: what is wrong with it is said here, once
    with SimProcess(Options(world=world, port=port, seed=seed)) as sim:
        note(f"Simulated providers of the world {world!r} at {sim.url}/")
        visited = targets(sim.facts, made)
        rows = uvloop.run(_watch(visited, visitors=visitors, seed=seed, seconds=seconds))
    if as_json:
        emit_json(rows)


async def _watch(
    visited: list[Target], *, visitors: int, seed: int, seconds: float | None
) -> list[Row]:
    from lightgate.bench.watch import Watch
    from lightgate.wire.client import Client
    from lightgate.wire.stamper import best_source

    client = Client(stamp=best_source())
    watch = Watch(client, visited, visitors=visitors, seed=seed)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    traffic = asyncio.ensure_future(watch.run())
    traffic.add_done_callback(lambda _: stopped.set())  # it only ends by itself when it fails
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await _show(watch, stopped)
    finally:
        traffic.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await traffic
        await client.close()
    return watch.rows()


async def _show(watch: Watch, stopped: asyncio.Event) -> None:
    """Redraw until told to stop; where nobody looks (no terminal), say a line now and then."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False)
    if not sys.stderr.isatty():
        while not stopped.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), 10 * REFRESH_S)
            note(_line(watch.rows()))
        return
    with Live(_table(watch.rows()), console=console, auto_refresh=False) as live:
        while not stopped.is_set():
            live.update(_table(watch.rows()), refresh=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), REFRESH_S)


def _line(rows: list[Row]) -> str:
    parts = [
        f"{row.target} {_number(row.ttft_p50_ms)} ms {_number(row.speed_p50_tps)} tok/s n={row.n}"
        for row in rows
    ]
    return " · ".join(parts)


def _table(rows: list[Row]) -> Table:
    from rich import box
    from rich.table import Table

    models = {row.target.partition("/")[2] for row in rows}
    shared = f": {next(iter(models))}" if len(models) == 1 else ""
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title=f"How fast the providers are, from here, now{shared}",
    )
    table.add_column("provider" if shared else "target", no_wrap=True)
    headings = ("n", "now", "TTFT", "p95", "tok/s", "slow 5 %", "stall", "e2e", "grade")
    for name in headings:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("fail", justify="right", no_wrap=True)
    table.add_column("last TTFTs", no_wrap=True)
    best = min((row.ttft_p50_ms for row in rows if row.ttft_p50_ms is not None), default=None)
    for row in rows:
        table.add_row(
            row.target.partition("/")[0] if shared else row.target,
            str(row.n),
            str(row.inflight),
            _number(row.ttft_p50_ms),
            _number(row.ttft_p95_ms),
            _number(row.speed_p50_tps),
            _number(row.speed_slow5_tps),
            _number(row.stall_p95_ms),
            _number(row.e2e_p50_ms),
            row.grade or "·",
            str(row.failures) if row.failures else "·",
            _sparkline(row.recent_ttft_ms[-12:]),
            style="bold" if row.ttft_p50_ms is not None and row.ttft_p50_ms == best else "",
        )
    table.caption = (
        "p50 where nothing else is said, stall p95; times in ms; now = in flight;"
        " · = too few samples yet (p50 needs 6, p95 needs 72)"
    )
    return table


def _number(value: float | None) -> str:
    return "·" if value is None else f"{value:,.0f}"


def _sparkline(values: tuple[float, ...]) -> str:
    top = max(values, default=0.0)
    if not top:
        return ""
    return "".join(BARS[min(len(BARS) - 1, int(value / top * len(BARS)))] for value in values)
