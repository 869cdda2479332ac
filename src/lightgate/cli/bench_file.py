"""A benchmark as one file: the options of `lightgate bench` in TOML, for a repository or a team.

A key is an option without its dashes (`prompt-tokens`, `fail-if`), `targets` the list of targets.
What stands on the command line goes before the file.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

import click

from lightgate.errors import ConfigError

# They belong to one run on one machine, not to the benchmark.
LEFT_OUT: Final = frozenset({"file", "resume", "yes", "json", "help"})
TARGETS: Final = "targets"


def _read(context: click.Context, _: click.Parameter, path: Path | None) -> Path | None:
    if path is not None:
        context.default_map = {**(context.default_map or {}), **defaults(context.command, path)}
    return path


file_option: Final = click.option(
    "--file",
    type=click.Path(path_type=Path),
    is_eager=True,
    callback=_read,
    help="A benchmark as one TOML file: these options by name, and targets as a list.",
)


def defaults(command: click.Command, path: Path) -> dict[str, Any]:
    """Read the file as defaults of the verb's options; ConfigError names what cannot be meant."""
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} is no TOML: {error}.") from None
    known = _parameters(command)
    found: dict[str, Any] = {}
    for key, value in table.items():
        parameter = known.get(key.replace("_", "-"))
        if parameter is None or parameter.name is None:
            raise ConfigError(
                f"{path}: there is no option {key!r}.", hint="`lightgate bench --help` lists them."
            )
        found[parameter.name] = _value(f"{path}: {key}", parameter, value)
    return found


def _parameters(command: click.Command) -> dict[str, click.Parameter]:
    """The parameters by the names that the file knows them by; a switch by both of its names."""
    named: dict[str, click.Parameter] = {}
    for parameter in command.params:
        if isinstance(parameter, click.Argument):
            named[TARGETS] = parameter
            continue
        for opt in parameter.opts:
            name = opt.lstrip("-")
            if name not in LEFT_OUT:
                named[name] = parameter
    return named


def _value(place: str, parameter: click.Parameter, value: Any) -> Any:
    """A value as the command line would give it; a table is JSON, and numbers may be a list."""
    several = parameter.nargs == -1 or getattr(parameter, "multiple", False)
    if getattr(parameter, "is_flag", False):
        if not isinstance(value, bool):
            raise ConfigError(f"{place} is true or false.")
        return value
    if isinstance(value, list) and not several:
        return ",".join(map(str, value))
    if isinstance(value, dict):
        import msgspec

        return msgspec.json.encode(value).decode()
    if isinstance(value, bool):
        raise ConfigError(f"{place} is not true or false.")
    if several:
        return tuple(map(str, value)) if isinstance(value, list) else (str(value),)
    return str(value)
