"""Options that several verbs have, and the configuration that they read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from lightgate.cli.output import note
from lightgate.config.load import find_config, load_config
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lightgate.config.model import Config
    from lightgate.provider.target import Target

config_option: Final = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="Configuration file to read.",
)
json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def use_env_file() -> None:
    """Take variables that the environment does not have from `.env` in the working folder."""
    from lightgate.config.dotenv import add_env_file

    for remark in add_env_file(os.environ, Path.cwd()):
        note(remark)


def tell_base_urls(targets: Iterable[Target]) -> None:
    """Tell where a provider is that a variable of its SDK has moved: perhaps to a gateway."""
    from lightgate.provider.catalogue import catalogue
    from lightgate.provider.target import sdk_base_url

    told = {
        f"{row.name} is at {target.base_url}, by {row.base_url_env}."
        for target in targets
        if (row := catalogue().get(target.provider.name)) is not None
        and target.base_url != row.base_url
        and target.base_url == sdk_base_url(row, os.environ)
    }
    for line in sorted(told):
        note(line)


def read_config(config_file: Path | None) -> Config | None:
    """The configuration of a verb: that of `--config`, else of the usual places, else None."""
    path = find_config(config_file, env=os.environ, cwd=Path.cwd())
    return None if path is None else load_config(path)


def refuse_urls_alone(verb: str, specs: tuple[str, ...]) -> None:
    """Raise for a target that is a URL alone; the hint is the command with what it should be.

    The server behind the URL is asked for its models, so that the command can be copied.
    """
    from lightgate.provider.target import url_alone

    for spec in specs:
        alone = url_alone(spec)
        if alone is None:
            continue
        import uvloop

        from lightgate.bench.run.doctor import models_at

        base_url, model = alone
        names = (model,) if model else uvloop.run(models_at(base_url))
        if not names and (found := uvloop.run(models_at(f"{base_url}/v1"))):
            base_url, names = f"{base_url}/v1", found
        first = names[0] if names else "MODEL"
        others = f" It also has {', '.join(names[1:4])}." if len(names) > 1 else ""
        wants = "a name before it" + ("" if model else " and a model after it")
        raise UsageError(
            f"A target that is a URL needs {wants}: NAME=URL#MODEL.",
            hint=f"Try: lightgate {verb} 'mine={base_url}#{first}'{others}",
        )
