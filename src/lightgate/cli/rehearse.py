"""`lightgate rehearse`: what each policy would have done."""

from __future__ import annotations

import math
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lightgate.cli.options import config_option, json_option, read_config
from lightgate.cli.output import Column, emit_json, emit_table, note
from lightgate.config.notation import parse_duration
from lightgate.errors import UsageError
from lightgate.ledger.locate import locate
from lightgate.route.plan.policy import ASKABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.bench.rehearse.past import PastSource
    from lightgate.bench.rehearse.rehearse import RehearsalSource
    from lightgate.bench.rehearse.scene import Scene
    from lightgate.bench.rehearse.tally import PolicyRow, SeedMean

POLICIES: Final = (*ASKABLE, "random", "p2c")
_DATA: Final = "./lightgate-data"
_COLUMNS: Final = (
    Column("policy"),
    Column("ttft p50", "right"),
    Column("p95", "right", joined=True),
    Column("p99", "right", joined=True),
    Column("done p50", "right"),
    Column("p95", "right", joined=True),
    Column("p99", "right", joined=True),
    Column("x oracle", "right"),
    Column("over 1 s", "right"),
    Column("dupl.", "right"),
    Column("spend", "right"),
    Column("failed", "right"),
)
_MEANS: Final = (
    "Seconds as clients see them; ± is the standard deviation over the seeds. x oracle: the p95 of"
    " TTFT beside the oracle's / of the whole answer beside oracle-end's. over 1 s: first"
    " tokens later than that, or never. dupl.: attempts started beside another one. spend: beside"
    " fixed-best, where closing a stream stops its bill / where some providers bill it to the end."
)
GUESSED: Final = 0.02  # of a policy's attempts: from here on it is said that they are guesses
_BLOCKS: Final = " ▁▂▃▄▅▆▇█"


@click.command("rehearse", epilog="Example: lightgate rehearse --world T4 --policy voice")
@click.option("--world", help="T1 to T5, queue, cold or another scene, a world, or its file.")
@click.option("--ledger", "from_ledger", is_flag=True, help="Rehearse with the ledger's own past.")
@click.option("--last", default="7d", show_default=True, help="How far back with --ledger.")
@click.option("--model", help="With --ledger: the model asked for; else the most frequent one.")
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(POLICIES),
    help="Policy to rehearse; repeatable.  [default: chat, fastest, voice]",
)
@click.option(
    "--race",
    type=click.IntRange(1, 8),
    default=1,
    show_default=True,
    help="Targets that are asked at once.",
)
@click.option("--hedge", default="auto", show_default=True, help="off, auto, p75 to p99, or 800ms.")
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    default=8,
    show_default=True,
    help="Runs, each with other random numbers.",
)
@click.option(
    "--requests", type=click.IntRange(min=1), help="Requests in each run.  [default: 6000]"
)
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), help="Requests a second.")
@click.option(
    "--backlog",
    type=click.IntRange(1, 1_000_000),
    help="Instead of policies: so many lines of a batch job, by each way to send them.",
)
@click.option("--target", "targets", multiple=True, help="Only this target; repeatable.")
@click.option("--slots", type=click.IntRange(min=0), help="Slots of every target; 0: no queue.")
@click.option(
    "--share",
    type=click.FloatRange(min=0, min_open=True),
    help="Traffic as a share of what all slots can serve, such as 0.8.",
)
@click.option("--load", type=click.IntRange(min=1), help="Requests in flight to assume.")
@click.option(
    "--correlation",
    type=click.FloatRange(0, 1),
    help="How much targets are slow together (of log TTFT).",
)
@click.option(
    "--prompt-tokens", type=click.IntRange(min=1), help="Tokens of a prompt.  [default: 512]"
)
@click.option(
    "--max-tokens", type=click.IntRange(min=1), help="Tokens of an answer.  [default: 512]"
)
@click.option(
    "--data", type=click.Path(path_type=Path), help="Folder of the gateway whose ledger is read."
)
@config_option
@json_option
def command(**given: Any) -> None:
    """Play traffic through the real routing code in virtual time, and compare policies.

    Every policy meets the same requests and the same luck, beside fixed-best, mean-of-last-10 and
    an oracle that knows each target's weather. The traffic is that of a simulated world or of the
    ledger.
    """
    from lightgate.bench.rehearse.gateway_policy import PolicySettings, gateway_policy
    from lightgate.bench.rehearse.rehearse import BEFORE, EDGES, OTHERS, baseline, rehearse

    stage, facts = _stage(given)
    if given["backlog"] is not None:
        _show_backlog(given, stage)
        return
    chosen = dict.fromkeys(given["policies"] or ("chat", "fastest", "voice"))
    _check_hedge(given["hedge"])
    middle = [
        baseline(name)
        if name in OTHERS
        else gateway_policy(PolicySettings(policy=name, hedge=given["hedge"], race=given["race"]))
        for name in chosen
    ]
    marks = [baseline(name) for name in EDGES]
    roles = [*marks[:BEFORE], *middle, *marks[BEFORE:]]
    rows = rehearse(stage, roles, range(1, given["seeds"] + 1), _progress)
    if given["as_json"]:
        emit_json({**facts, "seeds": given["seeds"], "policies": rows})
        return
    click.echo(facts["title"])
    emit_table(_COLUMNS, [_cells(row) for row in rows], caption=_MEANS)
    click.echo()
    for line in picture(rows):
        click.echo(line)
    for line in (*facts["remarks"], *_beyond(rows)):
        click.echo(line)


def _show_backlog(given: dict[str, Any], stage: RehearsalSource) -> None:
    """Print how long a batch job would take by each way, and what it would cost."""
    from lightgate.bench.rehearse.backlog import play_backlog
    from lightgate.bench.rehearse.rehearse import WorldSource
    from lightgate.cli.output import dollars

    if not isinstance(stage, WorldSource):
        raise UsageError("--backlog is for worlds: the ledger's past has no backlog.")
    made = stage.scene
    rows = play_backlog(made, given["backlog"])
    if given["as_json"]:
        emit_json({"stage": made.name, "lines": given["backlog"], "ways": rows})
        return
    traffic = made.traffic
    click.echo(
        f"{made.name}: {given['backlog']:,} lines of {traffic.tokens_in} tokens, answers of"
        f" {traffic.tokens_out}; in virtual time, with the gates of `lightgate batch run`."
    )
    columns = (
        Column("way"),
        Column("seconds", "right"),
        Column("lines/s", "right"),
        Column("tokens/s", "right"),
        Column("refused", "right"),
        Column("failed", "right"),
        Column("dollars", "right"),
    )
    cells = [
        (
            row.way,
            f"{row.seconds:,.1f}",
            f"{row.lines_per_s:.2f}",
            f"{row.tokens_per_s:,.0f}",
            f"{row.refused:.1%}",
            f"{row.failed:,}",
            dollars(row.cost_usd),
        )
        for row in rows
    ]
    emit_table(columns, cells)


def _stage(given: dict[str, Any]) -> tuple[RehearsalSource, dict[str, Any]]:
    if bool(given["world"]) == given["from_ledger"]:
        raise UsageError(
            "Say what to rehearse with: --world or --ledger, one of them.",
            hint="lightgate rehearse --world T4, or --ledger --last 7d.",
        )
    if given["from_ledger"]:
        stage = _past(given)
        return stage, _past_facts(stage)
    from lightgate.bench.rehearse.rehearse import WorldSource
    from lightgate.bench.rehearse.scene import SceneChanges, scene

    wish = SceneChanges(
        targets=given["targets"],
        requests=given["requests"],
        rate=given["rate"],
        load=given["load"],
        correlation=given["correlation"],
        tokens_in=given["prompt_tokens"],
        tokens_out=given["max_tokens"],
        slots=given["slots"],
        share=given["share"],
    )
    made = scene(given["world"], wish)
    return WorldSource(made), _world_facts(made)


def _past(given: dict[str, Any]) -> PastSource:
    from lightgate.bench.rehearse.past import PastPeriod, past

    only_worlds = (
        *("rate", "targets", "load", "correlation", "prompt_tokens", "max_tokens"),
        *("slots", "share"),
    )
    for name in only_worlds:
        if given[name] not in {None, ()}:
            flag = {"targets": "target"}.get(name, name).replace("_", "-")
            raise UsageError(f"--{flag} is for worlds: the ledger's past is what it was.")
    config = read_config(given["config_file"])
    data: Path | None = given["data"]
    now = datetime.now(UTC)
    period = PastPeriod(
        since=now - _length(given["last"]),
        until=now,
        model=given["model"],
        requests=given["requests"],
    )
    with locate(config if data is None else None, data).open_existing() as ledger:
        return past(ledger, period, config)


def _length(last: str) -> timedelta:
    try:
        return timedelta(microseconds=parse_duration(last) // 1_000)
    except (ValueError, OverflowError):
        raise UsageError(f"--last {last!r} is no duration.", hint="Such as 7d or 24h.") from None


def _check_hedge(hedge: str) -> None:
    if hedge in {"off", "auto"}:
        return
    if hedge.startswith("p") and hedge[1:].isdecimal() and 75 <= int(hedge[1:]) <= 99:
        return
    try:
        parse_duration(hedge)
    except ValueError:
        raise UsageError(
            f"--hedge {hedge!r} is no hedge.", hint="off, auto, p75 to p99, or such as 800ms."
        ) from None


def _world_facts(made: Scene) -> dict[str, Any]:
    traffic = made.traffic
    load = "own load" if made.load is None else f"{made.load} in flight"
    about = "about " if traffic.spread else ""
    sizes = f"{traffic.tokens_in} tokens in, {about}{traffic.tokens_out} out"
    if traffic.kinds:
        sizes = f"{len(traffic.kinds)} kinds of requests"
    title = (
        f"{made.name}: {made.title}. {traffic.requests:,} requests at {traffic.rate:.3g}/s, {load},"
        f" {sizes}."
    )
    remarks = (
        []
        if made.priced
        else ["Not all prices are known: every target costs 1 dollar per million tokens in, 4 out."]
    )
    targets = [offer.target for offer in made.offers]
    return {"stage": made.name, "title": title, "targets": targets, "remarks": remarks}


def _past_facts(stage: PastSource) -> dict[str, Any]:
    targets = [offer.target for offer in stage.offers]
    title = f"{stage.model}: {stage.requests:,} requests of the ledger, {len(targets)} targets."
    drawn = (
        "What a target would have done is drawn from its own 40 attempts nearest in time;"
        f" for {stage.stretched():.0%} of the pairs the nearest is over ten minutes away."
    )
    remarks = [drawn, *(load.says for load in stage.loads)]
    facts = {"stage": "ledger", "title": title, "targets": targets, "remarks": remarks}
    return {**facts, "load": stage.loads}


def _progress(done: int, of: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == of else ""
        click.echo(f"\rrehearsing {done}/{of}{end}", err=True, nl=False)
    elif done == of:
        note(f"rehearsed {of} runs")


def _cells(row: PolicyRow) -> tuple[str, ...]:
    return (
        row.policy,
        _seconds(row.ttft_p50_s),
        _seconds(row.ttft_p95_s, sd=True),
        _seconds(row.ttft_p99_s, sd=True),
        _seconds(row.done_p50_s),
        _seconds(row.done_p95_s, sd=True),
        _seconds(row.done_p99_s, sd=True),
        f"{_times(row.x_oracle)} / {_times(row.x_oracle_end)}",
        f"{row.over_1s.mean:.1%}",
        f"{row.duplicates.mean:.1%}",
        f"{_more(row.spend_honoured)} / {_more(row.spend_mixed)}",
        f"{row.failures.mean:.2%}",
    )


def _seconds(figure: SeedMean, *, sd: bool = False) -> str:
    if math.isnan(figure.mean):
        return "unknown"
    return f"{figure.mean:.2f} ±{figure.sd:.2f}" if sd else f"{figure.mean:.2f}"


def _times(ratio: float | None) -> str:
    return "unknown" if ratio is None or math.isnan(ratio) else f"{ratio:.2f}"


def _more(figure: SeedMean | None) -> str:
    return "unknown" if figure is None else f"{figure.mean:+.1%}"


def _beyond(rows: Sequence[PolicyRow]) -> list[str]:
    """Say which rows rest on load that the ledger's past does not show."""
    far = [f"{row.policy} {row.beyond.mean:.0%}" for row in rows if row.beyond.mean >= GUESSED]
    if not far:
        return []
    words = "Attempts that met more load than the ledger has seen there, so that their times are"
    return [f"{words} guesses: {', '.join(far)}."]


def picture(rows: Sequence[PolicyRow]) -> list[str]:
    """The share of requests still without a first token at each instant, as bars."""
    from lightgate.bench.rehearse.tally import INSTANTS_S

    label = "still waiting after, s"
    width = max(len(label), *(len(row.policy) for row in rows))
    bars = [
        f"{row.policy:<{width}}  {' '.join(_bar(share) * 4 for share in row.waiting)}"
        for row in rows
    ]
    axis = "".join(f"{instant:<5g}" for instant in INSTANTS_S).rstrip()
    return [
        f"{label:<{width}}  {axis}",
        *bars,
        "Bars: all requests, 1 in 10, 1 in 100, 1 in 1,000 at the heights █ ▆ ▃ ▁; · is none.",
    ]


def _bar(share: float) -> str:
    """On a scale of logarithms, so that one in a thousand is still seen."""
    if share <= 0.0:
        return "·"
    return _BLOCKS[max(1, round(8 + 7 / 3 * math.log10(share)))]
