"""Whether a model's service levels are kept, and how much stricter targets are judged if not.

Predictions can be wrong for all targets at once. What was promised is therefore kept in closed
loop: each miss makes the share of misses that is expected of a target smaller, each request in time
larger again, so that at the promised share the two are in balance.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lightgate.route.plan.slo import Slo

STEP: Final = 0.1  # of the margin: a promise of 95 % that holds 90 % is at its strictest after 200
MOST: Final = 0.9  # a tenth of the promised share is the least that is asked for
GRAIN: Final = 16.0  # the margin is read in sixteenths: predictions that it enters are kept


class Promise:
    """The levels of one model."""

    __slots__ = ("_exact", "margins", "slo")

    def __init__(self, slo: Slo) -> None:
        self.slo = slo
        count = len(slo.firsts) + len(slo.speeds) + len(slo.wholes(1))
        self._exact = [0.0] * count
        self.margins: tuple[float, ...] = (0.0,) * count  # of first tokens, speeds, whole answers

    def saw(self, ttft_s: float, tokens: int, decode_s: float) -> None:
        """A request was answered: what the client has seen of it."""
        slo, late = self.slo, math.log(max(ttft_s, 1e-9))
        kept = [(late > limit, share) for limit, share in slo.firsts]
        if tokens > 1 and decode_s > 0.0:
            speed = math.log(tokens / decode_s)
            kept += [(speed < limit, share) for limit, share in slo.speeds]
        else:
            kept += [(False, 0.0)] * len(slo.speeds)  # too short to have a speed
        whole_s = ttft_s + decode_s
        kept += [(whole_s > limit, share) for limit, share in slo.wholes(tokens)]
        self._move(kept)

    def missed(self) -> None:
        """A request was not answered at all."""
        slo = self.slo
        shares = [share for _, share in (*slo.firsts, *slo.speeds, *slo.wholes(1))]
        self._move([(True, share) for share in shares])

    def _move(self, kept: list[tuple[bool, float]]) -> None:
        exact = self._exact
        for place, (miss, share) in enumerate(kept):
            exact[place] = max(0.0, min(MOST, exact[place] + STEP * (miss - share)))
        self.margins = tuple([math.floor(margin * GRAIN) / GRAIN for margin in exact])
