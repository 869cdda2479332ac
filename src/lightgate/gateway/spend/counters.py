"""What every key has spent and asked for, shared by the workers of one machine.

Admission is one atomic step: requests per minute, tokens per minute and budget are looked at and
reserved under one lock, so that concurrent requests cannot pass a limit together. What is running
counts with its worst case until it is settled with what it really took.

Limits hold for every span of 60 seconds, not for clock minutes: a ring of 61 one-second counts.
Money is in nano-dollars; budgets are for ever, for a day or for a month, in UTC. The wall clock may
be stepped back: a small step counts on, a large one begins again.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import msgspec

from lightgate.clock.source import SYSTEM
from lightgate.gateway.spend.counter_file import ID_WORDS, SLOT_WORDS, CounterFile
from lightgate.gateway.spend.denial import Refused, too_dear, too_many, too_often
from lightgate.gateway.spend.window import RING, count, room_s, total, turn

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from lightgate.clock.source import Clock
    from lightgate.gateway.spend.counter_file import Slot
    from lightgate.ledger.store.keys import KeyRecord

WORKERS: Final = 256  # as many as the configuration allows
_AT_PERIOD: Final = ID_WORDS
_AT_SPENT: Final = _AT_PERIOD + 1
_AT_REQUESTS: Final = _AT_SPENT + 1  # a ring: the newest second, then its counts
_AT_TOKENS: Final = _AT_REQUESTS + 1 + RING
_AT_HELD: Final = _AT_TOKENS + 1 + RING  # nano-dollars reserved, a word for each worker
_AT_HELD_TOKENS: Final = _AT_HELD + WORKERS
assert _AT_HELD_TOKENS + WORKERS <= SLOT_WORDS  # noqa: S101 - the layout itself

_SECOND_NS: Final = 1_000_000_000
_DAY_NS: Final = 86_400 * _SECOND_NS
_MOST: Final = 2**50  # a larger wish, such as a client's max_tokens of 10**18, is counted as this
_KINDS: Final = {"total": 0, "day": 1, "month": 2}  # the low bits of a slot's period


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a key stands: spent in this period and reserved, and what counts against its limits."""

    spent_nano: int
    held_nano: int
    requests: int
    tokens: int
    held_tokens: int


class Held(NamedTuple):
    """What a worker had reserved for a key."""

    nano_usd: int
    tokens: int


class _Known(NamedTuple):
    """A key with limits, and what admission needs to know of it."""

    key: KeyRecord
    slot: Slot
    kind: int
    budget_nano: int | None


class SpendCounters:
    """One worker's hand in the shared counters; use it as a context manager.

    After a worker died, first charge its orphans (`settle` with nothing reserved), then
    `clear_worker`: in that order no money is forgotten.
    """

    __slots__ = ("_clock", "_day", "_file", "_known", "_month", "_mutex", "_worker")

    def __init__(self, file: CounterFile, worker: int, clock: Clock) -> None:
        if not 0 <= worker < WORKERS:
            raise ValueError(f"a worker is a number from 0 to {WORKERS - 1}")
        self._file = file
        self._worker = worker
        self._clock = clock
        self._mutex = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._day = self._month = -1
        file.count_worker(worker)

    @classmethod
    def open(
        cls, path: Path, worker: int, keys: Iterable[KeyRecord] = (), *, clock: Clock = SYSTEM
    ) -> Self:
        """Open the file, made where there is none, for a worker of this machine."""
        spend = cls(CounterFile(path), worker, clock)
        spend.add(keys)
        return spend

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file; reservations stay until they are settled or cleared."""
        with self._mutex:
            self._file.close()

    @property
    def workers(self) -> int:
        """One more than the highest worker that has ever counted in this file."""
        return self._file.workers

    def add(self, keys: Iterable[KeyRecord]) -> None:
        """Give keys their slots ahead of their first request."""
        with self._mutex:
            for key in keys:
                if limited(key):
                    self._learn(key)

    def admit(self, key: KeyRecord, wall_ns: int, tokens: int, nano_usd: int) -> Refused | None:
        """Reserve the worst case of one request, or say why not; then nothing has changed."""
        if key.budget_usd is None and key.rpm is None and key.tpm is None:
            return None
        if tokens > _MOST or nano_usd > _MOST:
            tokens, nano_usd = min(tokens, _MOST), min(nano_usd, _MOST)
        with self._mutex:
            known = self._known.get(key.id)
            if known is None or known.key is not key:
                known = self._learn(key)
            self._file.lock(known.slot)
            try:
                return self._admit(known, wall_ns, tokens, nano_usd)
            finally:
                self._file.unlock(known.slot)

    def settle(
        self,
        key_id: str,
        reserved_nano: int,
        spent_nano: int,
        reserved_tokens: int,
        tokens: int,
    ) -> None:
        """Give back what was reserved and count what was really used, in the current period."""
        known = self._known.get(key_id)
        if known is None:
            return
        wall_ns = self._clock.wall_ns()
        if reserved_nano > _MOST or reserved_tokens > _MOST:
            reserved_nano, reserved_tokens = min(reserved_nano, _MOST), min(reserved_tokens, _MOST)
        if spent_nano > _MOST or tokens > _MOST:
            spent_nano, tokens = min(spent_nano, _MOST), min(tokens, _MOST)
        with self._mutex:
            self._file.lock(known.slot)
            try:
                at, words = known.slot.at, self._file.words
                # Counted before it is given back: a kill between counts twice until the dead
                # worker is cleared, never not at all.
                self._roll(known, wall_ns)
                words[at + _AT_SPENT] += spent_nano
                turn(words, at + _AT_TOKENS, wall_ns // _SECOND_NS)
                count(words, at + _AT_TOKENS, tokens)
                _give_back(words, at + _AT_HELD + self._worker, reserved_nano)
                _give_back(words, at + _AT_HELD_TOKENS + self._worker, reserved_tokens)
            finally:
                self._file.unlock(known.slot)

    def load_spend(self, key_id: str, nano_usd: int) -> None:
        """Raise the spend of the current period to what the ledger knows; it is never lowered."""
        known = self._known.get(key_id)
        if known is None:
            return
        with self._mutex:
            self._file.lock(known.slot)
            try:
                self._roll(known, self._clock.wall_ns())
                spent = known.slot.at + _AT_SPENT
                self._file.words[spent] = max(self._file.words[spent], nano_usd)
            finally:
                self._file.unlock(known.slot)

    def clear_worker(self, worker: int) -> dict[str, Held]:
        """Drop what a worker that is no more had reserved, and tell what it was for each key."""
        held: dict[str, Held] = {}
        with self._mutex:
            for key_id, slot in self._file.slots():
                self._file.lock(slot)
                try:
                    words, at = self._file.words, slot.at + worker
                    found = Held(words[at + _AT_HELD], words[at + _AT_HELD_TOKENS])
                    words[at + _AT_HELD] = words[at + _AT_HELD_TOKENS] = 0
                finally:
                    self._file.unlock(slot)
                if any(found):
                    held[key_id] = found
        return held

    def standing(self, key_id: str) -> Standing | None:
        """Where a key stands now, or None for one without limits."""
        known = self._known.get(key_id)
        if known is None:
            return None
        wall_ns = self._clock.wall_ns()
        with self._mutex:
            self._file.lock(known.slot)
            try:
                at, words = known.slot.at, self._file.words
                self._roll(known, wall_ns)
                second = wall_ns // _SECOND_NS
                return Standing(
                    spent_nano=words[at + _AT_SPENT],
                    held_nano=self._sum(at + _AT_HELD),
                    requests=total(words, at + _AT_REQUESTS, second),
                    tokens=total(words, at + _AT_TOKENS, second),
                    held_tokens=self._sum(at + _AT_HELD_TOKENS),
                )
            finally:
                self._file.unlock(known.slot)

    def _learn(self, key: KeyRecord) -> _Known:
        budget = None if key.budget_usd is None else int(key.budget_usd * _SECOND_NS)
        known = _Known(key, self._file.place(key.id), _KINDS[key.budget_period], budget)
        self._known[key.id] = known
        return known

    def _admit(self, known: _Known, wall_ns: int, tokens: int, nano_usd: int) -> Refused | None:
        words, at, second = self._file.words, known.slot.at, wall_ns // _SECOND_NS
        requests = total(words, at + _AT_REQUESTS, second)
        rpm, tpm = known.key.rpm, known.key.tpm
        if rpm is not None and requests >= rpm:
            return too_often(room_s(words, at + _AT_REQUESTS, requests + 1 - rpm, wall_ns), rpm)
        if tpm is not None:
            over = total(words, at + _AT_TOKENS, second) + tokens - tpm
            over += self._sum(at + _AT_HELD_TOKENS)
            if over > 0:
                return too_many(room_s(words, at + _AT_TOKENS, over, wall_ns), tpm, tokens)
        if known.budget_nano is not None:
            self._roll(known, wall_ns)
            left = known.budget_nano - words[at + _AT_SPENT] - self._sum(at + _AT_HELD)
            if nano_usd > left:
                return too_dear(known.key, wall_ns, left, nano_usd)
        count(words, at + _AT_REQUESTS, 1)
        words[at + _AT_HELD + self._worker] += nano_usd
        words[at + _AT_HELD_TOKENS + self._worker] += tokens
        return None

    def _sum(self, at: int) -> int:
        return sum(self._file.words[at : at + self._file.workers])

    def _roll(self, known: _Known, wall_ns: int) -> None:
        """Begin the spend again where a new period has begun.

        The period just before the one in the slot is a clock that was put back a little: count on.
        """
        words, at = self._file.words, known.slot.at
        period = self._period(known.kind, wall_ns) * 4 + known.kind
        was = words[at + _AT_PERIOD]
        if was not in {period, period + 4}:
            words[at + _AT_SPENT] = 0  # first: after a kill here the next one does it again
            words[at + _AT_PERIOD] = period

    def _period(self, kind: int, wall_ns: int) -> int:
        """The number of the period: 0, days since the epoch, or months since the year 0."""
        if kind == 0:
            return 0
        day = wall_ns // _DAY_NS
        if kind == 1:
            return day
        if day != self._day:
            date = datetime.fromtimestamp(day * 86_400, UTC)
            self._month = date.year * 12 + date.month
            self._day = day
        return self._month


def limited(key: KeyRecord) -> bool:
    """Whether anything is counted for this key."""
    return not (key.budget_usd is None and key.rpm is None and key.tpm is None)


def _give_back(words: memoryview[int], at: int, amount: int) -> None:
    """Lower a reservation; it may have been cleared before, and is never negative."""
    left = words[at] - amount
    words[at] = max(0, left)
