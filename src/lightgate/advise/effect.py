"""The effect of a change on the requests that it touches: savings per request, and how sure.

Savings are made request by request. Their intervals come from a bootstrap over blocks of requests
that are neighbours in time, since neighbours share their provider's mood: a block is drawn or left
out as a whole.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from lightgate.advise.advice import AdvisedChange, Evidence, Method, SavedBounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lightgate.advise.history import PastTraffic

    Floats = NDArray[np.float64]
    Wholes = NDArray[np.int64]

ROUNDS: Final = 400
BLOCKS: Final = 40  # at most; fewer where they would have less than five requests each
BLOCK_S: Final = 600.0  # that a block lasts at least, where that leaves FEWEST_BLOCKS of them
FEWEST_BLOCKS: Final = 8
CONFIDENCE: Final = 0.9
_SEED: Final = 20_261_116


class Effect(NamedTuple):
    """What a change does to the requests at `rows`: seconds and dollars after it, one by one.

    `before_s` is what the seconds are compared with; `spread` is the standard error, relative to
    the mean saving, of what was drawn from other requests than these.
    """

    rows: Wholes
    before_s: Floats
    after_s: Floats
    before_usd: Floats
    after_usd: Floats
    method: Method
    of: str = "e2e"
    spread_s: float = 0.0  # seconds per request


def bounds(values: Floats, spread: float = 0.0, most: int = BLOCKS) -> SavedBounds:
    """The mean of values in the order of time, with its interval of 90 %, by `most` blocks."""
    if not len(values):
        return SavedBounds(0.0, 0.0, 0.0)
    drawn = means(values, most)
    if spread:
        rng = np.random.default_rng(_SEED + 1)
        drawn = drawn + rng.normal(0.0, spread, len(drawn))
    low, high = np.quantile(drawn, ((1.0 - CONFIDENCE) / 2.0, (1.0 + CONFIDENCE) / 2.0))
    return SavedBounds(float(values.mean()), float(low), float(high))


def blocks_of(start_ns: Wholes) -> int:
    """How many blocks requests of these starts make: neighbours within minutes are alike."""
    span_s = (int(start_ns[-1]) - int(start_ns[0])) / 1e9 if len(start_ns) else 0.0
    return min(BLOCKS, max(FEWEST_BLOCKS, int(span_s / BLOCK_S)))


def means(values: Floats, most: int = BLOCKS) -> Floats:
    """Means of values whose blocks were drawn anew, with replacement."""
    n = len(values)
    count = max(1, min(most, n // 5))
    edges = np.linspace(0, n, count + 1).astype(int)
    sums = np.add.reduceat(values, edges[:-1])
    sizes = np.diff(edges)
    rng = np.random.default_rng(_SEED)
    chosen = rng.integers(0, count, (ROUNDS, count))
    drawn: Floats = sums[chosen].sum(axis=1) / sizes[chosen].sum(axis=1)
    return drawn


def standard_error(values: Floats, start_ns: Wholes) -> float:
    """The standard error of a mean of values in the order of time."""
    return float(np.std(means(values, blocks_of(start_ns)))) if len(values) > 1 else math.inf


def change_of(
    history: PastTraffic, effect: Effect, among: Wholes, all_usd: float | None = None
) -> AdvisedChange:
    """Sum an effect up; `among` are all rows of the model, which its shares are of.

    `all_usd` are the dollars of these rows, where they were not billed one by one.
    """
    n = max(len(effect.rows), 1)
    known = ~np.isnan(effect.before_usd) & ~np.isnan(effect.after_usd)
    saved_usd = np.where(known, effect.before_usd - effect.after_usd, 0.0)
    saved_s = effect.before_s - effect.after_s
    most = blocks_of(history.start_ns[effect.rows])
    seconds = bounds(saved_s, effect.spread_s, most)
    dollars = bounds(saved_usd, most=most)
    all_s = float(history.e2e_s[among].sum())
    all_usd = float(np.nansum(history.usd[among])) if all_usd is None else all_usd
    months = history.months
    return AdvisedChange(
        method=effect.method,
        of=effect.of,
        seconds_p50=_gap(effect.before_s, effect.after_s, 0.5),
        seconds_p95=_gap(effect.before_s, effect.after_s, 0.95),
        seconds_mean=seconds,
        seconds_share=_times(seconds, n / all_s if all_s else 0.0),
        dollars_per_1k=_times(dollars, 1000.0),
        dollars_per_month=None if months is None else _times(dollars, n / months),
        dollars_share=_times(dollars, n / all_usd if all_usd else 0.0),
    )


def evidence_of(history: PastTraffic, rows: Wholes, query: str) -> Evidence:
    """Say what an advice rests on, with the first and the last of its exchanges."""
    ids = [history.rows[int(at)].id for at in (*rows[:2], *rows[-1:])]
    return Evidence(
        since=_stamp(history.since.isoformat()),
        until=_stamp(history.until.isoformat()),
        n=len(rows),
        query=query,
        ids=tuple(dict.fromkeys(ids)),
    )


def _stamp(iso: str) -> str:
    return f"{iso[:19]}Z"


def _gap(before: Floats, after: Floats, q: float) -> float:
    if not len(before):
        return 0.0
    return float(np.quantile(before, q) - np.quantile(after, q))


def _times(figure: SavedBounds, factor: float) -> SavedBounds:
    return SavedBounds(figure.value * factor, figure.low * factor, figure.high * factor)
