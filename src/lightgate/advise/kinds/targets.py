"""Advice about where requests go: another target, a second attempt, a smaller model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from lightgate.advise.advice import FEWEST, LEAST_SHARE, Advice, Touched
from lightgate.advise.effect import Effect, change_of, evidence_of, standard_error
from lightgate.advise.prices import TokenPrice
from lightgate.advise.words import alias_lines, ms, per_1k, quoted, seconds
from lightgate.provider.identity import identity
from lightgate.provider.target import rates_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lightgate.advise.advice import AdvisedChange
    from lightgate.advise.history import Wholes
    from lightgate.advise.scope import AdviceScope
    from lightgate.advise.times import TargetTimes

MORE_FAILURES: Final = 0.02  # of attempts that another target may fail more often
HEDGE_Q: Final = 0.95  # of first tokens, after which a second attempt is started
NEEDS_CHECK: Final = (
    "informative: the answers of another model may be worse; check them first:"
    " lightgate bench A B --checks FILE"
)


class TargetMove(NamedTuple):
    """Requests of one model that went to one target, and what another would have done."""

    model: str
    here: str
    there: str
    rows: Wholes
    times: TargetTimes


def target_advice(scope: AdviceScope, model: str) -> Iterator[Touched]:
    """Hold every target of a model against every other one that answers for it."""
    among = scope.history.of_model(model)
    if model in scope.history.cascades:
        return  # its targets are steps, not each other's like
    used = scope.history.target[among]
    for here in dict.fromkeys(used.tolist()):
        rows = among[used == here]
        moves = list(_moves(scope, model, here, rows))
        found = [_other_target(scope, move, among) for move in moves]
        best = max(found, key=_gain, default=None)
        if best is not None:
            yield best
        if moves and not scope.history.beside[rows].any():
            quick = min(moves, key=lambda move: float(np.median(move.times.first_s)))
            yield _hedge(scope, quick, among)
            yield _race(scope, quick, among)
        yield from _smaller(scope, model, here, (rows, among))
    yield from _unmeasured(scope, model, among)


def _unmeasured(scope: AdviceScope, model: str, among: Wholes) -> Iterator[Touched]:
    """Name the configured targets of a model that are cheaper by list, and were never asked."""
    table = None if scope.config is None else scope.config.models.get(model)
    history = scope.history
    asked = [name for name in scope.targets_of(model) if name in history.counts]
    for there in () if table is None else table.targets:
        rates = rates_at(there, scope.config, history.until)
        if there in history.counts or rates is None or not rates.output or not rates.input:
            continue
        price = TokenPrice(float(rates.input) / 1e6, float(rates.output) / 1e6)
        bill = price.usd(history.tokens_in[among], history.tokens_out[among])
        if not float(bill.sum()) < (1.0 - LEAST_SHARE) * float(np.nansum(history.usd[among])):
            continue
        advice = Advice(
            id=f"unmeasured:{model}:{there}",
            kind="other target",
            model=model,
            state="informative",
            because="informative: no request of this period went there, so its speed is not known",
            finding=(
                f"{there} is configured for {model} and was not asked; the same tokens would have"
                f" cost {per_1k(bill)} instead of {per_1k(history.usd[among])} per 1,000."
            ),
            evidence=evidence_of(history, among, f"model_asked = {quoted(model)}"),
            worse="Its speed and its failures are not known.",
            effort="config",
            verify=f"lightgate bench {' '.join((*asked, there))}",
            expect="which of them is faster, with an interval",
        )
        yield Touched(advice, among)


def _gain(one: Touched) -> float:
    change = one.advice.change
    if change is None or one.advice.because:
        return -1.0
    return max(change.seconds_share.low, change.dollars_share.low)


def _moves(scope: AdviceScope, model: str, here: str, rows: Wholes) -> Iterator[TargetMove]:
    """The targets that could have answered instead: of the same alias, or of the same model."""
    history = scope.history
    mine = set(scope.targets_of(model))
    same = identity(history.counts[here].model)
    for there, count in history.counts.items():
        if there == here or (there not in mine and identity(count.model) != same):
            continue
        times = scope.times(there)
        if times is not None and times.n >= FEWEST:
            yield TargetMove(model, here, there, rows, times)


def _moved(scope: AdviceScope, move: TargetMove) -> Effect:
    history, rows = scope.history, move.rows
    _, after = move.times.draw(history, rows, seed=len(rows))
    price = scope.prices.get(move.there)
    tokens = (history.tokens_in[rows], history.tokens_out[rows])
    usd = np.full(len(rows), np.nan) if price is None else price.usd(*tokens)
    error = standard_error(move.times.first_s, move.times.start_ns)
    error += float(history.tokens_out[rows].mean()) * standard_error(
        move.times.token_s, move.times.start_ns
    )
    return Effect(
        rows, history.e2e_s[rows], after, history.usd[rows], usd, "replayed", spread_s=error
    )


def _other_target(scope: AdviceScope, move: TargetMove, among: Wholes) -> Touched:
    history, effect = scope.history, _moved(scope, move)
    change = change_of(history, effect, among)
    before, after = effect.before_s.mean(), effect.after_s.mean()
    paid, instead = per_1k(effect.before_usd), per_1k(effect.after_usd)
    more = history.failures(move.there) - history.failures(move.here)
    tokens = history.tokens_out[move.rows]
    because = ""
    if more > MORE_FAILURES:
        because = f"{move.there} fails more often, by {more:.1%} of attempts"
    slower = "the answers come later" if after > before else "the answers cost more"
    advice = Advice(
        id=f"other-target:{move.model}:{move.here}",
        kind="other target",
        model=move.model,
        target=move.here,
        moves_to=move.there,
        state="refused" if because else "advised",
        because=because,
        finding=(
            f"{len(move.rows):,} requests for {move.model} went to {move.here}, which took"
            f" {seconds(before)} on average and {paid} per 1,000; {move.there} would have taken"
            f" {seconds(after)} and {instead}."
        ),
        evidence=evidence_of(
            history,
            move.rows,
            f"model_asked = {quoted(move.model)} AND winner = {quoted(move.here)}",
        ),
        change=change,
        worse=f"The load moves to {move.there}{_loss(change, slower)}.",
        effort="config",
        apply=alias_lines(scope, move.model, (move.there, move.here), policy="ordered"),
        verify="lightgate report --by alias --last 24h",
        expect=(
            f"{move.model} with {float(np.median(tokens / effect.after_s)):.3g} tok/s at the median"
            f" and {instead} per 1,000 requests"
        ),
    )
    return Touched(
        advice, move.rows, scope.weight(among), _needs(scope, move), _unpriced(scope, move)
    )


def _unpriced(scope: AdviceScope, move: TargetMove) -> bool:
    """Whether the bill may grow and nobody knows by how much; two machines of one's own may not."""
    if move.there in scope.prices:
        return False
    counts = scope.history.counts
    return not (counts[move.here].hourly and counts[move.there].hourly)


def _needs(scope: AdviceScope, move: TargetMove) -> str:
    """What has to be known first: two targets of one model give answers that are alike."""
    counts = scope.history.counts
    if identity(counts[move.here].model) == identity(counts[move.there].model):
        return ""
    found = scope.checked(move.here, move.there)
    return NEEDS_CHECK if found is None else found


def _loss(change: AdvisedChange, words: str) -> str:
    low = min(change.seconds_share.value, change.dollars_share.value)
    return f"; {words}" if low < -0.01 else ""


def _second(scope: AdviceScope, move: TargetMove, delay_s: float) -> Effect:
    """A second attempt at another target, `delay_s` after the first one; the sooner token wins.

    The loser is taken as billed to its end, which is the most that it can cost.
    """
    history = scope.history
    rows = move.rows[~np.isnan(history.ttft_s[move.rows])]
    own = history.ttft_s[rows]
    first, end = move.times.draw(history, rows, seed=len(rows) + 1)
    wins = delay_s + first < own
    after = np.where(wins, delay_s + end, history.e2e_s[rows])
    fired = own > delay_s
    price = scope.prices.get(move.there)
    tokens = (history.tokens_in[rows], history.tokens_out[rows])
    more = np.full(len(rows), np.nan) if price is None else price.usd(*tokens)
    before_usd = history.usd[rows]
    after_usd = before_usd + np.where(fired, more, 0.0)
    return Effect(rows, history.e2e_s[rows], after, before_usd, after_usd, "replayed")


def _hedge(scope: AdviceScope, move: TargetMove, among: Wholes) -> Touched:
    own = scope.history.ttft_s[move.rows]
    own = own[~np.isnan(own)]
    delay = float(np.quantile(own, HEDGE_Q)) if len(own) else 0.0
    effect = _second(scope, move, delay)
    advice = Advice(
        id=f"hedge:{move.model}:{move.here}",
        kind="hedging",
        finding=(
            f"{HEDGE_Q:.0%} of first tokens of {move.here} came within {ms(delay)}; a second"
            f" attempt at {move.there} after that would have saved"
            f" {seconds(_mean_saved(effect))} a request on average."
            if len(own)
            else f"When first tokens of {move.here} come is not known: no request was streamed."
        ),
        worse="Every twentieth request is sent twice: its loser is paid for, and adds load.",
        apply=alias_lines(
            scope, move.model, (move.here, move.there), hedge=f"p{HEDGE_Q * 100:.0f}"
        ),
        expect=f"about {float(np.mean(own > delay)) if len(own) else 0:.0%} of requests hedged",
        **_of_a_second(scope, move, effect, among),
    )
    unpriced = move.there not in scope.prices
    return Touched(advice, effect.rows, scope.weight(among), _needs(scope, move), unpriced)


def _race(scope: AdviceScope, move: TargetMove, among: Wholes) -> Touched:
    effect = _second(scope, move, 0.0)
    advice = Advice(
        id=f"race:{move.model}:{move.here}",
        kind="racing",
        finding=(
            f"Asking {move.there} at once beside {move.here} would have saved"
            f" {seconds(_mean_saved(effect))} a request on average."
        ),
        worse="Every request is paid twice, and both targets carry the load.",
        apply=alias_lines(scope, move.model, (move.here, move.there), race=2),
        expect="100 % of requests raced",
        **_of_a_second(scope, move, effect, among),
    )
    unpriced = move.there not in scope.prices
    return Touched(advice, effect.rows, scope.weight(among), _needs(scope, move), unpriced)


def _of_a_second(
    scope: AdviceScope, move: TargetMove, effect: Effect, among: Wholes
) -> dict[str, Any]:
    """What the advices to hedge and to race have in common."""
    history = scope.history
    query = f"model_asked = {quoted(move.model)} AND winner = {quoted(move.here)}"
    return {
        "model": move.model,
        "target": move.here,
        "moves_to": move.there,
        "evidence": evidence_of(history, effect.rows, query),
        "change": change_of(history, effect, among),
        "effort": "config",
        "verify": "lightgate report --bill --last 24h",
    }


def _mean_saved(effect: Effect) -> float:
    return float((effect.before_s - effect.after_s).mean()) if len(effect.rows) else 0.0


def _smaller(
    scope: AdviceScope, model: str, here: str, places: tuple[Wholes, Wholes]
) -> Iterator[Touched]:
    """Hold a target against cheaper models of its own provider that this history knows."""
    history, (rows, among) = scope.history, places
    own, price = history.counts[here], scope.prices.get(here)
    if price is None:
        return
    mine = set(scope.targets_of(model))
    for there, count in history.counts.items():
        other = scope.prices.get(there)
        if count.provider != own.provider or there == here or there in mine or other is None:
            continue
        times = scope.times(there)
        if identity(count.model) == identity(own.model) or other.per_out >= price.per_out:
            continue
        if times is None or times.n < FEWEST:
            continue
        effect = _moved(scope, TargetMove(model, here, there, rows, times))
        advice = Advice(
            id=f"smaller-model:{model}:{there}",
            kind="smaller model",
            model=model,
            finding=(
                f"{there} would have answered {len(rows):,} requests of {here} in"
                f" {seconds(effect.after_s.mean())} instead of {seconds(effect.before_s.mean())},"
                f" for {per_1k(effect.after_usd)} instead of {per_1k(effect.before_usd)} per 1,000."
            ),
            evidence=evidence_of(history, rows, f"winner = {quoted(here)}"),
            change=change_of(history, effect, among),
            worse="The answers may be worse. Simple requests alone could go there: see cascades.",
            effort="config",
            apply=_cascade_lines(model, there, here),
            verify=f"lightgate bench {here} {there} --checks FILE",
            expect="a pass rate whose interval is not below that of the larger model",
        )
        found = scope.checked(here, there)
        needs = NEEDS_CHECK if found is None else found
        yield Touched(advice, rows, scope.weight(among), needs)
        yield _cascade(scope, TargetMove(model, here, there, rows, times), among)


def _cascade(scope: AdviceScope, move: TargetMove, among: Wholes) -> Touched:
    """Send the shorter half of the requests to the smaller model, as a guess at the simple ones."""
    history, rows = scope.history, move.rows
    lengths = history.tokens_in[rows] + history.tokens_out[rows]
    short = rows[lengths <= np.median(lengths)]
    effect = _moved(scope, move._replace(rows=short))
    advice = Advice(
        id=f"cascade:{move.model}:{move.there}",
        kind="cascading",
        model=move.model,
        target=move.here,
        moves_to=move.there,
        finding=(
            f"If the shorter half of the requests of {move.here} were simple enough for"
            f" {move.there}, they would have taken {seconds(effect.after_s.mean())} instead of"
            f" {seconds(effect.before_s.mean())}, for {per_1k(effect.after_usd)} instead of"
            f" {per_1k(effect.before_usd)} per 1,000."
        ),
        evidence=evidence_of(history, short, f"winner = {quoted(move.here)}"),
        change=change_of(history, effect, among),
        worse="Simple requests get the answers of a smaller model; failed checks are asked again.",
        effort="config",
        apply=_cascade_lines(move.model, move.there, move.here),
        verify="lightgate report --by target --last 24h",
        expect=f"a part of the requests at {move.there}",
    )
    found = scope.checked(move.here, move.there)
    return Touched(advice, short, scope.weight(among), NEEDS_CHECK if found is None else found)


def _cascade_lines(model: str, small: str, large: str) -> str:
    return (
        f'[models.{quoted(model)}]\npolicy = "cascade"\n'
        f'tiers = [ {{ upto = "simple", targets = [{quoted(small)}] }},'
        f" {{ targets = [{quoted(large)}] }} ]\n"
        'verify = ["not_refused", "not_truncated"]\n'
    )
