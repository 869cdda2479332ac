"""`lightgate init`: a first configuration, from the keys that are here."""

from __future__ import annotations

import os
from pathlib import Path

import click

from lightgate.cli.options import json_option
from lightgate.cli.output import emit_json, note


@click.command("init", epilog="Example: lightgate init && lightgate up")
@click.option(
    "--out",
    default="lightgate.toml",
    show_default=True,
    type=click.Path(path_type=Path),
    help="File to write; one that exists is left as it is.",
)
@click.option(
    "--auto/--no-auto",
    default=False,
    show_default=True,
    help="Route a model over all of your providers that have it: other prices and terms.",
)
@json_option
def command(*, out: Path, auto: bool, as_json: bool) -> None:
    """Write a commented lightgate.toml from the keys in the environment and in .env.

    The file names the variables that hold the keys, never a key itself. A file that exists is not
    overwritten.
    """
    from lightgate.cli.config import write_new
    from lightgate.cli.first_config import find_keys, first_config
    from lightgate.config.dotenv import add_env_file
    from lightgate.config.load import parse_config
    from lightgate.errors import CredentialsError, UsageError

    if out.exists():
        raise UsageError(
            f"{out} exists already and is left as it is.",
            hint="Name another file with --out, or remove this one first.",
        )
    before = frozenset(os.environ)
    for remark in add_env_file(os.environ, Path.cwd()):
        note(remark)
    found = find_keys(os.environ, before)
    if not found.ready:
        told = f" {found.unready[0].why}" if found.unready else ""
        raise CredentialsError(
            f"No provider's key is in the environment or in .env.{told}",
            hint="Set one, such as OPENAI_API_KEY, and run it again; `lightgate models` lists the"
            " variables. Without any key `lightgate up` serves simulated providers.",
        )
    text = first_config(found, auto=auto)
    parse_config(text, name=str(out))
    write_new(out, text)
    if as_json:
        emit_json(
            {
                "file": str(out),
                "auto": auto,
                "providers": [row._asdict() for row in found.ready],
                "not_ready": [row._asdict() for row in found.unready],
            }
        )
        return
    for row in found.ready:
        click.echo(f"{row.provider}: {row.key_env} ({row.source})")
    for left in found.unready:
        click.echo(f"{left.provider}: {left.key_env}, but {left.why}")
    note(f"Wrote {out}. Next: lightgate up")
