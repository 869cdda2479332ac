"""Service levels of a model: whether a target is likely to keep them, and whether they are kept.

Predictions can be wrong for all targets at once. What was promised is therefore kept in closed
loop: each miss makes the share of misses that is expected of a target smaller, each request in time
larger again, so that at the promised share the two are in balance.
"""

from __future__ import annotations

from functools import cached_property
from math import erfc, exp, floor, log, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lightgate.route.form.size import SIZES

if TYPE_CHECKING:
    from lightgate.route.form.target import Form

BOUND: Final = 1.28  # standard errors above the belief: wrong one time in ten
SAMPLES: Final = 2.0 / 0.12  # that the short run remembers
PATIENCE_S: Final = 2.0  # and the time that a request takes: a longer wait is a miss without levels
TOLERATED: Final = 0.2  # of failures, where no level is set: the breaker's own ratio
STEP: Final = 0.1  # of the margin: a promise of 95 % that holds 90 % is at its strictest after 200
STRICTEST: Final = 0.9  # a tenth of the promised share is the least that is asked for
GRAIN: Final = 16.0  # the margin is read in sixteenths: predictions that it enters are kept
NARROWEST: Final = 0.05  # spread of logarithms that is assumed at least
_SQRT2: Final = sqrt(2.0)
_Levels = list[tuple[float, float]]  # each a limit, and the share that may miss it


class ServiceLevels(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The table `[models.NAME] slo`: nanoseconds, tokens per second; None: not set."""

    ttft_p50: int | None = None
    ttft_p95: int | None = None
    ttft_p99: int | None = None
    ttfa_p50: int | None = None
    ttfa_p95: int | None = None
    e2e_p50: int | None = None
    e2e_p95: int | None = None
    speed_p5: float | None = None
    speed_p50: float | None = None
    speed_total_p50: float | None = None

    @cached_property
    def mark(self) -> int:
        """The hash of all levels, worked out once."""
        return hash(self)

    @cached_property
    def firsts(self) -> tuple[tuple[float, float], ...]:
        """Log of seconds until the first token, and the share that may be later.

        A first answer token is predicted as the first useful one.
        """
        levels = (
            (self.ttft_p50, 0.5),
            (self.ttft_p95, 0.05),
            (self.ttft_p99, 0.01),
            (self.ttfa_p50, 0.5),
            (self.ttfa_p95, 0.05),
        )
        return tuple((log(at / 1e9), share) for at, share in levels if at is not None)

    @cached_property
    def speeds(self) -> tuple[tuple[float, float], ...]:
        """Log of tokens per second, and the share that may be slower."""
        levels = ((self.speed_p5, 0.05), (self.speed_p50, 0.5))
        return tuple((log(at), share) for at, share in levels if at is not None)

    def wholes(self, tokens: int) -> tuple[tuple[float, float], ...]:
        """Seconds for the whole answer, and the share that may take longer."""
        total = None if self.speed_total_p50 is None else tokens / self.speed_total_p50 * 1e9
        levels = ((self.e2e_p50, 0.5), (self.e2e_p95, 0.05), (total, 0.5))
        return tuple((at / 1e9, share) for at, share in levels if at is not None)

    def allowed(self, margins: tuple[float, ...]) -> tuple[_Levels, _Levels, list[float]]:
        """Return the levels of first tokens and of speeds, and the shares of whole answers.

        A share that may miss is smaller by its margin, where there is one.
        """
        known = self._by_margins.get(margins)
        if known is None:
            strict = iter(margins)
            firsts = [(at, share * (1.0 - next(strict, 0.0))) for at, share in self.firsts]
            speeds = [(at, share * (1.0 - next(strict, 0.0))) for at, share in self.speeds]
            wholes = [share * (1.0 - next(strict, 0.0)) for _, share in self.wholes(1)]
            known = self._by_margins[margins] = firsts, speeds, wholes
        return known

    @cached_property
    def _by_margins(self) -> dict[tuple[float, ...], tuple[_Levels, _Levels, list[float]]]:
        return {}  # a margin has fifteen values, so these are few


class LevelsAsked(NamedTuple):
    """The request that a target is judged for: its prompt size, its tokens, the instant.

    `margins` are those of a promise: the part of each share that is not to be used up.
    """

    size: int
    tokens: int
    now_ns: int
    margins: tuple[float, ...] = ()


def excess(slo: ServiceLevels | None, form: Form, asked: LevelsAsked) -> float:
    """Say by how much a target may miss its levels; at most 0 where it is good enough.

    The form is up to date: `Form.look` was called for this instant.

    The largest of (upper bound of the chance of a miss) - (share that may miss), over all levels.
    """
    size, tokens, now_ns, margins = asked
    p_error = form.p_error
    wait_s = form.wait_s(now_ns)
    if slo is None:
        return p_error - TOLERATED + max(0.0, wait_s - PATIENCE_S - form.curve.holding_s)
    seen = form.sizes[size % SIZES].seen
    unsure = BOUND / sqrt(form.prior.weight + form.fresh(now_ns) * min(SAMPLES, seen))
    sigma = sqrt(form.variance)
    sigma = max(NARROWEST, sigma)
    late = log(form.ttfts_s[size] + wait_s) + unsure * sigma
    firsts, speeds, wholes = slo.allowed(margins)
    worst = -1.0
    for limit, share in firsts:
        over = _above(limit, late, sigma) + p_error - share
        worst = max(worst, over)
    if speeds or wholes:
        spread = sqrt(form.speed_variance)
        spread = max(NARROWEST, spread)
        slow = unsure * spread - form.log_speed(now_ns) + log(1.0 + form.longer(now_ns))
        for limit, share in speeds:
            over = _above(-limit, slow, spread) - share
            worst = max(worst, over)
        for (limit_s, _), share in zip(slo.wholes(tokens), wholes, strict=True):
            left = log(max(limit_s - tokens * exp(slow), 1e-9))
            worst = max(worst, _above(left, late, sigma) + p_error - share)
    return worst


def _above(limit: float, mean: float, sigma: float) -> float:
    """Return the chance that a normal variable is above a limit."""
    return 0.5 * erfc((limit - mean) / (sigma * _SQRT2))


class Promise:
    """How well one model keeps its levels, and the margins that follow from it."""

    __slots__ = ("_exact", "margins", "slo")

    def __init__(self, slo: ServiceLevels) -> None:
        self.slo = slo
        count = len(slo.firsts) + len(slo.speeds) + len(slo.wholes(1))
        self._exact = [0.0] * count
        self.margins: tuple[float, ...] = (0.0,) * count  # of first tokens, speeds, whole answers

    def saw(self, ttft_s: float, tokens: int, decode_s: float) -> bool:
        """Take in an answered request, as its client saw it; return whether a margin changed."""
        slo, late = self.slo, log(max(ttft_s, 1e-9))
        kept = [(late > limit, share) for limit, share in slo.firsts]
        if tokens > 1 and decode_s > 0.0:
            speed = log(tokens / decode_s)
            kept += [(speed < limit, share) for limit, share in slo.speeds]
        else:
            kept += [(False, 0.0)] * len(slo.speeds)  # too short to have a speed
        whole_s = ttft_s + decode_s
        kept += [(whole_s > limit, share) for limit, share in slo.wholes(tokens)]
        return self._move(kept)

    def missed(self) -> bool:
        """Take in a request that no target answered; return whether a margin changed."""
        slo = self.slo
        shares = [share for _, share in (*slo.firsts, *slo.speeds, *slo.wholes(1))]
        return self._move([(True, share) for share in shares])

    def _move(self, kept: list[tuple[bool, float]]) -> bool:
        exact = self._exact
        for place, (miss, share) in enumerate(kept):
            exact[place] = max(0.0, min(STRICTEST, exact[place] + STEP * (miss - share)))
        before = self.margins
        self.margins = tuple([floor(margin * GRAIN) / GRAIN for margin in exact])
        return before != self.margins
