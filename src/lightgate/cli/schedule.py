"""`lightgate schedule`: periodic benchmarks, with drift alerts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lightgate.cli.options import json_option
from lightgate.cli.output import Column, emit_json, emit_table, note
from lightgate.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from lightgate.bench.run.schedule import Alert


def _remember(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
    ctx.obj = value


_NONE = "There is no schedule. `lightgate schedule add` makes one."
_DATA = click.option(
    "--data",
    type=click.Path(path_type=Path),
    expose_value=False,
    callback=_remember,
    help="Folder of schedules, runs and history; gateway.data of the configuration by default.",
)


@click.group(
    "schedule",
    epilog="Example: lightgate schedule add nightly --every 6h -- groq/llama-3.3-70b-versatile",
)
def command() -> None:
    """Benchmark periodically, keep the history, and tell when something changes."""


@command.command(
    "add",
    short_help="Add a benchmark that is repeated.",
    epilog="Example: lightgate schedule add nightly --every 6h --jitter 20m --"
    " groq/llama-3.3-70b-versatile --concurrency 1,8 --requests 60",
)
@click.argument("name")
@click.argument("arguments", nargs=-1, required=True, metavar="-- BENCH_ARGUMENTS...")
@click.option("--every", required=True, help="How often, such as 30m, 6h or 1d.")
@click.option("--jitter", default="", help="Start at most this much later, by chance, such as 20m.")
@click.option(
    "--webhook", default="", metavar="URL", help="POST each alert here as JSON; https or loopback."
)
@click.option(
    "--tolerance",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0, 99),
    help="Percent of change that is not worth an alert.",
)
@_DATA
def add(
    *,
    name: str,
    arguments: tuple[str, ...],
    every: str,
    jitter: str,
    webhook: str,
    tolerance: float,
) -> None:
    """Add the schedule NAME; what follows -- is given to `lightgate bench`.

    It is due at once, and then every so often, while `lightgate schedule run` runs.
    """
    import msgspec

    from lightgate.bench.run.schedule import Schedules, new_schedule
    from lightgate.clock.source import SYSTEM

    made = new_schedule(
        name, arguments, every=every, now_ns=SYSTEM.wall_ns(), jitter=jitter, webhook=webhook
    )
    made = msgspec.structs.replace(made, tolerance=tolerance / 100)
    Schedules(_data()).add(made)
    note(f"Added {name}, every {every}. `lightgate schedule run` runs it.")


@command.command("list", epilog="Example: lightgate schedule list --json")
@_DATA
@json_option
def show(*, as_json: bool) -> None:
    """List the schedules, when they are due, and how they last ended."""
    import msgspec

    from lightgate.bench.run.schedule import Schedules, shown

    found = [
        msgspec.structs.replace(schedule, webhook=shown(schedule.webhook))
        for schedule in Schedules(_data()).all()
    ]
    if as_json:
        emit_json(found)
        return
    if not found:
        click.echo(_NONE)
        return
    titles = ("name", "every", "jitter", "due", "last started", "last result", "webhook")
    emit_table(
        [*(Column(title) for title in titles), Column("arguments", prose=True)],
        [
            (s.name, s.every, s.jitter or "none", s.due[:19], (s.last_started or "never")[:19],
             s.last_result or "·", s.webhook or "none", " ".join(s.arguments))
            for s in found
        ],
        caption="Times are UTC.",
    )  # fmt: skip


@command.command("remove", epilog="Example: lightgate schedule remove nightly")
@click.argument("name")
@_DATA
def remove(*, name: str) -> None:
    """Remove the schedule NAME; its runs and its history stay."""
    from lightgate.bench.run.schedule import Schedules

    Schedules(_data()).remove(name)
    note(f"Removed {name}.")


@command.command("run", epilog="Example: lightgate schedule run --once")
@click.option("--once", is_flag=True, help="Run what is due now, and end; for cron and CI.")
@_DATA
@json_option
def execute(*, once: bool, as_json: bool) -> int:
    """Run the schedules as they become due, until Ctrl-C or SIGTERM.

    Exit code 6 if a drift was found. With --once a benchmark that failed gives its own exit code.
    """
    import uvloop

    from lightgate.bench.run.schedule import Schedules

    if not Schedules(_data()).all():
        note(_NONE)
    alerts: list[Alert] = []
    uvloop.run(_run(_data(), alerts, once=once))
    if as_json:
        emit_json(alerts)
    if any(alert.kind == "drift" for alert in alerts):
        return Exit.THRESHOLD
    failed = next((alert.exit_code for alert in alerts if alert.kind == "failed"), None)
    return failed if once and failed is not None else Exit.OK


async def _run(data: Path, alerts: list[Alert], *, once: bool) -> None:
    from lightgate.bench.run.schedule import Scheduler, SchedulerEffects, post
    from lightgate.wire.client.client import Client

    client = Client(watch_lag=False)

    async def send(url: str, body: bytes) -> None:
        await post(client, url, body)

    chance = random.SystemRandom().random
    scheduler = Scheduler(data, SchedulerEffects(run=bench, post=send, say=note, chance=chance))
    try:
        if once:
            alerts += await scheduler.once()
        else:
            await _until_stopped(scheduler.forever(alerts.append))
    finally:
        await client.close()


async def _until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Let it work until Ctrl-C or SIGTERM; a benchmark under way is ended with it."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def bench(arguments: Sequence[str], folder: Path) -> int:
    """Run one benchmark in a process of its own: it has its own event loop and its own memory."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lightgate", "bench", *arguments, "--out", str(folder), "--yes",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        return await process.wait()
    except asyncio.CancelledError:
        process.send_signal(signal.SIGINT)  # what it measured is kept
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(20):
                await process.wait()
        if process.returncode is None:
            process.kill()
            await process.wait()
        raise


def _data() -> Path:
    """The data folder: the flag, then the configuration, then its default."""
    given = click.get_current_context().obj
    if isinstance(given, Path):
        return given
    from lightgate.config.load import find_config, load_config
    from lightgate.config.model import Config

    path = find_config(None, env=os.environ, cwd=Path.cwd())
    config = load_config(path) if path is not None else Config()
    return Path(config.gateway.data)
