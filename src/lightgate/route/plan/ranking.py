"""The plan of a gateway that knows its targets: order, hedge or race, and deadlines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.route.form.size import bucket
from lightgate.route.form.slo import LevelsAsked
from lightgate.route.plan.alias import Layout, fixed_hedge_ns, lay_out
from lightgate.route.plan.hedge import chance, delay_ns, quantile_of, reserve_nano, sick
from lightgate.route.plan.plan import Plan, Step
from lightgate.route.plan.policy import USUAL_TOKENS
from lightgate.route.plan.score import (
    CACHED_SHARE,
    LOADED,
    NEAR,
    PREFILL_SAVED,
    STAY,
    beside,
    costs,
    misses,
    seconds,
)

if TYPE_CHECKING:
    from lightgate.route.form.forms import Forms
    from lightgate.route.form.target import Form
    from lightgate.route.plan.decide import PlanAsk
    from lightgate.route.plan.hedge import HedgeBudgets
    from lightgate.route.plan.policy import Policy

NS: Final = 1e9
BILLED: Final = 1.10  # one that bills closed streams in full counts as 10 % worse


class Ranking:
    """A plan in the making: the targets in order, those that are well first.

    `values` are what they are worth to the policy, in that order; empty where nobody ranked them.
    """

    __slots__ = (
        "ask",
        "draw",
        "forms",
        "full",
        "hedge_ns",
        "known",
        "now_ns",
        "order",
        "policy",
        "race",
        "reserve_nano",
        "size",
        "tokens",
        "values",
        "well",
    )

    def __init__(self, ask: PlanAsk, forms: Forms, now_ns: int, draw: float) -> None:
        self.ask = ask
        self.forms = forms
        self.now_ns = now_ns
        self.draw = draw
        self.size = bucket(ask.tokens_in)
        self.tokens = ask.expected_tokens or min(ask.max_tokens or USUAL_TOKENS, USUAL_TOKENS)
        self.policy: Policy | None = None
        self.order: list[str] = []
        self.known: list[Form] = []
        self.values: list[float] = []
        self.well = self.full = 0
        self.hedge_ns: int | None = None
        self.race = 1
        self.reserve_nano = 0.0

    def line_up(self, order: list[str], well: int, policy: Policy | None) -> None:
        """Take the candidates, the first `well` of them allowed, and rank those."""
        by_target, now_ns = self.forms.by_target, self.now_ns
        try:
            known = [by_target[target] for target in order]
        except KeyError:
            known = [self.forms.form(target) for target in order]
        self.order, self.known, self.well, self.policy = order, known, well, policy
        if policy is not None and well > 1:
            self._rank(policy)
        for form in known[0 if not self.values else well :]:
            if now_ns > form.until_ns:
                form.look(now_ns)

    # The order

    def _rank(self, policy: Policy) -> None:
        ask, well = self.ask, self.well
        order, known = self.order[:well], self.known[:well]
        values = seconds(policy, known, self.size, self.tokens, self.now_ns)
        warm = None if ask.session is None else self.forms.warm(ask.session, self.now_ns)
        if warm in order:
            values[order.index(warm)] *= 1.0 - PREFILL_SAVED[self.size] - policy.sticky
        if policy.money == "first":
            keys = self._thrift(policy, order, known, values, warm)
            places = sorted(range(well), key=keys.__getitem__)
        else:
            if policy.money == "beside" and ask.prices:
                values = beside(values, self._costs(order, warm))
            best = self._best(policy.name, order, known, values)
            places = sorted(range(well), key=values.__getitem__)
            if places[0] != best:
                places.remove(best)
                places.insert(0, best)
        self.values = [values[place] for place in places]
        self.order[:well] = [order[place] for place in places]
        self.known[:well] = [known[place] for place in places]

    def _best(self, policy: str, order: list[str], known: list[Form], values: list[float]) -> int:
        """The place of the first: the incumbent if it is nearly best; under load, a near-equal."""
        key = (self.ask.alias.name, policy)
        incumbents = self.forms.incumbents
        flying = 0
        for form in known:
            flying += form.in_flight
        if flying >= LOADED * len(known):
            limit = NEAR * min(values)
            near = [place for place, value in enumerate(values) if value <= limit]
            best = near[int(self.draw * len(near))]
        else:
            incumbent = incumbents.get(key)
            if incumbent in order:
                values[order.index(incumbent)] *= STAY
            best = values.index(min(values))
        incumbents[key] = order[best]
        return best

    def _thrift(
        self,
        policy: Policy,
        order: list[str],
        known: list[Form],
        values: list[float],
        warm: str | None,
    ) -> list[tuple[float, float, float]]:
        """Misses, then dollars, then seconds: the cheapest that is good enough.

        Where nobody is good enough, who misses its levels least comes first.
        """
        ask = self.ask
        slo = (ask.slo or ask.alias.slo) if policy.levels else None
        margins: tuple[float, ...] = ()
        if slo is not None and slo is ask.alias.slo:
            promise = self.forms.promises.get(ask.alias.name)
            if promise is None or promise.slo is not slo:
                promise = self.forms.promise(ask.alias.name, slo)
            margins = promise.margins
        over = misses(slo, known, LevelsAsked(self.size, self.tokens, self.now_ns, margins))
        nanos = self._costs(order, warm) if ask.prices else values
        return list(zip(over, nanos, values, strict=True))

    def _costs(self, order: list[str], warm: str | None) -> list[float]:
        ask = self.ask
        prices = ask.prices or {}
        nanos = costs(order, prices, ask.tokens_in, self.tokens)
        price = prices.get(warm) if warm is not None else None
        if price is not None and price.cached_in is not None and warm in order:
            saved = CACHED_SHARE * ask.tokens_in * (price.tokens_in - price.cached_in)
            nanos[order.index(warm)] -= saved
        return nanos

    # What starts beside the first

    def second(self, budgets: HedgeBudgets | None) -> None:
        """Decide on a hedge or a race; the target of a hedge is moved to the second place."""
        ask, policy = self.ask, self.policy
        alias = ask.alias
        race = alias.race if ask.race is None else ask.race
        if race > 1:
            race = min(race, ask.max_fanout, self.well) if ask.may_race else 1
        if race > 1:
            self._race(race, budgets)
            return
        hedge = alias.hedge if ask.hedge is None else ask.hedge
        if hedge == "off" or (policy is not None and not policy.hedges):
            return
        hedge_ns = self._delay_ns(hedge)
        place = None if hedge_ns is None else self._backup()
        if hedge_ns is None or place is None or self.forms.incident(self.now_ns):
            return
        if alias.timeout_ns - hedge_ns < self.known[place].ttfts_s[self.size] * NS:
            return
        reserve = (
            max(self._lost(self.order[0]), self._lost(self.order[place])) if ask.prices else 0.0
        )
        if budgets is not None and not budgets.may(ask.key, "hedge", reserve):
            return
        self.hedge_ns, self.reserve_nano = hedge_ns, reserve
        if place != 1:
            self.order.insert(1, self.order.pop(place))
            self.known.insert(1, self.known.pop(place))

    def _delay_ns(self, hedge: str) -> int | None:
        price = self.ask.prices.get(self.order[0]) if self.ask.prices else None
        q = quantile_of(hedge, billed=price is not None and not price.abort_stops)
        if q is None:
            return fixed_hedge_ns(hedge)
        if self.draw * 1024.0 % 1.0 >= chance(q):  # another number, from the draw's later digits
            return None
        return delay_ns(self.known[0].sizes[self.size], q)

    def _race(self, race: int, budgets: HedgeBudgets | None) -> None:
        reserve = max([self._lost(target) for target in self.order[:race]])
        own = self.own_nano()
        key = self.ask.key
        if budgets is None or budgets.may(key, "racer", reserve, own):
            self.race, self.reserve_nano = race, reserve

    def _backup(self) -> int | None:
        """The place of the best second: by its value, its company and what closing it costs."""
        order, known, values, prices = self.order, self.known, self.values, self.ask.prices
        first, worse = order[0], self.forms.pairs.worse
        best, least = None, 0.0
        for place in range(1, self.well):
            if sick(known[place], self.now_ns):
                continue
            if not values:
                return place  # in the order of the configuration
            value = values[place]
            if best is not None and value >= least:
                break  # nothing makes one better than its value, and they are in order
            value *= worse(first, order[place])
            price = prices.get(order[place]) if prices else None
            if price is not None and not price.abort_stops:
                value *= BILLED
            if best is None or value < least:
                best, least = place, value
        return best

    def _lost(self, target: str) -> float:
        """What an attempt costs should it lose; an unknown price is the dearest known."""
        ask = self.ask
        prices = ask.prices
        if not prices:
            return 0.0
        most = ask.max_tokens or self.tokens
        price = prices.get(target)
        if price is not None:
            return reserve_nano(price, ask.tokens_in, most)
        return max([reserve_nano(known, ask.tokens_in, most) for known in prices.values()])

    def own_nano(self) -> float:
        """What the request costs in any case; an unknown price is the lowest known."""
        ask, prices = self.ask, self.ask.prices
        if not prices:
            return 0.0
        price = prices.get(self.order[0])
        if price is not None:
            return price.nano(ask.tokens_in, self.tokens)
        return min([known.nano(ask.tokens_in, self.tokens) for known in prices.values()])

    # The end

    def plan(self, name: str, reason: str) -> Plan:
        """Lay the steps out."""
        order, well, policy = self.order, self.well, self.policy
        if self.full:
            reason += f", {self.full} full"
        held = len(order) - well - self.full
        if held:
            reason += f", {held} held" if well else ", all held: soonest first"
        return Plan(
            self._steps(),
            name,
            reason,
            int(self.known[0].ttfts_s[self.size] * NS),
            order[1] if len(order) > 1 else None,
            self.hedge_ns,
            "first" if policy is None else policy.finish,
            self.reserve_nano,
            self.own_nano(),
        )

    def _steps(self) -> tuple[Step, ...]:
        ask = self.ask
        alias, size = ask.alias, self.size
        due_ns = alias.ttft_timeout_ns if ask.ttft_timeout_ns is None else ask.ttft_timeout_ns
        dues = [form.dues_ns[size] for form in self.known] if due_ns is None else ()
        shape = Layout(alias.retries, due_ns, self.race, self.hedge_ns, dues)
        return lay_out(self.order, self.well, shape)
