"""A run on disk: run.json, attempts.jsonl and bursts.jsonl in one folder.

Attempts are appended as they end, each with one write, so what was measured survives a kill; a last
line that was cut short is passed over when the folder is read. run.json is replaced by rename.
"""

from __future__ import annotations

import os
from sys import intern
from typing import TYPE_CHECKING, Final, Self

import msgspec
from msgspec.structs import force_setattr

from lightgate.clock.attempt import AttemptRecord
from lightgate.errors import ConfigError, LightgateError, UsageError
from lightgate.ledger.runs.recording import Recording
from lightgate.ledger.runs.run import SCHEMA, Run
from lightgate.whole_file import own_name, put

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

RUN: Final = "run.json"
ATTEMPTS: Final = "attempts.jsonl"
BURSTS: Final = "bursts.jsonl"
CHECKS: Final = "checks.jsonl"
_REPEATED: Final = ("run_id", "target", "provider", "model", "dialect", "finish_reason")


class RunFolder:
    """Reads and writes the files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, *, resume: bool = False) -> Self:
        """Make the folder; one that holds a run already is only taken to go on with it."""
        if (path / RUN).exists() and not resume:
            raise UsageError(
                f"{path} holds a run already.", hint="Choose another --out, or add --resume."
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{path} cannot be made: {error.strerror}.") from None
        return cls(path)

    def append(self, attempt: AttemptRecord, recording: Recording) -> None:
        """Keep one attempt; the bursts first, so that every attempt on disk has its recording."""
        self._append(BURSTS, recording.to_line())
        self._append(ATTEMPTS, attempt.to_line())

    def write_run(self, run: Run) -> None:
        """Replace run.json as a whole."""
        text = msgspec.json.format(msgspec.json.Encoder(decimal_format="number").encode(run))
        self._replace(RUN, text + b"\n")

    def _replace(self, name: str, data: bytes) -> None:
        path = self.path / name
        try:
            put(path, data, mode=0o666, unborn=own_name(path))
        except OSError as error:
            raise DiskFailed(f"{path} cannot be written: {error.strerror}.") from None

    def write_answers(self, lines: Iterable[msgspec.Struct]) -> None:
        """Replace checks.jsonl as a whole: the answers to the user's own cases, one a line."""
        data = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
        self._replace(CHECKS, data)

    def run(self) -> Run:
        """Read run.json."""
        try:
            data = (self.path / RUN).read_bytes()
        except OSError as error:
            raise UsageError(
                f"{self.path} holds no run: {error.strerror}.",
                hint="Name a folder that `lightgate bench --out` wrote.",
            ) from None
        try:
            run = msgspec.json.decode(data, type=Run)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{self.path / RUN} is no run: {error}.") from None
        except ValueError:
            raise ConfigError(f"{self.path / RUN} is not JSON.") from None
        if run.schema > SCHEMA:
            raise ConfigError(
                f"{self.path / RUN} was written by a newer Lightgate (schema {run.schema})."
            )
        return run

    def attempts(self) -> list[AttemptRecord]:
        """Read every whole attempt; texts that all of them have are kept once."""
        read = [AttemptRecord.from_line(line) for line in self._lines(ATTEMPTS)]
        for attempt in read:
            for name in _REPEATED:
                text = getattr(attempt, name)
                if text is not None:
                    force_setattr(attempt, name, intern(text))
        return read

    def recordings(self) -> dict[str, Recording]:
        """Read every whole recording, by the id of its attempt."""
        read = (Recording.from_line(line) for line in self._lines(BURSTS))
        return {recording.id: recording for recording in read}

    def _append(self, name: str, line: bytes) -> None:
        path = self.path / name
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                written = os.write(descriptor, line)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise DiskFailed(f"{path} cannot be written: {error.strerror}.") from None
        if written != len(line):
            raise DiskFailed(f"{path} cannot be written: the disk is full.")

    def _lines(self, name: str) -> Iterator[bytes]:
        """Read the lines of a file; a last line without a newline was cut short: it is left out."""
        try:
            file = (self.path / name).open("rb")
        except FileNotFoundError:
            return
        with file:
            for line in file:
                if line.endswith(b"\n") and line != b"\n":
                    yield line[:-1]


class DiskFailed(LightgateError):  # noqa: N818 - names the event
    """What was measured could not be kept; what is on disk already stays."""

    label = "disk"
