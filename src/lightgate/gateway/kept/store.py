"""The file of kept responses, `responses.sqlite` in the data folder, behind one thread.

A response of a target that keeps responses itself has a row without contents: who made it, for
whom, and where. Any other has its turn of the conversation too. A row is found by the key that
made the request and the response's id together, so that another key's response does not exist.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from lightgate.clock.source import SYSTEM, LifeClock
from lightgate.ledger.sqlite import BUSY_S, use_wal

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from lightgate.clock.source import Clock
    from lightgate.gateway.served.snapshot import KeptTerms

logger = logging.getLogger(__name__)
T = TypeVar("T")

FILE: Final = "responses.sqlite"
LONGEST: Final = 1000  # turns of one conversation that are put together
MOST_RECENT: Final = 1000  # ids of this worker's own, which need no wait
MOST_WAITING_BYTES: Final = 64 * 1024 * 1024  # not written yet; what comes then is not kept
OWNERS_SHARE: Final = 4  # no key has more than this part of the file
SAY_NS: Final = 60_000_000_000  # between two lines of the log about one trouble
PRUNE_NS: Final = 60_000_000_000
# Another worker may have made the response a moment ago, and be writing it.
WAITS_S: Final = (0.05, 0.1, 0.2)
_SLICE: Final = 1 << 20  # bytes of a value that are written at a time
ROW_BYTES: Final = 200  # of a row beside its contents

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS responses (
  owner TEXT NOT NULL, id TEXT NOT NULL, target TEXT NOT NULL, previous TEXT,
  made_ns INTEGER NOT NULL, expires_ns INTEGER NOT NULL, size INTEGER NOT NULL,
  input BLOB, response BLOB, PRIMARY KEY (owner, id)
);
CREATE INDEX IF NOT EXISTS responses_age ON responses (expires_ns);
"""
_COLUMNS: Final = "owner, id, target, previous, made_ns, expires_ns, size, input, response"


class KeptResponse(msgspec.Struct, frozen=True, kw_only=True):
    """One response; without `response` its target keeps the contents.

    `owner` is the id of the key, "" without keys. `input` is the JSON list of the items that its
    request added to the conversation, and `previous` the response that it goes on from.
    """

    owner: str
    id: str
    target: str
    previous: str | None = None
    made_ns: int
    input: bytes | memoryview | None = None
    response: bytes | None = None

    @property
    def native(self) -> bool:
        """Whether the target keeps the contents."""
        return self.response is None

    @property
    def size(self) -> int:
        """The bytes that it takes in the file."""
        return ROW_BYTES + len(self.input or b"") + len(self.response or b"")


class ResponseStore:
    """Kept responses. `put` returns at once; the others wait for the thread."""

    def __init__(self, data: Path, terms: KeptTerms, clock: Clock = SYSTEM) -> None:
        self.terms = terms
        self._path = data / FILE
        self._clock = clock
        self._pool = ThreadPoolExecutor(1, "lightgate-responses")
        self._base: sqlite3.Connection | None = None
        self._recent: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._lock = threading.Lock()
        self._waiting_bytes = 0
        self._pruned_ns = 0
        self._aging = LifeClock(clock)
        self._said_ns = -SAY_NS  # when the log last told that responses are not kept
        self._unkept = 0  # since then

    def put(self, kept: KeptResponse) -> bool:
        """Keep a response; whether there is room for it."""
        if kept.size > self.terms.max_bytes // OWNERS_SHARE:
            return False
        with self._lock:
            if self._waiting_bytes + kept.size > MOST_WAITING_BYTES:
                return False
            self._waiting_bytes += kept.size
        self._recent[kept.owner, kept.id] = None
        if len(self._recent) > MOST_RECENT:
            self._recent.popitem(last=False)
        self._pool.submit(self._written, kept)
        return True

    async def find(self, owner: str, id_: str) -> KeptResponse | None:
        """A response of this owner; None where there is none, or none any more."""
        chain = await self._found(lambda: self._chain(owner, id_, 1), owner, id_)
        return chain[0] if chain else None

    async def chain(self, owner: str, id_: str) -> list[KeptResponse]:
        """A response and those that it goes on from, the first one first; empty if one is lost.

        A conversation that goes on is kept as long as its newest response.
        """
        found = await self._found(lambda: self._chain(owner, id_, LONGEST), owner, id_)
        whole = found and (found[-1].previous is None or found[-1].native)
        return found[::-1] if whole else []

    async def delete(self, owner: str, id_: str) -> None:
        """Forget a response."""
        await self._in_thread(lambda: self._drop(owner, id_), None)

    def close(self) -> None:
        """Write what waits and end."""
        self._pool.submit(self._shut)
        self._pool.shutdown(wait=True)

    async def _found(
        self, read: Callable[[], list[KeptResponse]], owner: str, id_: str
    ) -> list[KeptResponse]:
        if (owner, id_) in self._recent:  # it was put before this read, and the thread is one
            return await self._in_thread(read, [])
        for wait_s in (*WAITS_S, None):
            found: list[KeptResponse] = await self._in_thread(read, [])
            if found or wait_s is None:
                return found
            await asyncio.sleep(wait_s)
        return []

    async def _in_thread(self, work: Callable[[], T], otherwise: T) -> T:
        def run() -> T:
            import sqlite3

            try:
                return work()
            except (sqlite3.Error, OSError) as error:
                logger.warning("kept responses cannot be read: %s", error)
                return otherwise

        return await asyncio.get_running_loop().run_in_executor(self._pool, run)

    # The thread

    def _opened(self) -> sqlite3.Connection:
        if self._base is None:
            import sqlite3  # most workers keep no response

            self._path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            base = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None)
            use_wal(base)
            base.executescript(_TABLE)
            self._base = base
        return self._base

    def _written(self, kept: KeptResponse) -> None:
        import sqlite3

        try:
            row: tuple[Any, ...] = (
                kept.owner,
                kept.id,
                kept.target,
                kept.previous,
                kept.made_ns,
                self._clock.wall_ns() + self.terms.ttl_ns,
                kept.size,
            )
            base = self._opened()
            _insert(base, row, {"input": kept.input, "response": kept.response})
            self._prune(base)
        except (sqlite3.Error, OSError) as error:
            self._say_unkept(error)
        finally:
            with self._lock:
                self._waiting_bytes -= kept.size

    def _say_unkept(self, error: Exception) -> None:
        """Tell that responses are not kept, once in a while: a full disk lets none be kept."""
        self._unkept += 1
        now = self._clock.now_ns()
        if now - self._said_ns >= SAY_NS:
            logger.warning("%d responses are not kept: %s", self._unkept, error)
            self._said_ns, self._unkept = now, 0

    def _chain(self, owner: str, id_: str, most: int) -> list[KeptResponse]:
        """The response and its predecessors, the newest first; all are kept as long as it."""
        base, now = self._opened(), self._clock.wall_ns()
        found: list[KeptResponse] = []
        seen: set[str] = set()
        at: str | None = id_
        while at is not None and len(found) < most and at not in seen:
            seen.add(at)
            row = base.execute(
                f"SELECT {_COLUMNS} FROM responses WHERE owner = ? AND id = ? AND expires_ns > ?",  # noqa: S608 - our own words
                (owner, at, now),
            ).fetchone()
            if row is None:
                break
            kept = KeptResponse(
                owner=row[0], id=row[1], target=row[2], previous=row[3], made_ns=row[4],
                input=row[7], response=row[8],
            )  # fmt: skip
            found.append(kept)
            at = None if kept.native else kept.previous
        if most > 1 and found:
            # A row is written anew with all its contents, so not at every turn.
            until, half = now + self.terms.ttl_ns, now + self.terms.ttl_ns // 2
            base.executemany(
                "UPDATE responses SET expires_ns = ? WHERE owner = ? AND id = ? AND expires_ns < ?",
                [(until, owner, kept.id, half) for kept in found],
            )
        return found

    def _drop(self, owner: str, id_: str) -> None:
        self._opened().execute("DELETE FROM responses WHERE owner = ? AND id = ?", (owner, id_))

    def _prune(self, base: sqlite3.Connection) -> None:
        """Forget what is too old, then the oldest of a key that has too much, then of all."""
        now = self._clock.now_ns()
        if self._pruned_ns and now - self._pruned_ns < PRUNE_NS:
            return
        self._pruned_ns = now
        base.execute("DELETE FROM responses WHERE expires_ns <= ?", (self._aging.old_ns(),))
        most = self.terms.max_bytes
        for owner, size in base.execute(
            "SELECT owner, sum(size) FROM responses GROUP BY owner"
        ).fetchall():
            if size > most // OWNERS_SHARE:
                self._forget(base, most // OWNERS_SHARE, "WHERE owner = ?", (owner,))
        self._forget(base, most, "", ())

    def _forget(
        self, base: sqlite3.Connection, most: int, where: str, given: tuple[str, ...]
    ) -> None:
        ranked = (
            "SELECT rowid, sum(size) OVER (ORDER BY made_ns DESC, rowid DESC) AS upto"  # noqa: S608 - our own words
            f" FROM responses {where}"
        )
        base.execute(
            f"DELETE FROM responses WHERE rowid IN (SELECT rowid FROM ({ranked}) WHERE upto > ?)",  # noqa: S608 - our own words
            (*given, most),
        )

    def _shut(self) -> None:
        if self._base is not None:
            self._base.close()
            self._base = None


def _insert(
    base: sqlite3.Connection,
    row: tuple[Any, ...],
    contents: Mapping[str, bytes | memoryview | None],
) -> None:
    """Insert a row; large contents in slices, between which the loop has its turns.

    A value that is given as a parameter is copied while every other thread waits.
    """
    given: list[bytes | memoryview | None] = []
    large: dict[str, bytes | memoryview] = {}
    for name, value in contents.items():
        if value is None or len(value) <= _SLICE:
            given.append(value)
        else:
            large[name] = value
    marks = ",".join(
        [f"zeroblob({len(large[name])})" if name in large else "?" for name in contents]
    )
    base.execute("BEGIN IMMEDIATE")
    with base:
        at = base.execute(
            f"INSERT OR REPLACE INTO responses ({_COLUMNS}) VALUES (?,?,?,?,?,?,?,{marks})",  # noqa: S608 - our own words
            (*row, *given),
        ).lastrowid
        for name, value in large.items():
            with base.blobopen("responses", name, at or 0) as blob:
                for start in range(0, len(value), _SLICE):
                    blob.write(value[start : start + _SLICE])
