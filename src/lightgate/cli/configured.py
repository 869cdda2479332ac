"""The configuration that a verb works with: `--config`, or what is found in the usual places."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lightgate.config.load import find_config, load_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.config.model import Config


def config_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--config`; the verb gets it as `config_file`."""
    return click.option(
        "--config",
        "config_file",
        type=click.Path(path_type=Path),
        help="Configuration file to read.",
    )(function)


def read_config(config_file: Path | None) -> Config | None:
    """The configuration, or None where there is none."""
    path = find_config(config_file, env=os.environ, cwd=Path.cwd())
    return None if path is None else load_config(path)
