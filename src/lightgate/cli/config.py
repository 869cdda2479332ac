"""`lightgate config`: check, explain or import a configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lightgate.cli.options import config_option, json_option, use_env_file
from lightgate.cli.output import Column, emit_json, emit_table, note
from lightgate.config.load import config_schema, find_config, parse_config, read_text, sound_part
from lightgate.errors import ConfigError, Exit, NotJudged, ThresholdMissed, UsageError

if TYPE_CHECKING:
    from lightgate.config.model import Config


@click.group("config", epilog="Example: lightgate config check --config lightgate.toml")
def command() -> None:
    """Work with `lightgate.toml`: every problem at once, every value with its source."""


@command.command(
    "check",
    short_help="List every problem of the file.",
    epilog="Example: lightgate config check lightgate.toml",
)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "--checks",
    metavar="RUN",
    type=click.Path(path_type=Path),
    help="A run of `bench --checks`: exit code 6 unless the smaller models of cascades pass.",
)
@click.option(
    "--least-pass",
    default="90%",
    show_default=True,
    help="With --checks: the share of your cases that a target below the last tier passes.",
)
@config_option
@json_option
def check(
    *,
    file: Path | None,
    checks: Path | None,
    least_pass: str,
    config_file: Path | None,
    as_json: bool,
) -> int:
    """Check FILE, or the file in force, and everything it names; exit code 3 if there is a problem.

    A key or a variable that is not in this environment is a warning. With --checks the targets of
    cascades are held against your own cases: exit code 6 where one passes too few of them, and 7
    where the run does not have it.
    """
    from lightgate.cli.examine import Examiner, Findings

    if file is not None and config_file is not None and file != config_file:
        raise UsageError("Two files are named.", hint="Give FILE or --config, not both.")
    use_env_file()
    path = find_config(file or config_file, env=os.environ, cwd=Path.cwd())
    if path is None:
        if as_json:
            emit_json({"file": None, "valid": True, "problems": [], "warnings": []})
        else:
            click.echo("There is no configuration file: every value has its default.")
        return Exit.OK
    text = read_text(path)
    try:
        config = parse_config(text, name=str(path))
        found = Examiner(config, text, str(path), os.environ).findings()
    except ConfigError as error:
        found = Findings(error.problems, ())
        rest = sound_part(text)
        if rest is not None:
            more = Examiner(rest, text, str(path), os.environ).findings()
            found = Findings((*error.problems, *more.problems), more.warnings)
    if as_json:
        emit_json({"file": str(path), "valid": not found.problems, **found._asdict()})
        return Exit.CONFIG if found.problems else Exit.OK
    for warning in found.warnings:
        note(f"warning: {warning}")
    if found.problems:
        count = f"{len(found.problems)} problems" if len(found.problems) > 1 else "a problem"
        raise ConfigError(f"{path} has {count}.", problems=found.problems)
    click.echo(f"{path} is valid.")
    if checks is not None:
        _hold_cascades(config, checks, least_pass)
    return Exit.OK


def _hold_cascades(config: Config, folder: Path, least: str) -> None:
    """Raise unless every target below the last tier of a cascade passes enough of the cases."""
    from lightgate.ledger.runs.folder import RunFolder

    try:
        share = float(least.removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not 0.0 < share <= 1.0:
        raise UsageError(f"--least-pass {least!r} is no percentage.", hint="Such as 90%.")
    run = RunFolder(folder).run()
    if run.checks is None:
        raise UsageError(
            f"{folder} has no checks.", hint="`lightgate bench TARGET --checks FILE --out RUN`."
        )
    unknown = []
    for name, model in config.models.items():
        for target in dict.fromkeys(one for tier in model.tiers[:-1] for one in tier.targets):
            rate = run.pass_rate(target)
            if rate is None or rate.rate is None:
                unknown.append(f"{name}: {target} has no answer to {run.checks.file} in {folder}.")
                continue
            click.echo(f"{name}: {target} passes {rate.says()} of {run.checks.file}.")
            if rate.rate < share:
                raise ThresholdMissed(
                    f"{name}: {target} passes {rate.says()}, fewer than {100 * share:g} %."
                )
    if unknown:
        raise NotJudged(unknown[0])


@command.command(
    "explain",
    short_help="Show every value and its source.",
    epilog="Example: lightgate config explain --json",
)
@config_option
@json_option
def explain(*, config_file: Path | None, as_json: bool) -> None:
    """Show every value in force and its source: a line of the file, the catalogue, or the default.

    API keys are shown by the name of their variable, and whether it is set; a password in an
    address is not shown.
    """
    from lightgate.cli.examine import Examiner, ExplainedRow
    from lightgate.gateway.process.logs import Redactor, secrets_of

    use_env_file()
    path = find_config(config_file, env=os.environ, cwd=Path.cwd())
    text = read_text(path) if path is not None else ""
    name = str(path) if path is not None else "lightgate.toml"
    first = ExplainedRow("(the file)", None if path is None else name, _found_by(config_file, path))
    config = parse_config(text, name=name)
    redactor = Redactor(secrets_of(config, os.environ))
    found = Examiner(config, text, name, os.environ).rows()
    shown = (row._replace(value=row.value and redactor.clean(row.value)) for row in found)
    rows = [first, *shown]
    if as_json:
        emit_json([row._asdict() for row in rows])
        return
    emit_table(
        [Column("key"), Column("value"), Column("source")],
        [(row.key, "none" if row.value is None else row.value, row.source) for row in rows],
        caption="none: not set. A flag of a verb comes before all of these.",
    )


@command.command("schema", epilog="Example: lightgate config schema > lightgate.schema.json")
def schema() -> None:
    """Print the JSON Schema of `lightgate.toml`, for editors."""
    emit_json(config_schema())


@command.command(
    "import-litellm",
    epilog="Example: lightgate config import-litellm config.yaml --out lightgate.toml",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Write here; stdout by default.")
@json_option
def import_file(*, file: Path, out: Path | None, as_json: bool) -> None:
    """Turn a LiteLLM proxy's YAML FILE into a `lightgate.toml`.

    Settings without a counterpart are listed in comments and on stderr. Plain keys are not copied.
    """
    from lightgate.config.litellm.convert import import_litellm
    from lightgate.config.litellm.deployment import KnownProvider
    from lightgate.provider.catalogue import catalogue

    known = {
        name: KnownProvider(row.base_url, row.dialect, row.auth, row.key_env)
        for name, row in catalogue().items()
    }
    made = import_litellm(read_text(file), known=known, env=os.environ, name=file.name)
    parse_config(made.text, name=str(out or "lightgate.toml"))
    if out is not None:
        write_new(out, made.text)
    if as_json:
        emit_json({"toml": made.text, "notes": [found._asdict() for found in made.notes]})
    elif out is None:
        click.echo(made.text, nl=False)
    for found in made.notes:
        note(f"{found.where}: {found.said}")
    if out is not None:
        note(f"Wrote {out}. `lightgate config check --config {out}` says what is missing here.")


def write_new(path: Path, text: str) -> None:
    """Write a file that does not exist yet; one that does stays as it is."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(
            f"{path} exists already.", hint="Name another --out, or remove it first."
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from None


def _found_by(flag: Path | None, path: Path | None) -> str:
    if path is None:
        return "there is none"
    if flag is not None:
        return "flag --config"
    return "environment LIGHTGATE_CONFIG" if os.environ.get("LIGHTGATE_CONFIG") else "found"
