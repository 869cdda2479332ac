"""Workers of several machines in this process, and the server that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lightgate.clock.source import SYSTEM
from lightgate.gateway.shared.counters import SharedCounters
from lightgate.gateway.shared.live import LiveSharing
from lightgate.gateway.shared.scripts import EPOCH
from lightgate.gateway.shared.store import SharedStore
from lightgate.route.form.forms import Forms
from lightgate.route.health.breaker import Breakers, Rules
from redis_server import RedisServer, program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from lightgate.ledger.store.keys import KeyRecord

    Machines = Callable[..., "list[Machine]"]


@pytest.fixture(scope="session")
def server() -> Iterator[RedisServer | None]:
    """A server for all tests of the session; None where there is no program for it."""
    if program() is None:
        yield None
        return
    with RedisServer() as started:
        yield started


@pytest.fixture
def redis(server: RedisServer | None, missing: Callable[[str], None]) -> RedisServer:
    """The server, without data, but as if it had been there for long."""
    if server is None:
        missing("redis-server is not installed: `make test` fetches it where apt-get is there")
    assert server is not None
    empty(server)
    return server


def empty(server: RedisServer) -> None:
    server.command("FLUSHALL")
    server.command("SCRIPT", "FLUSH")
    server.command("SET", EPOCH, "1")


class Machine:
    """One worker of one machine, without a gateway around it."""

    def __init__(self, url: str, name: str, data: Path, keys: tuple[KeyRecord, ...]) -> None:
        self._closed = False
        self.store = SharedStore(url, name, 0, SYSTEM.now_ns)
        self.store.patience_s = 10.0  # the machine of the tests may be busy
        self.counters = SharedCounters.share(data / name, 0, keys, self.store)
        self.forms = Forms({})
        self.breakers = Breakers(Rules(), lambda: 0.5)
        self.live = LiveSharing(self.store, self.counters, self.forms, self.breakers)

    async def ask(self, key: KeyRecord, nano_usd: int = 0, tokens: int = 0) -> str:
        """Reserve for a request; the reason why not, or an empty text."""
        denied = await self.counters.reserve(key, SYSTEM.wall_ns(), tokens, nano_usd)
        return "" if denied is None else denied.reason

    async def beat(self) -> None:
        """Tell and hear, the use of keys too."""
        await self.live.step()
        await self.counters.tell()

    async def close(self) -> None:
        await self.store.close()
        if not self._closed:
            self._closed = True
            self.counters.close()


@pytest.fixture
async def machines(redis: RedisServer, tmp_path: Path) -> AsyncIterator[Machines]:
    """Makes machines with these keys; they have joined nothing yet."""
    made: list[Machine] = []

    def make(count: int, *keys: KeyRecord, url: str = "") -> list[Machine]:
        fresh = [
            Machine(url or redis.url, f"m{len(made) + n}", tmp_path, keys) for n in range(count)
        ]
        made.extend(fresh)
        return fresh

    yield make
    for machine in made:
        await machine.close()
