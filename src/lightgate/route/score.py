"""Targets in the order of a policy: one number for each, the smallest first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.route.belief import ERROR_WEIGHT, ERRORS, RATE
from lightgate.route.slo import excess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.route.belief import Form
    from lightgate.route.hedge import Price
    from lightgate.route.policy import Policy
    from lightgate.route.slo import Slo

CROWD: Final = 0.3  # exponent of the load in the time to first token
STAY: Final = 0.93  # who was first the last time counts as 7 % better than it is
NEAR: Final = 1.10  # what is within 10 % of the best is as good
LOADED: Final = 2  # in flight for each candidate: from here the near-equals share the load
PREFILL_SAVED: Final = (0.0, 0.15, 0.4)  # of the time to first token, by prompt size, when warm
CACHED_SHARE: Final = 0.9  # of a warm prompt's tokens that are read from the cache
_LOGS: Final = tuple(CROWD * math.log(number + 1) for number in range(1024))


class Facts(NamedTuple):
    """What a request asks for; `tokens` are those of the answer that are expected."""

    size: int
    tokens_in: int
    tokens: int
    prices: Mapping[str, Price] | None
    slo: Slo | None
    warm: str | None
    now_ns: int


def seconds(
    policy: Policy, forms: Sequence[Form], size: int, tokens: int, now_ns: int
) -> list[float]:
    """The predicted time of a request on each target, as the policy counts it."""
    exp = math.exp
    tail, w_ttft, failure = policy.tail, policy.ttft, policy.failure
    work = policy.decode * (tokens if policy.most is None else min(tokens, policy.most))
    values = []
    for form in forms:
        age = now_ns - form.last_ns
        weight = exp(age * RATE) if age > 0 else 1.0
        log = form.sizes[size].long + weight * form.deviation
        if tail:
            log += tail * math.sqrt(form.variance)
        flying = form.in_flight
        usual = form.usual_in_flight
        if flying or usual > 0.05:
            log += _LOGS[min(flying, 1023)] - CROWD * math.log(usual + 1.0)
        age = now_ns - form.speed_last_ns
        speed = form.speed_long
        if age < _FORGOTTEN_NS:
            speed += (exp(age * RATE) if age > 0 else 1.0) * form.speed_deviation
        p_error = (weight * form.errors + ERRORS) / (weight * form.ends + ERROR_WEIGHT)
        values.append(w_ttft * exp(log) + work * exp(-speed) + p_error * failure)
    return values


_FORGOTTEN_NS: Final = 1800 * 1_000_000_000


def costs(targets: Sequence[str], facts: Facts) -> list[float] | None:
    """Nano-dollars on each target; an unknown price is the dearest known. None: all unknown."""
    prices = facts.prices
    if not prices:
        return None
    found: list[float | None] = []
    for target in targets:
        price = prices.get(target)
        if price is None:
            found.append(None)
            continue
        nano = price.nano(facts.tokens_in, facts.tokens)
        if target == facts.warm and price.cached_in is not None:
            nano -= CACHED_SHARE * facts.tokens_in * (price.tokens_in - price.cached_in)
        found.append(nano)
    known = [nano for nano in found if nano is not None]
    if not known:
        return None
    dearest = max(known)
    return [dearest if nano is None else nano for nano in found]


def beside(times: Sequence[float], prices: Sequence[float] | None) -> list[float]:
    """Seconds and dollars as multiples of the best, added: twice as dear is as bad as twice as slow."""
    quickest = min(times)
    least = min((nano for nano in prices or () if nano > 0.0), default=0.0)
    if prices is None or not least:
        return [at / quickest for at in times]
    return [at / quickest + nano / least for at, nano in zip(times, prices, strict=True)]


def thrift(
    times: Sequence[float], prices: Sequence[float] | None, forms: Sequence[Form], facts: Facts
) -> list[tuple[float, float, float]]:
    """Sort keys for "the cheapest that is good enough": misses, then dollars, then seconds.

    Where nobody is good enough, the one that misses its levels least comes first.
    """
    keys = []
    for place, (form, at) in enumerate(zip(forms, times, strict=True)):
        over = excess(facts.slo, form, facts.size, facts.now_ns, facts.tokens)
        keys.append((max(over, 0.0), prices[place] if prices else 0.0, at))
    return keys
