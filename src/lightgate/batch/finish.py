"""Whether a batch job is worth its wait: how long jobs take, and which way lines go; all pure.

A provider's batch API promises a day and mostly needs minutes. How long is learnt, job by job, from
a prior: of 230,000 batches in two weeks at OpenRouter the median took 7 minutes, and 90 % one hour
(openrouter.ai/blog/announcements/batch-api, 2026). Times are seconds; amounts are nano-dollars.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

PRIOR_P50_S: Final = 420.0
PRIOR_P90_S: Final = 3600.0
PRIOR_JOBS: Final = 5  # that the prior counts as, beside those that were seen
SURE: Final = 0.95  # the share of runs in which all jobs are to be finished in time
SPARE: Final = 1.2  # of the time that lines need in parallel: estimates are wrong
SWITCH_S: Final = 60.0  # to cancel jobs, fetch what they have and begin anew
LINES_PER_S: Final = 1.0  # in parallel, where nothing has been seen
_PRIOR_MU: Final = math.log(PRIOR_P50_S)
_PRIOR_SIGMA: Final = math.log(PRIOR_P90_S / PRIOR_P50_S) / NormalDist().inv_cdf(0.9)

Via = Literal["auto", "batch", "parallel"]


class FinishTimes:
    """The times that jobs of one provider take: lognormal, the prior and what was seen together."""

    def __init__(self, window_s: float, seen_s: Iterable[float] = ()) -> None:
        self._window_s = window_s
        self._logs: list[float] = []
        for seconds in seen_s:
            self.add(seconds)

    @property
    def seen(self) -> int:
        """The jobs that were seen."""
        return len(self._logs)

    def add(self, seconds: float) -> None:
        """Take in the time of a job; one that did not finish counts with the time it was given."""
        self._logs.append(math.log(max(seconds, 1.0)))

    def quantile_s(self, share: float) -> float:
        """The time within which this share of jobs is finished; never more than the window."""
        count, prior = len(self._logs), PRIOR_JOBS
        mean = sum(self._logs) / count if count else _PRIOR_MU
        centre = (prior * _PRIOR_MU + count * mean) / (prior + count)
        spread = prior * _PRIOR_SIGMA**2 + sum((x - mean) ** 2 for x in self._logs)
        spread += prior * count / (prior + count) * (mean - _PRIOR_MU) ** 2
        sigma = math.sqrt(spread / (prior + count))
        return min(math.exp(centre + sigma * NormalDist().inv_cdf(share)), self._window_s)

    def all_done_s(self, jobs: int, sure: float = SURE) -> float:
        """The time within which so many jobs are all finished, as surely as wanted."""
        return self.quantile_s(sure ** (1 / max(jobs, 1)))


class ViaFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when the way of lines is chosen.

    `missing` says why the target has no batch API for these lines, "" where it has one. Costs are
    of all lines; None where no price is known. `left_s` is the time to the deadline, None without
    one; `finish_s` the time of all jobs, and `parallel_s` of all lines in parallel.
    """

    missing: str = ""
    batch_nano: int | None = None
    parallel_nano: int | None = None
    left_s: float | None = None
    finish_s: float = 0.0
    parallel_s: float = 0.0

    @property
    def price_share(self) -> float | None:
        """The cost of a batch over the usual one; None where one of them is not known."""
        if self.batch_nano is None or not self.parallel_nano:
            return None
        return self.batch_nano / self.parallel_nano


class Way(msgspec.Struct, frozen=True):
    """The way that lines go, and the sentence that says why."""

    via: Literal["batch", "parallel"]
    reason: str


def choose(wish: Via, facts: ViaFacts) -> Way:
    """Choose by price and by deadline; a wish for a batch is kept wherever one is possible."""
    if wish == "parallel" or facts.missing:
        return Way("parallel", facts.missing or "asked for")
    if wish == "batch":
        return Way("batch", "asked for")
    share = facts.price_share
    if share is None or share >= 1:
        why = "its price in a batch is not known" if share is None else "a batch is not cheaper"
        return Way("parallel", why)
    saved = f"a batch costs {share:.0%} of the usual price"
    if facts.left_s is None:
        return Way("batch", f"{saved}, and there is no deadline")
    needed_s = facts.finish_s + fallback_s(facts.parallel_s)
    times = (
        f"{in_words(facts.finish_s)} for the jobs and {in_words(fallback_s(facts.parallel_s))}"
        " for the way back"
    )
    if needed_s < facts.left_s:
        return Way("batch", f"{saved}; {times} fit into {in_words(facts.left_s)}")
    return Way("parallel", f"{times} do not fit into {in_words(facts.left_s)}")


def fallback_s(parallel_s: float) -> float:
    """The time to keep free before a deadline: for the change of ways and all lines in parallel."""
    return SWITCH_S + SPARE * parallel_s


def parallel_s(lines: int, lines_per_s: float | None) -> float:
    """The time that lines need in parallel, by a rate that was seen, or by a cautious one."""
    return lines / (lines_per_s or LINES_PER_S)


def in_words(seconds: float) -> str:
    """A time for people: 90 s, 12 min, 3.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
