"""Keep answers in the store that machines share: a second tier of the cache, beside the disk.

No request waits for a write. A request waits for a read, together with all others that read at that
moment, only while the store may be waited for. A cache key begins with the virtual key: what is
under it is that key's alone. What all answers take is limited; those that end first go first. When
one ends is told by the clock of the store: clocks of machines may differ.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.gateway.cache.memory import KeptAnswer
from lightgate.gateway.shared.scripts import (
    ANSWER,
    ANSWER_SIZES,
    ANSWERS,
    GET_ANSWERS,
    PUT_ANSWER,
)
from lightgate.gateway.shared.store import StoreAway

if TYPE_CHECKING:
    from lightgate.gateway.cache.memory import Owner
    from lightgate.gateway.shared.store import SharedStore

MOST_BYTES: Final = 256 * 1024 * 1024  # of all answers in the store
MEMORY_PARTS: Final = 2  # of the server's memory answers take one: budgets need the rest
MOST_WAITING_BYTES: Final = 16 * 1024 * 1024  # of answers not written yet; more are not taken
MOST_READ: Final = 64  # answers that are read at once
_MS_NS: Final = 1_000_000

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(KeptAnswer).decode
_Found = tuple[KeptAnswer, int] | None


class SharedAnswerStore:
    """The answers of all machines, as one worker reads and writes them."""

    def __init__(self, store: SharedStore, *, most_bytes: int = MOST_BYTES) -> None:
        self._store = store
        self._most = most_bytes
        self._reading, self._writing = store.lane(), store.lane()
        self._wanted: list[tuple[bytes, asyncio.Future[_Found]]] = []
        self._puts: deque[tuple[bytes, bytes, int]] = deque()
        self._waiting_bytes = 0
        self._reader: asyncio.Task[None] | None = None
        self._writer: asyncio.Task[None] | None = None
        self.dropped = 0

    async def find(self, key: bytes) -> tuple[KeptAnswer, int] | None:
        """An answer and the nanoseconds that it has left; None where the store may not be asked."""
        if not self._store.asked:
            return None
        loop = asyncio.get_running_loop()
        found: asyncio.Future[_Found] = loop.create_future()
        self._wanted.append((key, found))
        if self._reader is None or self._reader.done():
            self._reader = loop.create_task(self._read())
        return await found

    def put(self, key: bytes, owner: Owner, kept: KeptAnswer, ttl_ns: int) -> None:
        """Have an answer written soon; dropped while MOST_WAITING_BYTES wait."""
        del owner  # the cache key has it, and no row is made
        if self._store.state != "joined":
            return
        data = _encode(kept)
        if self._waiting_bytes + len(data) > MOST_WAITING_BYTES:
            self.dropped += 1
            return
        self._waiting_bytes += len(data)
        self._puts.append((key, data, ttl_ns // _MS_NS))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _read(self) -> None:
        while self._wanted:
            taken, self._wanted = self._wanted[:MOST_READ], self._wanted[MOST_READ:]
            try:
                names = [ANSWERS, *(_name(key) for key, _ in taken)]
                rows = await self._reading.script(GET_ANSWERS, names)
            except StoreAway as error:
                if isinstance(error.__cause__, TimeoutError):
                    self._store.late()
                self._store.lost(error.message)
                taken, self._wanted = taken + self._wanted, []
                rows = [None] * len(taken)
            for (_, found), row in zip(taken, rows, strict=True):
                if not found.done():
                    found.set_result(self._answer(row))

    @staticmethod
    def _answer(row: tuple[bytes, int] | None) -> _Found:
        if row is None:
            return None
        data, left_ms = row
        try:
            return (_decode(data), left_ms * _MS_NS) if left_ms > 0 else None
        except msgspec.DecodeError:
            return None

    async def _write(self) -> None:
        while self._puts:
            key, data, ttl_ms = self._puts.popleft()
            self._waiting_bytes -= len(data)
            if ttl_ms <= 0 or self._store.state != "joined":
                continue
            try:
                names = [ANSWERS, ANSWER_SIZES, _name(key)]
                await self._writing.script(PUT_ANSWER, names, data, ttl_ms, self._room())
            except StoreAway as error:
                self.dropped += 1
                if not error.refused:  # one without memory for an answer may have it for a budget
                    self._store.lost(error.message)

    def _room(self) -> int:
        """Bytes that all answers may take of this server."""
        memory = self._store.memory_bytes
        return min(self._most, memory // MEMORY_PARTS) if memory else self._most


def _name(key: bytes) -> str:
    return ANSWER + key.hex()
