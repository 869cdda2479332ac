"""What second attempts can cost, and are expected to, in nano-dollars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.route.plan.hedge import LAG_TOKENS, reserve_nano

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.route.plan.alias import PlanAsk

LONGEST: Final = 4  # times the expected tokens: what is set aside where a request has no max_tokens


# The prices of a hedge: what is set aside for it; the part of the second's price that the first
# does not cost; what is expected beyond the first target's price where the second wins, and where
# it does not.
HedgePrice = tuple[float, float, float, float]


def hedge_price(ask: PlanAsk, usual: int, first: str, second: str) -> HedgePrice:
    """Return the prices of a hedge; `usual` are the expected tokens of the answer."""
    prices = ask.prices
    if not prices:
        return 0.0, 0.0, 0.0, 0.0
    one, other = prices.get(first), prices.get(second)
    if one is None or other is None:  # what is not known costs the same, and the most
        lost = max(lost_nano(ask, usual, first), lost_nano(ask, usual, second))
        return lost, 0.0, lost, lost
    tokens_in, most = ask.tokens_in, ask.max_tokens or LONGEST * usual
    in_1, in_2 = tokens_in * one.tokens_in, tokens_in * other.tokens_in
    out_1, out_2 = one.tokens_out, other.tokens_out
    lag = LAG_TOKENS if most > LAG_TOKENS else most
    short = LAG_TOKENS if usual > LAG_TOKENS else usual
    most_1, usual_1 = (lag, short) if one.abort_stops else (most, usual)
    most_2, usual_2 = (lag, short) if other.abort_stops else (most, usual)
    whole = in_2 + most * out_2
    premium = whole - in_1 - most * out_1
    won, lost = in_2 + usual * (out_2 - out_1) + out_1 * usual_1, in_2 + out_2 * usual_2
    lost_1, lost_2 = in_1 + out_1 * most_1, in_2 + out_2 * most_2
    if premium > 0.0:
        dearest = lost_1 + premium
        return dearest if dearest > lost_2 else lost_2, premium / whole, won, lost
    return lost_1 if lost_1 > lost_2 else lost_2, 0.0, won, lost


def race_nano(ask: PlanAsk, usual: int, racers: Sequence[str]) -> float:
    """Return what a race is expected to cost beyond its first target, each being as likely to win.

    The losers' prices, and what the winner costs more than the first; what is not known is left
    out, since nobody can say it.
    """
    prices = [ask.prices.get(target) for target in racers] if ask.prices else []
    known = [price for price in prices if price is not None]
    if len(known) < len(racers) or not known:
        return 0.0
    tokens_in = ask.tokens_in
    lost = sum([reserve_nano(price, tokens_in, usual) for price in known])
    whole = [price.nano(tokens_in, usual) for price in known]
    share = (len(known) - 1) / len(known)
    return share * lost + sum(whole) / len(whole) - whole[0]


def lost_nano(ask: PlanAsk, usual: int, target: str) -> float:
    """Return the most an attempt costs if it loses; an unknown price is the dearest known."""
    prices = ask.prices
    if not prices:
        return 0.0
    most = ask.max_tokens or LONGEST * usual
    price = prices.get(target)
    if price is not None:
        return reserve_nano(price, ask.tokens_in, most)
    return max([reserve_nano(known, ask.tokens_in, most) for known in prices.values()])


def premium_nano(ask: PlanAsk, usual: int, first: str, second: str) -> tuple[float, float]:
    """Return what the second costs more than the first if it wins, and as a part of its price.

    The answer may be as long as it is allowed to be; what is not known costs the same.
    """
    prices = ask.prices
    one = prices.get(first) if prices else None
    other = prices.get(second) if prices else None
    if one is None or other is None:
        return 0.0, 0.0
    most = ask.max_tokens or LONGEST * usual
    dear = other.nano(ask.tokens_in, most)
    more = dear - one.nano(ask.tokens_in, most)
    return (more, more / dear) if more > 0.0 else (0.0, 0.0)


def own_nano(ask: PlanAsk, usual: int, first: str) -> float:
    """Return what a request costs in any case; an unknown price is the lowest known."""
    prices = ask.prices
    if not prices:
        return 0.0
    price = prices.get(first)
    if price is not None:
        return price.nano(ask.tokens_in, usual)
    return min([known.nano(ask.tokens_in, usual) for known in prices.values()])
