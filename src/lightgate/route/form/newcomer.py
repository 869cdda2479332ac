"""A target that nobody has measured: what is guessed of it, and when the guess changes.

Two things are wanted of a guess. The target must be asked now and then, or nobody would ever learn
that it is the fastest: probes see its first tokens, but only whole answers show its speed. And few
may be asked of it before the first answers are in: see `Form.load`.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from lightgate.route.form.prior import DOUBTFUL, Prior
from lightgate.route.form.size import OFFSETS
from lightgate.route.form.target import NEVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.route.form.target import Form

HOPE: Final = 2.0  # times the fastest of its peers: the benefit of the doubt, for two answers


def guessed(peers: Sequence[Prior]) -> Prior:
    """What is believed of a newcomer among known ones.

    Its first token comes as soon as theirs do (median); its speed may be twice that of the fastest.
    """
    fastest = max(peers, key=lambda prior: prior.speed_tps)
    return Prior(
        median([prior.ttft_ms for prior in peers]),
        median([prior.ttft_p95_ms for prior in peers]),
        HOPE * fastest.speed_tps,
        HOPE * fastest.speed_slow_tps,
        weight=DOUBTFUL,
    )


def reseed(form: Form, prior: Prior) -> None:
    """Take another prior; what was seen stays, what was not begins with it."""
    form.prior = prior
    if form.last_ns == NEVER:
        sigma = prior.ttft_sigma
        for size, offset in zip(form.sizes, OFFSETS, strict=True):
            size.long, size.variance = prior.ttft_log + offset, sigma * sigma
            size.delays.clear()
        form.variance, form.noise = sigma * sigma, max(sigma, 0.05)
    if not form.speed_seen:
        form.speed_long, form.speed_variance = prior.speed_log, prior.speed_sigma**2
    form.until_ns = NEVER
