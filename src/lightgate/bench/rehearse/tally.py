"""The tally of one policy on one seed's traffic, its cost, and the rows made of all seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from lightgate.bench.rehearse.scene import TIMEOUT_NS
from lightgate.bench.rehearse.truth import NEVER_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lightgate.bench.rehearse.scene import Offer
    from lightgate.bench.rehearse.truth import Fate
    from lightgate.route.plan.plan import Plan

NS: Final = 1_000_000_000
QUANTILES: Final = (0.5, 0.95, 0.99)
SLOW_S: Final = 1.0
CENSORED_S: Final = TIMEOUT_NS / NS  # what a request without an answer counts as
INSTANTS_S: Final = (0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)


class Bills:
    """Dollars, twice: where aborting stops the bill everywhere, and as the providers say they do.

    `extra` is what was spent on duplicates, by the second reading: it is never the smaller one.
    `premium` is what winners cost beyond the planned target, where a duplicate won.
    """

    __slots__ = ("extra", "honoured", "mixed", "premium", "probes")

    def __init__(self) -> None:
        self.honoured = 0.0
        self.mixed = 0.0
        self.extra = 0.0
        self.premium = 0.0
        self.probes = 0.0

    def probe(self, offer: Offer, tokens_in: int, tokens_out: int) -> None:
        """Add a probe that was answered, or tried."""
        dollars = price(offer, tokens_in, tokens_out)
        self.probes += dollars
        self.honoured += dollars
        self.mixed += dollars

    def attempt(self, honoured: float, mixed: float, *, extra: bool) -> None:
        """Add an attempt that is over."""
        self.honoured += honoured
        self.mixed += mixed
        if extra:
            self.extra += mixed


def price(offer: Offer, tokens_in: int, tokens_out: float) -> float:
    """Dollars of so many tokens."""
    return (tokens_in * offer.price_in + tokens_out * offer.price_out) / 1e6


class Tally:
    """One run: an entry a request; times in seconds, NaN where there was no answer.

    `predicted_s`, and the band `low_s` to `high_s`, are what the plan expected of its first
    attempt (NaN: nothing); `came_s` is when that attempt spoke, or would have if it had not been
    closed (infinite for a hang, NaN for a failure).
    """

    def __init__(self, requests: int, targets: int) -> None:
        self.ttft_s = _nothing(requests)
        self.done_s = _nothing(requests)
        self.predicted_s = _nothing(requests)
        self.low_s = _nothing(requests)
        self.high_s = _nothing(requests)
        self.came_s = _nothing(requests)
        self.ends = [0] * requests  # how often each request ended: once
        self.first_target = [-1] * requests  # where its first attempt went
        self.winner = [-1] * requests
        self.attempts = 0
        self.duplicates = 0  # attempts that were started beside another one
        self.refused = 0  # attempts that met a limit (429)
        self.beyond = 0  # attempts under more load than the truth knows of
        self.failures = 0  # requests without a whole answer
        self.probes = 0
        self.wins = [0] * targets
        self.bills = Bills()

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self.ends)

    def foresaw(self, number: int, plan: Plan) -> None:
        """Keep what a plan expects of its first attempt."""
        if plan.predicted_ttft_ns is not None:
            self.predicted_s[number] = plan.predicted_ttft_ns / NS
        low_ns, high_ns = plan.predicted_low_ns, plan.predicted_high_ns
        if low_ns is not None and high_ns is not None:
            self.low_s[number], self.high_s[number] = low_ns / NS, high_ns / NS

    def came(self, number: int, fate: Fate) -> None:
        """Keep when the first attempt of a request speaks, as far as is known now."""
        if fate.failure is None:
            self.came_s[number] = fate.first_ns / NS if fate.first_ns < NEVER_NS else np.inf


def _nothing(requests: int) -> NDArray[np.float64]:
    return np.full(requests, np.nan)


class SeedFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one policy on one seed: seconds, shares of requests, dollars.

    A request without a whole answer counts as CENSORED_S in both quantiles: it is slower than all
    that were answered. `ratio` is the median of actual over predicted first tokens, `covered` the
    share that came inside the predicted band.
    """

    requests: int
    ttft_s: tuple[float, ...]
    done_s: tuple[float, ...]
    over_1s: float
    duplicates: float
    refused: float
    failures: float
    honoured: float
    mixed: float
    extra: float
    premium: float
    probes: float
    wins: tuple[float, ...]
    waiting: tuple[float, ...]
    ratio: float | None
    covered: float | None
    beyond: float = 0.0


def figures(tally: Tally) -> SeedFigures:
    """Make the figures of one run."""
    n, bills = max(tally.requests, 1), tally.bills
    failed = np.isnan(tally.done_s)
    seen = ~np.isnan(tally.predicted_s) & ~np.isnan(tally.came_s)
    banded = seen & ~np.isnan(tally.low_s)
    ratios = tally.came_s[seen] / tally.predicted_s[seen]
    came = tally.came_s[banded]
    inside = (came >= tally.low_s[banded]) & (came <= tally.high_s[banded])
    return SeedFigures(
        requests=tally.requests,
        ttft_s=_quantiles(np.where(failed, CENSORED_S, tally.ttft_s)),
        done_s=_quantiles(np.where(failed, CENSORED_S, tally.done_s)),
        over_1s=1.0 - float(np.count_nonzero(tally.ttft_s <= SLOW_S)) / n,
        duplicates=tally.duplicates / n,
        refused=tally.refused / max(tally.attempts, 1),
        failures=tally.failures / n,
        honoured=bills.honoured,
        mixed=bills.mixed,
        extra=bills.extra,
        premium=bills.premium,
        probes=bills.probes,
        wins=tuple(wins / n for wins in tally.wins),
        waiting=tuple(1.0 - float(np.count_nonzero(tally.ttft_s <= at)) / n for at in INSTANTS_S),
        ratio=float(np.median(ratios)) if len(ratios) else None,
        covered=float(np.mean(inside)) if len(came) else None,
        beyond=tally.beyond / max(tally.attempts, 1),
    )


class SeedMean(msgspec.Struct, frozen=True):
    """The mean over the seeds, and their standard deviation (0 for one seed)."""

    mean: float
    sd: float


class PolicyRow(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one policy: seconds, shares of requests, spend over fixed-best's minus one.

    A request that failed counts as CENSORED_S in the quantiles. `spend_*` is null where the
    baseline spent nothing; `extra_spend` (duplicates), `premium_spend` (what winners cost beyond
    the planned target, where a duplicate won) and `probe_spend` are shares of all spend. `refused`
    is a share of attempts, `ratio` the median of actual over predicted first tokens and `covered`
    the share inside the predicted band; null: nothing was predicted. `beyond` is the share of
    attempts that met more load than the ledger's past shows: their times are guesses. `waiting`
    is the share of requests without a first token at each of INSTANTS_S. `x_oracle` and
    `x_oracle_end` are the p95 of TTFT beside that of the oracle of first tokens, and of completion
    beside that of the oracle of ends; null where these were not played.
    """

    policy: str
    requests: int
    seeds: int
    ttft_p50_s: SeedMean
    ttft_p95_s: SeedMean
    ttft_p99_s: SeedMean
    done_p50_s: SeedMean
    done_p95_s: SeedMean
    done_p99_s: SeedMean
    over_1s: SeedMean
    duplicates: SeedMean
    refused: SeedMean
    failures: SeedMean
    spend_honoured: SeedMean | None
    spend_mixed: SeedMean | None
    extra_spend: SeedMean
    premium_spend: SeedMean
    probe_spend: SeedMean
    ratio: SeedMean | None
    covered: SeedMean | None
    beyond: SeedMean
    wins: dict[str, float]
    waiting: tuple[float, ...]
    x_oracle: float | None = None
    x_oracle_end: float | None = None


def policy_row(
    policy: str, seeds: Sequence[SeedFigures], fixed: Sequence[SeedFigures], targets: Sequence[str]
) -> PolicyRow:
    """Make the row of one policy; `fixed` are the figures of fixed-best on the same seeds."""
    pairs = list(zip(seeds, fixed, strict=True))
    return PolicyRow(
        policy=policy,
        requests=seeds[0].requests,
        seeds=len(seeds),
        ttft_p50_s=_mean([one.ttft_s[0] for one in seeds]),
        ttft_p95_s=_mean([one.ttft_s[1] for one in seeds]),
        ttft_p99_s=_mean([one.ttft_s[2] for one in seeds]),
        done_p50_s=_mean([one.done_s[0] for one in seeds]),
        done_p95_s=_mean([one.done_s[1] for one in seeds]),
        done_p99_s=_mean([one.done_s[2] for one in seeds]),
        over_1s=_mean([one.over_1s for one in seeds]),
        duplicates=_mean([one.duplicates for one in seeds]),
        refused=_mean([one.refused for one in seeds]),
        failures=_mean([one.failures for one in seeds]),
        spend_honoured=_ratio([(a.honoured, b.honoured) for a, b in pairs]),
        spend_mixed=_ratio([(a.mixed, b.mixed) for a, b in pairs]),
        extra_spend=_mean([_share(one.extra, one.mixed) for one in seeds]),
        premium_spend=_mean([_share(one.premium, one.mixed) for one in seeds]),
        probe_spend=_mean([_share(one.probes, one.mixed) for one in seeds]),
        ratio=_known([one.ratio for one in seeds]),
        covered=_known([one.covered for one in seeds]),
        beyond=_mean([one.beyond for one in seeds]),
        wins={
            target: float(np.mean([one.wins[place] for one in seeds]))
            for place, target in enumerate(targets)
        },
        waiting=tuple(np.mean([one.waiting for one in seeds], axis=0).tolist()),
    )


def _quantiles(seconds: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple(np.quantile(seconds, QUANTILES).tolist()) if len(seconds) else (np.nan,) * 3


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _ratio(pairs: Sequence[tuple[float, float]]) -> SeedMean | None:
    if not all(below for _, below in pairs):
        return None
    return _mean([above / below - 1.0 for above, below in pairs])


def _known(values: Sequence[float | None]) -> SeedMean | None:
    found = [value for value in values if value is not None]
    return _mean(found) if found else None


def _mean(values: Sequence[float]) -> SeedMean:
    return SeedMean(float(np.mean(values)), float(np.std(values)))
