"""Before a benchmark begins: what it announces, and the run that it goes on with."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import click

from lightgate.cli.bench_wish import header_names
from lightgate.cli.output import note
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from lightgate.bench.run.order import Explorer, RunOrder
    from lightgate.ledger.runs.folder import RunFolder

_NOT_KEPT: Final = frozenset({"as_json", "yes", "resume", "out", "seed", "file"})
# Options that say how much is measured, or how it is judged, and not what.
_FREE: Final = frozenset({"requests", "duration", "precision", "max_cost", "limits", "key_env"})


def options_of(given: dict[str, Any], seed: int) -> dict[str, str]:
    """What was asked for, as text; never a key: those are in variables."""
    given = {**given, "headers": header_names(given["headers"])}
    asked = {
        name: ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        for name, value in given.items()
        if name not in _NOT_KEPT and value not in (None, (), False)
    }
    return {**asked, "seed": str(seed)}


def take_up(given: dict[str, Any]) -> None:
    """Check that --resume goes on with the same run, and take its seed if none is given.

    A run that was measured partly with other prompts, targets or loads would be no run at all.
    """
    from lightgate.ledger.runs.folder import RunFolder

    if not given["resume"] or given["out"] is None:
        return
    before = RunFolder(given["out"]).run().options
    if given["seed"] is None and "seed" in before:
        given["seed"] = int(before["seed"])
    now = options_of(given, given["seed"] or 0)
    for name in sorted({*before, *now} - _FREE):
        old, new = before.get(name), now.get(name)
        if old != new:
            option = "the targets" if name == "targets" else "--" + name.replace("_", "-")
            raise UsageError(
                f"{given['out']} was begun with {option} {old or 'not given'}, not with"
                f" {new or 'none'}.",
                hint="Resume with the options of the run, or choose another --out.",
            )


def agree(order: RunOrder, explorer: Explorer | None, *, yes: bool) -> RunOrder:
    """Say what it will cost, and ask where that is more than a dollar; that is then the limit."""
    import msgspec

    from lightgate.bench.run.budget import announce, confirm

    estimate = announce(order, 0 if explorer is None else explorer.most(order))
    note(estimate.sentence)
    ask = (lambda text: click.confirm(text, err=True)) if sys.stdin.isatty() else None
    confirm(estimate, yes=yes, ask=ask, limit=order.max_cost)
    return msgspec.structs.replace(order, agreed=estimate.ceiling)


def folder_of(given: dict[str, Any]) -> RunFolder | None:
    """Make the folder of --out, or take the one of the run to go on with."""
    from lightgate.ledger.runs.folder import RunFolder

    if given["out"] is None:
        if given["resume"]:
            raise UsageError("--resume needs --out.", hint="Name the folder of the run.")
        return None
    return RunFolder.create(given["out"], resume=given["resume"])
