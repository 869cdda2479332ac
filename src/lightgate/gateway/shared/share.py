"""What one worker may take of a key's limits while it cannot ask the store.

The store tells every worker, with each answer, what is left of a key's budget and of its minute,
the worker's share of that (an equal part for each worker of all machines) and its advance, a small
part of the share. A worker that cannot ask takes up to its advance at first, and up to its share
once the store has noticed its silence; at least one request where something is left. The store
keeps the advances of all and the shares of silent workers back, so that no other takes them too.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SECOND_NS: Final = 1_000_000_000
MINUTE: Final = 60
RING: Final = 61
CAUTION: Final = 2  # a key of which nothing was told yet gets half of an equal part
ADVANCE_PARTS: Final = 16  # a share is so many times what may be taken of it at once
SILENT_NS: Final = 2_500_000_000  # without an answer: the store keeps the share back by now
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
    """What the store has said of a key: what is left, the worker's parts of it, and the period."""

    left: Needed
    share: Needed
    advance: Needed
    period: int


class Alone(NamedTuple):
    """The instant of a request that cannot ask, the workers that are there, and for how long.

    `long`: the store has been away for longer than it takes to notice a silence.
    """

    now_ns: int
    members: int
    long: bool


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
        for age in reversed(range(RING)):
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

    def may_take(self, now_ns: int) -> tuple[int, int, int]:
        """What the worker would still take without asking: the store keeps it back."""
        if self._told is None:
            return 0, 0, 0
        room = self._room(self._told, now_ns, sole=False)
        nano, requests, tokens = (
            max(0, part - used) for part, used in zip(room, self._used, strict=True)
        )
        return nano, requests, tokens

    def forget(self) -> None:
        """Give back what may be taken without asking, of a key that is not in use."""
        self._told = None

    def _silent(self, now_ns: int) -> bool:
        return now_ns - self._told_ns >= SILENT_NS

    def _room(self, told: Told, now_ns: int, *, sole: bool) -> Needed:
        return told.share if sole or self._silent(now_ns) else told.advance

    def lacks(self, need: Needed, limits: KeyLimits, held_tokens: int, alone: Alone) -> str:
        """The limit that the share leaves no room in: "rpm", "tpm", "budget" or "" for none.

        "share": the limit itself may have room, as far as the store has told, and the share will
        have more of it soon.
        """
        told, now_ns = self._told, alone.now_ns
        recent = told is not None and now_ns - self._told_ns < MINUTE * SECOND_NS
        minute = Needed(0, self.minute.requests, self.minute.tokens + held_tokens)
        for at, name in ((1, "rpm"), (2, "tpm")):
            limit = limits[at]
            if limit < 0:
                continue
            if told is not None and recent:
                sole = alone.members == 1
                grows = not sole and not self._silent(now_ns)
                part = self._room(told, now_ns, sole=sole)[at]
                left, used = told.left[at], self._used[at]
            else:
                grows = not alone.long
                part, left, used = _unknown(limit, alone), limit, minute[at]
            if not _fits(need[at], part, left, used):
                return "share" if grows and used + need[at] <= left else name
        if self._affords(need.nano_usd, limits, alone):
            return ""
        left = limits.nano_usd if self._told is None else self._told.left.nano_usd
        return "share" if self._used[0] + need.nano_usd <= left else "budget"

    def _affords(self, nano_usd: int, limits: KeyLimits, alone: Alone) -> bool:
        told, budget = self._told, limits.nano_usd
        if budget < 0:
            return True
        members = max(alone.members, LEAST_MEMBERS)
        if told is None:
            part = _unknown(budget, alone) // CAUTION
            return _fits(nano_usd, part, budget, self._used[0])
        if told.period != limits.period:  # a new period begins with all of the budget
            told = self._told = Told(
                told.left._replace(nano_usd=budget),
                told.share._replace(nano_usd=budget // members),
                told.advance._replace(nano_usd=budget // members),
                limits.period,
            )
            self._used[0] = 0
        room = self._room(told, alone.now_ns, sole=alone.members == 1).nano_usd
        return _fits(nano_usd, room, told.left.nano_usd, self._used[0])


def _unknown(limit: int, alone: Alone) -> int:
    """What may be taken of a limit of which the store has told nothing, or nothing of late."""
    part = limit // max(alone.members, LEAST_MEMBERS)
    return part if alone.long else part // ADVANCE_PARTS


def _fits(need: int, room: int, left: int, used: int) -> bool:
    """Whether a request fits into a share; one does as long as something is left."""
    return used + need <= room or (used <= 0 and need <= left)
