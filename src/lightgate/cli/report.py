"""`lightgate report`: how fast the requests of the last days were, from the ledger."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import click

from lightgate.cli.options import config_option, json_option, read_config
from lightgate.cli.output import Column, emit_json, emit_table, note
from lightgate.config.notation import parse_duration
from lightgate.errors import UsageError
from lightgate.ledger.locate import locate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from lightgate.config.model import Config
    from lightgate.ledger.locate import LedgerPlace
    from lightgate.ledger.runs.run import Run
    from lightgate.ledger.store.hourly import HourlyRow, MachineUse
    from lightgate.ledger.store.queries import SpeedRow
    from lightgate.ledger.store.store import Ledger
    from lightgate.report.tables.speed_report import SpeedQuestion, SpeedReport

Format = Literal["table", "json", "csv", "md", "html", "png", "svg"]
FORMATS: Final = ("table", "json", "csv", "md", "html", "png", "svg")
_NS_PER_US: Final = 1_000
_MOST_ADVISED: Final = 20_000  # requests that the advice on a page looks at: some three seconds
_DATA: Final = "./lightgate-data"


class Shown(NamedTuple):
    """How the report leaves: its form, and the file it goes to."""

    form: Format
    out: Path | None


class ReportPeriod(NamedTuple):
    """A length of time and its end."""

    length: timedelta
    until: datetime


@click.command("report", epilog="Example: lightgate report --by model --out speed.html")
@click.option("--last", default="14d", show_default=True, help="How far back, such as 24h.")
@click.option(
    "--min-requests",
    type=click.IntRange(min=1),
    show_default="500; 6 while no group has 500",
    help="Successful requests that a group needs to be judged.",
)
@click.option(
    "--by",
    type=click.Choice(("model", "provider", "target", "alias", "key", "tag")),
    default="model",
    show_default=True,
    help="What a group is.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Form of the report; else by the ending of --out, else a table.",
)
@json_option
@click.option("--out", type=click.Path(path_type=Path), help="File to write instead of stdout.")
@click.option(
    "--predictions",
    is_flag=True,
    help="Compare predicted with actual first tokens instead, by target and load.",
)
@click.option(
    "--bill",
    is_flag=True,
    help="Show what hedges and races cost and saved instead, by target and by key.",
)
@click.option(
    "--cascades",
    is_flag=True,
    help="Show who answered in cascades instead, and what all at the dearest would have cost.",
)
@click.option(
    "--advice/--no-advice",
    default=True,
    show_default=True,
    help="In a page: also what would make this traffic faster or cheaper.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Folder of the gateway whose ledger is read; else the configured one.",
)
@config_option
def command(**given: Any) -> None:
    """Report how fast production requests were: tokens over the whole time, by group.

    Only successful requests count, and only groups with enough of them get a grade. Every number
    comes with its n; the median with its 95 % interval.
    """
    from lightgate.report.tables.speed_report import MIN_REQUESTS, SpeedQuestion, arranged, relaxed

    others = {"predictions": _predictions, "bill": _bill, "cascades": _cascades}
    for option, show in others.items():
        if given[option]:
            show(given)
            return
    out: Path | None = given["out"]
    shown = Shown(_form("json" if given["as_json"] else given["form"], out), out)
    period = ReportPeriod(_length(given["last"]), datetime.now(UTC))
    asked = SpeedQuestion(
        by=given["by"],
        since=_stamp(period.until - period.length),
        until=_stamp(period.until),
        min_requests=given["min_requests"] or MIN_REQUESTS,
    )
    read = _read(asked, period, given, advice=shown.form == "html" and given["advice"])
    if given["min_requests"] is None:
        asked = relaxed(read.rows, asked)
    report = arranged(read.rows, asked, read.hourly)
    _show(report._replace(machines=tuple(read.machines), own=read.own), shown, read.sections)


def _bill(given: dict[str, Any]) -> None:
    """Show what second attempts cost and bought."""
    from lightgate.report.money.bill import HEADS, MEANS, bill, bill_cells

    asked = _table_asked("--bill", given)
    with asked.place.open_existing() as ledger:
        rows = bill(ledger, asked.since, asked.until)
    if asked.as_json:
        emit_json({"since": _stamp(asked.since), "until": _stamp(asked.until), "rows": rows})
        return
    if not rows:
        note("No request of this time had a second attempt beside the first.")
        return
    for by in ("target", "key"):
        columns = [Column(by), *(Column(title, "right") for title in HEADS)]
        told = [bill_cells(row) for row in rows if row.by == by]
        emit_table(columns, told, caption=MEANS if by == "key" else "")
        if by == "target":
            click.echo()


def _cascades(given: dict[str, Any]) -> None:
    """Show what cascades came to."""
    from lightgate.provider.target import rates_at
    from lightgate.report.money.cascades import HEADS, MEANS, cascade_cells, cascades

    asked = _table_asked("--cascades", given)
    since, until = asked.since, asked.until
    with asked.place.open_existing() as ledger:
        rows = cascades(ledger, since, until, lambda name: rates_at(name, asked.config, until))
    if asked.as_json:
        emit_json({"since": _stamp(since), "until": _stamp(until), "rows": rows})
        return
    if not rows:
        note('No request of this time was answered by a model with `policy = "cascade"`.')
        return
    columns = [Column("model"), Column("answered by")]
    columns += [Column(title, "right") for title in HEADS]
    emit_table(columns, [cascade_cells(row) for row in rows], caption=MEANS, names=2)


class TableAsked(NamedTuple):
    """What one of the other tables is asked for: a period, a ledger, and the form."""

    since: datetime
    until: datetime
    config: Config | None
    place: LedgerPlace
    as_json: bool


def _table_asked(option: str, given: dict[str, Any]) -> TableAsked:
    """Read what all of the other tables take; UsageError for a form that they do not have."""
    if given["out"] is not None or given["form"] not in {None, "table", "json"}:
        raise UsageError(f"{option} is a table, or JSON with --json.")
    until, config = datetime.now(UTC), read_config(given["config_file"])
    place = locate(config if given["data"] is None else None, given["data"])
    as_json = given["as_json"] or given["form"] == "json"
    return TableAsked(until - _length(given["last"]), until, config, place, as_json)


def _predictions(given: dict[str, Any]) -> None:
    """Show how good the predictions of the router were."""
    from lightgate.ledger.store.predictions import predictions
    from lightgate.report.tables.predictions import calibration, prediction_cells, prediction_data

    asked = _table_asked("--predictions", given)
    with asked.place.open_existing() as ledger:
        rows = calibration(predictions(ledger, asked.since, asked.until))
    if asked.as_json:
        emit_json(prediction_data(rows, _stamp(asked.since), _stamp(asked.until)))
        return
    if not rows:
        note("No exchange of this time has a prediction: they are made by policies that learn.")
        return
    numbers = ("n", "actual / predicted", "p10 - p90", "in the band", "sooner", "later", "failed")
    columns = [Column("target"), Column("in flight", "right")]
    columns += [Column(title, "right") for title in (*numbers, "closed")]
    caption = (
        "actual / predicted: the median. The band should hold 80 %. Failed and closed attempts had"
        " no first token, and are in none of the other figures."
    )
    emit_table(columns, [prediction_cells(row) for row in rows], caption=caption, names=2)


class ReportRead(NamedTuple):
    """What the ledger says: groups, self-hosted providers, break-even; further sections of HTML."""

    rows: list[SpeedRow]
    hourly: list[HourlyRow]
    machines: list[MachineUse]
    own: Run | None
    sections: tuple[str, ...]


def _read(
    asked: SpeedQuestion, period: ReportPeriod, given: dict[str, Any], *, advice: bool
) -> ReportRead:
    """Read the configured ledger, or a named folder's."""
    from lightgate.ledger.store.hourly import hourly_rows, machine_uses
    from lightgate.ledger.store.owners import rows_by
    from lightgate.provider.target import rates_at
    from lightgate.report.money.machines import machine_run, with_rates

    config = read_config(given["config_file"])
    data: Path | None = given["data"]
    prices = {} if config is None else _hourly_prices(config)
    last, until = period
    with locate(config if data is None else None, data).open_existing() as ledger:
        hourly = hourly_rows(ledger, last, until, prices)
        rows = rows_by(ledger, last, asked.by, until)
        machines = machine_uses(ledger, hourly, last, until)
        own = None
        if machines:
            targets = rows_by(ledger, last, "target", until)
            rates = {row.name: rates_at(row.name, config, until) for row in targets}
            own = machine_run(machines, with_rates(targets, rates), asked.since)
        told = (_advice(ledger, period, config),) if advice else ()
        return ReportRead(rows, hourly, machines, own, told)


def _advice(ledger: Ledger, period: ReportPeriod, config: Config | None) -> str:
    """The section about what to change; nothing is rehearsed for it."""
    from lightgate.advise.of_ledger import advise_ledger, scope_of
    from lightgate.advise.page import advice_section

    span = (period.until - period.length, period.until)
    scope = scope_of(ledger, span, config, most=_MOST_ADVISED)
    return advice_section(advise_ledger(ledger, scope, rehearse=False))


def _hourly_prices(config: Config) -> dict[str, Decimal]:
    """The prices by the hour of a configuration, for a ledger in which none was noted yet."""
    tables = config.providers.items()
    return {name: table.hourly_cost for name, table in tables if table.hourly_cost is not None}


def _form(form: Format | None, out: Path | None) -> Format:
    """The form that was asked for; else what the file's name says, else a table."""
    if form is None:
        ending = "" if out is None else out.suffix.lower().removeprefix(".")
        form = next((one for one in FORMATS if one == ending), None)
        if form is None and out is not None:
            raise UsageError(
                f"--out {out} does not say which form it should have.",
                hint=f"Add --format, or an ending: .{', .'.join(FORMATS[1:])}.",
            )
    if form == "png" and out is None and sys.stdout.isatty():
        raise UsageError("A picture is nothing for a terminal.", hint="Add --out speed.png.")
    return form or "table"


def _length(last: str) -> timedelta:
    try:
        return timedelta(microseconds=parse_duration(last) // _NS_PER_US)
    except (ValueError, OverflowError):
        raise UsageError(f"--last {last!r} is no duration.", hint="Such as 14d or 24h.") from None


def _stamp(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _show(report: SpeedReport, shown: Shown, sections: Sequence[str] = ()) -> None:
    from lightgate.report.pages.files import write_whole
    from lightgate.report.tables.speed_lines import print_speed, speed_data

    if shown.out is not None:
        note(f"wrote {write_whole(shown.out, _content(report, shown.form, sections))}")
    elif shown.form == "json":
        emit_json(speed_data(report))
    elif shown.form == "table" and sys.stdout.isatty():
        from rich.console import Console

        print_speed(report, Console(file=sys.stdout, highlight=False))
    else:
        sys.stdout.buffer.write(_content(report, shown.form, sections))


def _content(report: SpeedReport, form: Format, sections: Sequence[str]) -> bytes:
    """The whole file."""
    import msgspec

    from lightgate.report.charts.raster import png
    from lightgate.report.charts.speed_chart import speed_chart
    from lightgate.report.pages.speed_page import speed_page
    from lightgate.report.tables import speed_lines

    if form in {"png", "svg"}:
        drawn = speed_chart(report)
        if drawn is None:
            raise UsageError(
                "There is no group to draw.", hint="See --last, --min-requests and --by."
            )
        return png(drawn) if form == "png" else drawn.file().encode()
    if form == "html":
        return speed_page(report, sections).encode()
    if form == "json":
        encoder = msgspec.json.Encoder(decimal_format="number")
        return msgspec.json.format(encoder.encode(speed_lines.speed_data(report))) + b"\n"
    if form == "csv":
        return speed_lines.speed_csv(report).encode()
    text = speed_lines.markdown(report) if form == "md" else speed_lines.plain_speed(report)
    return text.encode()
