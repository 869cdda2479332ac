"""Whether this machine's clocks and stamps can be trusted, by a byte sent to ourselves."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from typing import Final

import msgspec

from lightgate.clock.quantile import quantile
from lightgate.wire.link.stamper import Stamper, best_source

ROUNDS: Final = 60
NS_PER_US: Final = 1000


class ClockReport(msgspec.Struct, frozen=True, kw_only=True):
    """How the clocks behave, in microseconds.

    `stamp_error` is how long after the send the stamp lies; `wake` how long after
    the stamp the event loop came to the bytes, which is what a read stamp would be late by.
    """

    stamps: str
    stamp_error_p50_us: float
    stamp_error_max_us: float
    wake_p50_us: float
    wake_max_us: float
    resolution_ns: float
    steps: int
    cores: int

    @property
    def sound(self) -> bool:
        """Whether stamps follow the sends closely and the wall clock held still."""
        return self.steps == 0 and 0 <= self.stamp_error_p50_us < 1000


class _Ear:
    """Takes the bytes and notes when the loop came to them."""

    def __init__(self) -> None:
        self.heard: asyncio.Future[tuple[int, int]] | None = None

    def on_read(self, data: bytes, stamp: int, since: int) -> None:  # noqa: ARG002 - the protocol's
        if self.heard is not None and not self.heard.done():
            self.heard.set_result((stamp, time.monotonic_ns()))

    def on_eof(self) -> None:
        """The other end is ours."""

    def on_lost(self, error: Exception | None) -> None:
        if self.heard is not None and not self.heard.done():
            self.heard.set_exception(error or ConnectionResetError())

    def pause_writing(self) -> None:
        """Nothing is written here."""

    def resume_writing(self) -> None:
        """Nothing is written here."""


async def check_clock() -> ClockReport:
    """Send a byte to ourselves over loopback, many times."""
    stamper = Stamper(best_source())
    near, far = _pair()
    ear = _Ear()
    errors: list[float] = []
    wakes: list[float] = []
    link = await stamper.link(near)
    try:
        link.attach(ear)
        for _ in range(ROUNDS):
            await asyncio.sleep(0.002)
            ear.heard = asyncio.get_running_loop().create_future()
            sent = time.monotonic_ns()
            far.send(b"x")
            stamp, woke = await asyncio.wait_for(ear.heard, 2)
            errors.append((stamp - sent) / NS_PER_US)
            wakes.append((woke - stamp) / NS_PER_US)
        steps = stamper.steps
    finally:
        link.abort()
        far.close()
        stamper.close()
    return ClockReport(
        stamps=stamper.source,
        stamp_error_p50_us=quantile(errors, 0.5) or 0.0,
        stamp_error_max_us=max(errors),
        wake_p50_us=quantile(wakes, 0.5) or 0.0,
        wake_max_us=max(wakes),
        resolution_ns=time.get_clock_info("monotonic").resolution * 1e9,
        steps=steps,
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1,
    )


def _pair() -> tuple[socket.socket, socket.socket]:
    """Two connected TCP sockets on loopback; the first one does not block."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        far = socket.create_connection(listener.getsockname())
        near, _ = listener.accept()
    far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    near.setblocking(False)
    return near, far
