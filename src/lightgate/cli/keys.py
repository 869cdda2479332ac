"""`lightgate keys`: virtual keys with budgets, limits and rights."""

from __future__ import annotations

import getpass
import os
import re
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lightgate.cli.options import config_option, json_option, read_config
from lightgate.cli.output import Column, dollars, emit_json, emit_table, note
from lightgate.clock.source import SYSTEM
from lightgate.errors import ConfigError, UsageError
from lightgate.gateway.served.key_desk import KeyDesk, public_facts
from lightgate.gateway.served.snapshot import SnapshotFailed, read_snapshot
from lightgate.ledger.audit import Author
from lightgate.ledger.failed import LedgerAway
from lightgate.ledger.locate import LedgerPlace, locate
from lightgate.ledger.store.keys import (
    MOST_COUNT,
    MOST_FANOUT,
    SOUND_NAME,
    KeyRecord,
    KeyTerms,
    budget_problem,
    expiry_of,
    given_key,
    hash_of,
    read_keys,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class DollarAmount(click.ParamType[Decimal]):
    """An amount of dollars, read exactly."""

    name = "dollars"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Decimal:
        """Read a positive amount."""
        try:
            amount = Decimal(str(value).removeprefix("$"))
        except InvalidOperation:
            amount = Decimal(0)
        problem = budget_problem(amount)
        if problem:
            self.fail(f"{value!r}: {problem}", param, ctx)
        return amount


def place_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--data` and `--config`; the verb gets them as `data` and `config_file`."""
    return click.option(
        "--data",
        type=click.Path(path_type=Path),
        help="Data folder of the gateway; gateway.data of the configuration by default.",
    )(config_option(function))


@click.group(
    "keys", epilog="Example: lightgate keys create --name ci --budget 25 --period month --rpm 60"
)
def command() -> None:
    """Make, list and revoke the keys that clients show to the gateway.

    A key is shown once and kept only as a hash. A running gateway takes every change within a
    second. While there is no key at all, the gateway asks for none and listens on loopback only.
    """


@command.command(
    "create",
    epilog="Example: lightgate keys create --name ci --budget 25 --period month --rpm 60"
    " --models fast-llama,groq/llama-3.3-70b-versatile --expires 90d --tags team=search",
)
@click.option("--name", required=True, help="What the key is called in lists and reports.")
@click.option("--budget", type=DollarAmount(), help="Dollars that it may spend.")
@click.option(
    "--period",
    type=click.Choice(("total", "day", "month")),
    help="When the budget begins again (UTC); never by default.",
)
@click.option("--rpm", type=click.IntRange(1, MOST_COUNT), help="Requests in any 60 seconds.")
@click.option("--tpm", type=click.IntRange(1, MOST_COUNT), help="Tokens in any 60 seconds.")
@click.option("--models", default="", help="Models it may ask for, with commas; all by default.")
@click.option("--max-tokens", type=click.IntRange(1, MOST_COUNT), help="Longest answer, in tokens.")
@click.option("--race", is_flag=True, help="It may have several targets race for one answer.")
@click.option(
    "--max-fanout",
    type=click.IntRange(1, MOST_FANOUT),
    default=2,
    show_default=True,
    help="Targets that one request may use at once.",
)
@click.option("--expires", help="When it ends (UTC), such as 90d or 2027-01-31.")
@click.option("--tags", multiple=True, metavar="K=V", help="Put on every request; repeatable.")
@click.option(
    "--from-env",
    metavar="VAR",
    help="Take the key from this variable instead of making one; nothing is changed where it is"
    " there already.",
)
@place_option
@json_option
def create(*, data: Path | None, config_file: Path | None, as_json: bool, **wishes: Any) -> None:
    """Make a key, print it once on stdout, and keep only its hash."""
    given = _given(wishes["from_env"])
    terms = _terms(wishes)
    place = find_ledger(data, config_file)
    try:
        with place.open() as ledger:
            made = KeyDesk(ledger, place.data).create(terms, cli_author(), given=given)
    except LedgerAway as error:
        known = None if given is None else _known_before(place.data, given)
        if known is None:
            raise
        if as_json:
            emit_json(_facts(known))
        note(f"{error.message} The key of {wishes['from_env']} is known here from before.")
        return
    secret, record = made.secret, made.record
    if given is not None:
        if as_json:
            emit_json(_facts(record))
        word = "is now" if made.fresh else "was already"
        note(f"The key of {wishes['from_env']} {word} in the ledger: {record.name!r}.")
        return
    if as_json:
        emit_json({"key": secret, **_facts(record)})
    else:
        click.echo(secret)
    note(f"This is key {record.name!r} ({record.id}). It is not shown again.")
    if made.keys == 1:
        note("It is the first: from now on the gateway answers only requests with a key.")


@command.command(
    "list",
    short_help="List the keys and their terms.",
    epilog="Example: lightgate keys list --json",
)
@place_option
@json_option
def show(*, data: Path | None, config_file: Path | None, as_json: bool) -> None:
    """List the keys with their terms; the keys themselves are not stored."""
    place = find_ledger(data, config_file)
    rows = [] if place.missing else _rows(place)
    if as_json:
        emit_json(rows)
        return
    if not rows:
        click.echo("There is no key. `lightgate keys create --name NAME` makes one.")
        return
    titles = (
        "name",
        "begins",
        "state",
        "spent",
        "budget",
        "limits",
        "models",
        "created",
        "expires",
        "id",
    )
    emit_table(
        [Column(title, prose=title == "models") for title in titles],
        [
            (row["name"], row["prefix"] + "…", row["state"], _cents(row["spent_usd"]), _budget(row),
             _limits(row),
             ", ".join(row["models"]) or "all", row["created"][:10],
             (row["expires"] or "never")[:10], row["id"])
            for row in rows
        ],
        caption="Times are UTC. Spent: in the budget's period; the last seconds may be missing.",
    )  # fmt: skip


def _rows(place: LedgerPlace) -> list[dict[str, Any]]:
    """The facts of every key in a ledger, with what each has spent."""
    from lightgate.ledger.store.queries import spend_by_period

    with place.open() as ledger:
        with ledger.reading() as connection:
            records = read_keys(connection)
        spent = spend_by_period(ledger, SYSTEM.wall_ns())
    return [
        _facts(record) | {"spent_usd": spent[record.budget_period].get(record.id, Decimal(0))}
        for record in records
    ]


@command.command(
    "revoke", short_help="Refuse a key from now on.", epilog="Example: lightgate keys revoke ci"
)
@click.argument("key", metavar="ID|NAME")
@place_option
@json_option
def revoke(*, key: str, data: Path | None, config_file: Path | None, as_json: bool) -> None:
    """Revoke a key for good; its requests are refused from then on, its records stay."""
    place = find_ledger(data, config_file)
    with place.open() as ledger:
        record = KeyDesk(ledger, place.data).revoke(key, cli_author())
    if as_json:
        emit_json(_facts(record))
    note(f"Revoked {record.name!r} ({record.id}).")


def find_ledger(data: Path | None, config_file: Path | None) -> LedgerPlace:
    """The data folder: of the flag, else of the configuration, else the default.

    A gateway goes on with the configuration that it has when its file is broken. So do its keys,
    where the flag names its folder.
    """
    from lightgate.config.model import Config

    try:
        config = read_config(config_file) or Config()
    except ConfigError as error:
        found = None if data is None else LedgerPlace("sqlite", data)
        if found is None or found.missing:
            raise
        note(f"{error.message} The ledger in {data} is used all the same.")
        return found
    return locate(config, data)


def cli_author() -> Author:
    """Who types: the user of this machine."""
    try:
        return Author("cli", getpass.getuser())
    except (KeyError, OSError):  # a user without a name, as in some containers
        return Author("cli", f"user {os.getuid()}")


def _given(variable: str | None) -> str | None:
    """The key that a deployment brings in a variable; None where one is to be made."""
    if variable is None:
        return None
    text = os.environ.get(variable, "").strip()
    if not text:
        raise UsageError(f"--from-env: {variable} is not set.")
    return given_key(text)


def _known_before(data: Path, given: str) -> KeyRecord | None:
    """The record of a key that the gateway of this folder had when it last ran.

    A node is started again without its ledger's server, as the gateway itself can be.
    """
    wanted = hash_of(given.encode())
    try:
        keys = read_snapshot(data).keys
    except SnapshotFailed:
        return None
    return next((key for key in keys if key.hash == wanted and key.revoked is None), None)


def _terms(wishes: dict[str, Any]) -> KeyTerms:
    if not re.fullmatch(SOUND_NAME, wishes["name"]):
        raise click.UsageError("--name has 1 to 100 characters, and none that controls a terminal.")
    if wishes["period"] is not None and wishes["budget"] is None:
        raise click.UsageError("--period needs a --budget.")
    models = tuple(dict.fromkeys(part.strip() for part in wishes["models"].split(",")))
    if wishes["models"] and not all(models):
        raise click.UsageError("--models has an empty name between its commas.")
    return KeyTerms(
        name=wishes["name"],
        expires=_expiry(wishes["expires"]),
        models=models if wishes["models"] else (),
        budget_usd=wishes["budget"],
        budget_period=wishes["period"] or "total",
        rpm=wishes["rpm"],
        tpm=wishes["tpm"],
        max_tokens=wishes["max_tokens"],
        may_race=wishes["race"],
        max_fanout=wishes["max_fanout"],
        tags=_tags(wishes["tags"]),
    )


def _expiry(text: str | None) -> str | None:
    """The instant at which the key expires: a duration from now, or a date in UTC."""
    if text is None:
        return None
    try:
        return expiry_of(text, SYSTEM.wall_ns())
    except ValueError as problem:
        raise click.UsageError(f"--expires {text!r} {problem}") from None


def _tags(pairs: tuple[str, ...]) -> str | None:
    import msgspec

    tags: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip() or name in tags:
            raise click.UsageError(f"--tags {pair!r} is not K=V with a name of its own.")
        tags[name] = value
    return msgspec.json.encode(tags).decode() if tags else None


def _facts(record: KeyRecord) -> dict[str, Any]:
    """What is shown of a key, with its state now."""
    return public_facts(record) | {"state": record.over(SYSTEM.wall_ns()) or "in use"}


def _cents(amount: Decimal) -> str:
    """Dollars with four decimals, so that a column can be compared."""
    return f"${amount:.4f}"


def _budget(row: dict[str, Any]) -> str:
    if row["budget_usd"] is None:
        return "none"
    every = {"total": "", "day": " a day", "month": " a month"}[row["budget_period"]]
    return f"${dollars(row['budget_usd'])}{every}"


def _limits(row: dict[str, Any]) -> str:
    parts = [f"{row[name]} {name}" for name in ("rpm", "tpm") if row[name] is not None]
    if row["max_tokens"] is not None:
        parts.append(f"answers up to {row['max_tokens']} tokens")
    if row["may_race"]:
        parts.append(f"races up to {row['max_fanout']}")
    return ", ".join(parts) or "none"
