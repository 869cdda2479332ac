"""Read the engines of self-hosted providers while there is traffic, for the router.

Each page is read by a task of its own, about once a second and with a client of its own: a page
that hangs, breaks off or is gone delays no request and no other page.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.clock.source import SYSTEM
from lightgate.errors import LightgateError
from lightgate.provider.engine import read_engine_page
from lightgate.wire.client.client import Client
from lightgate.wire.client.fetch import Asked, fetch_bounded
from lightgate.wire.client.roundtrip import Deadlines
from lightgate.wire.origin import split_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from lightgate.clock.source import Clock

NS: Final = 1_000_000_000
EVERY_S: Final = 1.0
JITTER: Final = 0.15  # of it, so that several workers and gateways do not ask at once
OLD_NS: Final = 3 * NS  # what an engine said so long ago is not its load any more
MOST_BYTES: Final = 4 * 1024 * 1024
_DEADLINES: Final = Deadlines(connect_s=1.0, first_byte_s=3.0, idle_s=3.0, total_s=3.0)


class EnginePage(NamedTuple):
    """A page of metrics, and the targets whose engine it is."""

    url: str
    targets: tuple[str, ...]


class EngineFollower:
    """Follows pages; `tell` gets a target, its engine's requests, and the instant they are of.

    `wanted` says whether there is traffic: without any, nothing is read.
    """

    def __init__(
        self,
        tell: Callable[[str, int, int], None],
        wanted: Callable[[], bool],
        *,
        clock: Clock = SYSTEM,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._tell = tell
        self._wanted = wanted
        self._clock = clock
        self._pause = pause
        self._draw = draw
        self._client: Client | None = None  # made for the first page
        self._following: dict[EnginePage, asyncio.Task[None]] = {}

    def follow(self, pages: Iterable[EnginePage]) -> None:
        """Follow these pages from now on, and no others."""
        wanted = set(pages)
        for page in [page for page in self._following if page not in wanted]:
            self._following.pop(page).cancel()
        for page in wanted - self._following.keys():
            self._following[page] = asyncio.get_running_loop().create_task(self._follow(page))

    async def close(self) -> None:
        """Follow nothing any more."""
        tasks = tuple(self._following.values())
        self.follow(())
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _follow(self, page: EnginePage) -> None:
        while True:
            await self._pause(EVERY_S * (1.0 + JITTER * (2.0 * self._draw() - 1.0)))
            if self._wanted():
                await self._look(page)

    async def _look(self, page: EnginePage) -> None:
        """Read a page once; one that cannot be read says nothing, and its engine is as unknown."""
        if self._client is None:
            self._client = Client(watch_lag=False)
        asked_ns = self._clock.now_ns()
        try:
            origin, path = split_url(page.url)
            asked = Asked(path or "/", (("accept", "text/plain"),), limit=MOST_BYTES)
            found = await fetch_bounded(self._client, origin, asked, _DEADLINES)
        except LightgateError:
            return
        load = read_engine_page(found.body) if found.status == 200 else None
        if load is None or self._clock.now_ns() - asked_ns > OLD_NS:
            return
        # The page is of some instant after it was asked for: no later one may be claimed.
        for target in page.targets:
            self._tell(target, load.busy, asked_ns)
