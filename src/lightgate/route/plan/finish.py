"""Who wins where two attempts answer: the first useful token, or the earlier end of the answer."""

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
STALLED: Final = 0.02  # the chance of a wait so long: what it takes then, nobody knows
NS: Final = 1e9
_NORMAL: Final = NormalDist()


class Rival(NamedTuple):
    """An attempt, and since when it is silent; or of one that spoke, since when it speaks."""

    target: str
    since_ns: int


class ExpectedAnswer(NamedTuple):
    """What is asked for: its size, its expected length, and what a second of silence costs."""

    size: int
    tokens: int
    worth: float = WORTH  # seconds of the end; 0 where the client hears nothing before it anyway


def waits_ns(
    spoke: Rival, rivals: Sequence[Rival], forms: Forms, answer: ExpectedAnswer, now_ns: int
) -> int | None:
    """Until when the target that spoke is held back for a better finisher; None: it wins now.

    The instant is an upper bound: a rival that speaks before it has the client, if it is the one
    that was waited for. If nobody has by then, it is asked again: who is silent may still be worth
    it. What the one that is held back says meanwhile is not lost.
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
    """The median of the time still to go, in seconds, after a wait; as long again if it stalls."""
    if waited_s <= 0.0:
        return math.exp(log_ttft)
    sigma = max(sigma, 0.05)
    later = 1.0 - _NORMAL.cdf((math.log(waited_s) - log_ttft) / sigma)
    if later < STALLED:
        return waited_s
    return math.exp(log_ttft + sigma * _NORMAL.inv_cdf(1.0 - later / 2.0)) - waited_s
