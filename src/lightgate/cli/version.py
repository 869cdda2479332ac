"""`lightgate version`: the version and the platform."""

from __future__ import annotations

import platform
from importlib import metadata

import click

from lightgate import __version__
from lightgate.cli.options import json_option
from lightgate.cli.output import emit_json


@click.command("version", epilog="Example: lightgate version --json")
@json_option
def command(*, as_json: bool) -> None:
    """Print version, Python, event loop and platform."""
    facts = {
        "lightgate": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "loop": f"uvloop {metadata.version('uvloop')}",
        "parser": f"httptools {metadata.version('httptools')}",
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    if as_json:
        emit_json(facts)
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        click.echo(f"{name:<{width}}  {value}")
