"""The node of a data folder: an id by which its journals' places are told from those of others."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

from lightgate.clock.ids import Ids
from lightgate.ledger.journal.journal import JournalFailed

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "node"  # in the data folder


def node_of(data: Path) -> str:
    """Read the id of a data folder; the first reader makes it."""
    path = data / FILE
    try:
        return path.read_text("ascii").strip()
    except FileNotFoundError:
        keep_node(data, Ids().new())
    return path.read_text("ascii").strip()


def keep_node(data: Path, node: str) -> None:
    """Write down the id of a data folder that has none, or has it no more."""
    path = data / FILE
    if path.exists():
        return
    unborn = data / f"{FILE}.{os.getpid()}.new"
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        unborn.write_text(f"{node}\n", "ascii")
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.link(unborn, path)
    except OSError as error:
        raise JournalFailed.of(f"{path} cannot be written", error) from None
    finally:
        unborn.unlink(missing_ok=True)
