"""The tally of one policy on one seed's traffic, its cost, and the rows made of all seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from lightgate.bench.rehearse.scene import Offer

QUANTILES: Final = (0.5, 0.95, 0.99)
SLOW_S: Final = 1.0
INSTANTS_S: Final = (0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)


class Bills:
    """Dollars, twice: where aborting stops the bill everywhere, and as the providers say they do.

    `extra` is what was spent on duplicates, by the second reading: it is never the smaller one.
    """

    __slots__ = ("extra", "honoured", "mixed", "probes")

    def __init__(self) -> None:
        self.honoured = 0.0
        self.mixed = 0.0
        self.extra = 0.0
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
    """One run: an entry a request; times in seconds, NaN where there was no answer."""

    def __init__(self, requests: int, targets: int) -> None:
        self.ttft_s: NDArray[np.float64] = np.full(requests, np.nan)
        self.done_s: NDArray[np.float64] = np.full(requests, np.nan)
        self.ends = [0] * requests  # how often each request ended: once
        self.first_target = [-1] * requests  # where its first attempt went
        self.winner = [-1] * requests
        self.attempts = 0
        self.duplicates = 0  # attempts that were started beside another one
        self.failures = 0  # requests without a whole answer
        self.probes = 0
        self.wins = [0] * targets
        self.bills = Bills()

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self.ends)


class SeedMean(msgspec.Struct, frozen=True):
    """The mean over the seeds, and their standard deviation (0 for one seed)."""

    mean: float
    sd: float


class PolicyRow(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one policy: seconds, shares of requests, spend over fixed-best's minus one.

    `spend_*` is null where the baseline spent nothing; `extra_spend` and `probe_spend` are shares
    of all spend. `waiting` is the share of requests without a first token at each of INSTANTS_S.
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
    failures: SeedMean
    spend_honoured: SeedMean | None
    spend_mixed: SeedMean | None
    extra_spend: SeedMean
    probe_spend: SeedMean
    wins: dict[str, float]
    waiting: tuple[float, ...]


def policy_row(
    policy: str, tallies: Sequence[Tally], fixed: Sequence[Tally], targets: Sequence[str]
) -> PolicyRow:
    """Make the row of one policy; `fixed` are the tallies of fixed-best on the same seeds."""
    ttft = [_quantiles(tally.ttft_s) for tally in tallies]
    done = [_quantiles(tally.done_s) for tally in tallies]
    pairs = list(zip(tallies, fixed, strict=True))
    total = sum(tally.requests for tally in tallies)
    every = np.concatenate([tally.ttft_s for tally in tallies])
    return PolicyRow(
        policy=policy,
        requests=total // max(len(tallies), 1),
        seeds=len(tallies),
        ttft_p50_s=_figure([row[0] for row in ttft]),
        ttft_p95_s=_figure([row[1] for row in ttft]),
        ttft_p99_s=_figure([row[2] for row in ttft]),
        done_p50_s=_figure([row[0] for row in done]),
        done_p95_s=_figure([row[1] for row in done]),
        done_p99_s=_figure([row[2] for row in done]),
        over_1s=_figure([_over(tally) for tally in tallies]),
        duplicates=_figure([tally.duplicates / tally.requests for tally in tallies]),
        failures=_figure([tally.failures / tally.requests for tally in tallies]),
        spend_honoured=_ratio([(a.bills.honoured, b.bills.honoured) for a, b in pairs]),
        spend_mixed=_ratio([(a.bills.mixed, b.bills.mixed) for a, b in pairs]),
        extra_spend=_figure([_share(tally.bills.extra, tally.bills.mixed) for tally in tallies]),
        probe_spend=_figure([_share(tally.bills.probes, tally.bills.mixed) for tally in tallies]),
        wins={
            target: sum(tally.wins[place] for tally in tallies) / total
            for place, target in enumerate(targets)
        },
        waiting=tuple(
            1.0 - float(np.count_nonzero(every <= instant)) / total for instant in INSTANTS_S
        ),
    )


def _quantiles(seconds: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[float]:
    """Quantiles of the answered requests: failures are a column of their own."""
    answered = seconds[~np.isnan(seconds)]
    if not len(answered):
        return [float("nan")] * len(QUANTILES)
    found: list[float] = np.quantile(answered, QUANTILES).tolist()
    return found


def _over(tally: Tally) -> float:
    """The share of requests whose first token came later than a second, or never."""
    return 1.0 - float(np.count_nonzero(tally.ttft_s <= SLOW_S)) / tally.requests


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _ratio(pairs: Sequence[tuple[float, float]]) -> SeedMean | None:
    if not all(below for _, below in pairs):
        return None
    return _figure([above / below - 1.0 for above, below in pairs])


def _figure(values: Sequence[float]) -> SeedMean:
    return SeedMean(float(np.mean(values)), float(np.std(values)))
