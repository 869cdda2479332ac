"""The HTTP/1.1 client: pooled warm connections per origin, every part of a call stamped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import TYPE_CHECKING, Final

from lightgate.clock.marks import Marks, StampSource
from lightgate.errors import AttemptError, Cancelled, DeadlineMissed, PeerReset
from lightgate.wire.client.dial import Dialer
from lightgate.wire.client.dns import Resolver
from lightgate.wire.client.pool import CLOSES, KEPT_NS, SOON_NS, Connection, Pool
from lightgate.wire.client.proxy import Proxies
from lightgate.wire.client.roundtrip import Deadlines, Outbound, Roundtrip
from lightgate.wire.link.stamper import Stamper

if TYPE_CHECKING:
    import ssl

    from lightgate.wire.client.unpacking import Taker
    from lightgate.wire.link.link import Link
    from lightgate.wire.origin import Origin

KEEP_IDLE_NS: Final = 55 * 1_000_000_000  # below the 60 s after which many servers close


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
        self._limit = limit
        proxies = Proxies.from_env(os.environ) if proxies is None else proxies
        self.stamper = Stamper(stamp, watch_lag=watch_lag)
        self._dialer = Dialer(self.stamper, resolver or Resolver(), proxies, context)
        self._pools: dict[Origin, Pool] = {}
        self._busy: set[Connection] = set()
        self._dialing: dict[asyncio.Timeout, asyncio.Future[None]] = {}
        self._opening: set[asyncio.Task[None]] = set()
        self._closed = False

    def send(self, request: Outbound) -> Roundtrip:
        """Send one request: at once on a warm connection, else as soon as one is open.

        `request.over` is called when all is over, at the earliest before this returns. A pooled
        connection that the server closed under us before any byte of the answer came is replaced
        once by a fresh one: the request cannot have been answered on it. All instants are then of
        the second time. A request that says `once` is not.
        """
        trip = Roundtrip(self, request)
        pool = self._pools.get(request.origin)
        if pool is not None and pool.idle and not pool.promised and not self._closed:
            connection = self._reuse(pool)  # a warm one that is promised to no other caller
            if connection is not None:
                self._busy.add(connection)
                trip.go(connection)
                return trip
        self._connect(trip)
        return trip

    async def ask(
        self, origin: Origin, payload: bytes, taker: Taker, marks: Marks, deadlines: Deadlines
    ) -> None:
        """Send one request and wait until its answer is complete; AttemptError if it is not."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def over(error: BaseException | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        trip = self.send(Outbound(origin, payload, taker, marks, deadlines, over))
        try:
            await done
        finally:
            trip.cancel()

    async def warm(self, origin: Origin, count: int, connect_s: float | None = 10.0) -> int:
        """Open connections until `count` are idle; the number that are. Never raises for one."""
        if self._closed:
            return 0
        pool = self._pool(origin)
        missing = pool.may_open(count - len(pool.idle))
        pool.open += max(0, missing)

        async def one() -> None:
            with contextlib.suppress(AttemptError):
                self._release(await self._dial(pool, origin, Marks(), (connect_s, "connect")))

        await asyncio.gather(*(one() for _ in range(missing)))
        return len(pool.idle)

    async def close(self) -> None:
        """Close every connection; exchanges under way end as cancelled."""
        self._closed = True
        pools = list(self._pools.values())
        self._pools.clear()
        for connection in list(self._busy):
            if connection.trip is not None:
                connection.trip.cancel()
        for pool in pools:
            kept = (*pool.idle, *((pool.watched,) if pool.watched is not None else ()))
            pool.idle.clear()
            pool.watched = None
            for connection in kept:
                connection.link.abort()
                connection.close()
            for waiter in pool.waiting:
                if not waiter.done():
                    waiter.set_exception(Cancelled("The client was closed."))
        for scope in self._dialing:
            if not scope.expired():
                scope.reschedule(asyncio.get_running_loop().time())
        if self._dialing:
            await asyncio.wait(list(self._dialing.values()))
        await asyncio.sleep(0)  # transports report their end in the next turn
        self.stamper.close()

    @property
    def open_connections(self) -> int:
        """Connections that are open now or being opened, idle ones too."""
        return sum(pool.open for pool in self._pools.values())

    def ended(self, trip: Roundtrip, error: BaseException | None) -> None:
        """Take the connection of a roundtrip back, or drop it; then send again or say the end."""
        connection = trip.connection
        self._busy.discard(connection)
        connection.trip = None
        link = connection.link
        if error is None and trip.keep_alive and link.is_open:
            connection.answered = True
            link.peer = connection
            self._release(connection)
            over = trip.request.over
            del trip.request  # its taker holds the roundtrip
            over(None)
            return
        self._drop(connection)
        again = isinstance(error, PeerReset) and error.early and not trip.request.once
        if again and connection.pooled:
            pool = self._pools.get(connection.origin)
            if pool is not None:
                pool.ended_soon(connection, trip.sent_ns or time.monotonic_ns())
            trip.request.marks.resent = True
            trip.over = False
            self._connect(trip, fresh=True)
        else:
            over = trip.request.over
            del trip.request  # its taker holds the roundtrip
            over(error)

    def _connect(self, trip: Roundtrip, *, fresh: bool = False) -> None:
        """Open or wait for a connection, in a task of its own."""
        loop = asyncio.get_running_loop()
        trip.dialling = task = loop.create_task(self._acquire(trip, fresh=fresh))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _acquire(self, trip: Roundtrip, *, fresh: bool) -> None:
        """Find a connection that is the roundtrip's alone and start it there."""
        try:
            connection = await self._found(trip, fresh=fresh)
        except AttemptError as error:
            trip.finish_unsent(error)
            return
        except asyncio.CancelledError:
            if not trip.over:  # not by `Roundtrip.cancel`: the whole loop is being torn down
                trip.finish_unsent(Cancelled("The client was closed."))
            raise
        except BaseException as error:
            trip.finish_unsent(error)
            raise
        if trip.over:
            self._release(connection)
            return
        self._busy.add(connection)
        trip.go(connection)

    async def _found(self, trip: Roundtrip, *, fresh: bool) -> Connection:
        """A connection that is the caller's alone; nothing is awaited once it is found."""
        if self._closed:
            raise Cancelled("The client was closed.")
        request = trip.request
        pool = self._pool(request.origin)
        if pool.has_room():
            pool.promised += 1
        else:
            await self._wait(pool, trip)
        try:
            connection = None if fresh else self._reuse(pool)
            if connection is not None:
                return connection
            if pool.is_full():  # a fresh one is asked for; the oldest idle one makes room
                self._drop(pool.spared())
            pool.open += 1
        finally:
            pool.promised -= 1
        connect_s, left_s = request.deadlines.connect_s, trip.left_s()
        if left_s is not None and (connect_s is None or left_s < connect_s):
            return await self._dial(pool, request.origin, request.marks, (left_s, "total"))
        return await self._dial(pool, request.origin, request.marks, (connect_s, "connect"))

    def _reuse(self, pool: Pool) -> Connection | None:
        now = time.monotonic_ns()
        while pool.idle:
            connection = pool.idle.pop()
            age = now - connection.idle_since
            if age < KEEP_IDLE_NS and connection.link.is_open:
                # Of an end that came a while ago the loop has told; of one just now, perhaps not.
                if age > SOON_NS or not connection.look(0):
                    return connection
                pool.ended_soon(connection, now)
            self._drop(connection)
        return None

    async def _wait(self, pool: Pool, trip: Roundtrip) -> None:
        """Wait until room is promised to this roundtrip."""
        request = trip.request  # a cancelled roundtrip lets go of it
        began = time.monotonic_ns()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pool.waiting.append(waiter)
        served = False
        try:
            async with asyncio.timeout(trip.left_s()):
                await waiter
            served = True
        except TimeoutError:
            raise DeadlineMissed(
                f"No connection to {trip.request.origin.authority} became free in time.",
                phase="total",
            ) from None
        finally:
            request.marks.pool_wait_ns = time.monotonic_ns() - began
            if not served:
                _give_up(pool, waiter)

    async def _dial(
        self, pool: Pool, origin: Origin, marks: Marks, limit: tuple[float | None, str]
    ) -> Connection:
        """Open a connection that the pool already counts, within the limit of a deadline."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        scope = asyncio.timeout(limit[0])
        link: Link | None = None
        try:
            async with scope:
                self._dialing[scope] = ended
                link = await self._dialer.dial(origin, marks)
        except TimeoutError:
            if not self._closed:
                raise DeadlineMissed(
                    f"{origin.authority} did not accept a connection in time.", phase=limit[1]
                ) from None
        finally:
            del self._dialing[scope]
            ended.set_result(None)
            if link is None:
                pool.open -= 1
                pool.wake()
        if link is None or self._closed:
            if link is not None:
                link.abort()
            raise Cancelled("The client was closed.")
        return Connection(link, origin, self._gone)

    def _pool(self, origin: Origin) -> Pool:
        pool = self._pools.get(origin)
        if pool is None:
            pool = self._pools[origin] = Pool(self._limit)
        return pool

    def _release(self, connection: Connection) -> None:
        pool = self._pools.get(connection.origin)
        if pool is None:  # the client was closed meanwhile
            connection.link.abort()
            return
        now, shut = time.monotonic_ns(), pool.shut
        if connection.pooled and shut[connection.chunked]:  # it was kept, and has answered
            shut[connection.chunked] = 0
        connection.idle_since = now
        connection.pooled = True
        connection.chunked = chunked = connection.response.chunked
        if shut[chunked] >= CLOSES:
            self._watch(pool, connection, now)
            return
        pool.idle.append(connection)
        while now - pool.idle[0].idle_since > KEEP_IDLE_NS:
            self._drop(pool.idle.popleft())
        if pool.waiting:
            pool.wake()

    def _watch(self, pool: Pool, connection: Connection, now: int) -> None:
        """Keep a connection that no request is risked on, unless one is being watched."""
        watched = pool.watched
        if watched is None:
            pool.watched = connection
        elif now - watched.idle_since < KEPT_NS:
            self._drop(connection)
        else:  # it stayed open: the server keeps connections after all
            pool.shut[watched.chunked] = 0
            pool.idle.append(watched)
            same = watched.chunked == connection.chunked
            pool.watched = None if same else connection
            if same:
                pool.idle.append(connection)
        if pool.waiting:
            pool.wake()

    def _gone(self, connection: Connection) -> None:
        """Forget a connection that ended while it was idle."""
        pool = self._pools.get(connection.origin)
        if pool is not None and connection.pooled and not connection.gone:
            pool.ended_soon(connection, time.monotonic_ns())
        self._forget(connection)

    def _drop(self, connection: Connection) -> None:
        connection.link.abort()
        self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        pool = self._pools.get(connection.origin)
        connection.close()
        if pool is None or connection.gone:
            return
        connection.gone = True
        pool.open -= 1
        if connection is pool.watched:
            pool.watched = None
        elif connection in pool.idle:
            pool.idle.remove(connection)
        pool.wake()


def _give_up(pool: Pool, waiter: asyncio.Future[None]) -> None:
    """Leave the queue; room that was promised meanwhile goes to the next one."""
    if not waiter.done() or waiter.cancelled():
        with contextlib.suppress(ValueError):  # a cancelled one may have been passed over already
            pool.waiting.remove(waiter)
    elif waiter.exception() is None:
        pool.promised -= 1
        pool.wake()
