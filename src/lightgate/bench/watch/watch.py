"""The watching process from outside: started with a run, read at its end."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from typing import IO, Final, Self

import msgspec

from lightgate.bench.watch.readings import Reading

STOP_S: Final = 5.0


class WatchOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked at: pages of metrics by the target whose engine they are of, and the GPUs."""

    engines: dict[str, str] = {}
    gpu: bool = False
    every_s: float = 0.5

    @property
    def wanted(self) -> bool:
        """Whether there is anything to look at."""
        return self.gpu or bool(self.engines)


class EngineWatch:
    """A context manager: while it is open, a process of its own takes readings."""

    def __init__(self, order: WatchOrder) -> None:
        self._order = order
        self._child: subprocess.Popen[bytes] | None = None
        self._seen: IO[bytes] | None = None
        self.readings: list[Reading] = []

    def __enter__(self) -> Self:
        if self._order.wanted:
            self._seen = tempfile.TemporaryFile()
            text = msgspec.json.encode(self._order).decode()
            self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and our own module
                [sys.executable, "-m", "lightgate.bench.watch", text],
                stdin=subprocess.PIPE,
                stdout=self._seen,
                start_new_session=True,  # an interruption is ours to handle; its input then ends
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is None or self._seen is None:
            return
        if self._child.stdin is not None:
            self._child.stdin.close()
        try:
            self._child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        with self._seen as seen:
            seen.seek(0)
            lines = seen.read().split(b"\n")[:-1]
        self.readings = [msgspec.json.decode(line, type=Reading) for line in lines]

    @property
    def unseen(self) -> list[str]:
        """What was asked for and never answered, in words."""
        seen = {reading.target for reading in self.readings}
        missing = [f"the metrics of {name}" for name in self._order.engines if name not in seen]
        return missing + (["the GPUs (nvidia-smi)"] if self._order.gpu and None not in seen else [])
