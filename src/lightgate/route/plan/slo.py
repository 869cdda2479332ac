"""Service levels of a model, and whether a target is likely to keep them."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

if TYPE_CHECKING:
    from lightgate.route.form.target import Form

BOUND: Final = 1.28  # standard errors above the belief: wrong one time in ten
SAMPLES: Final = 2.0 / 0.12  # that the short run remembers
TOLERATED: Final = 0.2  # of failures, where no level is set: the breaker's own ratio
_SQRT2: Final = math.sqrt(2.0)


class Slo(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """As `[models.NAME] slo` has them: nanoseconds, tokens per second; None: not set."""

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
        """Its hash, worked out once."""
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
        return tuple((math.log(at / 1e9), share) for at, share in levels if at is not None)

    @cached_property
    def speeds(self) -> tuple[tuple[float, float], ...]:
        """Log of tokens per second, and the share that may be slower."""
        levels = ((self.speed_p5, 0.05), (self.speed_p50, 0.5))
        return tuple((math.log(at), share) for at, share in levels if at is not None)

    def wholes(self, tokens: int) -> tuple[tuple[float, float], ...]:
        """Seconds for the whole answer, and the share that may take longer."""
        total = None if self.speed_total_p50 is None else tokens / self.speed_total_p50 * 1e9
        levels = ((self.e2e_p50, 0.5), (self.e2e_p95, 0.05), (total, 0.5))
        return tuple((at / 1e9, share) for at, share in levels if at is not None)


class Look(NamedTuple):
    """What a target is asked for: a prompt of this size, so many tokens, now.

    `margins` are those of a promise: the part of each share that is not to be used up.
    """

    size: int
    tokens: int
    now_ns: int
    margins: tuple[float, ...] = ()


def excess(slo: Slo | None, form: Form, look: Look) -> float:
    """By how much a target may miss its levels, which `look` was at: at most 0 if good enough.

    The largest of (upper bound of the chance of a miss) - (share that may miss), over all levels.
    """
    size, tokens, now_ns, margins = look
    weight = form.fresh(now_ns)
    p_error = form.p_error
    if slo is None:
        return p_error - TOLERATED
    unsure = BOUND / math.sqrt(form.prior.weight + weight * min(SAMPLES, form.sizes[size].seen))
    sigma = max(math.sqrt(form.variance), 0.05)
    log = form.log_ttft(size, now_ns)
    worst = -1.0
    strict = iter(margins)
    for limit, share in slo.firsts:
        allowed = share * (1.0 - next(strict, 0.0))
        worst = max(worst, _above(limit, log + unsure * sigma, sigma) + p_error - allowed)
    spread = max(math.sqrt(form.speed_variance), 0.05)
    speed = form.log_speed(now_ns)
    for limit, share in slo.speeds:
        allowed = share * (1.0 - next(strict, 0.0))
        worst = max(worst, _above(-limit, unsure * spread - speed, spread) - allowed)
    for limit_s, share in slo.wholes(tokens):
        decode_s = tokens / math.exp(speed - unsure * spread)
        left = math.log(max(limit_s - decode_s, 1e-9))
        allowed = share * (1.0 - next(strict, 0.0))
        worst = max(worst, _above(left, log + unsure * sigma, sigma) + p_error - allowed)
    return worst


def _above(limit: float, mean: float, sigma: float) -> float:
    """The chance that a normal variable is above a limit."""
    return 0.5 * math.erfc((limit - mean) / (sigma * _SQRT2))
