"""The plan of a gateway that knows its targets: order, hedge or race, and deadlines."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from lightgate.route.alias import Shape, fixed_hedge_ns, lay_out
from lightgate.route.belief import ENOUGH, NS, bucket
from lightgate.route.hedge import chance, delay_s, quantile_of, reserve_nano, sick
from lightgate.route.plan import Plan
from lightgate.route.policy import USUAL_TOKENS
from lightgate.route.score import (
    LOADED,
    NEAR,
    PREFILL_SAVED,
    STAY,
    Facts,
    beside,
    costs,
    seconds,
    thrift,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.route.belief import Form
    from lightgate.route.decide import Ask
    from lightgate.route.form import Forms
    from lightgate.route.hedge import HedgeBudgets, Price
    from lightgate.route.plan import Step
    from lightgate.route.policy import Policy
    from lightgate.route.slo import Slo

Z99: Final = 2.3263478740408408
DEADLINE: Final = 4.0  # times the 99 % of a target's first tokens: later it is taken for dead
DEADLINE_FLOOR_S: Final = 2.0
SAME_PROVIDER: Final = 1.25  # a second of the same provider is slow when the first is: 25 % worse
BILLED: Final = 1.10  # one that bills closed streams in full counts as 10 % worse


class Moment(NamedTuple):
    """The instant of a decision, its draw, and what is known."""

    now_ns: int
    draw: float
    forms: Forms
    budgets: HedgeBudgets | None


class Second(NamedTuple):
    """What is started beside the first attempt: nothing, a hedge at its time, or racers."""

    hedge_ns: int | None
    race: int
    reserve_nano: float


ALONE: Final = Second(None, 1, 0.0)


def learned_plan(
    ask: Ask, policy: Policy | None, ordered: Sequence[str], well: int, moment: Moment
) -> Plan:
    """Rank those that are well (the first `well`), and lay out the steps."""
    now_ns, _, forms, _ = moment
    tokens = ask.expected_tokens or min(ask.max_tokens or USUAL_TOKENS, USUAL_TOKENS)
    warm = None if ask.session is None else forms.warm(ask.session, now_ns)
    facts = Facts(bucket(ask.tokens_in), ask.tokens_in, tokens, ask.prices, _slo(ask), warm, now_ns)
    order = list(ordered)
    form_of = forms.form
    known = [form_of(target) for target in order]
    values: list[float] = []
    name, reason = "ordered", "configured order"
    if policy is not None:
        name, reason = policy.name, "by form"
        if well > 1:
            places, values = _ranked(ask, policy, facts, order[:well], known, moment)
            order[:well] = [order[place] for place in places]
            known[:well] = [known[place] for place in places]
    elif (ask.policy or ask.alias.policy) == "weighted":
        name, reason = "weighted", "drawn by weight"
    second = ALONE
    if well > 1:
        second = _second(ask, policy, facts, (order, known, values, well), moment)
    if well < len(order):
        reason += f", {len(order) - well} held" if well else ", all held: soonest first"
    first = known[0]
    return Plan(
        _steps(ask, facts, (order, known, well), second),
        name,
        reason,
        int(math.exp(first.log_ttft(facts.size, now_ns)) * NS),
        order[1] if len(order) > 1 else None,
        second.hedge_ns,
        "first" if policy is None else policy.finish,
        second.reserve_nano,
        _nano(facts, order[0]),
    )


def _slo(ask: Ask) -> Slo | None:
    return ask.alias.slo if ask.slo is None else ask.slo


def _ranked(
    ask: Ask,
    policy: Policy,
    facts: Facts,
    targets: Sequence[str],
    known: Sequence[Form],
    moment: Moment,
) -> tuple[list[int], list[float]]:
    """The places of the targets, best first, and what each is worth in that order."""
    forms = moment.forms
    count = len(targets)
    times = seconds(policy, known[:count], facts.size, facts.tokens, facts.now_ns)
    if facts.warm in targets:
        times[targets.index(facts.warm)] *= 1.0 - PREFILL_SAVED[facts.size] - policy.sticky
    if policy.money == "first":
        keys = thrift(times, costs(targets, facts), known, facts)
        places = sorted(range(count), key=keys.__getitem__)
        return places, [times[place] for place in places]
    values = times if policy.money == "none" else beside(times, costs(targets, facts))
    key = (ask.alias.name, policy.name)
    flying = 0
    for form in known[:count]:
        flying += form.in_flight
    if flying >= LOADED * count:
        limit = NEAR * min(values)
        near = [place for place in range(count) if values[place] <= limit]
        best = near[int(moment.draw * len(near))]
    else:
        incumbent = forms.incumbents.get(key)
        if incumbent in targets:
            values[targets.index(incumbent)] *= STAY
        best = values.index(min(values))
    forms.incumbents[key] = targets[best]
    places = sorted(range(count), key=values.__getitem__)
    if places[0] != best:
        places.remove(best)
        places.insert(0, best)
    return places, [values[place] for place in places]


def _second(
    ask: Ask,
    policy: Policy | None,
    facts: Facts,
    ranked: tuple[list[str], list[Form], list[float], int],
    moment: Moment,
) -> Second:
    """Decide on a hedge or a race; a hedge's target is moved to the second place."""
    alias = ask.alias
    order, known, _, well = ranked
    race = alias.race if ask.race is None else ask.race
    race = min(race, ask.max_fanout, well) if ask.may_race else 1
    hedge = alias.hedge if ask.hedge is None else ask.hedge
    if race > 1:
        return _race(ask, facts, order, race, moment)
    if hedge == "off" or (policy is not None and not policy.hedges):
        return ALONE
    price = None if facts.prices is None else facts.prices.get(order[0])
    q = quantile_of(hedge, billed=price is not None and not price.abort_stops)
    if q is None:
        hedge_ns = fixed_hedge_ns(hedge)
    elif _later(moment.draw) >= chance(q):
        return ALONE
    else:
        hedge_ns = int(delay_s(known[0].sizes[facts.size], q) * NS)
    place = _backup(facts, ranked, moment)
    if hedge_ns is None or place is None or moment.forms.incident(facts.now_ns):
        return ALONE
    left_ns = alias.timeout_ns - hedge_ns
    if left_ns < math.exp(known[place].log_ttft(facts.size, facts.now_ns)) * NS:
        return ALONE
    reserve = max(_lost(ask, facts, order[0]), _lost(ask, facts, order[place]))
    if moment.budgets is not None and not moment.budgets.may(ask.key, "hedge", reserve):
        return ALONE
    order.insert(1, order.pop(place))
    known.insert(1, known.pop(place))
    return Second(hedge_ns, 1, reserve)


def _race(ask: Ask, facts: Facts, order: Sequence[str], race: int, moment: Moment) -> Second:
    reserve = max([_lost(ask, facts, target) for target in order[:race]])
    budgets = moment.budgets
    if budgets is not None and not budgets.may(
        ask.key, "racer", reserve * (race - 1), _nano(facts, order[0])
    ):
        return ALONE
    return Second(None, race, reserve)


def _backup(
    facts: Facts, ranked: tuple[list[str], list[Form], list[float], int], moment: Moment
) -> int | None:
    """The place of the best second: by its value, its provider and what closing it costs."""
    order, known, values, well = ranked
    provider = order[0].partition("/")[0]
    best, least = None, math.inf
    for place in range(1, well):
        if sick(known[place], moment.now_ns):
            continue
        if not values:  # in the order of the configuration
            return place
        value = values[place]
        if value >= least:
            break  # they are in order, and nothing makes one better
        if order[place].partition("/")[0] == provider:
            value *= SAME_PROVIDER
        price = None if facts.prices is None else facts.prices.get(order[place])
        if price is not None and not price.abort_stops:
            value *= BILLED
        if value < least:
            best, least = place, value
    return best


def _nano(facts: Facts, target: str) -> float:
    price = _price(facts, target)
    return 0.0 if price is None else price.nano(facts.tokens_in, facts.tokens)


def _lost(ask: Ask, facts: Facts, target: str) -> float:
    """What an attempt costs should it lose."""
    price = _price(facts, target)
    if price is None:
        return 0.0
    return reserve_nano(price, facts.tokens_in, 0, ask.max_tokens or facts.tokens)


def _price(facts: Facts, target: str) -> Price | None:
    """The price of a target; an unknown one is the dearest of those that are known."""
    prices = facts.prices
    if not prices:
        return None
    price = prices.get(target)
    if price is not None:
        return price
    return max(prices.values(), key=lambda known: known.nano(facts.tokens_in, facts.tokens))


def _later(draw: float) -> float:
    """A second uniform number from the first one's later digits."""
    return draw * 1024.0 % 1.0


def _steps(
    ask: Ask, facts: Facts, ranked: tuple[list[str], list[Form], int], second: Second
) -> tuple[Step, ...]:
    order, known, well = ranked
    alias = ask.alias
    set_ns = alias.ttft_timeout_ns if ask.ttft_timeout_ns is None else ask.ttft_timeout_ns
    learned: Sequence[int | None] = ()
    if set_ns is None:
        learned = [_deadline_ns(form, facts.size, facts.now_ns) for form in known]
    shape = Shape(alias.retries, set_ns, second.race, second.hedge_ns, learned)
    return lay_out(order, well, shape)


def _deadline_ns(form: Form, size: int, now_ns: int) -> int | None:
    """When a silent target is given up for the next one; None while too little is known."""
    if form.sizes[size].seen < ENOUGH:
        return None
    log = form.log_ttft(size, now_ns) + Z99 * math.sqrt(form.variance)
    return int(max(DEADLINE_FLOOR_S, DEADLINE * math.exp(log)) * NS)
