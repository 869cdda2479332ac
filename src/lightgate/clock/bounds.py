"""What the bounds of the stamps leave open of a number, and when that is too much.

A stamp is an interval: the bytes arrived not after it, and after `since`, the last instant at which
the socket was known to be empty. Every number that is made of stamps therefore has a low and a high
end. A figure (a quantile over many attempts) is worked out at both ends too; where it could move by
more than max(1 ms, 2 %) it is doubtful, and printed with its range.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.clock.timing import NS_PER_MS, NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

FLOOR_MS: Final = 1.0  # a time that could move by less changes no conclusion
SHARE: Final = 0.02  # ... nor does a number that could move by less than this share of itself
ONE_BURST_NS: Final = 1_000_000  # pieces of one read that came within this are one burst


class Bounds(NamedTuple):
    """The smallest and the largest value that the stamps of a number allow."""

    low: float
    high: float


def doubtful(value: float, bounds: Bounds, *, rate: bool = False) -> bool:
    """Whether a figure could move by more than max(1 ms, 2 %); a rate has no milliseconds."""
    if math.isinf(value):
        return False
    allowed = max(0.0 if rate else FLOOR_MS, SHARE * value)
    return value - bounds.low > allowed or bounds.high - value > allowed


def of_rate(tokens: Bounds, shortest_ns: float, longest_ns: float) -> Bounds:
    """Bounds of tokens per second; a span that may be nothing has no upper end."""
    high = tokens.high * NS_PER_S / shortest_ns if shortest_ns > 0 else math.inf
    return Bounds(tokens.low * NS_PER_S / longest_ns if longest_ns > 0 else 0.0, high)


class SpeedFacts(NamedTuple):
    """The parts of a decode speed: tokens after the first burst, both stamps, both bounds in ns.

    `pieces` are the deltas of the first burst, `streamed` all tokens that came with deltas.
    """

    rest: float
    streamed: float
    pieces: int
    first: int
    last: int
    first_ns: float
    last_ns: float


def of_speed(facts: SpeedFacts) -> Bounds:
    """Bounds of the decode speed; pieces that a late client read at once may be several bursts."""
    rest = most = facts.rest
    if facts.pieces > 1 and facts.first_ns > ONE_BURST_NS:
        most = max(rest, facts.streamed - 1)
    span = facts.last - facts.first
    return of_rate(Bounds(rest, most), span - facts.last_ns, span + facts.first_ns)


class Gaps(NamedTuple):
    """The gaps of one attempt in milliseconds: as they were seen, and the ends of what they were.

    A read of several pieces hides the gaps between them: then there are more of `low` and `high`
    than were seen.
    """

    seen: list[float]
    low: list[float]
    high: list[float]
    stall: Bounds | None  # of the longest one


def of_gaps(
    at: Sequence[int], since: Sequence[int], pieces: Sequence[int], *, kernel: bool
) -> Gaps:
    """Gaps between bursts, from their stamps and earliest instants in nanoseconds.

    A burst of several pieces that may have come over more than a millisecond is that many gaps. A
    kernel stamp is the arrival of a burst's last piece: so all gaps that it hides fill the time
    since the stamp before, and the longest has at least its share of it.
    """
    seen: list[float] = []
    low: list[float] = []
    high: list[float] = []
    least = most = 0.0
    for here in range(1, len(at)):
        before, stamp, early = at[here - 1], at[here], since[here]
        gap = stamp - before
        longest = gap if kernel else stamp - since[here - 1]
        shortest = max(0, early - before)
        hidden = pieces[here] if stamp - early > ONE_BURST_NS else 1
        least = max(least, shortest, gap / hidden if kernel and hidden > 1 else 0.0)
        most = max(most, longest)
        seen.append(gap / NS_PER_MS)
        low += [0.0 if hidden > 1 else shortest / NS_PER_MS] * hidden
        high += [longest / NS_PER_MS] * hidden
    return Gaps(seen, low, high, Bounds(least / NS_PER_MS, most / NS_PER_MS) if seen else None)
