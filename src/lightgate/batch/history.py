"""What earlier runs took: the times of batch jobs by provider, and lines a second in parallel.

One file in the data folder, which only grows by a line for each job and each run; the last ones
count. It holds no requests and no answers.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from statistics import median
from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

NAME: Final = "batch-times.jsonl"
LAST: Final = 200  # entries of one kind and name that count
_encode: Final = msgspec.json.Encoder().encode


class PastTime(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One job of a provider, or the lines of one run at a target, and the seconds they took."""

    kind: Literal["job", "parallel"]
    name: str
    lines: int
    seconds: float
    wall_s: float


_decode: Final = msgspec.json.Decoder(PastTime).decode


class PastTimes:
    """The file of past times; one that cannot be read or written teaches nothing.

    Without a folder nothing is kept.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / NAME

    def jobs_s(self, provider: str) -> list[float]:
        """The seconds of a provider's last jobs."""
        return [one.seconds for one in self._last("job", provider)]

    def lines_per_s(self, target: str) -> float | None:
        """The rate of the last runs at a target in parallel; None where there was none."""
        rates = [one.lines / one.seconds for one in self._last("parallel", target) if one.lines]
        return median(rates[-5:]) if rates else None

    def add(self, entries: Iterable[PastTime]) -> None:
        """Write times down."""
        data = b"".join([_encode(one) + b"\n" for one in entries if one.seconds > 0])
        if not data or self._path is None:
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(descriptor, data)
            finally:
                os.close(descriptor)

    def newest(self, limit: int) -> list[PastTime]:
        """The last jobs and runs of all providers and targets, the newest first."""
        found: deque[PastTime] = deque(self._all(), maxlen=limit)
        return list(reversed(found))

    def _last(self, kind: str, name: str) -> deque[PastTime]:
        return deque((o for o in self._all() if o.kind == kind and o.name == name), maxlen=LAST)

    def _all(self) -> Iterator[PastTime]:
        if self._path is None:
            return
        with contextlib.suppress(OSError), self._path.open("rb") as file:
            for raw in file:
                with contextlib.suppress(msgspec.DecodeError):
                    yield _decode(raw)
