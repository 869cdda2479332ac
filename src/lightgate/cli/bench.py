"""`lightgate bench`: how fast targets are, at your load, from here."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lightgate.cli.bench_checks import as_asked, case_count, cases_of, checked, checks_options
from lightgate.cli.bench_consent import agree, folder_of, options_of, take_up
from lightgate.cli.bench_file import file_option
from lightgate.cli.bench_quick import as_quick, quick_option
from lightgate.cli.bench_wish import (
    deadlines_of,
    seconds_of,
    slo_of,
    watch_of,
    wish_of,
    wish_options,
    with_headers,
)
from lightgate.cli.options import config_option, dollars_of, open_targets
from lightgate.cli.output import emit_json, note
from lightgate.errors import LightgateError, NotJudged, ThresholdMissed, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lightgate.bench.checks.cases import CaseSet
    from lightgate.bench.judge.slo import Check
    from lightgate.bench.load.ray_hosts import CarriedHost
    from lightgate.bench.load.shape import Shape
    from lightgate.bench.run.engine import Bench
    from lightgate.bench.run.order import Explorer, Loading, RunOrder
    from lightgate.bench.watch.watch import EngineWatch
    from lightgate.bench.workload.conversation import Talk
    from lightgate.bench.workload.workload import WorkloadWish
    from lightgate.ledger.runs.folder import RunFolder
    from lightgate.ledger.runs.run import Run
    from lightgate.provider.target import Target

PARENT_DEATH_ENV = "LIGHTGATE_ENDS_WITH_PARENT"  # as in lightgate.gateway.process.lock
PROFILES = ("voice", "coding", "agent", "batch")


@click.command(
    "bench",
    epilog="Example: lightgate bench groq/llama-3.3-70b-versatile fireworks/llama-v3p3-70b-instruct"
    " --concurrency 1,8,32 --out runs/today",
)
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--world", help="Bench every simulated provider of this world instead.")
@quick_option
@click.option(
    "--concurrency",
    show_default="1,8,32; 1 with --checks",
    help="Requests in flight at once; one load for each number.",
)
@click.option("--requests", type=click.IntRange(1), help="Requests per target and load.")
@click.option("--precision", help="Go on until each median is known that well, e.g. 4%.")
@click.option("--duration", help="Time per load instead of a number of requests, e.g. 60s.")
@click.option("--rate", help="Requests sent per time, e.g. 20/s or 90/m; where --find-rate begins.")
@click.option(
    "--shape",
    show_default="closed; poisson with --rate",
    help="When requests are sent: closed, constant, poisson, ramp:A..B, burst:N every T or"
    " trace:FILE.",
)
@click.option(
    "--sweep", is_flag=True, help="Double the requests in flight until nothing is gained."
)
@click.option("--find-rate", is_flag=True, help="Find the highest rate that keeps --fail-if.")
@click.option(
    "--max-inflight", type=click.IntRange(1), help="Of a rate: drop what would be in flight above."
)
@click.option("--turns", type=click.IntRange(1), help="Conversations of so many turns.")
@click.option("--think", help="Of conversations: pause before every later turn, e.g. 2s.")
@click.option("--tools", is_flag=True, help="With --turns: an agent that calls tools.")
@click.option(
    "--prompt-tokens",
    default="512",
    show_default=True,
    help="Tokens of every prompt, or a distribution: uniform:100..900, normal:512,128 or"
    " mix:80%*128,20%*4096.",
)
@click.option(
    "--max-tokens",
    default="512",
    show_default=True,
    help="Tokens of every answer, or a distribution as for prompts.",
)
@click.option(
    "--prompts",
    type=click.Path(path_type=Path),
    help="Own prompts or conversations: a file of JSON lines or of plain ones.",
)
@checks_options
@click.option("--cached", is_flag=True, help="Let prompts share a long beginning, on purpose.")
@click.option(
    "--temperature",
    default=0.0,
    show_default=True,
    help="Sampling temperature; below 0 none is sent.",
)
@click.option(
    "--profile",
    type=click.Choice(PROFILES),
    help="Count as good what meets the limits of this use.",
)
@wish_options
@file_option
@click.option(
    "--hourly-cost",
    help="Dollars per hour of a self-hosted target: NAME=2.69 or 2.69; of one that was bought:"
    " 30000/3y+700W*0.30 (price, years, watts, dollars per kilowatt hour).",
)
@click.option("--key-env", metavar="VAR", help="Variable with the key of NAME=URL#MODEL targets.")
@config_option
@click.option("--out", type=click.Path(path_type=Path), help="Folder for the run's files.")
@click.option("--resume", is_flag=True, help="Go on with the run in --out.")
@click.option("--fail-if", "limits", multiple=True, help='E.g. "ttft_p95>500ms"; repeatable.')
@click.option("--seed", type=int, help="Seed of everything random in the run; new by default.")
@click.option(
    "--stagger/--no-stagger",
    default=True,
    help="Begin the workers of a closed loop over the time of one request.",
)
@click.option("--together", is_flag=True, help="All targets at once instead of in turns.")
@click.option(
    "--aa/--no-aa", default=True, help="Measure the first target twice, to see what chance does."
)
@click.option(
    "--processes", type=click.IntRange(1, 64), help="Client processes; one per 1,000 in flight."
)
@click.option(
    "--ray",
    metavar="ADDRESS",
    help="Make the load from every node of this Ray cluster, e.g. auto or 10.0.0.5:6379.",
)
@click.option(
    "--stamps",
    type=click.Choice(["kernel", "read"]),
    help="Take times from the kernel or at the read.",
)
@click.option("--max-cost", help="Stop when this many dollars are spent.")
@click.option("--yes", is_flag=True, help="Agree to the estimated cost.")
@click.option("--json", "as_json", is_flag=True, help="Print the run as JSON.")
@click.pass_context
def command(context: click.Context, /, **given: Any) -> int:
    """Measure how fast targets are: first token, speed, tails, cost, under load.

    A TARGET is provider/model, or NAME=URL#MODEL for any OpenAI-compatible base URL. Several
    targets take turns in random blocks with the same prompts, so that the hour is the same for all.
    """
    from lightgate.bench.judge.slo import parse
    from lightgate.bench.watch.watch import EngineWatch

    if PARENT_DEATH_ENV in os.environ:  # the console started it, and is its parent
        from lightgate.gateway.process.child import end_with_parent

        end_with_parent(os.environ)
    checks = [parse(text) for text in given["limits"]]
    as_quick(context, given)
    cases = cases_of(given)
    if cases is None and any(check.name.startswith("pass") for check in checks):
        raise UsageError("A limit on the pass rate needs cases.", hint="Add --checks FILE.")
    paced = given["rate"] is not None and not given["find_rate"]
    given["shape"] = given["shape"] or ("poisson" if paced else "closed")
    take_up(given)
    with _targets(given) as targets, _hosts(given) as hosts:
        order = _order(given, targets, cases, len(hosts))
        explorer = _explorer(given, order, checks)
        order = agree(order, explorer, yes=given["yes"])
        folder = folder_of(given)
        with EngineWatch(watch_of(given, targets)) as watch:
            run, code = _carry_out((order, hosts), folder, explorer, resume=given["resume"])
        run = _watched(run, watch, folder)
    _show(run, folder, as_json=given["as_json"])
    if not code:
        _judge(run, [] if given["find_rate"] else checks)
    return code


@contextlib.contextmanager
def _targets(given: dict[str, Any]) -> Iterator[tuple[Target, ...]]:
    """The targets with their headers and dollars per hour."""
    with open_targets("bench", given) as found:
        own = found if given["world"] is not None else with_headers(found, given["headers"])
        yield _priced(own, given["hourly_cost"])


def _priced(targets: tuple[Target, ...], text: str | None) -> tuple[Target, ...]:
    """Put dollars per hour on the target that is named, or on the only one."""
    import msgspec

    from lightgate.config.notation import parse_hourly

    if text is None:
        return targets
    name, _, number = text.rpartition("=")
    if (name or len(targets) > 1) and name not in {t.name for t in targets}:
        raise UsageError(
            f"--hourly-cost {text!r} names no target of this run.", hint="Write it NAME=2.69."
        )
    try:
        dollars = parse_hourly(number)
    except ValueError as reason:
        raise UsageError(f"--hourly-cost {number!r} is no price.", hint=f"{reason}.") from None
    return tuple(
        msgspec.structs.replace(target, hourly_cost=dollars)
        if not name or target.name == name
        else target
        for target in targets
    )


@contextlib.contextmanager
def _hosts(given: dict[str, Any]) -> Iterator[tuple[CarriedHost, ...]]:
    """The hosts that make the load; none where it is this machine."""
    if given["ray"] is None:
        yield ()
        return
    if given["turns"] is not None or given["together"]:
        raise UsageError("--ray goes with single requests to one target after the other.")
    from lightgate.bench.load.ray_hosts import RayCluster

    with RayCluster(given["ray"]) as cluster:
        named = ", ".join(f"{one.place.host} ({one.place.region})" for one in cluster.hosts)
        note(f"The load comes from {named}.")
        yield cluster.hosts


def _order(
    given: dict[str, Any], targets: tuple[Target, ...], cases: CaseSet | None, hosts: int
) -> RunOrder:
    from datetime import UTC, datetime

    from lightgate.bench.run.order import RunOrder
    from lightgate.wire.link.stamper import best_source

    seed = given["seed"] if given["seed"] is not None else secrets.randbelow(1 << 31)
    wish = as_asked(wish_of(given, seed), cases)
    return RunOrder(
        targets=targets,
        loads=tuple(_loads(given, seed, wish, targets, cases)),
        cases=cases,
        talk=_talk(given, wish),
        wish=wish,
        seed=seed,
        stamps=given["stamps"] or best_source(),
        at=datetime.now(UTC),
        aa=given["aa"],
        together=given["together"],
        stagger=given["stagger"],
        processes=given["processes"],
        hosts=hosts,
        slo=slo_of(given),
        warmup=given["warmup"],
        patience_s=None
        if given["skip_slow"] is None
        else seconds_of("--skip-slow", given["skip_slow"]),
        deadlines=deadlines_of(given),
        max_cost=dollars_of("--max-cost", given["max_cost"]),
        options=options_of(given, seed),
    )


def _loads(
    given: dict[str, Any],
    seed: int,
    wish: WorkloadWish,
    targets: tuple[Target, ...],
    cases: CaseSet | None = None,
) -> list[Loading]:
    from lightgate.bench.load.shape import Closed, parse_shape
    from lightgate.bench.run.order import Loading, enough

    if given["sweep"] or given["find_rate"]:
        return []  # the explorer chooses
    duration = _duration(given["duration"])
    precision = _precision(given, duration)
    shape = parse_shape(given["shape"], rate=given["rate"], duration_ns=duration, seed=seed)
    if not isinstance(shape, Closed):
        return [_open_load(shape, given, duration)]
    if given["max_inflight"] is not None:
        raise UsageError(
            "--max-inflight belongs to a load with a rate.",
            hint="In a closed loop --concurrency says how many are in flight.",
        )
    return [
        Loading(
            label=f"c={workers}",
            concurrency=workers,
            requests=None
            if duration is not None
            else case_count(cases, workers) or given["requests"] or enough(workers, len(targets)),
            duration_ns=duration,
            cap=_cap(duration, workers, wish.tokens_out, targets),
            precision=precision,
        )
        for workers in _numbers(given["concurrency"])
    ]


def _open_load(shape: Shape, given: dict[str, Any], duration: int | None) -> Loading:
    from lightgate.bench.load.shape import TraceFile
    from lightgate.bench.load.trace import read_trace
    from lightgate.bench.run.order import Loading

    pacer = shape
    requests = given["requests"]
    if isinstance(pacer, TraceFile):
        trace = read_trace(pacer.path, speed=pacer.speed, duration_ns=duration, count=requests)
        return Loading(
            label=trace.label,
            pacer=trace,
            requests=len(trace.entries),
            max_inflight=given["max_inflight"],
        )
    if requests is None and duration is None:
        raise UsageError("An open load needs an end.", hint="Add --requests 500 or --duration 60s.")
    return Loading(
        label=pacer.label,
        pacer=pacer,  # type: ignore[arg-type] # what is left is a pacer
        requests=requests,
        duration_ns=duration,
        max_inflight=given["max_inflight"],
    )


def _cap(
    duration: int | None, workers: int, tokens: int, targets: tuple[Target, ...]
) -> int | None:
    """Requests that a time may come to: what is billed by the token is never without an end."""
    from lightgate.bench.run.budget import is_free
    from lightgate.bench.run.order import most_in_time

    if duration is None or all(map(is_free, targets)):
        return None
    return most_in_time(duration / 1e9, workers, tokens)


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1 or max(numbers) > 10_000:
        raise UsageError(
            f"--concurrency {text!r} is no list of numbers from 1 to 10000.",
            hint="Write it like 1,8,32.",
        )
    return numbers


def _duration(text: str | None, option: str = "--duration") -> int | None:
    from lightgate.config.notation import parse_duration

    if text is None:
        return None
    try:
        return parse_duration(f"{text}s" if text.isdecimal() else text)
    except ValueError:
        raise UsageError(
            f"{option} {text!r} is no duration.", hint="Write it like 60s, 5m or 1h."
        ) from None


def _precision(given: dict[str, Any], duration: int | None) -> float | None:
    """The wished half width of an interval, as a share."""
    text = given["precision"]
    if text is None:
        return None
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not 0.001 <= share <= 0.5:
        raise UsageError(
            f"--precision {text!r} is no percentage from 0.1% to 50%.", hint="Write it like 4%."
        )
    if duration is not None or given["shape"] != "closed" or given["turns"] is not None:
        raise UsageError("--precision goes with a closed loop of single requests, by their number.")
    return share


def _talk(given: dict[str, Any], wish: WorkloadWish) -> Talk | None:
    from lightgate.bench.workload.conversation import Talk

    own = wish.own if wish.own is not None and wish.own.talks else None
    if given["tools"] and given["turns"] is None:
        raise UsageError("--tools needs --turns.", hint="Add --turns 5.")
    if given["turns"] is None and own is None:
        if given["think"]:
            raise UsageError("--think needs --turns.", hint="Add --turns 5.")
        return None
    if given["turns"] is not None and own is not None:
        raise UsageError(f"--turns: the conversations of {own.source} have turns of their own.")
    if given["shape"] != "closed" or given["duration"] is not None or wish.cancel is not None:
        raise UsageError("Conversations are driven in a closed loop, by --requests, to their end.")
    return Talk(
        turns=given["turns"] if own is None else own.usual_turns,
        tokens_out=wish.tokens_out,
        tools=given["tools"],
        think_s=(_duration(given["think"], "--think") or 0) / 1e9,
        own=own is not None,
    )


def _explorer(given: dict[str, Any], order: RunOrder, checks: list[Check]) -> Explorer | None:
    from lightgate.bench.judge.slo import Search, Sweep
    from lightgate.bench.load.shape import parse_rate
    from lightgate.bench.run.explore import HighestRate, ToSaturation, Trial
    from lightgate.bench.run.order import ENOUGH, enough

    if not given["sweep"] and not given["find_rate"]:
        return None
    if len(order.targets) > 1 or (given["sweep"] and given["find_rate"]) or order.talk:
        raise UsageError("--sweep and --find-rate take one target, and one of the two.")
    if given["sweep"]:
        return ToSaturation(lambda workers: given["requests"] or enough(workers, 1) // 2, Sweep())
    if not checks:
        raise UsageError(
            "--find-rate needs a limit to keep.", hint='Add --fail-if "ttft_p95>500ms".'
        )
    duration = _duration(given["duration"])
    requests = given["requests"] or (None if duration is not None else ENOUGH)
    start = Search() if given["rate"] is None else Search(start=parse_rate(given["rate"]).per_s)
    return HighestRate(checks, start, Trial(requests, duration, order.seed))


def _carry_out(
    asked: tuple[RunOrder, tuple[CarriedHost, ...]],
    folder: RunFolder | None,
    explorer: Explorer | None,
    *,
    resume: bool,
) -> tuple[Run, int]:
    """Run it; an interruption keeps what was measured and is exit code 130."""
    import uvloop

    from lightgate.bench.run.engine import Bench
    from lightgate.errors import Exit
    from lightgate.report.tables.live import Progress

    order, hosts = asked
    with Progress() as progress:
        bench = Bench(order, folder, progress, explorer, hosts)
        if resume and folder is not None:
            bench.take_up(folder)
        interrupted, failure = uvloop.run(_until_signal(bench, hosts))
    if failure is not None and not bench.measured.attempts:
        raise failure
    run = checked(bench.run, order, bench, folder)
    if failure is not None:
        note(f"lightgate: {failure}")
        return run, failure.exit_code
    if bench.given_up:
        first = bench.given_up[0]
        note(f"lightgate: {first}")
        return run, first.exit_code
    return run, Exit.INTERRUPTED if interrupted else Exit.OK


def _watched(run: Run, watch: EngineWatch, folder: RunFolder | None) -> Run:
    """Put into the record what engines and GPUs said of themselves."""
    from lightgate.bench.watch.readings import with_readings

    for missing in watch.unseen:
        note(f"lightgate: {missing} could not be read")
    if not watch.readings:
        return run
    run = with_readings(run, watch.readings)
    if folder is not None:
        folder.write_run(run)
    return run


async def _until_signal(
    bench: Bench, hosts: tuple[CarriedHost, ...]
) -> tuple[bool, LightgateError | None]:
    async def work_on() -> None:
        if hosts:
            from lightgate.bench.load.ray_hosts import check_hosts

            await check_hosts(hosts)
        await bench.carry_out()

    loop = asyncio.get_running_loop()
    work = asyncio.ensure_future(work_on())
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        work.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        await work
    except asyncio.CancelledError:
        return True, None
    except LightgateError as error:
        return stopped, error
    return stopped, None


def _show(run: Run, folder: RunFolder | None, *, as_json: bool) -> None:
    from rich.console import Console

    from lightgate.report.pages.files import write_report
    from lightgate.report.tables.text import print_run

    if as_json:
        emit_json(run)
    else:
        terminal = sys.stdout.isatty()
        console = Console(file=sys.stdout, width=None if terminal else 160, highlight=False)
        print_run(run, console)
    if folder is not None:
        note(_wrote(write_report(folder), folder.path))


def _wrote(paths: Sequence[Path], folder: Path) -> str:
    """One line about the files of a run: the page and the table by name, the charts counted."""
    charts = sum(path.suffix in {".svg", ".png"} for path in paths)
    named = [path.name for path in paths if path.suffix not in {".svg", ".png"}]
    listed = ", ".join(named) + (f" and {charts} charts" if charts else "")
    return f"wrote {listed} in {folder}"


def _judge(run: Run, checks: list[Check]) -> None:
    from lightgate.bench.judge.slo import missed

    if not any(cell.outcomes.get("ok") for cell in run.cells):
        first = next((outcome for cell in run.cells for outcome in cell.outcomes), "nothing sent")
        raise LightgateError(
            f"Not one request succeeded ({first}).", hint="`lightgate doctor TARGET` says more."
        )
    found = missed(checks, run.cells)
    sure = [one for one in found if one.judged]
    listed = sure or found
    if listed:
        more = f" (and {len(listed) - 1} more)" if len(listed) > 1 else ""
        raise (ThresholdMissed if sure else NotJudged)(f"{listed[0]}{more}")
