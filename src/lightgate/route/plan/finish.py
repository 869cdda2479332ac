"""The winner of two attempts that answer: the first useful token, or the earlier whole answer."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.route.form.forms import Forms

EARLIER_S: Final = 0.2  # that a rival must end sooner to be waited for
WORTH: Final = 1.0  # and seconds sooner for each second of silence
PATIENCE_S: Final = 0.3  # that it is waited for beyond its expected first token
STALLED: Final = 0.02  # the chance of a wait so long: below it the belief says nothing
NS: Final = 1e9
_NORMAL: Final = NormalDist()


class Rival(NamedTuple):
    """A running attempt: since when it is silent, or since when its answer comes."""

    target: str
    since_ns: int


class ExpectedAnswer(NamedTuple):
    """The answer that is waited for: prompt size, expected tokens, price of a second of silence."""

    size: int
    tokens: int
    worth: float = WORTH  # seconds of the end; 0 where the client gets the answer whole anyway


def waits_ns(
    spoke: Rival, rivals: Sequence[Rival], forms: Forms, answer: ExpectedAnswer, now_ns: int
) -> int | None:
    """Return until when the attempt that spoke is held back for a rival; None: it wins now.

    The rival is predicted to end sooner. If it speaks before that instant, it wins; if it does not,
    the question is asked again: it may still be worth the wait. What the attempt that is held back
    says meanwhile is kept.
    """
    size, tokens = answer.size, answer.tokens
    mine_s = tokens / forms.predict(spoke.target, size, now_ns).speed_tps
    mine_s -= (now_ns - spoke.since_ns) / NS
    best_s, until_s = mine_s, None
    for rival in rivals:
        seen = forms.predict(rival.target, size, now_ns)
        first_s = still_s(math.log(seen.ttft_ns / NS), seen.sigma, (now_ns - rival.since_ns) / NS)
        end_s, silence_s = first_s + tokens / seen.speed_tps, first_s + PATIENCE_S
        if end_s < best_s and mine_s - end_s > EARLIER_S + answer.worth * silence_s:
            best_s, until_s = end_s, silence_s
    return None if until_s is None else now_ns + int(until_s * NS)


def still_s(log_ttft: float, sigma: float, waited_s: float) -> float:
    """Return the median of the seconds still to go after a wait; as long again if it stalls."""
    if waited_s <= 0.0:
        return math.exp(log_ttft)
    sigma = max(sigma, 0.05)
    later = 1.0 - _NORMAL.cdf((math.log(waited_s) - log_ttft) / sigma)
    if later < STALLED:
        return waited_s
    return math.exp(log_ttft + sigma * _NORMAL.inv_cdf(1.0 - later / 2.0)) - waited_s
