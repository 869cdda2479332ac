"""Admit requests within the limits of their key, over all workers of one machine.

Admission reserves the worst case of a request in one step: requests per minute, tokens per minute
and budget. What is running counts with its worst case until it is settled with what it really took.
A worker takes from its own lease (`shares`), which costs no lock; only where that is not enough, or
is of an earlier second or period, the key's slot of the file is locked.

Limits hold for every span of 60 seconds, not for clock minutes. Money is in nano-dollars; budgets
are for ever, for a day or for a month, in UTC. The wall clock may be stepped back: a small step
counts on, a large one begins again.
"""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple, Self, get_args

import msgspec

from lightgate.clock.source import SYSTEM
from lightgate.gateway.spend.counter_file import CounterFile, CounterFileFailed
from lightgate.gateway.spend.denial import (
    RECOUNT_S,
    Denied,
    recounting,
    too_dear,
    too_many,
    too_often,
)
from lightgate.gateway.spend.moved import carry, carry_known, renewed, successor
from lightgate.gateway.spend.shares import (
    BASE,
    HELD,
    HELD_TOKENS,
    REQUEST_LIMIT,
    REQUESTS,
    RING_REQUESTS,
    RING_TOKENS,
    SECOND_NS,
    TOKEN_LIMIT,
    TOKENS,
    UNLIMITED,
    WORKERS,
    Amounts,
    Lease,
    LockedSlot,
    has_lease,
    lower_limits,
    place_of,
    room_s,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from lightgate.clock.source import Clock
    from lightgate.gateway.spend.counter_file import Slot
    from lightgate.ledger.store.keys import KeyRecord
    from lightgate.ledger.store.store import Ledger

CHARGED: Final = 1000  # keys of a dead worker that are looked at in one turn: some 10 ms
_DAY_NS: Final = 86_400 * SECOND_NS
_EVER_NS: Final = 2**63
MOST: Final = 2**50  # a larger wish, such as a client's max_tokens of 10**18, is counted as this
_KINDS: Final = {"total": 0, "day": 1, "month": 2}  # the low bits of a slot's period


class KeyStanding(msgspec.Struct, frozen=True, kw_only=True):
    """Where a key stands: spent in this period and reserved, and what counts against its limits.

    Requests and tokens are counted for keys with a limit per minute.
    """

    spent_nano: int
    held_nano: int
    requests: int
    tokens: int
    held_tokens: int


class Orphaned(NamedTuple):
    """What a worker that is no more had reserved for a key."""

    nano_usd: int
    tokens: int


class OwnPart(NamedTuple):
    """A key at this machine: its budget's period and spend, and what this worker has reserved."""

    period: int
    spent_nano: int
    held_nano: int
    held_tokens: int


class SpendCounters:
    """One worker's part in the counters of a machine; one thread uses it, as a context manager.

    After a worker died, first charge its orphans (`settle` with nothing reserved), then
    `clear_worker`: in that order no money is forgotten.
    """

    __slots__ = ("_charging", "_clock", "_file", "_gone", "_leases", "_worker")
    shares = False  # whether other machines spend of the same budgets

    def __init__(self, file: CounterFile, worker: int, clock: Clock) -> None:
        if not 0 <= worker < WORKERS:
            raise ValueError(f"a worker is a number from 0 to {WORKERS - 1}")
        self._file = file
        self._worker = worker
        self._clock = clock
        self._leases: dict[str, Lease] = {}
        self._gone: set[int] = set()  # workers that are no more and have nothing reserved
        self._charging: dict[int, list[tuple[str, Slot]]] = {}  # of such, keys still to look at
        file.take_worker(worker)

    @classmethod
    def open(
        cls, path: Path, worker: int, keys: Iterable[KeyRecord] = (), *, clock: Clock = SYSTEM
    ) -> Self:
        """Open the file, made where there is none, for a worker of this machine."""
        counters = cls(CounterFile(path), worker, clock)
        counters.add(keys)
        return counters

    @staticmethod
    def keys_in(path: Path) -> frozenset[str]:
        """The ids of the keys that are counted in a file."""
        with CounterFile(path) as file:
            return frozenset(key_id for key_id, _ in file.slots())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the leases back and close the file; reservations stay until settled or cleared."""
        for lease in self._leases.values() if self._file.whole else ():
            if lease.until_ns:
                with self._locked(lease.slot):
                    lease.give_back(self._file.words)
        self._file.close()

    @property
    def workers(self) -> int:
        """One more than the highest worker that has ever counted in this file."""
        return self._file.workers

    def keep_in_place(self) -> bool:
        """Go over to another file where the open one was deleted or damaged; whether it was.

        CounterFileFailed where that cannot be now: then one that is deleted is counted in.
        """
        old = self._file
        if not old.whole:
            return self._renew()
        found = None if old.in_place else successor(old)
        if found is None:
            return False
        new, copied = found
        new.take_worker(self._worker)
        carry(self._leases.items(), old, new, self._worker, copied=copied)
        self._go_over(new)
        return True

    def _renew(self) -> bool:
        """Count in an empty file: what was in the open one is not there any more."""
        new = renewed(self._file, self._clock.now_ns())
        new.take_worker(self._worker)
        self._leases = carry_known(self._leases.items(), new, self._worker)
        self._go_over(new)
        return True

    def _go_over(self, new: CounterFile) -> None:
        old, self._file = self._file, new
        self._gone = set(range(new.workers))  # who is not here yet is not dead
        self._charging.clear()
        old.close()

    @property
    def fresh(self) -> bool:
        """Whether the file was empty when it was opened."""
        return self._file.fresh

    @property
    def recounts(self) -> bool:
        """Whether the ledger has to be asked what was spent, and all workers have come over."""
        lost = self._file.lost
        return bool(lost) and not lost <= self._clock.now_ns() < lost + int(RECOUNT_S * SECOND_NS)

    def mark_lost(self) -> None:
        """Refuse keys with a budget until the ledger has been asked what they have spent."""
        self._file.mark_lost(self._clock.now_ns() or 1)

    def recount(
        self, keys: Iterable[KeyRecord], spent: Mapping[str, int], *, last: bool = True
    ) -> None:
        """Raise spends to what the ledger says, in nano-dollars, and let keys in again.

        It has what is reserved now among what is spent. More may follow where it is not the `last`.
        """
        self.add(key for key in keys if key.id in spent and key.id not in self._leases)
        for key_id, nano_usd in spent.items():
            standing = self.standing(key_id)
            if standing is not None:
                self.load_spend(key_id, nano_usd - standing.held_nano)
        if last:
            self._file.mark_lost(0)

    def add(self, keys: Iterable[KeyRecord]) -> None:
        """Give keys their slots ahead of their first request."""
        for key in keys:
            if limited(key):
                self._learn(key)

    def admit(self, key: KeyRecord, wall_ns: int, tokens: int, nano_usd: int) -> Denied | None:
        """Reserve the worst case of one request, or say why not; then nothing has changed."""
        lease = self._leases.get(key.id)
        if lease is None or lease.key is not key:
            if not limited(key):
                return None
            lease = self._learn(key)
        if tokens > MOST or nano_usd > MOST:
            tokens, nano_usd = min(tokens, MOST), min(nano_usd, MOST)
        file = self._file
        if not (lease.from_ns <= wall_ns < lease.until_ns and file.whole) or file.lost:
            return self._admit_locked(key, wall_ns, tokens, nano_usd)
        words, held = file.words, lease.held + nano_usd
        if words[lease.held_at] != lease.held or words[lease.spent_at] != lease.spent:
            return self._admit_locked(key, wall_ns, tokens, nano_usd)  # it was written over
        words[lease.held_at] = held  # before the limit is read: see `shares`
        if lease.limited_per_minute:
            at = lease.at
            requests, held_tokens = lease.requests + 1, lease.held_tokens + tokens
            words[at + REQUESTS] = requests
            words[at + HELD_TOKENS] = held_tokens
            if (
                requests > words[at + REQUEST_LIMIT]
                or lease.tokens + held_tokens > words[at + TOKEN_LIMIT]
                or lease.spent + held > words[lease.spend_limit_at]
            ):
                words[at + REQUESTS] = lease.requests
                words[at + HELD_TOKENS] = lease.held_tokens
                words[lease.held_at] = lease.held
                return self._admit_locked(key, wall_ns, tokens, nano_usd)
            lease.requests, lease.held_tokens = requests, held_tokens
        elif lease.spent + held > words[lease.spend_limit_at]:
            words[lease.held_at] = lease.held
            return self._admit_locked(key, wall_ns, tokens, nano_usd)
        lease.held = held
        return None

    def counts(self, key_id: str) -> bool:
        """Whether anything is counted for this key here."""
        return key_id in self._leases

    def settle(
        self,
        key_id: str,
        reserved_nano: int,
        spent_nano: int,
        reserved_tokens: int,
        tokens: int,
    ) -> None:
        """Give back what was reserved and count what was really used, in the current period."""
        lease = self._leases.get(key_id)
        if lease is None:
            return
        wall_ns = self._clock.wall_ns()
        try:
            lease = self._keep_whole(lease)
        except CounterFileFailed:  # it is in the journal, and taken along by the next who can
            lease.spent += spent_nano
            lease.held = max(0, lease.held - reserved_nano)
            lease.held_tokens = max(0, lease.held_tokens - reserved_tokens)
            return
        if not lease.from_ns <= wall_ns < lease.until_ns:
            with self._locked(lease.slot):
                self._refresh(lease, wall_ns)
        if reserved_nano > MOST or reserved_tokens > MOST:
            reserved_nano, reserved_tokens = min(reserved_nano, MOST), min(reserved_tokens, MOST)
        if spent_nano > MOST or tokens > MOST:
            spent_nano, tokens = min(spent_nano, MOST), min(tokens, MOST)
        words, held = self._file.words, lease.held
        # Counted before it is given back: a kill between counts twice until the dead worker is
        # cleared, never not at all. A reservation may have been cleared before.
        lease.spent = words[lease.spent_at] = lease.spent + spent_nano
        lease.held = words[lease.held_at] = held - reserved_nano if held > reserved_nano else 0
        if lease.limited_per_minute:
            at, held = lease.at, lease.held_tokens
            lease.tokens = words[at + TOKENS] = lease.tokens + tokens
            held = held - reserved_tokens if held > reserved_tokens else 0
            lease.held_tokens = words[at + HELD_TOKENS] = held

    def load_spend(self, key_id: str, nano_usd: int) -> None:
        """Raise the spend of the current period to what the ledger knows; it is never lowered."""
        lease = self._leases.get(key_id)
        if lease is None:
            return
        lease = self._keep_whole(lease)
        with self._locked(lease.slot):
            locked = self._rolled(lease, self._clock.wall_ns())
            self._file.words[lease.slot.at + BASE] += max(0, nano_usd - locked.money()[0])

    def clear_worker(self, worker: int) -> dict[str, Orphaned]:
        """Drop what a worker that is no more had reserved, and tell what it was for each key.

        What was leased to it and not reserved can be leased again.
        """
        orphaned: dict[str, Orphaned] = {}
        for key_id, slot in self._file.slots():
            found = self._clear(slot, worker)
            if found is not None and any(found):
                orphaned[key_id] = found
        if worker == self._worker:
            for lease in self._leases.values():
                lease.until_ns = 0  # its copies of the words are wrong now
        return orphaned

    def _clear(self, slot: Slot, worker: int) -> Orphaned | None:
        """Drop what a worker that is no more had reserved and leased of a key; None: nothing."""
        words, at = self._file.words, place_of(slot, worker)
        if not has_lease(words, at):
            return None  # without a lock: nobody but the dead worker would have raised anything
        with self._locked(slot):
            found = Orphaned(words[at + HELD], words[at + HELD_TOKENS])
            words[at + HELD] = words[at + HELD_TOKENS] = 0
            lower_limits(words, at)
        return found

    def charge_dead(self, most: int = CHARGED) -> bool:
        """Count what workers that are no more had reserved as spent, as the ledger does.

        A worker that was replaced and then killed has no next life that would. At most so many
        keys are looked at in one call, for the loop's sake; whether some are left.
        """
        if not self._file.whole:
            return False  # until another one has its place
        for worker in range(self._file.workers):
            if worker == self._worker:
                continue
            if not self._file.borrow_worker(worker):
                self._gone.discard(worker)
                self._charging.pop(worker, None)
                continue
            try:
                if worker not in self._gone and self._charge_some(worker, most):
                    return True
            finally:
                self._file.give_worker_back(worker)
        return False

    def _charge_some(self, worker: int, most: int) -> bool:
        """Charge some keys of a worker that is no more; whether there are others."""
        left = self._charging.setdefault(worker, list(self._file.slots()))
        for key_id, slot in left[:most]:
            held = self._clear(slot, worker)
            if held is not None and any(held):
                self._charge(key_id, slot, held)
        del left[:most]
        if not left:
            del self._charging[worker]
            self._gone.add(worker)
        return bool(left)

    def _charge(self, key_id: str, slot: Slot, held: Orphaned) -> None:
        """Count as spent what was reserved, also for a key that this worker has not met here."""
        if key_id in self._leases:
            self.settle(key_id, 0, held.nano_usd, 0, held.tokens)
            return
        with self._locked(slot):
            self._file.words[slot.at + BASE] += held.nano_usd

    def charge_own(self) -> None:
        """Count what an earlier life of this worker had reserved as spent."""
        for key_id, held in self.clear_worker(self._worker).items():
            self.settle(key_id, 0, held.nano_usd, 0, held.tokens)

    def standing(self, key_id: str) -> KeyStanding | None:
        """Where a key stands now, or None for one without limits."""
        lease = self._leases.get(key_id)
        if lease is None:
            return None
        lease = self._keep_whole(lease)
        wall_ns = self._clock.wall_ns()
        with self._locked(lease.slot):
            locked = self._rolled(lease, wall_ns)
            locked.turn(wall_ns // SECOND_NS)
            spent, held = locked.money()
            return KeyStanding(
                spent_nano=spent,
                held_nano=held,
                requests=sum(locked.seconds(RING_REQUESTS, REQUESTS)),
                tokens=sum(locked.seconds(RING_TOKENS, TOKENS)),
                held_tokens=locked.held_tokens(),
            )

    def own_part(self, key: KeyRecord) -> OwnPart:
        """What this machine has spent for a key in the running period, and this worker reserved."""
        lease = self._keep_whole(self._leases.get(key.id) or self._learn(key))
        with self._locked(lease.slot):
            locked, words = self._rolled(lease, self._clock.wall_ns()), self._file.words
            held, tokens = words[lease.held_at], words[lease.at + HELD_TOKENS]
            period = _period(lease.kind, self._clock.wall_ns())
            return OwnPart(period * 4 + lease.kind, locked.money()[0], held, tokens)

    def left_nano(self, key: KeyRecord) -> int:
        """What is left of a key's budget beside what is spent and reserved, in nano-dollars."""
        standing = self.standing(key.id)
        if standing is None or key.budget_usd is None:
            return UNLIMITED
        return int(key.budget_usd * SECOND_NS) - standing.spent_nano - standing.held_nano

    @contextmanager
    def _locked(self, slot: Slot) -> Iterator[None]:
        self._file.lock(slot)
        try:
            yield
        finally:
            self._file.unlock(slot)

    def _learn(self, key: KeyRecord) -> Lease:
        if not self._file.whole:
            self._renew()
        slot = self._file.place(key.id)
        lease = self._leases[key.id] = Lease(key, slot, self._worker, _KINDS[key.budget_period])
        return lease

    def _rolled(self, lease: Lease, wall_ns: int) -> LockedSlot:
        """The key's slot, which is locked, in the period of this instant."""
        locked = LockedSlot(self._file.words, lease.slot.at, lease.at, self._file.workers)
        locked.roll(_period(lease.kind, wall_ns) * 4 + lease.kind)
        return locked

    def _refresh(self, lease: Lease, wall_ns: int) -> LockedSlot:
        """Bring the worker's own words to this second and period, and its copies to the words."""
        locked = self._rolled(lease, wall_ns)
        locked.begin_period()
        lease.from_ns, lease.until_ns = -_EVER_NS, _EVER_NS
        if lease.limited_per_minute:
            locked.begin_second(wall_ns // SECOND_NS)
            lease.from_ns = wall_ns // SECOND_NS * SECOND_NS
            lease.until_ns = lease.from_ns + SECOND_NS
        elif lease.kind:
            lease.from_ns = wall_ns // _DAY_NS * _DAY_NS
            lease.until_ns = lease.from_ns + _DAY_NS
        lease.read(self._file.words)
        return locked

    def _keep_whole(self, lease: Lease) -> Lease:
        """Go over to another file where the open one was damaged; the lease of the key there."""
        file = self._file
        if not file.whole or not lease.kept_by(file.words):
            self._renew()
        return self._leases.get(lease.key.id) or self._learn(lease.key)

    def _admit_locked(
        self, key: KeyRecord, wall_ns: int, tokens: int, nano_usd: int
    ) -> Denied | None:
        lease = self._keep_whole(self._leases[key.id])
        if self._file.lost and key.budget_usd is not None:
            return recounting()
        self._file.lock(lease.slot)
        try:
            if not self._file.copied:
                return self._admit_in(lease, wall_ns, Amounts(nano_usd, 1, tokens))
        finally:
            self._file.unlock(lease.slot)
        self.keep_in_place()  # another worker counts in the copy already
        with self._locked(lease.slot):
            return self._admit_in(lease, wall_ns, Amounts(nano_usd, 1, tokens))

    def _admit_in(self, lease: Lease, wall_ns: int, need: Amounts) -> Denied | None:
        """Reserve in a key's slot, which is locked."""
        locked = self._refresh(lease, wall_ns)
        taken, free = locked.taken()
        left = self._left(lease, taken)
        lacks = [each > rest for each, rest in zip(need, left, strict=True)]
        if any(more for more, lack in zip(free, lacks, strict=True) if lack):
            locked.recall()
            left = self._left(lease, locked.taken()[0])
        denied = _denied(lease, locked, need, left, wall_ns)
        words, at = self._file.words, lease.at
        if denied is not None:
            lease.give_back(words)
            return denied
        locked.lease(need, left)
        if lease.budget_nano is not None:
            lease.seen = locked.seen()
        lease.held += need.nano_usd
        words[at + HELD] = lease.held
        if lease.limited_per_minute:
            lease.requests += 1
            words[at + REQUESTS] = lease.requests
            lease.held_tokens += need.tokens
            words[at + HELD_TOKENS] = lease.held_tokens
        return None

    def _left(self, lease: Lease, taken: Amounts) -> Amounts:
        """What is left of the budget and of this minute; UNLIMITED where there is no limit."""
        limits = (lease.budget_nano, lease.key.rpm, lease.key.tpm)
        return Amounts(
            *(
                UNLIMITED if limit is None else limit - used
                for limit, used in zip(limits, taken, strict=True)
            )
        )


def _period(kind: int, wall_ns: int) -> int:
    """The number of the period: 0, days since the epoch, or months since the year 0."""
    if kind == 0:
        return 0
    if kind == 1:
        return wall_ns // _DAY_NS
    date = datetime.fromtimestamp(wall_ns // SECOND_NS, UTC)
    return date.year * 12 + date.month


def limited(key: KeyRecord) -> bool:
    """Whether anything is counted for this key."""
    return not (key.budget_usd is None and key.rpm is None and key.tpm is None)


def restore(
    counters: SpendCounters,
    ledger: Ledger,
    keys: Iterable[KeyRecord],
    wall_ns: int,
    raise_to: Callable[[KeyRecord, int], None] | None = None,
    waiting: Callable[[int], Mapping[str, int]] = lambda _: {},
) -> None:
    """Raise every spend to what the ledger knows, then drop what earlier lives had reserved.

    `raise_to` is called instead, with nano-dollars, where others have spent of it too; then what
    earlier lives had reserved counts as spent here. `waiting` tells the nano-dollars since a time
    that are in journals still.

    Call it while no worker of this data folder runs, after the journals were shipped and their
    orphans settled: then the ledger knows every cent, and no reservation is anybody's.
    """
    from lightgate.ledger.store.keys import Period, period_start
    from lightgate.ledger.store.queries import spend_per_key

    rows = [key for key in keys if key.budget_usd is not None]
    counters.add(rows)
    for period in get_args(Period):
        of_period = [key for key in rows if key.budget_period == period]
        if not of_period:
            continue
        start = period_start(period, wall_ns)
        spent = spend_per_key(ledger, start)
        left = waiting(0 if start is None else int(start.timestamp()) * SECOND_NS)
        for key in of_period:
            if key.id in spent or key.id in left:
                nano_usd = int(spent.get(key.id, 0) * SECOND_NS) + left.get(key.id, 0)
                if raise_to is None:
                    counters.load_spend(key.id, nano_usd)
                else:
                    raise_to(key, nano_usd)
    for worker in range(counters.workers):
        orphaned = counters.clear_worker(worker)
        for key_id, held in orphaned.items() if raise_to is not None else ():
            counters.settle(key_id, 0, held.nano_usd, 0, held.tokens)
    counters.recount((), {})


def _denied(
    lease: Lease, locked: LockedSlot, need: Amounts, left: Amounts, wall_ns: int
) -> Denied | None:
    """The first limit that does not leave room for a request."""
    key = lease.key
    if key.rpm is not None and left.requests < 1:
        seconds = locked.seconds(RING_REQUESTS, REQUESTS)
        wait_s = room_s(seconds, locked.head(), 1 - left.requests, wall_ns)
        return too_often(wait_s, key.rpm)
    if key.tpm is not None and left.tokens < need.tokens:
        seconds = locked.seconds(RING_TOKENS, TOKENS)
        wait_s = room_s(seconds, locked.head(), need.tokens - left.tokens, wall_ns)
        return too_many(wait_s, key.tpm, need.tokens)
    if left.nano_usd < need.nano_usd:
        return too_dear(key, wall_ns, left.nano_usd, need.nano_usd)
    return None
