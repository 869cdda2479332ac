"""What is left of a target's stated limits, so that nothing is sent to be refused.

Most providers say with every answer how many requests and tokens are left, and when all of them are
there again. What is sent after that counts against what is left. A target that has nothing left is
closed until then: others are asked first, and it is asked only where there is no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.route.admission.headers import RateFact

NS: Final = 1_000_000_000
LONGEST_S: Final = 300.0  # that a target is closed for, whatever it says
UNKNOWN_S: Final = 1.0  # where a refusal states limits and no reset


class StatedLimits:
    """The requests that are left of one target's limits, by its last answers.

    Nothing is sent before `closed_ns` while there is another target.
    """

    __slots__ = ("_left", "_reset_ns", "closed_ns")

    def __init__(self) -> None:
        self._left: float | None = None  # requests; None: not known
        self._reset_ns = 0  # when they are all there again
        self.closed_ns = 0

    def told(
        self, facts: Sequence[RateFact], now_ns: int, *, later: int, tokens: int, refused: bool
    ) -> None:
        """Take in the limits that an answer states.

        `later` are the requests that were sent after it and have no answer yet: they are not
        counted in what it says. `tokens` are those of the prompt; a `refused` one met a limit.
        """
        worst = min(facts, key=_share, default=None) if refused else None
        for fact in facts:
            left = fact.remaining
            if fact is worst:
                left = 0.0
            if left is None:
                continue
            reset_s = UNKNOWN_S if fact.reset_s is None else min(fact.reset_s, LONGEST_S)
            at_ns = now_ns + round(reset_s * NS)
            if fact.what == "requests":
                self._left, self._reset_ns = left - later, at_ns
                spent = self._left < 1.0
            else:
                spent = fact.what != "output" and left < tokens
            if spent or fact is worst:
                self.closed_ns = max(self.closed_ns, at_ns)

    def sent(self, now_ns: int) -> None:
        """Count a request that goes to the target."""
        if self._left is None:
            return
        if now_ns >= self._reset_ns:
            self._left = None
            return
        self._left -= 1.0
        if self._left < 1.0:
            self.closed_ns = max(self.closed_ns, self._reset_ns)


def _share(fact: RateFact) -> float:
    return 1.0 if fact.remaining is None else fact.remaining / fact.limit
