"""Who wins where two attempts answer: the first useful token, or the earlier end of the answer."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.route.form import Forms

EARLIER_S: Final = 0.2  # that a rival must end sooner to be waited for
WORTH: Final = 1.0  # and seconds sooner for each second of silence
PATIENCE_S: Final = 0.3  # that it is waited for beyond its expected first token
STALLED: Final = 0.02  # the chance of a wait so long: such a rival is not waited for
NS: Final = 1e9
_NORMAL: Final = NormalDist()


class Rival(NamedTuple):
    """An attempt that is still silent."""

    target: str
    began_ns: int


def waits_ns(
    spoke: str, rivals: Sequence[Rival], forms: Forms, size: int, tokens: int, now_ns: int
) -> int | None:
    """Until when the target that spoke is held back for a better finisher; None: it wins now.

    `tokens` is the expected length of the answer. The instant is an upper bound: a rival that
    speaks before it has the client, if it is the one that was waited for.
    """
    mine_s = tokens / forms.predict(spoke, size, now_ns).speed_tps
    best_s, until_s = mine_s, None
    for rival in rivals:
        seen = forms.predict(rival.target, size, now_ns)
        first_s = still_s(math.log(seen.ttft_ns / NS), seen.sigma, (now_ns - rival.began_ns) / NS)
        if first_s is None:
            continue
        end_s, silence_s = first_s + tokens / seen.speed_tps, first_s + PATIENCE_S
        if end_s < best_s and mine_s - end_s > EARLIER_S + WORTH * silence_s:
            best_s, until_s = end_s, silence_s
    return None if until_s is None else now_ns + int(until_s * NS)


def still_s(log_ttft: float, sigma: float, waited_s: float) -> float | None:
    """The median of the time still to go, in seconds, after a wait; None: it has stalled."""
    if waited_s <= 0.0:
        return math.exp(log_ttft)
    sigma = max(sigma, 0.05)
    later = 1.0 - _NORMAL.cdf((math.log(waited_s) - log_ttft) / sigma)
    if later < STALLED:
        return None
    return math.exp(log_ttft + sigma * _NORMAL.inv_cdf(1.0 - later / 2.0)) - waited_s
