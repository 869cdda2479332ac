"""Rehearse advice where it can be rehearsed: the past of the ledger, played with the change.

The rehearsal is that of `lightgate rehearse --ledger`: the real routing code in virtual time, with
the targets' own attempts as the truth, and their load as the change makes it. An advice that a
rehearsal does not bear out is not offered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from lightgate.advise.advice import Advice, AdvisedChange, RehearsedChange, SavedBounds
from lightgate.bench.rehearse.past import PastPeriod, past
from lightgate.bench.rehearse.rehearse import HINDSIGHT, baseline, play
from lightgate.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lightgate.advise.history import Floats, Wholes
    from lightgate.advise.scope import AdviceScope
    from lightgate.bench.rehearse.past import PastSource
    from lightgate.ledger.store.store import Ledger

SEEDS: Final = 2
REQUESTS: Final = 4000  # of a model that are played, the newest
BORNE_OUT: Final = 0.5  # of the saving's lower bound that a rehearsal has to show
NEAR: Final = 0.9  # of the saving: a rehearsal that shows less is what is said


def rehearse_advice(ledger: Ledger, scope: AdviceScope, found: Iterable[Advice]) -> list[Advice]:
    """Rehearse every advice that moves requests or starts second attempts; others stay."""
    sources: dict[str, PastSource | None] = {}
    told = []
    for advice in found:
        if advice.state != "advised" or advice.kind not in {"other target", "hedging"}:
            told.append(advice)
            continue
        if advice.model not in sources:
            sources[advice.model] = _source(ledger, scope, advice.model)
        source = sources[advice.model]
        change = None if source is None else _rehearsed(scope, advice, source)
        told.append(advice if change is None else _judged(advice, change))
    order = {"advised": 0, "informative": 1, "refused": 2}
    return sorted(told, key=lambda advice: (order[advice.state], -advice.score))


def _source(ledger: Ledger, scope: AdviceScope, model: str) -> PastSource | None:
    history = scope.history
    period = PastPeriod(since=history.since, until=history.until, model=model, requests=REQUESTS)
    try:
        return past(ledger, period, scope.config)
    except UsageError:
        return None


def _judged(advice: Advice, change: RehearsedChange) -> Advice:
    advice = msgspec.structs.replace(advice, rehearsal=change)
    said = advice.change
    if said is None:
        return advice
    if said.seconds_share.low >= said.dollars_share.low:
        shown, least, unit = change.seconds_mean, said.seconds_mean.low, "seconds"
    elif change.dollars_per_1k is not None:
        shown, least, unit = change.dollars_per_1k, said.dollars_per_1k.low, "dollars"
    else:
        return advice
    if shown >= BORNE_OUT * least:
        return advice if unit == "dollars" else _slower(advice, said, shown)
    because = f"a rehearsal does not bear it out: it saved {shown:.3g} {unit}, not {least:.3g}"
    return msgspec.structs.replace(advice, state="refused", because=because, score=0.0)


def _slower(advice: Advice, said: AdvisedChange, shown: float) -> Advice:
    """Say the rehearsal's seconds where they are fewer: it knows the load that moves."""
    part = shown / said.seconds_mean.value if said.seconds_mean.value > 0.0 else 1.0
    if part >= NEAR:
        return advice
    change = msgspec.structs.replace(
        said,
        seconds_p50=said.seconds_p50 * part,
        seconds_p95=said.seconds_p95 * part,
        seconds_mean=_times(said.seconds_mean, part),
        seconds_share=_times(said.seconds_share, part),
    )
    return msgspec.structs.replace(advice, change=change, score=advice.score * part)


def _times(figure: SavedBounds, part: float) -> SavedBounds:
    return SavedBounds(figure.value * part, figure.low * part, figure.high * part)


def _rehearsed(scope: AdviceScope, advice: Advice, source: PastSource) -> RehearsedChange | None:
    """Play the traffic with the change; None where one of the targets cannot be played."""
    names = [offer.target for offer in source.offers]
    here, there = advice.target, advice.moves_to
    if here not in names or there not in names:
        return None
    rows = _touched(scope, advice.model, here)
    places = np.searchsorted(source.asked_ns, scope.history.start_ns[rows])
    places = np.minimum(places, source.requests - 1)
    known = source.asked_ns[places] == scope.history.start_ns[rows]
    rows, places = rows[known], places[known]
    if not len(rows) or advice.change is None:
        return None
    hedged = advice.kind == "hedging"
    fixed = f"{HINDSIGHT}/{names.index(here)}"
    changed = f"{fixed}, hedge p90" if hedged else f"{HINDSIGHT}/{names.index(there)}"
    saved, spent = [], []
    for seed in range(1, SEEDS + 1):
        tally = play(source, baseline(changed), source.drawn(seed)(), seed)
        before = scope.history.e2e_s[rows]
        if hedged:  # what is rehearsed without the second attempt is what it is held against
            before = play(source, baseline(fixed), source.drawn(seed)(), seed).done_s[places]
        saved.append(float(np.nanmean(before) - np.nanmean(tally.done_s[places])))
        spent.append(_spent(scope, rows, [names[tally.winner[at]] for at in places]))
    dollars = [one for one in spent if one is not None]
    return RehearsedChange(
        seconds_mean=float(np.mean(saved)),
        advised_seconds_mean=advice.change.seconds_mean.value,
        dollars_per_1k=None if hedged or not dollars else float(np.mean(dollars)),
        advised_dollars_per_1k=advice.change.dollars_per_1k.value,
        seeds=SEEDS,
    )


def _touched(scope: AdviceScope, model: str, here: str) -> Wholes:
    among = scope.history.of_model(model)
    rows: Wholes = among[scope.history.target[among] == here]
    return rows


def _spent(scope: AdviceScope, rows: Wholes, winners: list[str]) -> float | None:
    """Dollars saved per 1,000 requests, by the winners' prices; None if one is unknown."""
    history = scope.history
    after: Floats = np.full(len(rows), np.nan)
    for target in set(winners):
        price = scope.prices.get(target)
        here = np.array([winner == target for winner in winners])
        if price is not None:
            after[here] = price.usd(history.tokens_in[rows][here], history.tokens_out[rows][here])
    saved = history.usd[rows] - after
    return None if np.isnan(saved).any() else 1000.0 * float(saved.mean())
