"""The value of a target to a policy: seconds, dollars and missed service levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.route.form.slo import excess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.route.form.slo import LevelsAsked, ServiceLevels
    from lightgate.route.form.target import Form
    from lightgate.route.plan.hedge import TargetPrice
    from lightgate.route.plan.policy import Policy

STAY: Final = 0.93  # the target that was first the last time counts as 7 % better
LOADED: Final = 2  # in flight for each target: from here on the last choice is not preferred
GRAIN: Final = 20.0  # a wait is read in twentieths of a second: misses that it enters are kept
PREFILL_SAVED: Final = (0.0, 0.15, 0.4)  # of the time, by prompt size, where the prompt is cached
CACHED_SHARE: Final = 0.9  # of a warm prompt's tokens that are read from the cache


def terms(
    policy: Policy, known: Sequence[Form], size: int, tokens: int
) -> tuple[list[float], list[float]]:
    """Split the predicted seconds of a request on each target, as the policy counts them.

    The seconds are the first number times the target's load, plus the second. Forms are up to date.
    """
    w_ttft, failure, tail = policy.ttft, policy.failure, policy.tail
    work = policy.decode * (tokens if policy.most is None else min(tokens, policy.most))
    loaded: list[float] = []
    fixed: list[float] = []
    for form in known:
        loaded.append(w_ttft * form.ttfts_s[size] * (form.tail if tail else form.mean))
        fixed.append(work * form.slowness + failure * form.p_error)
    return loaded, fixed


def costs(
    targets: Sequence[str], prices: Mapping[str, TargetPrice], tokens_in: int, tokens: int
) -> list[float]:
    """Return nano-dollars on each target; an unknown price is the dearest known, 0 if none is."""
    nanos, unknown = [], False
    for target in targets:
        price = prices.get(target)
        if price is None:
            unknown = True
            nanos.append(-1.0)
        else:
            nanos.append(tokens_in * price.tokens_in + tokens * price.tokens_out)
    if not unknown:
        return nanos
    dearest = max(0.0, *nanos)
    return [dearest if nano < 0.0 else nano for nano in nanos]


def misses(
    slo: ServiceLevels | None, known: Sequence[Form], waits: Sequence[float], look: LevelsAsked
) -> list[float]:
    """Return by how much each target may miss its service levels; 0: it is good enough."""
    # Hashed once, not once for each target.
    key = hash((0 if slo is None else slo.mark, look.size, look.tokens, look.margins))
    found = []
    for form, wait_s in zip(known, waits, strict=False):
        waiting = (key, int(wait_s * GRAIN))
        over = form.misses.get(waiting)
        if over is None:
            over = form.misses[waiting] = max(0.0, excess(slo, form, look))
        found.append(over)
    return found
