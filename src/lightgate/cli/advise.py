"""`lightgate advise`: what would make this traffic faster or cheaper."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lightgate.cli.options import config_option, json_option, read_config
from lightgate.cli.output import Column, emit_json, emit_table, text_width
from lightgate.config.notation import parse_duration
from lightgate.errors import UsageError
from lightgate.ledger.locate import locate
from lightgate.ledger.runs.folder import RunFolder

if TYPE_CHECKING:
    from lightgate.advise.advise import AdviceReport
    from lightgate.config.model import Config
    from lightgate.ledger.runs.run import Run


@click.command("advise", epilog="Example: lightgate advise --last 14d --all")
@click.argument("run", metavar="[RUN]", required=False, type=click.Path(path_type=Path))
@click.option("--last", default="14d", show_default=True, help="How far back, such as 24h.")
@click.option("--model", help="Only the requests for this model.")
@click.option("--all", "everything", is_flag=True, help="Also what is not offered, and why.")
@click.option(
    "--checks",
    type=click.Path(path_type=Path),
    help="Run of `bench --checks`: another model is advised if it passes as many cases.",
)
@click.option(
    "--rehearse/--no-rehearse",
    default=True,
    show_default=True,
    help="Rehearse changes of routing with the ledger's past.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Folder of the gateway whose ledger is read; else the configured one.",
)
@config_option
@json_option
def command(**given: Any) -> None:
    """Say what would make this traffic faster or cheaper, in seconds and dollars, with intervals.

    Looks at the ledger of a gateway or, with RUN, at a folder that `bench --out` wrote. An advice
    has its evidence, what gets worse, the exact lines to apply and a command to check it. Nothing
    is offered whose saving may be chance, and nothing is changed.
    """
    from lightgate.advise.lines import HEADS, MEANS, WIDTH, cells, plain_advice, title

    config = read_config(given["config_file"])
    checks = None if given["checks"] is None else RunFolder(given["checks"]).run()
    if given["run"]:
        report = _of_run(given["run"], config, checks)
    else:
        report = _of_ledger(given, config, checks)
    if given["as_json"]:
        emit_json(report.data(everything=given["everything"]))
        return
    width = text_width(WIDTH)
    click.echo(title(report, width))
    if report.offered:
        click.echo()
        columns = [Column(name, "right" if name in {"#", "n"} else "left") for name in HEADS]
        emit_table(
            columns, [cells(at, one) for at, one in enumerate(report.offered, 1)], names=3,
            caption=MEANS,
        )  # fmt: skip
    text = plain_advice(report, everything=given["everything"], width=width)
    if text:
        click.echo()
        click.echo(text)


def _of_ledger(given: dict[str, Any], config: Config | None, checks: Run | None) -> AdviceReport:
    from lightgate.advise.of_ledger import advise_ledger, scope_of

    now = datetime.now(UTC)
    period = (now - length_of(given["last"]), now)
    place = locate(config if given["data"] is None else None, given["data"])
    with place.open_existing() as ledger:
        scope = scope_of(ledger, period, config, checks)
        return advise_ledger(ledger, scope, given["model"], rehearse=given["rehearse"])


def _of_run(path: Path, config: Config | None, checks: Run | None) -> AdviceReport:
    from lightgate.advise.advise import advise
    from lightgate.advise.history import run_history
    from lightgate.advise.scope import AdviceScope

    folder = RunFolder(path)
    run = folder.run()
    began = datetime.fromisoformat(run.started)
    attempts = folder.attempts()
    ends = [datetime.fromisoformat(one.wall_time) for one in attempts]
    history = run_history(attempts, (began, max(ends, default=began)))
    return advise(AdviceScope(history, config, checks=checks or run))


def length_of(last: str) -> timedelta:
    """Read how far back to look."""
    try:
        return timedelta(microseconds=parse_duration(last) // 1_000)
    except (ValueError, OverflowError):
        raise UsageError(f"--last {last!r} is no duration.", hint="Such as 14d or 24h.") from None
