"""What one worker may take of a key's limits while it cannot ask the store.

The store tells every worker, with each answer, what is left of a key's budget and of its minute,
and the worker's share of that: an equal part for each worker of all machines. A worker that cannot
ask takes up to its share, and at least one request where something is left. The store keeps the
shares of silent workers back for a while, so that others do not take them as well.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SECOND_NS: Final = 1_000_000_000
MINUTE: Final = 60
RING: Final = 61
CAUTION: Final = 2  # a key of which nothing was told yet gets half of an equal part
LEAST_MEMBERS: Final = 2  # that are taken to be there, where there may be others


class Needed(NamedTuple):
    """Nano-dollars, requests and tokens."""

    nano_usd: int
    requests: int
    tokens: int


class KeyLimits(NamedTuple):
    """The limits of a key, -1 for none, and the period that its budget is in."""

    nano_usd: int
    requests: int
    tokens: int
    period: int


class Told(NamedTuple):
    """What the store has said of a key: what is left, the worker's part of it, and the period."""

    left: Needed
    share: Needed
    period: int


class Minute:
    """Requests and tokens that one worker has counted in the last 61 seconds."""

    __slots__ = ("_requests", "_second", "_tokens", "requests", "tokens")

    def __init__(self) -> None:
        self._second = 0
        self._requests, self._tokens = [0] * RING, [0] * RING
        self.requests = self.tokens = 0

    def turn(self, second: int) -> None:
        """Forget what is older than a minute."""
        if second <= self._second:
            return
        for passed in range(max(self._second + 1, second - RING + 1), second + 1):
            at = passed % RING
            self.requests -= self._requests[at]
            self.tokens -= self._tokens[at]
            self._requests[at] = self._tokens[at] = 0
        self._second = second

    def add(self, second: int, requests: int, tokens: int) -> None:
        """Count requests and tokens in a second."""
        self.turn(second)
        at = self._second % RING
        self._requests[at] += requests
        self._tokens[at] += tokens
        self.requests += requests
        self.tokens += tokens

    def wait_s(self) -> int:
        """Seconds until the oldest count is forgotten."""
        for age in range(RING - 1, -1, -1):
            at = (self._second - age) % RING
            if self._requests[at] or self._tokens[at]:
                return RING - age
        return 1


class KeyShare:
    """One worker's share of one key: what it was told, and what it has taken since.

    `requests` and `tokens` are counted since the worker began. Instants are monotonic.
    """

    __slots__ = ("_told", "_told_ns", "_used", "minute", "requests", "tokens", "totals")

    def __init__(self) -> None:
        self.requests = self.tokens = 0
        self.minute = Minute()
        self.totals: tuple[int, ...] = ()  # of all machines, when last told
        self._told: Told | None = None
        self._told_ns = 0
        self._used = [0, 0, 0]

    @property
    def used(self) -> tuple[int, int, int]:
        """What was taken since the store last told something."""
        nano, requests, tokens = self._used
        return nano, requests, tokens

    @property
    def left_nano(self) -> int | None:
        """What the store has last said to be left of the budget."""
        return None if self._told is None else self._told.left.nano_usd

    def told(self, told: Told, sent: tuple[int, int, int], now_ns: int) -> None:
        """Take in what the store says; it knows of what had been used when it was asked."""
        self._told, self._told_ns = told, now_ns
        self._used = [used - known for used, known in zip(self._used, sent, strict=True)]

    def took(self, need: Needed, second: int) -> None:
        """Count a request that was let in."""
        self.requests += 1
        self.minute.add(second, 1, 0)
        self._used = [used + more for used, more in zip(self._used, need, strict=True)]

    def settled(self, reserved: Needed, used: Needed, second: int) -> None:
        """Count what a request really took, in the place of what was reserved for it."""
        self.tokens += used.tokens
        self.minute.add(second, 0, used.tokens)
        self._used[0] += used.nano_usd - reserved.nano_usd
        self._used[2] += used.tokens - reserved.tokens

    def lacks(
        self, need: Needed, limits: KeyLimits, held_tokens: int, members: int, now_ns: int
    ) -> str:
        """The limit that the share leaves no room in: "rpm", "tpm", "budget" or "" for none."""
        told = self._told
        recent = told is not None and now_ns - self._told_ns < MINUTE * SECOND_NS
        minute = Needed(0, self.minute.requests, self.minute.tokens + held_tokens)
        for at, name in ((1, "rpm"), (2, "tpm")):
            limit = limits[at]
            if limit < 0:
                continue
            if told is not None and recent:
                room, left, used = told.share[at], told.left[at], self._used[at]
            else:
                room, left, used = limit // max(members, LEAST_MEMBERS), limit, minute[at]
            if not _fits(need[at], room, left, used):
                return name
        return "" if self._affords(need.nano_usd, limits, members) else "budget"

    def _affords(self, nano_usd: int, limits: KeyLimits, members: int) -> bool:
        told, budget = self._told, limits.nano_usd
        if budget < 0:
            return True
        members = max(members, LEAST_MEMBERS)
        if told is None:
            return _fits(nano_usd, budget // (CAUTION * members), budget, self._used[0])
        if told.period != limits.period:  # a new period begins with all of the budget
            told = self._told = Told(
                told.left._replace(nano_usd=budget),
                told.share._replace(nano_usd=budget // members),
                limits.period,
            )
            self._used[0] = 0
        return _fits(nano_usd, told.share.nano_usd, told.left.nano_usd, self._used[0])


def _fits(need: int, room: int, left: int, used: int) -> bool:
    """Whether a request fits into a share; one does as long as something is left."""
    return used + need <= room or (used <= 0 and need <= left)
