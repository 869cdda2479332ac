"""Options that several verbs have, and the configuration that they read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from lightgate.config.load import find_config, load_config

if TYPE_CHECKING:
    from lightgate.config.model import Config

config_option: Final = click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="Configuration file to read.",
)
json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def read_config(config_file: Path | None) -> Config | None:
    """The configuration of a verb: that of `--config`, else of the usual places, else None."""
    path = find_config(config_file, env=os.environ, cwd=Path.cwd())
    return None if path is None else load_config(path)
