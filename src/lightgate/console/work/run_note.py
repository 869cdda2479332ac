"""What the console notes about a benchmark that it started, in the run's own folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

FILE: Final = "console.json"
_encode: Final = msgspec.json.Encoder().encode


class RunNote(msgspec.Struct, frozen=True, kw_only=True):
    """A benchmark of the console: what was asked, which process runs it, how it ended.

    `boot` names the life of the console's process that started it: of another life nothing runs.
    """

    started: str
    targets: tuple[str, ...]
    loads: tuple[str, ...]
    total: int
    line: str
    boot: str
    exit_code: int | None = None
    said: tuple[str, ...] = ()  # the last lines of its log

    @property
    def runs(self) -> bool:
        """Whether its process lives: the console that started it is this one."""
        return self.exit_code is None and self.boot == BOOT

    @property
    def problem(self) -> str:
        """Why there is nothing to see, where that is so."""
        if self.runs:
            return ""
        if self.exit_code is None:
            return "The console ended while it ran."
        return self.said[-1] if self.said else f"It ended with exit code {self.exit_code}."


BOOT: Final = f"{os.getpid()}-{os.urandom(6).hex()}"


def read_note(folder: Path) -> RunNote | None:
    """The note in a run's folder; None where the console did not start it."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=RunNote)
    except (OSError, msgspec.DecodeError):
        return None


def write_note(folder: Path, note: RunNote) -> None:
    """Replace the note of a run's folder."""
    unborn = folder / f".{FILE}.{os.getpid()}"
    unborn.write_bytes(_encode(note))
    unborn.replace(folder / FILE)
