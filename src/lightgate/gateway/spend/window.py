"""Count what happened in the last 60 seconds: a ring of one-second counts in the counter file.

A ring is 62 words: its newest second, then 61 counts (the running second and the 60 before it), so
that what is summed covers every span of 60 seconds that ends now.
"""

from __future__ import annotations

from typing import Final

RING: Final = 61
_SECOND_NS: Final = 1_000_000_000


def turn(words: memoryview[int], ring: int, second: int) -> None:
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


def total(words: memoryview[int], ring: int, second: int) -> int:
    """The sum of this second and the 60 before it."""
    turn(words, ring, second)
    return sum(words[ring + 1 : ring + 1 + RING])


def count(words: memoryview[int], ring: int, number: int) -> None:
    """Add to the newest second of a ring."""
    words[ring + 1 + words[ring] % RING] += number


def room_s(words: memoryview[int], ring: int, over: int, wall_ns: int) -> float:
    """Seconds until so much has left a ring; a minute where that alone will not do."""
    head = words[ring]
    for second in range(head - RING + 1, head + 1):
        over -= words[ring + 1 + second % RING]
        if over <= 0:
            return max((second + RING) * _SECOND_NS - wall_ns, 0) / _SECOND_NS
    return 60.0
