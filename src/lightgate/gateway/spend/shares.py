"""Share a key's budget and minute limits out to the workers of one machine.

A key's slot has words of the key (the period of its budget, a spend, two rings of one-second
counts) and ten words of each worker: what the worker has spent and reserved, and three limits on
that. What a worker may take up to its limits is its lease. The worker itself counts without a lock
and is the only writer of its counts; limits, period, second and rings change under the slot's lock.

A lease can be recalled by any worker. The owner writes its raised count and then reads its limit;
the other lowers the limit, waits until a write of another core must have become visible, and then
reads the count. So either the owner sees the lower limit and takes its count back, or the other
sees the count. The sum of what workers spend and reserve passes the budget at no instant.

A ring is 62 words: its newest second, then 61 counts (the running second and the 60 before it), so
that what is summed covers every span of 60 seconds that ends now. A worker's requests and tokens of
the running second stand in its own words and are added to the rings in a later second; a kill in
the middle of that counts them twice for a minute, never not at all.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.gateway.spend.counter_file import ID_WORDS, SLOT_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.gateway.spend.counter_file import Slot
    from lightgate.ledger.store.keys import KeyRecord

WORKERS: Final = 256  # as many as the configuration allows
SECOND_NS: Final = 1_000_000_000
RING: Final = 61
UNLIMITED: Final = 2**62  # the limit of what a key has no limit on

PERIOD: Final = ID_WORDS
BASE: Final = PERIOD + 1  # the period's spend that no worker's own words have
RING_REQUESTS: Final = BASE + 1
RING_TOKENS: Final = RING_REQUESTS + 1 + RING
_FIRST: Final = RING_TOKENS + 1 + RING  # the first worker's words
# A settled amount is counted before its reservation is lowered, and rows are read upwards: what
# is reserved stands first, so that a reader in between counts twice, never not at all.
(
    OWN_PERIOD, HELD, SPENT, SPEND_LIMIT,  # nano-dollars
    OWN_SECOND, REQUESTS, REQUEST_LIMIT,
    HELD_TOKENS, TOKENS, TOKEN_LIMIT,
) = range(10)  # fmt: skip
OWN_WORDS: Final = 10
assert _FIRST + WORKERS * OWN_WORDS <= SLOT_WORDS  # noqa: S101 - the layout itself

VISIBLE_S: Final = 0.0001  # a core's write reaches the others within a microsecond
_PARTS: Final = 2  # of what is left, a lease is this part of an equal share


class Amounts(NamedTuple):
    """Nano-dollars, requests and tokens."""

    nano_usd: int
    requests: int
    tokens: int


class SeenSpend(NamedTuple):
    """A key's spend as its slot had it: nano-dollars, those of each worker apart."""

    period: int
    base: int
    spent: list[int]


class Lease:
    """What one worker may take for one key without asking the others.

    The counts are copies of the worker's own words. They may be used from `from_ns` to `until_ns`
    of wall time: within one second where the key has limits per minute, else within one period.
    """

    __slots__ = (
        "at", "budget_nano", "from_ns", "held", "held_at", "held_tokens", "key", "kind",
        "limited_per_minute", "requests", "seen", "slot", "spend_limit_at", "spent", "spent_at",
        "tokens", "until_ns",
    )  # fmt: skip

    def __init__(self, key: KeyRecord, slot: Slot, worker: int, kind: int) -> None:
        self.key = key
        self.place(slot, worker)
        self.kind = kind
        self.budget_nano = None if key.budget_usd is None else int(key.budget_usd * SECOND_NS)
        self.limited_per_minute = key.rpm is not None or key.tpm is not None
        self.from_ns = self.until_ns = 0  # nothing is leased yet
        self.spent = self.held = self.requests = self.tokens = self.held_tokens = 0
        self.seen: SeenSpend | None = None  # when the slot was last locked for a request

    def place(self, slot: Slot, worker: int) -> None:
        """Count in a slot, in the words of a worker."""
        self.slot = slot
        self.at = at = place_of(slot, worker)
        self.held_at, self.spent_at, self.spend_limit_at = at + HELD, at + SPENT, at + SPEND_LIMIT

    def read(self, words: memoryview[int]) -> None:
        """Copy the counts from the worker's own words."""
        at = self.at
        self.spent, self.held = words[at + SPENT], words[at + HELD]
        self.requests = words[at + REQUESTS]
        self.tokens, self.held_tokens = words[at + TOKENS], words[at + HELD_TOKENS]

    def kept_by(self, words: memoryview[int]) -> bool:
        """Whether the worker's own words, which nobody else writes, are still what it wrote."""
        return not self.until_ns or (
            words[self.held_at] == self.held and words[self.spent_at] == self.spent
        )

    def give_back(self, words: memoryview[int]) -> None:
        """Lower the limits to what is spent and reserved; the next request asks again."""
        lower_limits(words, self.at)
        self.until_ns = 0


class LockedSlot:
    """One key's slot while it is locked, as one of the workers sees it."""

    __slots__ = ("_at", "_own", "_words", "_workers")

    def __init__(self, words: memoryview[int], slot_at: int, own_at: int, workers: int) -> None:
        self._words = words
        self._at = slot_at
        self._own = own_at
        self._workers = workers

    def roll(self, period: int) -> None:
        """Begin the spend again where a new period has begun.

        The period just before the one in the slot is a clock that was put back a little: count on.
        Periods differ by 4: their low bits are the kind.
        """
        words, at = self._words, self._at
        if words[at + PERIOD] not in {period, period + 4}:
            words[at + BASE] = 0  # first: after a kill here the next one does it again
            words[at + PERIOD] = period

    def begin_period(self) -> None:
        """Begin the own spend again if it is of another period."""
        words, own, period = self._words, self._own, self._words[self._at + PERIOD]
        if words[own + OWN_PERIOD] != period:
            words[own + SPENT] = 0
            words[own + SPEND_LIMIT] = words[own + HELD]
            words[own + OWN_PERIOD] = period

    def begin_second(self, second: int) -> None:
        """Add the own counts to the rings if they are of another second."""
        words, own = self._words, self._own
        self.turn(second)
        head, was = words[self._at + RING_REQUESTS], words[own + OWN_SECOND]
        if was == head:
            return
        if _in_ring(head, was):
            words[self._at + RING_REQUESTS + 1 + was % RING] += words[own + REQUESTS]
            words[self._at + RING_TOKENS + 1 + was % RING] += words[own + TOKENS]
        words[own + REQUESTS] = words[own + REQUEST_LIMIT] = words[own + TOKENS] = 0
        words[own + TOKEN_LIMIT] = words[own + HELD_TOKENS]
        words[own + OWN_SECOND] = head

    def turn(self, second: int) -> None:
        """Bring both rings to this second."""
        _turn(self._words, self._at + RING_REQUESTS, second)
        _turn(self._words, self._at + RING_TOKENS, second)

    def taken(self) -> tuple[Amounts, Amounts]:
        """What is spent, reserved and leased, and the part of it that is others' unused leases.

        A worker that takes from its lease meanwhile changes nothing here: what is counted is the
        lease, or more than that where a request has cost more than was reserved for it.
        """
        words, at = self._words, self._at
        period, head = words[at + PERIOD], words[at + RING_REQUESTS]
        nano = words[at + BASE]
        requests = sum(words[at + RING_REQUESTS + 1 : at + RING_REQUESTS + 1 + RING])
        tokens = sum(words[at + RING_TOKENS + 1 : at + RING_TOKENS + 1 + RING])
        free_nano = free_requests = free_tokens = 0
        for place, own in self._rows():
            spend, load = own[HELD] + own[SPENT], own[HELD_TOKENS] + own[TOKENS]
            if place != self._own:
                free_nano += max(0, own[SPEND_LIMIT] - spend)
                free_requests += max(0, own[REQUEST_LIMIT] - own[REQUESTS])
                free_tokens += max(0, own[TOKEN_LIMIT] - load)
            nano += spend if own[OWN_PERIOD] == period else own[HELD]
            if _in_ring(head, own[OWN_SECOND]):
                requests += own[REQUESTS]
                tokens += load
            else:
                tokens += own[HELD_TOKENS]
        free = Amounts(free_nano, free_requests, free_tokens)
        return Amounts(nano + free_nano, requests + free_requests, tokens + free_tokens), free

    def money(self) -> tuple[int, int]:
        """Nano-dollars spent in this period, and reserved."""
        period = self._words[self._at + PERIOD]
        spent, held = self._words[self._at + BASE], 0
        for _, own in self._rows():
            spent += own[SPENT] if own[OWN_PERIOD] == period else 0
            held += own[HELD]
        return spent, held

    def seen(self) -> SeenSpend:
        """The spend of this period, to be known should the file be lost."""
        period = self._words[self._at + PERIOD]
        rows = [own[SPENT] if own[OWN_PERIOD] == period else 0 for _, own in self._rows()]
        return SeenSpend(period, self._words[self._at + BASE], rows)

    def raise_to(self, seen: SeenSpend) -> None:
        """Raise the spend of every worker to what was seen of it, where the period is the same."""
        words, at = self._words, self._at
        self.roll(seen.period)
        if words[at + PERIOD] != seen.period:
            return
        words[at + BASE] = max(words[at + BASE], seen.base)
        first = at + _FIRST
        for own, spent in zip(
            range(first, first + len(seen.spent) * OWN_WORDS, OWN_WORDS), seen.spent, strict=True
        ):
            if words[own + OWN_PERIOD] != seen.period:
                words[own + SPENT] = 0
                words[own + OWN_PERIOD] = seen.period
            words[own + SPENT] = max(words[own + SPENT], spent)

    def held_tokens(self) -> int:
        """Tokens reserved by all workers."""
        return sum(own[HELD_TOKENS] for _, own in self._rows())

    def seconds(self, ring: int, count: int) -> list[int]:
        """The counts of the last 61 seconds, the oldest first; `count` is a worker's own word."""
        words, ring = self._words, self._at + ring
        head = words[ring]
        counts = words[ring + 1 : ring + 1 + RING].tolist()
        for _, own in self._rows():
            if _in_ring(head, own[OWN_SECOND]):
                counts[own[OWN_SECOND] % RING] += own[count]
        first = (head + 1) % RING
        return counts[first:] + counts[:first]

    def head(self) -> int:
        """The newest second of the rings."""
        return self._words[self._at + RING_REQUESTS]

    def recall(self) -> None:
        """Take the leases of the other workers back."""
        for at in self._places():
            if at != self._own:
                lower_limits(self._words, at)
        time.sleep(VISIBLE_S)

    def lease(self, need: Amounts, left: Amounts) -> None:
        """Raise the own limits by what is needed and a part of what is left after that."""
        words, own, parts = self._words, self._own, _PARTS * self._workers
        for at, count, each, whole in zip(
            (SPEND_LIMIT, REQUEST_LIMIT, TOKEN_LIMIT),
            (words[own + SPENT] + words[own + HELD], words[own + REQUESTS],
             words[own + TOKENS] + words[own + HELD_TOKENS]),
            need, left, strict=True,
        ):  # fmt: skip
            more = each + (whole - each) // parts
            words[own + at] = UNLIMITED if whole == UNLIMITED else count + more

    def _places(self) -> range:
        first = self._at + _FIRST
        return range(first, first + self._workers * OWN_WORDS, OWN_WORDS)

    def _rows(self) -> Iterator[tuple[int, list[int]]]:
        places = self._places()
        every = self._words[places.start : places.stop].tolist()
        for place, at in zip(places, range(0, len(every), OWN_WORDS), strict=True):
            yield place, every[at : at + OWN_WORDS]


def place_of(slot: Slot, worker: int) -> int:
    """Where a worker's own words begin."""
    return slot.at + _FIRST + worker * OWN_WORDS


def lower_limits(words: memoryview[int], at: int) -> None:
    """Lower a worker's limits to what it has spent and reserved."""
    for limit, counts in (
        (SPEND_LIMIT, (SPENT, HELD)),
        (REQUEST_LIMIT, (REQUESTS,)),
        (TOKEN_LIMIT, (TOKENS, HELD_TOKENS)),
    ):
        used = sum(words[at + count] for count in counts)
        words[at + limit] = min(words[at + limit], used)


def has_lease(words: memoryview[int], at: int) -> bool:
    """Whether a worker has anything reserved, or may take more than it has."""
    _, held, spent, most, _, requests, request_limit, held_tokens, tokens, token_limit = words[
        at : at + OWN_WORDS
    ].tolist()
    return bool(
        held or held_tokens or most > spent or request_limit > requests or token_limit > tokens
    )


def room_s(seconds: list[int], head: int, over: int, wall_ns: int) -> float:
    """Seconds until so much has left the counts; a minute where that alone will not do."""
    for second, count in enumerate(seconds, head - RING + 1):
        over -= count
        if over <= 0:
            return max((second + RING) * SECOND_NS - wall_ns, 0) / SECOND_NS
    return 60.0


def _in_ring(head: int, second: int) -> bool:
    return 0 <= head - second < RING


def _turn(words: memoryview[int], ring: int, second: int) -> None:
    """Bring a ring to this second.

    Counts are dropped before the head moves: after a kill between, the same ones are dropped again.
    """
    head = words[ring]
    if second == head:
        return
    if second > head + RING or second < head - RING:
        for place in range(ring + 1, ring + 1 + RING):
            words[place] = 0
        words[ring] = second
    elif second > head:
        for passed in range(head + 1, second + 1):
            words[ring + 1 + passed % RING] = 0
        words[ring] = second
