"""Carries out `lightgate batch run`: from the command line to the engine, and back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import signal
import sys
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from lightgate.cli.batch_via import BatchWay, ViaParts, ViaWish
from lightgate.cli.options import dollars_of, open_targets, read_config
from lightgate.cli.output import note
from lightgate.clock.source import SYSTEM
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import IO

    from lightgate.batch.engine import BatchEngine, BatchOrder
    from lightgate.batch.journal import Checkpoint
    from lightgate.batch.share import BatchLane
    from lightgate.batch.summary import BatchSummary
    from lightgate.ledger.journal.notes import Settled
    from lightgate.provider.target import Target
    from lightgate.wire.client.client import Client

NS: Final = 1_000_000_000
BLOCK: Final = 1 << 20  # bytes of a file that are counted at once
OTHER_FILES: Final = 100  # that the process needs beside its connections
WORKERS: Final = 1_000_000  # journals of jobs are numbered above those of any gateway's workers


def carry_out(given: dict[str, Any]) -> tuple[BatchSummary, Path, Path]:
    """Run the job of a command line; return what it came to, and where."""
    import uvloop

    from lightgate.batch.journal import Checkpoint

    file: Path = given["file"]
    _check_file(file)
    out = given["out"] or file.with_name(f"{file.stem}.results.jsonl")
    beside = file if given["out"] is None else out  # of two jobs with one FILE, each has its own
    errors = given["errors"] or beside.with_name(f"{beside.stem}.errors.jsonl")
    if len({file.resolve(), out.resolve(), errors.resolve()}) < 3:
        raise UsageError("FILE, --out and --errors must be three files.")
    order = _order(given)
    given = {**given, "out": out, "errors": errors}
    with contextlib.ExitStack() as stack:
        targets = stack.enter_context(_targets(given))
        _check_prices(order, targets)
        try:
            files = Checkpoint(
                out, errors, wall_ns=SYSTEM.wall_ns(), retry_failed=given["retry_failed"]
            )
        except OSError as error:
            raise UsageError(f"{out} cannot be written: {error.strerror}.") from None
        stack.enter_context(files)
        settle = stack.enter_context(_ledger(given, files))
        opened = stack.enter_context(file.open("rb"))
        summary = uvloop.run(_work(given, order, targets, files, settle, opened))
    return summary, out, errors


def _check_file(file: Path) -> None:
    """Refuse what cannot be read, and what has nothing to read."""
    if file.is_dir():
        raise UsageError(f"{file} is a folder.", hint="Name a file with a request on each line.")
    if not file.exists():
        raise UsageError(f"There is no file {file}.")
    try:
        with file.open("rb") as opened:
            empty = not opened.read(1)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from None
    if empty:
        raise UsageError(f"{file} is empty.", hint="It needs a request on each line.")


@contextlib.contextmanager
def _targets(given: dict[str, Any]) -> Iterator[tuple[Target, ...]]:
    """The targets, or the models of a gateway as targets; "" is what each line names itself."""
    if given["gateway"] is None:
        with open_targets("batch run", {**given, "seed": None}) as found:
            yield found
        return
    from lightgate.provider.target import resolve

    url = given["gateway"].rstrip("/")
    base = url if url.endswith("/v1") else f"{url}/v1"
    names = given["targets"] or ("by-line",)
    yield tuple(
        msgspec.structs.replace(
            resolve(f"gateway={base}#{name}", env=os.environ, key_env=given["key_env"]), name=name
        )
        for name in names
    )


def _check_prices(order: BatchOrder, targets: tuple[Target, ...]) -> None:
    from lightgate.batch.send import price_of

    now = datetime.now(UTC)
    unknown = [target.name for target in targets if price_of(target, now)(1.0, 1.0) is None]
    if unknown and order.max_cost_nano is not None:
        raise UsageError(
            f"--max-cost: no price per token is known for {unknown[0]}.",
            hint="Put it under [prices] of lightgate.toml, or leave --max-cost out.",
        )
    if order.by == "cost" and 0 < len(unknown) < len(targets):
        note(f"lightgate: no price per token is known for {', '.join(unknown)}: taken as free.")


def _order(given: dict[str, Any]) -> BatchOrder:
    from lightgate.batch.engine import BatchOrder
    from lightgate.batch.share import QuietHours

    most = dollars_of("--max-cost", given["max_cost"])
    quiet = None
    if given["quiet_hours"] is not None:
        try:
            quiet = QuietHours.parse(given["quiet_hours"])
        except ValueError as reason:
            raise UsageError(
                f"--quiet-hours {given['quiet_hours']!r} are no hours: {reason}.",
                hint="Write them like 22:00-06:00.",
            ) from None
    deadline_ns = deadline_of(given["deadline"], datetime.now().astimezone(), SYSTEM.now_ns())
    return BatchOrder(
        by=given["by"] or ("time" if deadline_ns is None else "cost"),
        attempts=given["attempts"],
        once=not given["ask_each"],
        anthropic=given["form"] == "anthropic",
        max_cost_nano=None if most is None else int(most * NS),
        deadline_ns=deadline_ns,
        quiet=quiet,
    )


def deadline_of(text: str | None, now: datetime, now_ns: int) -> int | None:
    """Return the instant of a time of day, the next one, or of a duration from now."""
    from lightgate.config.notation import parse_duration

    if text is None:
        return None
    if ":" in text:
        try:
            at = time.fromisoformat(text)
        except ValueError:
            raise UsageError(f"--deadline {text!r} is no time.", hint="Write it 06:00.") from None
        due = now.replace(hour=at.hour, minute=at.minute, second=at.second, microsecond=0)
        if due <= now:
            due += timedelta(days=1)
        return now_ns + round((due - now).total_seconds() * NS)
    return now_ns + _duration("--deadline", text, parse_duration)


def _duration(option: str, text: str, parse: Callable[[object], int]) -> int:
    try:
        return parse(f"{text}s" if text.isdecimal() else text)
    except ValueError:
        raise UsageError(
            f"{option} {text!r} is no duration.",
            hint="Write it like 90s, 30m or 8h; a deadline also like 06:00.",
        ) from None


@contextlib.contextmanager
def _ledger(given: dict[str, Any], files: Checkpoint) -> Iterator[Callable[[Settled], object]]:
    """What takes the notes of lines; at the end they are carried into the ledger.

    A gateway writes its own. The last line of an earlier process may lack its note: it is written
    again, and the ledger passes over what it has.
    """
    if not given["ledger"] or given["gateway"] is not None:
        yield lambda _: None
        return
    from lightgate.batch.books import remade
    from lightgate.ledger.journal.journal import Journal
    from lightgate.ledger.locate import locate

    place = locate(read_config(given["config_file"]), given["data"])
    folder = place.data / "journal"
    journal = Journal(folder, WORKERS + os.getpid())
    try:
        if files.last is not None and files.last.exchange_id:
            journal.write(remade(files.last))
        yield journal.write
    finally:
        journal.close()
        from lightgate.ledger.journal.ship import Shipper

        with place.open() as ledger:
            Shipper(ledger, folder).drain()


async def _work(
    given: dict[str, Any],
    order: BatchOrder,
    targets: tuple[Target, ...],
    files: Checkpoint,
    settle: Callable[[Settled], object],
    opened: IO[bytes],
) -> BatchSummary:
    from lightgate.batch.engine import BatchEngine, Surroundings
    from lightgate.batch.lines import LineReader, LineRules
    from lightgate.wire.client.client import Client

    total = count_lines(opened)
    text = given["text"] or given["file"].suffix == ".txt"
    rules = LineRules(form="text" if text else "auto")
    reader = LineReader(rules)
    dice = random.Random().random  # noqa: S311 - spreads second attempts
    around = Surroundings(settle=settle, dice=dice, told=lambda said: note(f"lightgate: {said}"))
    client = Client()
    try:
        way = _by_batch(given, order, ViaParts(targets, files, settle, rules, client), total)
        interrupted = await way.first()
        lanes = _lanes(given, targets, client)
        engine = BatchEngine(reader.lines(opened), total, lanes, files, order, around)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, _interrupt, engine)
        if interrupted:
            engine.stop()
        shown = loop.create_task(_show_progress(engine))
        try:
            summary = await engine.run()
        finally:
            shown.cancel()
            await asyncio.gather(shown, return_exceptions=True)
        return await way.last(summary)
    finally:
        await client.close()


def _by_batch(given: dict[str, Any], order: BatchOrder, parts: ViaParts, total: int) -> BatchWay:
    """The way of lines through a provider's batch API, as the command line wants it."""
    from lightgate.ledger.locate import locate

    kept = given["ledger"] and given["gateway"] is None
    place = locate(read_config(given["config_file"]), given["data"]) if kept else None
    wish = ViaWish(
        via=given["via"],
        file=given["file"],
        out=given["out"],
        data=None if place is None else place.data,
        total=total,
        deadline_ns=order.deadline_ns,
        max_cost_nano=order.max_cost_nano,
        anthropic=order.anthropic,
        once=order.once,
    )
    return BatchWay(wish, parts)


def count_lines(file: IO[bytes]) -> int:
    """Count the lines that are not blank, from the beginning; the file is at its beginning then."""
    total, rest = 0, b""
    file.seek(0)
    while block := file.read(BLOCK):
        *lines, rest = (rest + block).split(b"\n")
        total += sum(1 for line in lines if line.strip())
        if len(rest) > BLOCK:
            rest = b"x"  # of a very long line it matters only that it is not blank
    file.seek(0)
    return total + bool(rest.strip())


def _lanes(given: dict[str, Any], targets: tuple[Target, ...], client: Client) -> list[BatchLane]:
    from lightgate.batch.send import DirectSender, GatewaySender, price_of
    from lightgate.batch.share import BatchLane
    from lightgate.config.notation import parse_duration
    from lightgate.route.admission.admission import Admission
    from lightgate.wire.client.roundtrip import Deadlines

    each_s = _duration("--timeout", given["timeout"], parse_duration) / NS
    deadlines = Deadlines(first_byte_s=each_s, idle_s=each_s, total_s=each_s)
    most = float(min(given["max_inflight"] or 4096, _descriptors() // len(targets)))
    lanes, now = [], datetime.now(UTC)
    for target in targets:
        sender: DirectSender = DirectSender(target, client, deadlines)
        price = price_of(target, now)
        if given["gateway"] is not None:
            sender = GatewaySender(target, client, deadlines, rename=bool(given["targets"]))
            price = lambda _in, _out: None  # noqa: E731 - the gateway says what each one costs
        lanes.append(BatchLane(target.name, sender, price, Admission(most=most)))
    return lanes


def _descriptors() -> int:
    """Allow this process as many files as the system lets it; return those for connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(65536, hard)
    if soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return max(1, soft - OTHER_FILES)


def _interrupt(engine: BatchEngine) -> None:
    if engine.summary().stopped:
        note("lightgate: cutting what is under way.")
        engine.cut()
        return
    engine.stop()
    if engine.unwritten:
        note(
            f"lightgate: {engine.unwritten} answers wait for room on the disk; Ctrl-C again gives"
            " them up, and the same command asks for them again."
        )
        return
    under_way = sum(lane.in_flight for lane in engine.summary().targets)
    note(f"lightgate: finishing {under_way} requests; Ctrl-C again cuts them.")


async def _show_progress(engine: BatchEngine) -> None:
    """Say how the job stands: on a terminal each second in one line, else each ten seconds."""
    terminal = sys.stderr.isatty()
    try:
        while True:
            await asyncio.sleep(1.0 if terminal else 10.0)
            line = progress_line(engine.summary())
            if terminal:
                click.echo(f"\r\x1b[2K{line}", nl=False, err=True)
            else:
                note(line)
    finally:
        if terminal:
            click.echo("\r\x1b[2K", nl=False, err=True)


def progress_line(summary: BatchSummary) -> str:
    """Return one line about a job under way."""
    from lightgate.price.cost import money

    flying = ", ".join(f"{lane.target} {lane.in_flight}" for lane in summary.targets)
    parts = [
        f"{summary.answered + summary.failed:,}/{summary.lines:,} lines",
        f"{summary.failed:,} failed",
        f"{summary.tokens_per_s:,.0f} tokens/s",
        f"in flight: {flying}",
        f"{money(summary.cost_usd)} so far",
    ]
    if summary.eta_s is not None:
        parts.append(f"done in {timedelta(seconds=round(summary.eta_s))}")
    return " · ".join(parts)
