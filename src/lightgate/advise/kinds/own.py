"""Advice about machines of one's own: hours in which nobody needs them, and APIs beside them.

A machine costs its hours, used or not. Requests that move to it cost nothing more while it has
room; requests that leave it save nothing until it is given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from lightgate.advise.advice import FEWEST, Advice, AdvisedChange, SavedBounds, Touched
from lightgate.advise.effect import Effect, change_of, evidence_of
from lightgate.advise.kinds.targets import NEEDS_CHECK
from lightgate.advise.words import alias_lines, quoted, seconds, usd
from lightgate.ledger.store.rollup import FINE_S
from lightgate.provider.identity import identity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.advise.history import Floats, Wholes
    from lightgate.advise.scope import AdviceScope
    from lightgate.ledger.store.hourly import MachineUse

NS: Final = 1_000_000_000
DAY_HOURS: Final = 24
LEAST_DAYS: Final = 5  # of a machine's life, below which an empty hour says too little
RULE_OF_THREE: Final = 3.0  # what never happened in n days happens in 3 of n at most, with 95 %
ROOM: Final = 0.8  # of a machine's busiest five minutes that it may be filled to
MONTH_H: Final = 730.0


def own_advice(scope: AdviceScope) -> Iterator[Touched]:
    """Look at every self-hosted provider that answered."""
    for use in scope.machines:
        providers = np.array([name.partition("/")[0] for name in scope.history.target.tolist()])
        rows = np.flatnonzero(providers == use.provider)
        if len(rows) < FEWEST:
            continue
        yield from _switched_off(scope, use, rows)
        yield from _given_up(scope, use, rows)
        yield from _filled(scope, use, rows)


def _switched_off(scope: AdviceScope, use: MachineUse, rows: Wholes) -> Iterator[Touched]:
    """Hours of the day in which the machine was never asked."""
    days = use.hours / DAY_HOURS
    hours = scope.history.start_ns[rows] // (3600 * NS) % DAY_HOURS
    empty = [hour for hour in range(DAY_HOURS) if not np.any(hours == hour)]
    if not empty:
        return
    month = float(use.usd_per_hour) * MONTH_H * len(empty) / DAY_HOURS
    sure = max(1.0 - RULE_OF_THREE / days, 0.0) if days >= LEAST_DAYS else 0.0
    share = len(empty) / DAY_HOURS
    zero = SavedBounds(0.0, 0.0, 0.0)
    change = AdvisedChange(
        method="counted",
        seconds_p50=0.0,
        seconds_p95=0.0,
        seconds_mean=zero,
        seconds_share=zero,
        dollars_per_1k=SavedBounds(0.0, 0.0, 0.0),
        dollars_per_month=SavedBounds(month, month * sure, month),
        dollars_share=SavedBounds(share, share * sure, share),
    )
    listed = ", ".join(f"{hour:02}" for hour in empty)
    advice = Advice(
        id=f"switch-off:{use.provider}",
        kind="quiet hours",
        model=use.provider,
        finding=(
            f"{use.provider} costs {usd(float(use.usd_per_hour))} an hour and had no request in"
            f" {len(empty)} of 24 hours of the day (UTC {listed}) in {days:.0f} days."
        ),
        evidence=evidence_of(scope.history, rows, f"provider = {quoted(use.provider)}"),
        change=change,
        worse="A request in these hours finds nobody, or waits for a start.",
        effort="code",
        apply=f"stop {use.provider} in the hours {listed} (UTC)",
        verify="lightgate report --by provider --last 7d",
        expect=f"in use {1.0 - share:.0%} of the paid hours or more",
    )
    yield Touched(advice, rows, (0.0, scope.money_share(use)))


def _given_up(scope: AdviceScope, use: MachineUse, rows: Wholes) -> Iterator[Touched]:
    """The machine's own requests at an API of the same model, and no machine any more."""
    history = scope.history
    paid = float(use.usd_per_hour) * use.hours
    tokens = history.tokens_out[rows].astype(np.float64)
    spent: Floats = paid * tokens / max(float(tokens.sum()), 1.0)
    for there, count in history.counts.items():
        price, times = scope.prices.get(there), scope.times(there)
        if count.hourly or price is None or times is None or times.n < FEWEST:
            continue
        _, after = times.draw(history, rows, seed=len(rows))
        bill = price.usd(history.tokens_in[rows], history.tokens_out[rows])
        effect = Effect(rows, history.e2e_s[rows], after, spent, bill, "replayed")
        advice = Advice(
            id=f"api-instead:{use.provider}:{there}",
            kind="self-hosting",
            model=use.provider,
            finding=(
                f"{use.provider} cost {usd(paid)} for {len(rows):,} requests; {there} would have"
                f" taken {usd(float(bill.sum()))} for them and {seconds(float(after.mean()))} each"
                f" instead of {seconds(float(history.e2e_s[rows].mean()))}."
            ),
            evidence=evidence_of(history, rows, f"provider = {quoted(use.provider)}"),
            change=change_of(history, effect, rows, paid),
            worse="Until the machine is given up, both are paid. Prompts leave the house.",
            effort="config",
            apply=_targets(scope, rows, there),
            verify="lightgate report --by provider --last 7d",
            expect=f"{usd(1000.0 * float(bill.mean()))} per 1,000 requests",
        )
        same = any(identity(model) == identity(count.model) for model in use.models)
        weight = (scope.weight(rows)[0], scope.money_share(use))
        yield Touched(advice, rows, weight, "" if same else NEEDS_CHECK)


def _filled(scope: AdviceScope, use: MachineUse, rows: Wholes) -> Iterator[Touched]:
    """Requests to APIs of the same model for which the machine had room."""
    history = scope.history
    times = scope.times(f"{use.provider}/{use.models[0]}")
    mine = {identity(model) for model in use.models}
    alike = {
        name
        for name, count in history.counts.items()
        if not count.hourly and identity(count.model) in mine
    }
    others = np.flatnonzero(np.isin(history.target.astype(str), sorted(alike)))
    if times is None or times.n < FEWEST or not len(others):
        return
    moved = _room(scope, use, rows, others)
    _, after = times.draw(history, moved, seed=len(moved))
    paid = history.usd[moved]
    effect = Effect(moved, history.e2e_s[moved], after, paid, np.zeros(len(moved)), "modelled")
    own = f"{use.provider}/{use.models[0]}"
    month = change_of(history, effect, others).dollars_per_month
    advice = Advice(
        id=f"own-machine:{use.provider}",
        kind="self-hosting",
        model=use.models[0],
        finding=(
            f"{use.provider} had room for {len(moved):,} of {len(others):,} requests for the same"
            f" model that went to APIs"
            f"{'' if month is None else f' and cost {usd(month.value)} a month there'}."
        ),
        evidence=evidence_of(
            history, moved, f"winner IN ({', '.join(map(quoted, sorted(alike)))})"
        ),
        change=change_of(history, effect, others),
        worse=f"{own} is filled to {ROOM:.0%} of its busiest 5 minutes; answers may come later.",
        effort="config",
        apply=_targets(scope, moved, own),
        verify="lightgate report --by provider --last 7d",
        expect=f"fewer dollars at APIs, and {own} in use more often",
    )
    yield Touched(advice, moved, scope.weight(others))


def _room(scope: AdviceScope, use: MachineUse, rows: Wholes, others: Wholes) -> Wholes:
    """The requests to APIs that fit beside the machine's own, five minutes by five minutes."""
    history = scope.history
    spans = history.start_ns // (FINE_S * NS)
    used: dict[int, float] = {}
    for at in rows.tolist():
        used[int(spans[at])] = used.get(int(spans[at]), 0.0) + float(history.tokens_out[at])
    most, found = ROOM * use.peak_tps * FINE_S, []
    for at in others.tolist():
        span, tokens = int(spans[at]), float(history.tokens_out[at])
        if used.get(span, 0.0) + tokens <= most:
            used[span] = used.get(span, 0.0) + tokens
            found.append(at)
    return np.array(found, dtype=np.int64)


def _targets(scope: AdviceScope, rows: Wholes, first: str) -> str:
    """The lines of every model whose requests would move."""
    models = dict.fromkeys(scope.history.model[rows].tolist())
    return "".join(alias_lines(scope, model, (first,), policy="ordered") for model in models)
