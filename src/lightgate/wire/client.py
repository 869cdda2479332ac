"""The HTTP/1.1 client: pooled warm connections per origin, every part of a call stamped."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from lightgate.clock.marks import Marks, StampSource
from lightgate.errors import AttemptError, DeadlineMissed, PeerReset
from lightgate.wire.dial import Dialer
from lightgate.wire.dns import Resolver
from lightgate.wire.exchange import Deadlines, Exchange, Taker
from lightgate.wire.proxy import Proxies
from lightgate.wire.stamper import Stamper

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from lightgate.wire.link import Link
    from lightgate.wire.origin import Origin

KEEP_IDLE_NS: Final = 55 * 1_000_000_000  # below the 60 s after which many servers close


class Connection:
    """A pooled connection: carries one exchange at a time."""

    __slots__ = ("_on_gone", "exchange", "idle_since", "link", "origin", "uses")

    def __init__(self, link: Link, origin: Origin, on_gone: Callable[[Connection], None]) -> None:
        self.link = link
        self.origin = origin
        self.exchange: Exchange | None = None
        self.idle_since = 0
        self.uses = 0
        self._on_gone = on_gone
        link.attach(self)

    def on_read(self, data: bytes, stamp: int, since: int) -> None:
        """Bytes for the exchange; bytes that nobody asked for end the connection."""
        exchange = self.exchange
        if exchange is not None:
            exchange.read(data, stamp, since)
        else:
            self.link.abort()
            self._on_gone(self)

    def on_eof(self) -> None:
        """The server closed."""
        self.link.abort()
        self._gone(None)

    def on_lost(self, error: Exception | None) -> None:
        """The connection broke."""
        self._gone(error or ConnectionResetError("connection lost"))

    def pause_writing(self) -> None:
        """A request is written whole; the link queues what the kernel does not take."""

    def resume_writing(self) -> None:
        """See `pause_writing`."""

    def _gone(self, error: Exception | None) -> None:
        if self.exchange is not None:
            self.exchange.eof(error)
        else:
            self._on_gone(self)


class _Pool:
    """The connections of one origin."""

    __slots__ = ("idle", "open", "waiting")

    def __init__(self) -> None:
        self.idle: list[Connection] = []  # the newest is reused first: it is the warmest
        self.waiting: deque[asyncio.Future[None]] = deque()
        self.open = 0


class Client:
    """Sends requests. There is no cap on connections unless `limit` names one (per origin)."""

    def __init__(
        self,
        *,
        stamp: StampSource = "read",
        limit: int | None = None,
        resolver: Resolver | None = None,
        proxies: Proxies | None = None,
        context: ssl.SSLContext | None = None,
        watch_lag: bool = True,
    ) -> None:
        self.stamper = Stamper(stamp, watch_lag=watch_lag)
        self._limit = limit
        self._dialer = Dialer(
            self.stamper,
            resolver or Resolver(),
            Proxies.from_env(os.environ) if proxies is None else proxies,
            context,
        )
        self._pools: dict[Origin, _Pool] = {}
        self._busy: set[Connection] = set()

    async def exchange(
        self,
        origin: Origin,
        payload: bytes,
        taker: Taker,
        marks: Marks,
        deadlines: Deadlines,
    ) -> Exchange:
        """Send one request and let the taker take the answer; the end of it, or an AttemptError.

        A pooled connection that the server closed under us before any byte of the answer came is
        replaced once by a fresh one: the request cannot have been answered on it.
        """
        began = time.monotonic_ns()
        connection = await self._acquire(origin, marks, deadlines, fresh=False)
        try:
            return await self._run(connection, payload, taker, deadlines, began)
        except PeerReset as error:
            if not error.early or connection.uses < 2:
                raise
        marks.replayed = True
        connection = await self._acquire(origin, marks, deadlines, fresh=True)
        return await self._run(connection, payload, taker, deadlines, began)

    async def warm(self, origin: Origin, count: int, connect_s: float | None = 10.0) -> int:
        """Open connections until `count` are idle; the number that are. Never raises for one."""
        pool = self._pools.setdefault(origin, _Pool())
        missing = count - len(pool.idle)

        async def one() -> None:
            try:
                connection = await self._dial(origin, Marks(), connect_s)
            except AttemptError:
                return
            self._release(connection)

        await asyncio.gather(*(one() for _ in range(missing)))
        return len(pool.idle)

    async def close(self) -> None:
        """Close every connection; exchanges under way end as cancelled."""
        for connection in list(self._busy):
            if connection.exchange is not None:
                connection.exchange.cancel()
        for pool in self._pools.values():
            for connection in pool.idle:
                connection.link.abort()
            for waiter in pool.waiting:
                waiter.cancel()
        self._pools.clear()
        await asyncio.sleep(0)  # transports report their end in the next turn
        self.stamper.close()

    @property
    def open_connections(self) -> int:
        """Connections that are open now, idle ones too."""
        return sum(pool.open for pool in self._pools.values())

    async def _run(
        self,
        connection: Connection,
        payload: bytes,
        taker: Taker,
        deadlines: Deadlines,
        began: int,
    ) -> Exchange:
        exchange = Exchange(connection.link, connection.origin, taker, deadlines)
        connection.exchange = exchange
        connection.uses += 1
        self._busy.add(connection)
        try:
            exchange.start(payload, began)
            await exchange.done
        except asyncio.CancelledError:
            exchange.cancel()
            _ = exchange.done.exception()  # seen: the cancellation speaks for it
            raise
        finally:
            self._busy.discard(connection)
            connection.exchange = None
            if exchange.keep_alive and exchange.complete and connection.link.is_open:
                self._release(connection)
            else:
                connection.link.abort()
                self._forget(connection)
        return exchange

    async def _acquire(
        self, origin: Origin, marks: Marks, deadlines: Deadlines, *, fresh: bool
    ) -> Connection:
        pool = self._pools.setdefault(origin, _Pool())
        began = time.monotonic_ns()
        while not fresh and pool.idle:
            connection = pool.idle.pop()
            if began - connection.idle_since < KEEP_IDLE_NS and connection.link.is_open:
                return connection
            connection.link.abort()
            self._forget(connection)
        if self._limit is not None and pool.open >= self._limit:
            connection_or_none = await self._wait(pool, origin, deadlines)
            marks.pool_wait_ns = time.monotonic_ns() - began
            if connection_or_none is not None:
                return connection_or_none
        return await self._dial(origin, marks, deadlines.connect_s)

    async def _wait(self, pool: _Pool, origin: Origin, deadlines: Deadlines) -> Connection | None:
        """Wait for a connection or for room to open one (None)."""
        while self._limit is not None and pool.open >= self._limit and not pool.idle:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            pool.waiting.append(waiter)
            try:
                async with asyncio.timeout(deadlines.total_s):
                    await waiter
            except TimeoutError:
                raise DeadlineMissed(
                    f"No connection to {origin.authority} became free in time.", phase="total"
                ) from None
            finally:
                if waiter in pool.waiting:
                    pool.waiting.remove(waiter)
        return pool.idle.pop() if pool.idle else None

    async def _dial(self, origin: Origin, marks: Marks, connect_s: float | None) -> Connection:
        pool = self._pools.setdefault(origin, _Pool())
        pool.open += 1
        try:
            async with asyncio.timeout(connect_s):
                link = await self._dialer.dial(origin, marks)
        except TimeoutError:
            pool.open -= 1
            _wake(pool)
            raise DeadlineMissed(
                f"{origin.authority} did not accept a connection in time.", phase="connect"
            ) from None
        except BaseException:
            pool.open -= 1
            _wake(pool)
            raise
        return Connection(link, origin, self._forget)

    def _release(self, connection: Connection) -> None:
        pool = self._pools.get(connection.origin)
        if pool is None:  # the client was closed meanwhile
            connection.link.abort()
            return
        connection.idle_since = time.monotonic_ns()
        pool.idle.append(connection)
        _wake(pool)

    def _forget(self, connection: Connection) -> None:
        pool = self._pools.get(connection.origin)
        if pool is None:
            return
        pool.open -= 1
        if connection in pool.idle:
            pool.idle.remove(connection)
        _wake(pool)


def _wake(pool: _Pool) -> None:
    while pool.waiting:
        waiter = pool.waiting.popleft()
        if not waiter.done():
            waiter.set_result(None)
            return
