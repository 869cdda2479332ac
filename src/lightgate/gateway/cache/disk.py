"""Keep answers in the ledger's table `cache`: the cache's second tier, behind one thread.

No request waits for a write. A request waits for a read only if its cache key is known to be there,
and then PATIENCE_S at most. A database that is late, locked or gone is not asked for REST_S.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lightgate.clock.source import SYSTEM, LifeClock
from lightgate.errors import LightgateError
from lightgate.gateway.cache.memory import KeptAnswer

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.clock.source import Clock
    from lightgate.gateway.cache.memory import Owner
    from lightgate.ledger.store.answers import AnswerRow
    from lightgate.ledger.store.store import Ledger

logger = logging.getLogger(__name__)
PATIENCE_S: Final = 0.02
REST_S: Final = 5.0  # after a failure
POLL_S: Final = 1.0  # between two looks for answers of other workers
PRUNE_S: Final = 60.0
BUSY_S: Final = 0.2  # for which the thread waits for another writer
MOST_BYTES: Final = 256 * 1024 * 1024  # of the table
MOST_WAITING_BYTES: Final = 16 * 1024 * 1024  # of answers not written yet; more are not taken
MOST_KNOWN: Final = 50_000
_SLACK_NS: Final = 10_000_000_000  # a row may be committed this long after it was dated
_NS: Final = 1_000_000_000

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(KeptAnswer).decode

_Found = tuple[KeptAnswer, int] | None
_Read = tuple[bytes, "asyncio.Future[_Found]"]


class _Put(NamedTuple):
    key: bytes
    owner: Owner
    kept: KeptAnswer
    expires_ns: int


class DiskCache:
    """Answers on disk. `put` and `find` run on the loop, what is below them in the thread."""

    def __init__(
        self,
        open_ledger: Callable[[], Ledger],
        *,
        most_bytes: int = MOST_BYTES,
        patience_s: float = PATIENCE_S,
        clock: Clock = SYSTEM,
    ) -> None:
        self._open_ledger = open_ledger
        self._most = most_bytes
        self._patience_s = patience_s
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._change = threading.Condition()
        self._puts: deque[_Put] = deque()
        self._reads: deque[_Read] = deque()
        self._waiting_bytes = 0
        self._closing = self._idle = False
        self._known: dict[
            bytes, int
        ] = {}  # expiry by cache key; written by the thread, read by the loop
        self._mute_ns = 0  # until then no request waits for a read
        self._rest_ns = self._poll_ns = self._prune_ns = 0
        self._seen_ns = 0  # the date of the newest row that was seen
        self._ledger: Ledger | None = None
        self._aging = LifeClock(clock)
        self.dropped = 0
        self._thread = threading.Thread(target=self._work, name="lightgate-disk-cache", daemon=True)

    def start(self) -> None:
        """Begin; the thread opens the ledger."""
        self._thread.start()

    def put(self, key: bytes, owner: Owner, kept: KeptAnswer, ttl_ns: int) -> None:
        """Have an answer written later; dropped while MOST_WAITING_BYTES wait."""
        put = _Put(key, owner, kept, kept.kept_ns + ttl_ns)
        with self._change:
            if self._waiting_bytes + kept.size > MOST_WAITING_BYTES:
                self.dropped += 1
                return
            self._waiting_bytes += kept.size
            self._puts.append(put)
            self._change.notify_all()

    async def find(self, key: bytes) -> tuple[KeptAnswer, int] | None:
        """An answer and the nanoseconds that it has left; None where that would take long."""
        expires = self._known.get(key)
        if expires is None or expires <= self._clock.wall_ns():
            return None
        if self._clock.now_ns() < self._mute_ns:
            return None
        read: asyncio.Future[_Found] = self._loop.create_future()
        with self._change:
            self._reads.append((key, read))
            self._change.notify_all()
        try:
            async with asyncio.timeout(self._patience_s):
                return await read
        except TimeoutError:
            self._mute_ns = self._clock.now_ns() + int(REST_S * _NS)
            return None

    def close(self, within_s: float = 2.0) -> None:
        """Write what waits and end; a database that hangs is left behind."""
        with self._change:
            self._closing = True
            self._change.notify_all()
        if self._thread.is_alive():
            self._thread.join(within_s)

    def flushed(self, within_s: float) -> bool:
        """Wait until every answer is written; whether all are within the time."""
        with self._change:
            return self._change.wait_for(lambda: self._idle and not self._puts, within_s)

    # The thread

    def _work(self) -> None:
        while True:
            with self._change:
                self._idle = not self._puts
                self._change.notify_all()
                pressing = self._reads or self._closing or (self._puts and not self._resting())
                if not pressing:
                    self._change.wait(POLL_S)
                reads, closing = list(self._reads), self._closing
                self._reads.clear()
                self._idle = False
            self._round(reads)
            if closing:
                break
        if self._ledger is not None:
            self._ledger.close()

    def _round(self, reads: list[_Read]) -> None:
        """Read what is asked for, write, look for others' answers; after a failure, rest."""
        try:
            if not self._resting():
                ledger = self._opened()
                while reads:
                    key, read = reads[0]
                    self._answer(read, self._fetch(ledger, key))
                    reads.pop(0)
                self._write(ledger)
                self._look_around(ledger)
        except LightgateError as error:
            self._rest(error.message)
        except Exception:  # the outer wall of a background task
            logger.exception("the cache's table cannot be used")
            self._rest("see above")
        for _, read in reads:
            self._answer(read, None)

    def _resting(self) -> bool:
        return self._clock.now_ns() < self._rest_ns

    def _rest(self, reason: str) -> None:
        self._rest_ns = self._clock.now_ns() + int(REST_S * _NS)
        logger.warning("the cache's table is not used for %g s: %s", REST_S, reason)

    def _opened(self) -> Ledger:
        if self._ledger is not None and self._ledger.moved():
            self._ledger.close()  # the control process makes the ledger anew
            self._ledger = None
        if self._ledger is None:
            self._ledger = self._open_ledger()
        return self._ledger

    def _fetch(self, ledger: Ledger, key: bytes) -> _Found:
        from lightgate.ledger.store.answers import find_answer

        now = self._clock.wall_ns()
        row = find_answer(ledger, key, now)
        if row is None:
            self._known.pop(key, None)
            return None
        try:
            return _decode(row.answer), row.expires_ns - now
        except msgspec.DecodeError:  # written by another version
            self._known.pop(key, None)
            return None

    def _answer(self, read: asyncio.Future[_Found], found: _Found) -> None:
        def tell() -> None:
            if not read.done():
                read.set_result(found)

        try:
            self._loop.call_soon_threadsafe(tell)
        except RuntimeError:  # the loop is closed: no request waits
            return

    def _write(self, ledger: Ledger) -> None:
        from lightgate.ledger.store.answers import put_answers

        with self._change:
            puts = list(self._puts)
        if not puts:
            return
        put_answers(ledger, [_row(put) for put in puts])
        self._known.update((put.key, put.expires_ns) for put in puts)
        with self._change:
            for put in puts:
                self._puts.popleft()
                self._waiting_bytes -= put.kept.size

    def _look_around(self, ledger: Ledger) -> None:
        """Learn which answers other workers have written; keep the table within its limit."""
        from lightgate.ledger.store.answers import known_answers, prune_answers

        now, wall = self._clock.now_ns(), self._clock.wall_ns()
        if now >= self._poll_ns:
            self._poll_ns = now + int(POLL_S * _NS)
            rows = known_answers(ledger, self._seen_ns - _SLACK_NS, wall, MOST_KNOWN)
            self._known.update((row.key, row.expires_ns) for row in rows)
            self._seen_ns = max([self._seen_ns, *(row.kept_ns for row in rows)])
        if now >= self._prune_ns:
            self._prune_ns = now + int(PRUNE_S * _NS)
            prune_answers(ledger, self._aging.old_ns(), self._most)
            alive = ((key, end) for key, end in self._known.items() if end > wall)
            newest = sorted(alive, key=lambda pair: -pair[1])[:MOST_KNOWN]
            self._known = dict(newest)


def _row(put: _Put) -> AnswerRow:
    from lightgate.ledger.store.answers import ROW_BYTES, AnswerRow

    answer = _encode(put.kept)
    return AnswerRow(
        put.key,
        put.owner.key_id,
        put.owner.model,
        put.kept.target,
        put.kept.kept_ns,
        put.expires_ns,
        len(answer) + ROW_BYTES,
        answer,
    )
