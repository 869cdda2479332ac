"""How long answers need to be: a cap that costs nobody an answer, from what was measured."""

from __future__ import annotations

import math
from typing import Final

import msgspec

LEAST_ANSWERS: Final = 500  # below that a p99 is not known
MOST_CUT: Final = 0.01  # share of answers that today's cap cuts off, above which nobody knows more
ROOM: Final = 1.25  # above the p99
STEP: Final = 64  # tokens


class Lengths(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of the complete answers of one model or key.

    `cut` counts those that ended at a limit: their true length is not known. `cap` is today's
    limit, None if there is none.
    """

    answers: int
    p99: float
    longest: int
    cut: int = 0
    cap: int | None = None


def suggest_cap(lengths: Lengths) -> int | None:
    """Tokens to cap answers at; None: too little is known, or there is nothing to gain.

    A quarter above the p99, rounded up, and never above the longest answer: the cap ends runaway
    answers and leaves all others whole. It saves money and time only in the worst case; it makes
    no answer faster.
    """
    if lengths.answers < LEAST_ANSWERS or lengths.cut > MOST_CUT * lengths.answers:
        return None
    wanted = min(lengths.p99 * ROOM, float(lengths.longest))
    if not math.isfinite(wanted) or wanted <= 0:
        return None
    cap = max(STEP, math.ceil(wanted / STEP) * STEP)
    return cap if lengths.cap is None or cap < lengths.cap else None
