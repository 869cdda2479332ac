"""The plan of a gateway that knows its targets: their order, a hedge or a race, and deadlines.

A ranking holds everything that a plan needs but three things, which are looked at for every single
request: the random draw, the load of each target, and the hedge budget of the key. One ranking can
therefore make the plans of many requests (`lightgate.route.plan.kept`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from lightgate.route.form.size import SIZES
from lightgate.route.form.slo import LevelsAsked
from lightgate.route.plan.alias import Layout, fixed_hedge_ns, lay_out, lay_out_twice
from lightgate.route.plan.candidates import Basis
from lightgate.route.plan.hedge import LATE, due_by_ns, early_share, fit, sick
from lightgate.route.plan.plan import Plan, Step
from lightgate.route.plan.policy import USUAL_TOKENS
from lightgate.route.plan.score import CACHED_SHARE, LOADED, PREFILL_SAVED, STAY, costs
from lightgate.route.plan.second_price import (
    hedge_price,
    lost_nano,
    own_nano,
    premium_nano,
    race_nano,
)
from lightgate.route.plan.stand_in import StandIn
from lightgate.route.plan.standing import standing
from lightgate.route.plan.worth import QUARTERS, STARTS, start_ns, worth_ns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.route.form.forms import Forms
    from lightgate.route.form.target import Belief, Form
    from lightgate.route.plan.alias import PlanAsk
    from lightgate.route.plan.hedge import Duplicate, HedgeBudgets, TargetPrice
    from lightgate.route.plan.policy import Policy
    from lightgate.route.plan.standing import Standing

NS: Final = 1e9
MANY: Final = 8  # in flight at one target, from which on there are followers enough for that
FOLLOWERS: Final = 4.0  # times the wait counts: it also delays the requests behind this one
SHARED: Final = 2.0  # times a slower token counts: as much is lost by the others in the batch
PATIENCE: Final = 4.0  # times the expected wait, before a target is taken for dead
DEARER: Final = 0.25  # of its price: where money comes first, no hedge costs so much more
BILLED: Final = 1.10  # a target that bills closed streams in full counts as 10 % worse


class Ranking:
    """The candidates of a request, the allowed ones first, and their value to the policy.

    `size` is the prompt size, `tokens` the expected length of the answer. A value is seconds, or
    for a policy that also counts money a multiple of the best; the smallest is the best.
    """

    __slots__ = (
        "_alone_s",
        "_beliefs",
        "_dollars",
        "_firsts",
        "_flying",
        "_held",
        "_leads",
        "_nanos",
        "_odd",
        "_over",
        "_seat",
        "_slows",
        "_steps",
        "_waits",
        "_work",
        "ask",
        "forms",
        "full",
        "known",
        "now_ns",
        "order",
        "policy",
        "size",
        "together",
        "tokens",
        "well",
    )

    def __init__(self, ask: PlanAsk, size: int, policy: Policy, forms: Forms, now_ns: int) -> None:
        self.ask = ask
        self.forms = forms
        self.now_ns = now_ns
        self.size = size
        usual = ask.expected_tokens or USUAL_TOKENS
        self.tokens = min(usual, ask.max_tokens or usual)
        self.policy = policy
        self.order: Sequence[str] = ()
        self.known: Sequence[Form] = ()
        self.well = self.full = 0  # targets that are allowed; that are allowed, but at their limit
        self.together = 0  # targets that may run beside each other
        self._alone_s: Sequence[float] = ()  # of each allowed target: its value, where nobody waits
        self._firsts: Sequence[float] = ()  # the part of it that is the first token
        self._dollars: Sequence[float] = ()  # multiples of the least, beside seconds
        self._over: Sequence[float] = ()  # misses of levels, which decide before dollars
        self._nanos: Sequence[float] = ()  # which decide before seconds
        self._seat = (ask.alias.name, policy.name)  # under which the first is remembered
        self._beliefs: Sequence[Belief] = ()  # of each target, as the candidates of plans keep them
        self._held: Standing | None = None  # what is kept of all of them
        self._steps: Sequence[Step] = ()  # of each target, after a failure
        self._flying: Sequence[int] = ()  # in flight at each target, of other workers too
        self._waits: Sequence[float] = ()  # of each target, for one more request
        self._slows: list[float] = []  # the part of its time alone that a token takes longer
        self._work = 0.0  # tokens of the answer that count
        self._odd: Sequence[int] = ()  # places where the load changes the value
        self._leads: dict[int, _Lead] = {}  # by the place of the first target, with these waits

    def line_up(self, order: Sequence[str], well: int) -> None:
        """Take the candidates, the first `well` of them allowed, and weigh those."""
        held = standing(self.ask, order, self.forms, self.policy, self.size)
        held.look(self.now_ns)
        self.order, self.known, self.well, self._held = order, held.known, well, held
        self._beliefs, self._steps = held.beliefs, held.steps
        if self.policy.order == "form" and well > 1:
            self._weigh(self.policy, held)

    def plan(self, draw: float, key: str, budgets: HedgeBudgets | None) -> Plan:
        """Make the plan of one request; `draw` is in [0, 1), `key` is whose hedges are counted."""
        self._load()
        first, values, keys = self._first() if self._alone_s else (0, [], ())
        lead = self._leads.get(first)
        if lead is None:
            lead = self._leads[first] = self._lead(first, values, keys)
        if not lead.chance:
            return lead.alone or self._alone(lead)
        quarters = QUARTERS if budgets is None else budgets.quarters(key)
        if lead.quarters != quarters and (lead.auto or lead.quarters < 0):
            lead.quarters = quarters
            self._second(lead)
        role = lead.role
        if role is None:
            return lead.alone or self._alone(lead)
        if budgets is not None and not budgets.may(
            key, role, lead.reserve_nano, lead.own_nano if role == "racer" else 0.0
        ):
            return lead.alone or self._alone(lead)
        # Another uniform number, from the later digits of the draw.
        if draw * 1024.0 % 1.0 >= lead.chance:
            return lead.late or self._late(lead)
        return lead.doubled or self._doubled(lead)

    def _load(self) -> None:
        """Look at what every target has in flight, and how long one more request would wait."""
        now_ns = self.now_ns
        flying: list[int] = []
        odd: list[int] = []
        waits = [0.0] * len(self.known)
        slows: list[float] = []  # empty where no batch makes anything slower
        for form in self.known:
            own = form.in_flight
            if own > form.pace.free:
                longer, place = form.longer(now_ns), len(flying)
                if longer:
                    slows = slows or [0.0] * len(waits)
                    slows[place] = longer
                    odd.append(place)
            # Most targets make nobody wait at most times: those need no call.
            if own >= form.curve.free or form.watched or len(form.waiting) > 1:
                place = len(flying)
                waits[place] = form.wait_s(now_ns)
                if (waits[place] or form.load != 1.0) and (not odd or odd[-1] != place):
                    odd.append(place)
            flying.append(round(form.flying(now_ns)) if form.shared else own)
        self._flying, self._odd = flying, odd
        if waits != self._waits or slows != self._slows:
            self._waits, self._slows = waits, slows
            self._leads.clear()
            if self._nanos:
                self._judge()

    # The order

    def _weigh(self, policy: Policy, held: Standing) -> None:
        """Work out the terms of each target's value."""
        ask, well, order = self.ask, self.well, self.order
        tokens = self.tokens if policy.most is None else min(self.tokens, policy.most)
        work = self._work = policy.decode * tokens
        self._firsts = held.firsts
        terms = zip(held.firsts, held.slow, held.failing)  # noqa: B905 - as long, by their maker
        alone_s = [first + work * slow + failing for first, slow, failing in terms]
        if well < len(order):
            order = order[:well]
            del alone_s[well:]
        warm = None if ask.session is None else self.forms.warm(ask.session, self.now_ns)
        if warm in order:
            alone_s[order.index(warm)] *= 1.0 - PREFILL_SAVED[self.size % SIZES] - policy.sticky
        self._alone_s = alone_s
        if policy.money == "first":
            self._save(order, warm)
        elif policy.money == "beside" and ask.prices:
            nanos = self._costs(order, warm)
            least = min([nano for nano in nanos if nano > 0.0], default=1.0)
            self._dollars = [nano / least for nano in nanos]

    def _first(self) -> tuple[int, list[float], Sequence[Any]]:
        """Choose the place of the first target; return all values, and the keys to sort them by.

        The target that was first the last time stays if it is nearly the best and nobody waits:
        under load the waits say who is next. Where money counts beside seconds, both are multiples
        of the best: twice as dear is as bad as twice as slow.
        """
        values = [*self._alone_s]
        count = len(values)
        for place in self._odd:
            if place < count:  # else it is not allowed just now
                values[place] = self._under_load(place)
        if self._over:
            keys = list(zip(self._over, self._nanos, values, strict=True))
            return keys.index(min(keys)), values, keys
        if self._dollars:
            quickest = min(values)
            pairs = zip(values, self._dollars, strict=True)
            values = [value / quickest + dollars for value, dollars in pairs]
        order, incumbents, key = self.order, self.forms.incumbents, self._seat
        flying = sum(self._flying if count == len(order) else self._flying[:count])
        incumbent = incumbents.get(key) if flying < LOADED * count else None
        if incumbent in order:
            place = order.index(incumbent)
            if place < count:
                values[place] *= STAY
        best = values.index(min(values))
        incumbents[key] = order[best]
        return best, values, values

    def _under_load(self, place: int) -> float:
        """Return the value of a target where one more request waits, or that is a newcomer."""
        form, wait_s, value = self.known[place], self._waits[place], self._alone_s[place]
        if form.load != 1.0:
            value += self._firsts[place] * (form.load - 1.0)
        if wait_s:
            flying = self._flying[place]
            behind = FOLLOWERS if flying >= MANY else 1.0 + (FOLLOWERS - 1.0) * flying / MANY
            value += self.policy.ttft * behind * wait_s
        if self._slows and self._slows[place]:
            value += SHARED * self._work * self._beliefs[place][2] * self._slows[place]
        return value

    def _save(self, order: Sequence[str], warm: str | None) -> None:
        """Rank by misses, then dollars, then seconds: the cheapest that is good enough.

        Where no target is good enough, the one that misses its levels least comes first. The misses
        depend on the load, and are found out once that is known.
        """
        self._nanos = self._costs(order, warm) if self.ask.prices else [0.0] * len(order)

    def _judge(self) -> None:
        """Find out by how much each target may miss its service levels with the load of now."""
        ask = self.ask
        slo = (ask.slo or ask.alias.slo) if self.policy.levels else None
        margins: tuple[float, ...] = ()
        if slo is not None and slo is ask.alias.slo:
            promise = self.forms.promises.get(ask.alias.name)
            if promise is None or promise.slo is not slo:
                promise = self.forms.promise(ask.alias.name, slo)
            margins = promise.margins
        waits = {place: self._waits[place] for place in self._odd}
        for place, slow in enumerate(self._slows):
            if slow:
                waits[place] += self.tokens * self._beliefs[place][2] * slow
        asked = LevelsAsked(self.size, self.tokens, self.now_ns, margins)
        if self._held is not None:
            self._over = self._held.misses(slo, self.well, waits, asked)

    def _costs(self, order: Sequence[str], warm: str | None) -> list[float]:
        ask = self.ask
        prices = ask.prices or {}
        each = None if self._held is None else self._held.each(prices)
        if each is None:
            nanos = costs(order, prices, ask.tokens_in, self.tokens)
        else:
            tokens_in, tokens = ask.tokens_in, self.tokens
            nanos = [tokens_in * one + tokens * other for one, other in each[: self.well]]
        price = prices.get(warm) if warm is not None else None
        if price is not None and price.cached_in is not None and warm in order:
            saved = CACHED_SHARE * ask.tokens_in * (price.tokens_in - price.cached_in)
            nanos[order.index(warm)] -= saved
        return nanos

    # What starts beside the first

    def _lead(self, first: int, values: list[float], keys: Sequence[Any]) -> _Lead:
        """Put the targets in order behind the first, and see what could start beside it."""
        order, well = self.order, self.well
        places: Sequence[int] = range(len(order))
        if values:  # of two at least; the first has the smallest key
            places = sorted(places[:well], key=keys.__getitem__)
            if well < len(order):
                places += range(well, len(order))
        ask, name = self.ask, order[first]
        price = ask.prices.get(name) if ask.prices else None
        if price is None:
            own = own_nano(ask, self.tokens, name)
        else:
            own = ask.tokens_in * price.tokens_in + self.tokens * price.tokens_out
        lead = _Lead(places, name, self.known[first], own)
        lead.values, lead.wait_s = values, self._waits[first]
        lead.chance = self._chance(lead, price)
        return lead

    def _chance(self, lead: _Lead, price: TargetPrice | None) -> float:
        """Return how often something starts as soon as it is due; 0: nothing ever does.

        A hedge at a quantile is due early for a part of the requests, and late for the others.
        """
        ask, alias = self.ask, self.ask.alias
        if self.together > 1:
            race = alias.race if ask.race is None else ask.race
            if race > 1:
                lead.race = min(race, self.well)
                return 1.0
        elif not (alias.hedges_itself(ask.hedge) and self.well):
            return 0.0
        hedge = alias.hedge if ask.hedge is None else ask.hedge
        if hedge == "off" or not self.policy.hedges:
            return 0.0
        thrifty = self.policy.money == "first" or (price is not None and not price.abort_stops)
        lead.quantile, early = early_share(hedge, thrifty)
        lead.auto = hedge == "auto" and self.policy.money == "none" and bool(self._alone_s)
        return early

    def _second(self, lead: _Lead) -> None:
        """Prepare a race or a hedge, if it can help."""
        lead.role, lead.doubled, lead.late = None, None, None
        if lead.race > 1:
            ask, usual, first = self.ask, self.tokens, lead.first
            others = [self.order[place] for place in lead.places[1 : lead.race]]
            premium, lead.premium = max([premium_nano(ask, usual, first, one) for one in others])
            lead.reserve_nano = max([lost_nano(ask, usual, one) for one in (first, *others)])
            lead.reserve_nano += premium
            lead.extra_nano = race_nano(ask, usual, (first, *others))
            lead.role = "racer"
            return
        place = self._backup(lead) if self.together > 1 else self._itself(lead)
        if place is not None:
            self._hedge(lead, place)

    def _itself(self, lead: _Lead) -> int | None:
        """Hedge at the one target itself, unless it is in trouble or at its limit."""
        closed = self.forms.closed(self.now_ns)
        fit = lead.first not in closed and not sick(lead.form, self.now_ns)
        return 0 if fit else None

    def _hedge(self, lead: _Lead, place: int) -> None:
        """Prepare a hedge at the target of this place, if there is time for it."""
        ask = self.ask
        alias, q = ask.alias, lead.quantile
        if q is None:
            hedge_ns = alias.hedge_ns if ask.hedge is None else fixed_hedge_ns(ask.hedge)
        else:
            hedge_ns = due_by_ns(lead.form, self.size, q)
            if lead.wait_s:
                alone_s = lead.form.ttfts_s[self.size]
                hedge_ns = int(hedge_ns * (1.0 + lead.wait_s / alone_s))
        if hedge_ns is None or self.forms.incident(self.now_ns):
            return
        at = lead.places[place]
        second, waits = self.known[at], (lead.wait_s, self._waits[at])
        soon_ns = None
        if lead.auto and place and lead.form.recent.ranked is not None:
            # An answer that ends later counts as a first token that comes later.
            end_s = self._work * (second.slowness - lead.form.slowness) / self.policy.ttft
            soon_ns = start_ns(lead.form, second, self.size, waits, end_s, lead.quarters)
        if alias.timeout_ns - (soon_ns or hedge_ns) < second.ttfts_s[self.size] * NS:
            return
        lead.hedge_ns, lead.backup, lead.role = soon_ns or hedge_ns, place, "hedge"
        price = hedge_price(ask, self.tokens, lead.first, self.order[at])
        lead.reserve_nano, lead.premium, won, lost = price
        lead.extra_nano = (won + lost) / 2.0
        if q is not None and place and self._alone_s and not self._over:
            stakes = self.policy.second * lead.own_nano, won, lost
            times = [(STARTS[0], soon_ns), (q, hedge_ns)] if soon_ns else [(q, hedge_ns)]
            for when in times:  # what is not worth its price soon may be so after a long silence
                lead.hedge_ns = worth_ns(lead.form, second, self.size, waits, when, stakes)
                if lead.hedge_ns is not None:
                    return
            lead.role = None

    def _backup(self, lead: _Lead) -> int | None:
        """Find the best second: by its value, its correlation, and what closing it costs."""
        order, known, prices, values = self.order, self.known, self.ask.prices, lead.values
        first, worse, places = lead.first, self.forms.pairs.worse, lead.places
        best, least = None, 0.0
        for place in range(1, self.well):
            at = places[place]
            form = known[at]
            if form.trouble.first or form.shared:
                if not fit(form, self.now_ns):
                    continue
            elif form.in_flight and not form.curve.spare(form.in_flight + 1.0):
                continue
            if not values:
                return place  # in the order of the configuration
            if self._over:  # in the order of money
                dear = premium_nano(self.ask, self.tokens, first, order[at])[1] > DEARER
                return None if dear else place
            value = values[at]
            if best is not None and value >= least:
                break  # a factor makes no value smaller, and the values rise
            value *= worse(first, order[at])
            price = prices.get(order[at]) if prices else None
            if price is not None and not price.abort_stops:
                value *= BILLED
            if best is None or value < least:
                best, least = place, value
        return best

    # The steps

    def _alone(self, lead: _Lead) -> Plan:
        """Lay out the plan in which only a failure starts another target."""
        lead.alone = self._laid_out(lead)
        return lead.alone

    def _doubled(self, lead: _Lead) -> Plan:
        """Lay out the plan with the race, or with the hedge in the second place."""
        lead.doubled = self._laid_out(lead, doubled=True)
        return lead.doubled

    def _late(self, lead: _Lead) -> Plan:
        """Lay out the plan of a request that did not draw an early hedge: it may start late."""
        plan = lead.doubled or self._doubled(lead)
        second, late_ns = plan.steps[1], due_by_ns(lead.form, self.size, LATE)
        if lead.wait_s:
            late_ns = int(late_ns * (1.0 + lead.wait_s / lead.form.ttfts_s[self.size]))
        late_ns = max(late_ns, second.start_ns or 0)
        steps = (plan.steps[0], replace(second, start_ns=late_ns), *plan.steps[2:])
        lead.late = replace(plan, steps=steps, hedge_ns=late_ns)
        return lead.late

    def _fallbacks(self, lead: _Lead, due_ns: int | None) -> list[Step]:
        """Return the step of each target that starts after a failure; a form keeps its own.

        Without a set deadline the target's own holds, and more where one more request waits.
        """
        ready = [*map(self._steps.__getitem__, lead.places)]
        if due_ns is None:
            for place in self._odd:
                wait_s, at = self._waits[place], lead.places.index(place)
                step = ready[at]
                if wait_s and step.ttft_ns is not None:
                    own_ns = step.ttft_ns + int(PATIENCE * wait_s * NS)
                    ready[at] = Step(step.target, None, own_ns, "fallback")
        return ready

    def _reason(self) -> str:
        """Say why the targets are in this order, where not all of them are allowed."""
        reason = self.policy.reason
        if self.full:
            reason += f", {self.full} full"
        held = len(self.order) - self.well - self.full
        if held:
            reason += f", {held} held" if self.well else ", all held: soonest first"
        return reason

    def _laid_out(self, lead: _Lead, *, doubled: bool = False) -> Plan:
        ask, size, policy, alias = self.ask, self.size, self.policy, self.ask.alias
        due_ns = alias.ttft_timeout_ns if ask.ttft_timeout_ns is None else ask.ttft_timeout_ns
        race, hedge_ns = (lead.race, lead.hedge_ns) if doubled else (1, None)
        first, place, count = lead.form, lead.backup, len(self.order)
        layout = Layout(alias.retries, due_ns, race, hedge_ns)
        if doubled and not place:
            steps = lay_out_twice(lead.first, layout)
        else:
            ready = self._fallbacks(lead, due_ns)
            if doubled and place > 1:
                ready.insert(1, ready.pop(place))
            steps = lay_out(self.order, self.well, layout, ready)
        predicted = (first.answered_s(size, self.now_ns) + lead.wait_s) * NS
        low, high = first.recent.band or first.sizes[size % SIZES].band()
        return Plan(
            steps,
            policy.name,
            policy.reason if self.well == count else self._reason(),
            int(predicted),
            self.order[lead.places[place if doubled else 1]] if count > 1 else None,
            hedge_ns,
            policy.finish,
            policy.silence,
            lead.reserve_nano if doubled else 0.0,
            lead.own_nano,
            lead.premium if doubled else 0.0,
            lead.extra_nano if doubled else 0.0,
            None,
            0.0,
            int(predicted * low),
            int(predicted * high),
            first.in_flight,
            lead.basis or self._basis(lead),
            None if hedge_ns is None else self._again(lead),
        )

    def _again(self, lead: _Lead) -> StandIn | None:
        """Return how the second target is hedged, should it stand in for the first."""
        due, place = lead.hedge_ns if lead.quantile is None else lead.quantile, lead.backup
        if due is None or not place or self.well < 3 or self.together < 3:
            return None
        if self.policy.money == "first":
            return None
        third = 1 if place > 1 else 2
        places = (lead.places[0], lead.places[place], lead.places[third])
        asked = (self.ask, self.tokens, self.size, self.now_ns, due)
        return StandIn(asked, self.order, self.known, places)

    def _basis(self, lead: _Lead) -> Basis:
        """Keep what the candidates of a plan are made of, should somebody ask."""
        ask = self.ask
        lead.basis = Basis(
            self.order,
            self.size,
            self._beliefs,
            self._flying,
            self._waits,
            self._slows,
            lead.values,
            self._over,
            ask.prices,
            (ask.tokens_in, self.tokens),
            self.well,
            self.full,
            self.now_ns,
        )
        return lead.basis


class _Lead:
    """The order behind one first target, what may start beside it, and the plans made of it."""

    __slots__ = (
        "alone",
        "auto",
        "backup",
        "basis",
        "chance",
        "doubled",
        "extra_nano",
        "first",
        "form",
        "hedge_ns",
        "late",
        "own_nano",
        "places",
        "premium",
        "quantile",
        "quarters",
        "race",
        "reserve_nano",
        "role",
        "values",
        "wait_s",
    )
    values: Sequence[float]  # in the ranking's order
    wait_s: float  # of one more request at the first
    chance: float  # of a second attempt to be planned
    # These three are set where there is a role.
    premium: float  # part of the second's price that the first does not cost
    reserve_nano: float
    extra_nano: float

    def __init__(
        self,
        places: Sequence[int],
        first: str,
        form: Form,
        own_nano: float,
    ) -> None:
        self.places = places  # of all targets in the ranking's order, the first one's first
        self.first, self.form = first, form
        self.own_nano = own_nano
        self.race = 1
        self.hedge_ns: int | None = None
        self.backup = 1  # the place of a hedge's target
        self.quantile: float | None = None  # of first tokens, at which a hedge starts
        self.auto = False  # whether a hedge starts when it saves most
        self.quarters = (
            -1
        )  # saved up for hedges, as a second attempt was looked for; -1: it was not
        self.role: Duplicate | None = None  # of what may start beside the first; None: nothing
        self.basis: Basis | None = None
        self.alone: Plan | None = None
        self.doubled: Plan | None = None
        self.late: Plan | None = None
