"""`lightgate console`: sign in to the console, sign everybody out, and see who changed what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from lightgate.cli.keys import cli_author, find_ledger, place_option
from lightgate.cli.options import json_option
from lightgate.cli.output import Column, emit_json, emit_table, note
from lightgate.clock.ids import Ids
from lightgate.clock.source import SYSTEM
from lightgate.console.admin.sign_in import LINK_NS, SignIns, link_address
from lightgate.errors import LightgateError, UsageError
from lightgate.gateway.process.lock import read_state
from lightgate.ledger.audit import ChangeNote, note_change, read_audit
from lightgate.ledger.store.keys import instant_text

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.ledger.audit import AuditEntry

# Of a new key: what says nothing (None), and what all have that were not given another one.
_USUAL: dict[str, Any] = {
    "id": None, "name": None, "created": None, "prefix": None, "budget_period": "total",
    "max_fanout": 2,
}  # fmt: skip


@click.group("console", epilog="Example: lightgate console link")
def command() -> None:
    """Sign in to the console, and see who changed what.

    Reading the console on this machine needs no sign-in unless LIGHTGATE_CONSOLE_SECRET is set.
    Keys, spend, configuration and everything that changes or spends something need one.
    """


@command.command(
    "link",
    short_help="Print a link that signs a browser in.",
    epilog="Example: lightgate console link --base https://gate.example",
)
@click.option("--base", help="Where you reach the console; its own address by default.")
@place_option
@json_option
def link(*, base: str | None, data: Path | None, config_file: Path | None, as_json: bool) -> None:
    """Print a link that signs one browser in, once, within 10 minutes."""
    folder = find_ledger(data, config_file).data
    state = read_state(folder)
    if state is None:
        raise LightgateError(
            f"No `lightgate up` runs on {folder}.", hint="Name its data folder with --data."
        )
    if base is not None and urlsplit(base).scheme not in {"http", "https"}:
        raise UsageError(f"--base {base!r} is no address.", hint="Such as https://gate.example.")
    sign_ins = SignIns(folder)
    url = link_address(state.console_host, state.console_port, sign_ins.new_link(_who()), base)
    if as_json:
        emit_json({"url": url, "until": instant_text(SYSTEM.wall_ns() + LINK_NS)})
    else:
        click.echo(url)
    note("It signs one browser in, once, within 10 minutes.")


@command.command(
    "sign-out",
    short_help="End every session.",
    epilog="Example: lightgate console sign-out",
)
@place_option
@json_option
def sign_out(*, data: Path | None, config_file: Path | None, as_json: bool) -> None:
    """End every session of a browser, and every link that was not used yet."""
    place = find_ledger(data, config_file)
    ended = SignIns(place.data).end_all()
    if not place.missing:
        change = ChangeNote("session.end", "all", "all sessions", None, {"ended": ended})
        with place.open() as ledger, ledger.writing() as connection:
            note_change(connection, cli_author(), change, ids=Ids())
    if as_json:
        emit_json({"ended": ended})
    else:
        click.echo(f"Ended {ended} session{'' if ended == 1 else 's'}.")


@command.command(
    "audit",
    short_help="List changes: who, when, what.",
    epilog="Example: lightgate console audit --limit 20 --json",
)
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many."
)
@place_option
@json_option
def audit(*, limit: int, data: Path | None, config_file: Path | None, as_json: bool) -> None:
    """List the changes of keys and the sign-ins, the newest first, with what was before."""
    place = find_ledger(data, config_file)
    rows: list[AuditEntry] = []
    if not place.missing:
        with place.open() as ledger, ledger.reading() as connection:
            rows = read_audit(connection, limit=limit)
    if as_json:
        emit_json(rows)
        return
    if not rows:
        click.echo("Nothing was changed yet.")
        return
    emit_table(
        [*map(Column, ("when", "who", "from", "what")), Column("change", prose=True)],
        [
            (row.at[:19].replace("T", " "), row.who, row.address or "command line",
             f"{row.action} {row.name}", _change(row))
            for row in rows
        ],
        caption="Times are UTC. A change shows what was before and what is now.",
    )  # fmt: skip


def _change(row: AuditEntry) -> str:
    """What differs, in words; of a new key its terms that are set."""
    after = row.after or {}
    if row.before is None:
        return ", ".join(
            f"{name} {_value(value)}"
            for name, value in after.items()
            if value not in (None, False, [], {}) and _USUAL.get(name, ...) not in (value, None)
        )
    return ", ".join(
        f"{name} {_value(row.before.get(name))} → {_value(value)}" for name, value in after.items()
    )


def _value(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    if isinstance(value, dict):
        return " ".join(f"{name}={one}" for name, one in value.items()) or "none"
    return "none" if value is None else str(value)


def _who() -> str:
    return cli_author().who
