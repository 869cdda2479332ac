"""One advice: what was found, how sure that is, what would change, and how to do and check it.

An advice is offered only if its evidence is enough: so many requests, an interval of the saving
that does not contain 0, a saving that is worth a change, and nothing else that becomes much worse.
What is not offered says why. Savings of two advices that touch the same requests are not added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.int64]

Effort = Literal["flag", "config", "code", "purchase"]
Method = Literal["counted", "replayed", "modelled"]
State = Literal["advised", "informative", "refused"]

FEWEST: Final = 30  # requests that an advice has to touch
LEAST_SHARE: Final = 0.05  # of its traffic's seconds or dollars that an advice has to save, surely
WORSE: Final = 0.02  # of its traffic's dollars or seconds that may always become worse
TRADE: Final = 3.0  # times that the saving has to be above what becomes worse, beyond that
# What doing it takes: a saving counts for so much less.
EFFORTS: Final[dict[Effort, float]] = {"flag": 1.0, "config": 1.5, "code": 3.0, "purchase": 10.0}
OVERLAP: Final = 0.05  # of the smaller one's requests, from which on two savings are not added


class SavedBounds(msgspec.Struct, frozen=True):
    """A figure, and the interval that holds the true one with 90 %."""

    value: float
    low: float
    high: float


NOTHING: Final = SavedBounds(0.0, 0.0, 0.0)


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What an advice rests on: the period, how many requests, and how to find them."""

    since: str
    until: str
    n: int
    query: str
    ids: tuple[str, ...] = ()  # a few of the exchanges


class AdvisedChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a change saves; a negative figure is what it costs.

    Seconds are of one request among those that the advice touches, by their whole answer unless
    `of` says otherwise: the differences of the medians, of the p95, and of the means. Shares are of
    all seconds and dollars of the model's traffic; `dollars_per_month` is None without a period.
    """

    method: Method
    of: str = "e2e"
    seconds_p50: float
    seconds_p95: float
    seconds_mean: SavedBounds
    seconds_share: SavedBounds
    dollars_per_1k: SavedBounds
    dollars_per_month: SavedBounds | None
    dollars_share: SavedBounds


class RehearsedChange(msgspec.Struct, frozen=True, kw_only=True):
    """What the change did in a rehearsal of the ledger's past, beside what the advice says.

    `seconds_mean` is of a whole answer of the requests that the advice touches.
    """

    seconds_mean: float
    advised_seconds_mean: float
    dollars_per_1k: float | None
    advised_dollars_per_1k: float
    seeds: int


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """One advice; `because` is empty where it is offered, else why it is not."""

    id: str
    kind: str
    model: str
    state: State = "advised"
    because: str = ""
    finding: str
    evidence: Evidence
    change: AdvisedChange | None = None
    worse: str = ""
    effort: Effort = "config"
    apply: str = ""
    verify: str = ""
    expect: str = ""
    excludes: tuple[str, ...] = ()
    rehearsal: RehearsedChange | None = None
    score: float = 0.0
    target: str = ""  # where the requests went, of an advice about one target
    moves_to: str = ""  # the target that answers instead, or beside it


class Touched(NamedTuple):
    """An advice before it is weighed, and the requests that it touches.

    `weight` is the model's share of all seconds and of all dollars of the history. `needs` is what
    has to be known before it may be offered, such as a check of quality; `unpriced` says that what
    the change costs is not known. `fewest` are the requests that it has to touch.
    """

    advice: Advice
    rows: Rows
    weight: tuple[float, float] = (1.0, 1.0)
    needs: str = ""
    unpriced: bool = False
    fewest: int = FEWEST


def weighed(found: Sequence[Touched]) -> list[Advice]:
    """Decide what is offered, rank it, and say which savings may not be added up."""
    judged = [(one, _judged(one)) for one in found]
    offered = [pair for pair in judged if pair[1].state == "advised"]
    ranked = sorted(offered, key=lambda pair: (-pair[1].score, pair[1].id))
    best = [
        msgspec.structs.replace(advice, excludes=_excludes(one, [other for other, _ in ranked]))
        for one, advice in ranked
    ]
    rest = [advice for _, advice in judged if advice.state != "advised"]
    return best + sorted(rest, key=lambda advice: (advice.state, advice.kind, advice.id))


def _judged(one: Touched) -> Advice:
    advice, change = one.advice, one.advice.change
    if advice.state != "advised" or change is None:
        return advice
    because = _why_not(one, change)
    if because:
        state: State = "informative" if one.needs and because == one.needs else "refused"
        return msgspec.structs.replace(advice, state=state, because=because)
    seconds, dollars = one.weight
    sure = max(change.seconds_share.low * seconds, change.dollars_share.low * dollars)
    return msgspec.structs.replace(advice, score=sure / EFFORTS[advice.effort])


def _why_not(one: Touched, change: AdvisedChange) -> str:
    """Say why an advice is not offered; empty where it is."""
    n = one.advice.evidence.n
    if n < one.fewest:
        return f"n too small: {n} request{'' if n == 1 else 's'}, {one.fewest} are needed"
    faster, cheaper = change.seconds_share, change.dollars_share
    gain = max(faster, cheaper, key=lambda share: share.low)
    if gain.low <= 0.0:
        return "the interval of the saving contains 0"
    if gain.low < LEAST_SHARE:
        return (
            f"too small: surely {gain.low:.1%} of the model's seconds or dollars, a change is worth"
            f" its trouble from {LEAST_SHARE:.0%} on"
        )
    if one.unpriced:
        return "what it costs is not known: name the price under [prices] in lightgate.toml"
    other, unit = (cheaper, "dollars") if gain is faster else (faster, "seconds")
    loss = -other.low
    if loss > max(WORSE, gain.low / TRADE):
        return (
            f"a trade, not a saving: it may take {loss:.0%} more {unit} for"
            f" {gain.low:.0%} less {'seconds' if unit == 'dollars' else 'dollars'}"
        )
    return one.needs


def _excludes(one: Touched, others: Sequence[Touched]) -> tuple[str, ...]:
    mine = set(one.rows.tolist())
    found = []
    for other in others:
        if other is one or not mine or not len(other.rows):
            continue
        both = len(mine.intersection(other.rows.tolist()))
        if both > OVERLAP * min(len(mine), len(other.rows)):
            found.append(other.advice.id)
    return tuple(found)
