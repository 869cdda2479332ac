"""The process of batches.

    python -m lightgate.gateway.runner --data DIR --url http://127.0.0.1:8080

It prints one line of JSON when it works, then an empty one a second, and ends with its parent. One
process at a time works on a data folder.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop

from lightgate.clock.source import SYSTEM
from lightgate.errors import LightgateError
from lightgate.gateway.batches.store import FOLDER, BatchStore
from lightgate.gateway.process.child import beat, end_with_parent
from lightgate.gateway.process.logs import secrets_of, start_child
from lightgate.gateway.runner.runner import BatchRunner
from lightgate.gateway.runner.sender import LineSender
from lightgate.gateway.served.inner import SECRET_ENV
from lightgate.gateway.served.snapshot import SnapshotFailed, read_snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.gateway.served.snapshot import BatchTerms

LOCK: Final = "runner.lock"
LOOK_S: Final = 0.1  # between two tries to have it, or the first snapshot
BEAT_S: Final = 1.0
NICE: Final = 5  # the workers' turn comes first where both want the same core


class RunnerProcess:
    """Works on the batches of a data folder until told to stop."""

    def __init__(self, data: Path, url: str, secret: str) -> None:
        self._data = data
        self._url = url
        self._secret = secret
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Work; returns when the lines under way have ended."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        beating = loop.create_task(self._beat())
        sys.stdout.write('{"ready": true}\n')
        sys.stdout.flush()
        sender = LineSender(self._url, self._secret)
        try:
            with contextlib.suppress(asyncio.CancelledError):
                async with _alone(self._data / FOLDER, self._stop):
                    await self._work(sender)
        finally:
            beating.cancel()
            await sender.close()

    async def _work(self, sender: LineSender) -> None:
        terms = await self._first_terms()
        if terms is None:
            return
        runner = BatchRunner(BatchStore(self._data), sender.send, terms, SYSTEM.now_ns)
        following = asyncio.create_task(self._follow(runner))
        try:
            await runner.run(self._stop)
        finally:
            following.cancel()

    async def _first_terms(self) -> BatchTerms | None:
        """The terms of the first snapshot, which may be still to come; None: told to stop."""
        while not self._stop.is_set():
            with contextlib.suppress(SnapshotFailed):
                return self._terms()
            await asyncio.sleep(LOOK_S)
        return None

    def _terms(self) -> BatchTerms:
        return read_snapshot(self._data).terms.batches

    async def _follow(self, runner: BatchRunner) -> None:
        """Take in the terms of the snapshot in force."""
        while True:
            await asyncio.sleep(BEAT_S)
            with contextlib.suppress(SnapshotFailed):
                runner.use(self._terms())

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            beat()


class _alone:  # noqa: N801 - reads as a word in `async with`
    """Holds the lock of a folder, so that no two processes send the same lines."""

    def __init__(self, folder: Path, stop: asyncio.Event) -> None:
        self._folder = folder
        self._stop = stop
        self._descriptor = -1

    async def __aenter__(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(self._folder / LOCK, flags, 0o600)
        while not self._stop.is_set():
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                await asyncio.sleep(LOOK_S)
            else:
                return

    async def __aexit__(self, *_: object) -> None:
        os.close(self._descriptor)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the process; the exit code."""
    parser = argparse.ArgumentParser(prog="lightgate-runner")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--url", required=True, help="address of the gateway on this machine")
    given = parser.parse_args(arguments)
    end_with_parent(os.environ)
    start_child(os.environ, secrets=secrets_of(None, os.environ, also=[SECRET_ENV]))
    secret = os.environ.pop(SECRET_ENV, "")
    with contextlib.suppress(OSError):
        os.nice(NICE)

    async def work() -> None:
        await RunnerProcess(given.data, given.url, secret).run()

    try:
        uvloop.run(work())
    except LightgateError as error:
        sys.stderr.write(f"{error.message}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
