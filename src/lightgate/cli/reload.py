"""`lightgate reload`: the running gateway takes a new configuration and version over."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from lightgate.cli.options import config_option, json_option, read_config
from lightgate.cli.output import emit_json, note
from lightgate.config.model import Config
from lightgate.errors import LightgateError
from lightgate.gateway.process.lock import FORCED, UPGRADE, WORKER, read_state

if TYPE_CHECKING:
    from lightgate.gateway.process.lock import SupervisorState

START_S: Final = 60.0  # for the successors to start; predecessors have their drain beside it
LOOK_S: Final = 0.1


@click.command("reload", epilog="Example: lightgate reload --data ./lightgate-data")
@config_option
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Data folder of the gateway; gateway.data of the configuration by default.",
)
@click.option("--force", is_flag=True, help="Also if the new configuration has no model any more.")
@click.option(
    "--upgrade", is_flag=True, help="The supervisor itself becomes the installed version, too."
)
@json_option
def command(
    config_file: Path | None, data: Path | None, force: bool, upgrade: bool, as_json: bool
) -> None:
    """Replace the workers and the console of a running gateway, without a refused connection.

    The configuration is read again. A new worker starts, accepts from the same sockets as the old
    one, and the old one ends when its streams have; kept connections are told `connection: close`
    with their next answer. New processes run the version that is installed now; with --upgrade
    the supervisor, which holds the sockets, then becomes that version as well.
    """
    config = read_config(config_file) or Config()
    folder = data or Path(config.gateway.data)
    before = read_state(folder)
    if before is None:
        raise LightgateError(
            f"No `lightgate up` runs on {folder}.", hint="Name its data folder with --data."
        )
    if force:
        (folder / FORCED).touch(mode=0o600)
    if upgrade:
        (folder / UPGRADE).touch(mode=0o600)
    began = time.monotonic()
    try:
        os.kill(before.pid, signal.SIGUSR2)
    except ProcessLookupError:
        raise LightgateError(f"The `lightgate up` of {folder} is gone.") from None
    note("Replacing the processes: each predecessor ends when its streams have.")
    rounds = 1 + before.replacing  # one that has begun before the order does not count
    took_most_s = START_S + config.gateway.drain / 1e9
    after = _ended(folder, before, rounds, began + rounds * took_most_s)
    if after.reload_error:
        raise LightgateError(after.reload_error, hint="The log of `lightgate up` says more.")
    took_s = time.monotonic() - began
    names = dict.fromkeys(child.name for child in after.children)  # some may be two by now
    workers = [name for name in names if name.startswith(WORKER)]
    if as_json:
        facts = {"seconds": round(took_s, 3), "workers": workers, "pid": after.pid}
        emit_json({**facts, "version": after.version})
    else:
        note(f"{len(workers)} of {len(workers)} workers and the console replaced, {took_s:.1f} s.")
        if upgrade:
            note(f"The supervisor runs version {after.version}.")


def _ended(folder: Path, before: SupervisorState, rounds: int, until: float) -> SupervisorState:
    """Wait until the supervisor says that so many replacements have ended."""
    while time.monotonic() < until:
        state = read_state(folder)
        if state is None or state.pid != before.pid:
            raise LightgateError("The gateway ended meanwhile.", hint="Its log says why.")
        if state.reloads >= before.reloads + rounds:
            return state
        time.sleep(LOOK_S)
    raise LightgateError(
        "The processes are still being replaced.", hint="The log of `lightgate up` says more."
    )
