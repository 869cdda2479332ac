"""The value of a target to a policy: numbers of seconds, and dollars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightgate.route.plan.hedge import TargetPrice

STAY: Final = 0.93  # the target that was first the last time counts as 7 % better
LOADED: Final = 2  # in flight for each target: from here on the last choice is not preferred
PREFILL_SAVED: Final = (0.0, 0.15, 0.4)  # of the time, by prompt size, where the prompt is cached
CACHED_SHARE: Final = 0.9  # of a warm prompt's tokens that are read from the cache


def costs(
    targets: Sequence[str], prices: Mapping[str, TargetPrice], tokens_in: int, tokens: int
) -> list[float]:
    """Return nano-dollars on each target; an unknown price is the dearest known, 0 if none is."""
    nanos = []
    for target in targets:
        price = prices.get(target)
        if price is None:
            break
        nanos.append(tokens_in * price.tokens_in + tokens * price.tokens_out)
    else:
        return nanos
    known = [prices.get(target) for target in targets]
    nanos = [-1.0 if price is None else price.nano(tokens_in, tokens) for price in known]
    dearest = max(0.0, *nanos)
    return [dearest if nano < 0.0 else nano for nano in nanos]
