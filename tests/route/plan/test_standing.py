"""What decisions keep of their targets: it saves work, and changes no plan."""

from __future__ import annotations

import copy
import gc
import random
from typing import Any

import pytest

from lightgate.route.form import forms as forms_module
from lightgate.route.form.forms import Forms
from lightgate.route.form.prior import DEFAULT, Prior
from lightgate.route.form.slo import ServiceLevels
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.health.failure import OVERLOADED
from lightgate.route.plan.alias import Alias, PlanAsk
from lightgate.route.plan.decide import decide
from lightgate.route.plan.hedge import HedgeBudgets, TargetPrice
from lightgate.route.plan.policy import POLICIES
from lightgate.route.plan.standing import MOST, Standing, standing

S = 1_000_000_000
NAMES = ("a/m", "b/m", "c/m", "d/m", "e/m")
PRICES = {name: TargetPrice(100.0 + at, 400.0) for at, name in enumerate(NAMES)}
FEWER = {name: PRICES[name] for name in NAMES[:3]}
SLO = ServiceLevels(ttft_p95=900_000_000, speed_p50=80.0)


class Shop:
    """Five targets that random things happen to."""

    def __init__(self, policy: str) -> None:
        self.dice = random.Random(7)  # noqa: S311 - the same every time
        priors = {name: Prior(300.0, 700.0, 100.0, 70.0) for name in NAMES[:4]}
        self.forms = Forms({**priors, NAMES[4]: DEFAULT})  # the last one is a newcomer
        self.breakers, self.budgets = Breakers(Rules(), lambda: 0.5), HedgeBudgets()
        self.alias = Alias(name="m", targets=NAMES, policy=policy, hedge="auto", slo=SLO)
        self.now = 1000 * S
        self.flying: list[tuple[str, int]] = []
        for _ in range(60):
            self.budgets.deposit("")
            self.budgets.paid("", 1e6)

    def happen(self) -> None:
        """Let something happen that decisions may see."""
        dice, forms = self.dice, self.forms
        self.now += dice.choice((1, S // 100, S // 100, S // 3))
        target, what = dice.choice(NAMES), dice.random()
        if what < 0.4 and len(self.flying) < 60:
            for _ in range(dice.choice((1, 1, 6))):
                forms.started(target, self.now)
                self.flying.append((target, self.now))
        elif what < 0.85 and self.flying:
            target, began = self.flying.pop(dice.randrange(len(self.flying)))
            ttft = int(dice.lognormvariate(-1.2, 0.5) * S)
            if what < 0.5:
                forms.waited(target, 0, self.now, max(ttft, self.now - began))
            else:
                forms.first(target, dice.randrange(3), self.now, ttft)
                forms.finished(target, self.now, 300, int(dice.uniform(2.0, 4.0) * S), 3 * S)
            forms.ended(target, began)
        elif what < 0.9:
            forms.failed(target, 0, self.now, OVERLOADED, None)
        else:
            forms.engine(target, dice.randrange(9), self.now)

    def ask(self) -> PlanAsk:
        dice = self.dice
        facts: dict[str, Any] = {
            "tokens_in": dice.choice((200, 2000)),
            "expected_tokens": dice.choice((50, 256)),
            "ttft_timeout_ns": dice.choice((None, None, 2 * S)),
            "prices": dice.choice((PRICES, PRICES, FEWER)),
        }
        return PlanAsk(alias=self.alias, **facts)

    def both(self) -> tuple[Any, Any]:
        """Decide with what is kept, and with all of it forgotten."""
        ask, draw = self.ask(), self.dice.random()
        forms = copy.deepcopy(self.forms)
        forms.standings.clear()
        for form in forms.by_target.values():
            form.misses.clear()
        kept = decide(ask, self.breakers, self.now, draw, self.forms, self.budgets)
        anew = decide(ask, self.breakers, self.now, draw, forms, self.budgets)
        return kept, anew


@pytest.mark.parametrize("policy", ["chat", "cheapest", "balanced", "ordered"])
def test_what_is_kept_changes_no_plan(policy: str) -> None:
    shop = Shop(policy)
    waited = hedged = 0
    for _ in range(120):
        shop.happen()
        kept, anew = shop.both()
        assert kept == anew
        assert kept.candidates == anew.candidates
        assert (kept.again is None) == (anew.again is None)
        if kept.again is not None:
            assert kept.again() == anew.again()
        waited += any(shop.forms.form(name).wait_s(shop.now) > 0.0 for name in NAMES)
        hedged += kept.hedge_ns is not None
    assert shop.forms.standings
    assert waited > 10  # or the test says less than it seems to
    assert hedged > 10


def test_a_plan_keeps_the_beliefs_of_its_own_instant() -> None:
    shop = Shop("chat")
    for _ in range(40):
        shop.happen()
    plan, _ = shop.both()
    before = plan.candidates
    for _ in range(40):
        shop.happen()
        shop.both()
    assert plan.candidates == before


def test_decisions_leave_no_cycles_behind() -> None:
    """A cycle is found only by a search through all that the process holds."""
    shop = Shop("chat")
    for _ in range(40):
        shop.happen()
    ask = shop.ask()
    gc.collect()
    gc.disable()
    try:
        for number in range(20):
            draw = number / 20
            decide(ask, shop.breakers, shop.now, draw, shop.forms, shop.budgets)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_a_target_that_was_forgotten_is_not_ranked_by_what_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forms_module, "MOST", 4)
    forms, breakers = Forms({}), Breakers(Rules(), lambda: 0.5)
    alias = Alias(name="m", targets=("a/m", "b/m"), policy="fastest")
    for number in range(30):
        forms.first("a/m", 0, number * S, 9 * S)
        forms.first("b/m", 0, number * S, S // 9)
    ask = PlanAsk(alias=alias)
    assert decide(ask, breakers, 30 * S, 0.5, forms).steps[0].target == "b/m"
    for name in ("c/m", "d/m", "e/m", "f/m"):
        forms.form(name)  # there is no room for all of them
    assert "a/m" not in forms.by_target
    for number in range(30, 60):
        forms.first("b/m", 0, number * S, 9 * S)
    assert decide(ask, breakers, 60 * S, 0.5, forms).steps[0].target == "a/m"


def test_clients_cannot_make_it_keep_ever_more() -> None:
    forms, breakers = Forms({}), Breakers(Rules(), lambda: 0.5)
    alias = Alias(name="m", targets=("a/m", "b/m"), policy="fastest")
    for number in range(MOST + 10):
        decide(PlanAsk(alias=alias, ttft_timeout_ns=S + number), breakers, S, 0.5, forms)
    assert 0 < len(forms.standings) <= MOST


def test_the_prices_of_all_targets_are_looked_up_once_for_each_list() -> None:
    forms = Forms({})
    alias = Alias(name="m", targets=("a/m", "b/m"), policy="fastest")
    held = standing(PlanAsk(alias=alias), alias.targets, forms, POLICIES["fastest"], 0)
    one, other = TargetPrice(1.0, 2.0), TargetPrice(3.0, 4.0)
    assert held.each({"a/m": one}) is None  # of the other one nothing is known
    prices = {"a/m": one, "b/m": other}
    found = held.each(prices)
    assert found == [(1.0, 2.0), (3.0, 4.0)]
    assert held.each(prices) is found
    assert held.each({"a/m": other, "b/m": one}) == [(3.0, 4.0), (1.0, 2.0)]


def test_misses_of_a_target_whose_batch_is_slower_are_kept_under_the_time_that_it_adds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where it could cancel a wait out, what was found with neither would be taken for both."""
    forms = Forms({name: Prior(300.0, 700.0, 100.0, 100.0) for name in NAMES[:2]})
    first = forms.form(NAMES[0])
    first.pace.take(0.2, 16.0)
    for _ in range(6):
        forms.started(NAMES[0], S)
    waits: list[dict[int, float]] = []
    misses = Standing.misses

    def noted(held: Standing, *asked: Any) -> list[float]:
        waits.append(dict(asked[2]))
        return misses(held, *asked)

    monkeypatch.setattr(Standing, "misses", noted)
    alias = Alias(name="m", targets=NAMES[:2], policy="cheapest", slo=SLO)
    ask = PlanAsk(alias=alias, tokens_in=200, expected_tokens=50, prices=PRICES)
    decide(ask, Breakers(Rules(), lambda: 0.5), S, 0.5, forms)
    longer = first.longer(S)
    assert longer > 0.5
    assert waits[-1] == {0: pytest.approx(first.wait_s(S) + 50 * first.slowness * longer)}
