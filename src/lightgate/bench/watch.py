"""Light, steady traffic to a set of targets, and what the clock says about each of them so far."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.clock.grade import grade
from lightgate.clock.interval import interval
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.quantile import quantile
from lightgate.clock.timing import Timing, late
from lightgate.dialect.request import Message, Request
from lightgate.provider.call import Call
from lightgate.provider.prepare import prepare
from lightgate.wire.exchange import Deadlines

if TYPE_CHECKING:
    from lightgate.provider.call import Called
    from lightgate.provider.target import Target
    from lightgate.wire.client import Client

KEPT: Final = 500  # attempts per target that the table looks back on
MEAN_PAUSE_S: Final = 0.8  # between two requests of one visitor
DEADLINES: Final = Deadlines(connect_s=5, first_byte_s=30, idle_s=15, total_s=60)
TOKENS: Final = 48


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One target now; a quantile whose interval does not exist yet is None."""

    target: str
    inflight: int
    n: int
    failures: int
    late: int
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    speed_p50_tps: float | None
    speed_slow5_tps: float | None
    stall_p95_ms: float | None
    e2e_p50_ms: float | None
    grade: str | None
    recent_ttft_ms: tuple[float, ...]
    last_error: str | None


class _Track:
    """What is known about one target."""

    def __init__(self) -> None:
        self.inflight = 0
        self.done = 0
        self.failures = 0
        self.late = 0
        self.last_error: str | None = None
        self.timings: deque[Timing] = deque(maxlen=KEPT)


class Watch:
    """Keeps a few visitors at each target and remembers what they measured."""

    def __init__(self, client: Client, targets: list[Target], *, visitors: int, seed: int) -> None:
        self._client = client
        self._targets = targets
        self._visitors = visitors
        self._random = random.Random(seed)  # noqa: S311 - demo traffic, not cryptography
        self._tracks = {target.name: _Track() for target in targets}

    async def run(self) -> None:
        """Visit for ever; end it by cancelling."""
        async with asyncio.TaskGroup() as group:
            for target in self._targets:
                for _ in range(self._visitors):
                    group.create_task(self._visit(target, self._tracks[target.name]))

    def rows(self) -> list[Row]:
        """One row per target, fastest first token first; those without one at the end."""
        rows = [_row(name, track) for name, track in self._tracks.items()]
        return sorted(rows, key=lambda row: (row.ttft_p50_ms is None, row.ttft_p50_ms, row.target))

    async def _visit(self, target: Target, track: _Track) -> None:
        while True:
            await asyncio.sleep(self._random.expovariate(1 / MEAN_PAUSE_S))
            prompt = f"Visitor {self._random.getrandbits(32):08x} asks how fast you are."
            request = Request(
                model=target.model,
                messages=(Message(role="user", content=prompt),),
                max_tokens=TOKENS,
            )
            marks = Marks(plan=time.monotonic_ns())
            track.inflight += 1
            try:
                called = await Call(prepare(target, request), marks).run(self._client, DEADLINES)
            finally:
                track.inflight -= 1
            _note(track, marks, called)


def _note(track: _Track, marks: Marks, called: Called) -> None:
    track.done += 1
    if called.error is not None:
        track.failures += 1
        track.last_error = called.error.message
    if called.outcome is Outcome.OK:
        track.timings.append(Timing.of(marks, called.tokens, streamed=called.streamed))
        track.late += late(marks)


def _row(name: str, track: _Track) -> Row:
    ttft = [t.ttft_ms for t in track.timings if t.ttft_ms is not None]
    speed = [t.speed_tps for t in track.timings if t.speed_tps is not None]
    total = [t.speed_total_tps for t in track.timings if t.speed_total_tps is not None]
    middle = interval(total, 0.5)
    return Row(
        target=name,
        inflight=track.inflight,
        n=track.done,
        failures=track.failures,
        late=track.late,
        ttft_p50_ms=_printable(ttft, 0.5),
        ttft_p95_ms=_printable(ttft, 0.95),
        speed_p50_tps=_printable(speed, 0.5),
        speed_slow5_tps=_printable(speed, 0.05),
        stall_p95_ms=_printable([t.stall_ms for t in track.timings if t.stall_ms], 0.95),
        e2e_p50_ms=_printable([t.e2e_ms for t in track.timings if t.e2e_ms], 0.5),
        grade=None if middle is None else str(grade(middle.low, middle.high)),
        recent_ttft_ms=tuple(ttft[-20:]),
        last_error=track.last_error,
    )


def _printable(values: list[float], q: float) -> float | None:
    """The quantile, once there are enough values for its interval to exist."""
    return quantile(values, q) if interval(values, q) is not None else None
