"""`lightgate up`: the gateway, its console and, where there is no key, simulated providers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import click

from lightgate.cli.early_orders import EarlyOrders
from lightgate.cli.importing import Importing
from lightgate.cli.options import config_option, use_env_file

WORLD: Final = "providers-2026"


@click.command("up", epilog="Example: lightgate up --workers 4 --config lightgate.toml")
@config_option
@click.option("--host", help="Address to listen on; 127.0.0.1 by default. Others need a key.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port; 8080 by default, 0 takes a free one."
)
@click.option(
    "--console-host",
    default="127.0.0.1",
    show_default=True,
    help="Address of the console; others than loopback need LIGHTGATE_CONSOLE_SECRET.",
)
@click.option(
    "--console-port",
    default=8081,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port of the console; 0 takes a free one.",
)
@click.option("--workers", type=click.IntRange(1, 256), help="Processes that serve requests.")
@click.option(
    "--data", type=click.Path(path_type=Path), help="Folder for journals, ledger and snapshot."
)
@click.option(
    "--demo/--no-demo",
    default=None,
    help="Simulated providers and light traffic; by default where there is neither a"
    " configuration nor a key.",
)
@click.option("--world", default=WORLD, show_default=True, help="World of the demo: name or file.")
@click.option("--drain", help="How long open streams may finish at the end; 30s by default.")
@click.option(
    "--log",
    "log_form",
    default="auto",
    show_default=True,
    type=click.Choice(("auto", "json", "text")),
    help="Form of the log on stderr; auto is text on a terminal.",
)
def command(**given: Any) -> None:
    """Start the gateway and its console; Ctrl-C lets open streams finish and stops.

    With a configuration file it serves that; with provider keys in the environment, or in .env in
    the working folder, their models can be asked for by their own names; with neither it serves
    simulated providers.
    """
    with EarlyOrders() as early:
        with Importing():
            from lightgate.cli.launch import UpOptions, launch

        use_env_file()
        if given["world"] != WORLD:
            from lightgate.sim.world_file import load

            load(given["world"])  # a world that is not there is said before anything is started
        asyncio.run(launch(UpOptions(**given), early.taken))
