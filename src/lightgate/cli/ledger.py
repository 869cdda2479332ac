"""`lightgate ledger`: move the ledger to another database, and write its days to files."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

import click
from msgspec.structs import asdict

from lightgate.cli.options import config_option, json_option, read_config
from lightgate.cli.output import Column, emit_json, emit_table, note
from lightgate.clock.source import SYSTEM
from lightgate.errors import UsageError
from lightgate.ledger.locate import locate


@click.group("ledger", epilog="Example: lightgate ledger copy sqlite env:LEDGER_URL")
def command() -> None:
    """Move the ledger between SQLite and PostgreSQL, or write its days to Parquet files."""


@command.command(
    "copy",
    short_help="Copy it to another database, and compare.",
    epilog="Example: lightgate ledger copy sqlite env:LEDGER_URL",
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--data", type=click.Path(path_type=Path), help='Data folder that "sqlite" means.')
@config_option
@json_option
def copy(
    *, source: str, target: str, data: Path | None, config_file: Path | None, as_json: bool
) -> None:
    """Copy the ledger FROM one database TO an empty one, and compare every row of both.

    Each is "sqlite" (the file in the data folder), the path of a SQLite file, env:NAME of a
    variable with a URL, or a postgresql:// URL without a password (libpq finds it in PGPASSWORD or
    ~/.pgpass). Stop the gateway first. A copy that was broken off goes on where it stood.
    """
    from lightgate.ledger.move.copy import copy_ledger
    from lightgate.ledger.store.store import Ledger

    folder = locate(read_config(config_file), data).data
    places = [_meant(source, folder), _meant(target, folder)]
    if isinstance(places[0], Path) and not places[0].is_file():
        raise UsageError(f"There is no ledger {places[0]}.")
    with Ledger.open(places[0], folder) as one, Ledger.open(places[1], folder) as other:
        found = copy_ledger(one, other, lambda name, rows: note(f"{name}: {rows:,} rows"))
    if as_json:
        emit_json([asdict(table) for table in found])
        return
    emit_table(
        [Column("table"), Column("rows", "right"), Column("checksum")],
        [(table.name, f"{table.rows:,}", table.checksum) for table in found],
        caption="Both ledgers have these rows. Name the new one as url under [ledger].",
    )


@command.command(
    "archive",
    short_help="Write its days as Parquet files.",
    epilog="Example: lightgate ledger archive --out archive",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the files.")
@click.option("--data", type=click.Path(path_type=Path), help="Data folder of the gateway.")
@config_option
@json_option
def archive(*, out: Path, data: Path | None, config_file: Path | None, as_json: bool) -> None:
    """Write every whole day of requests and attempts of which no file has all rows, as Parquet.

    The ledger keeps its rows: how long is `retention` under [ledger]. Run it once a day.
    """
    from lightgate.ledger.move.archive import PATIENCE_S, archive_days

    folder_alone = data is not None and config_file is None
    place = locate(None if folder_alone else read_config(config_file), data)
    with place.open_existing(patience_s=PATIENCE_S) as ledger:
        found = list(archive_days(ledger, out, SYSTEM.wall_ns()))
    if as_json:
        emit_json([asdict(day) for day in found])
        return
    if not found:
        click.echo("There is no whole day of which no file has all rows.")
        return
    emit_table(
        [Column("table"), Column("day"), Column("rows", "right"), Column("bytes", "right")],
        [(day.table, day.day, f"{day.rows:,}", f"{day.bytes:,}") for day in found],
    )


def _meant(word: str, data: Path) -> str | Path:
    """The database that an argument names."""
    if word == "sqlite":
        return data / "ledger.sqlite"
    if word.startswith("env:"):
        found = os.environ.get(word.removeprefix("env:"), "").strip()
        if not found:
            raise UsageError(f"The variable {word.removeprefix('env:')} is not set.")
        return found
    if word.startswith(("postgresql://", "postgres://")):
        if _has_password(word):
            raise UsageError(
                "Every user of this machine can read a password that is typed here.",
                hint="Put the URL into a variable and name it: env:LEDGER_URL",
            )
        return word
    if "://" in word:
        raise UsageError('A ledger is "sqlite", a file, env:NAME or a postgresql:// URL.')
    if os.sep not in word and not Path(word).suffix:  # a word that was meant to be another
        raise UsageError(
            f'{word!r} is not "sqlite" and does not look like a file.',
            hint=f"For a file of this name write ./{word}",
        )
    return Path(word)


def _has_password(url: str) -> bool:
    """Whether a URL may hold a password; one that cannot be read may."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return True
    return bool(parts.password) or "password=" in parts.query
