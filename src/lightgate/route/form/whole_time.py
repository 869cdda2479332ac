"""How long whole answers of a target take: the limit after which a silent target is left.

An answer that is not streamed shows nothing until it is there, so the only sign of trouble is that
it takes far longer than the answers before it.
"""

from __future__ import annotations

from typing import Final

ENOUGH: Final = 10  # answers, before anything is concluded from them
TIMES: Final = 3  # the longest answer of late, so many times
LEAST_NS: Final = 3_000_000_000  # the shortest limit: a model may always think a little longer
_FORGETS: Final = 0.99  # of the longest answer with each answer after it
_MOST_TARGETS: Final = 1000


class WholeTimes:
    """The longest whole answers of late, by target; times in nanoseconds."""

    __slots__ = ("_longest",)

    def __init__(self) -> None:
        self._longest: dict[str, tuple[float, int]] = {}  # longest, and the number of answers

    def saw(self, target: str, took_ns: int) -> None:
        """Take in how long an answer took, from its request to its end."""
        known = self._longest.get(target)
        if known is None:
            if len(self._longest) >= _MOST_TARGETS:
                self._longest.clear()
            self._longest[target] = (took_ns, 1)
            return
        longest, count = known
        self._longest[target] = (max(took_ns, longest * _FORGETS), count + 1)

    def limit_ns(self, target: str) -> int | None:
        """How long to wait for an answer while there is another target; None: not known yet."""
        known = self._longest.get(target)
        if known is None or known[1] < ENOUGH:
            return None
        return max(LEAST_NS, int(TIMES * known[0]))
