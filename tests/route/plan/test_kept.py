"""Kept plans: the same as a decision of the instant, and gone with whatever could change them."""

from __future__ import annotations

import copy
import random
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.route.form.forms import Forms
from lightgate.route.form.prior import DOUBTFUL, Prior
from lightgate.route.form.slo import ServiceLevels
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.health.failure import OVERLOADED, RATE_LIMITED
from lightgate.route.plan import ranking, second_price
from lightgate.route.plan.alias import Alias, PlanAsk
from lightgate.route.plan.decide import decide
from lightgate.route.plan.hedge import LOANS, HedgeBudgets, TargetPrice
from lightgate.route.plan.kept import KEEP_NS, MOST, PlanCache
from lightgate.route.plan.policy import ASKABLE

if TYPE_CHECKING:
    from collections.abc import Callable

S = 1_000_000_000
MS = S // 1000
NAMES = ("a/m", "b/m", "c/m", "d/m")
PRICES = {name: TargetPrice(100.0 + at, 400.0) for at, name in enumerate(NAMES)}
NOW = 1000 * S


class House:
    """Four targets with form, and a cache of their plans."""

    def __init__(self, seed: int = 1, **alias: Any) -> None:
        dice = random.Random(seed)  # noqa: S311 - the same every time
        self.forms = Forms({name: Prior(300.0, 700.0, 100.0, 70.0) for name in NAMES})
        self.breakers = Breakers(Rules(), lambda: 0.5)
        self.budgets = HedgeBudgets()
        alias = {"policy": "fastest", "hedge": "auto"} | alias
        self.alias = Alias(name="m", targets=NAMES, **alias)
        for number in range(200):
            target, at = dice.choice(NAMES), NOW - (200 - number) * S
            self.forms.first(target, 0, at, int(dice.lognormvariate(-1.2, 0.3) * S))
            self.forms.finished(target, at, 300, int(dice.uniform(2.0, 4.0) * S))
            self.budgets.deposit("key")
            self.budgets.paid("key", 1e6)
        self.cache = PlanCache(self.breakers, self.forms, self.budgets)

    def ask(self, **facts: Any) -> PlanAsk:
        usual: dict[str, Any] = {"tokens_in": 512, "expected_tokens": 256, "prices": PRICES}
        return PlanAsk(alias=self.alias, **(usual | {"key": "key"} | facts))

    def decided(self, ask: PlanAsk, now_ns: int, draw: float) -> Any:
        """What `decide` says; nothing is left behind."""
        forms, budgets = copy.deepcopy(self.forms), copy.deepcopy(self.budgets)
        return decide(ask, self.breakers, now_ns, draw, forms, budgets)


@pytest.mark.parametrize("policy", ASKABLE)
@pytest.mark.parametrize("more", [{}, {"race": 2}, {"hedge": "p75"}, {"hedge": "250ms"}])
def test_a_kept_plan_is_what_a_decision_would_be(policy: str, more: dict[str, Any]) -> None:
    """As long as no sample comes in: draws and loads are of each single request."""
    house = House(policy=policy, slo=ServiceLevels(ttft_p95=900 * MS), **more)
    dice = random.Random(3)  # noqa: S311 - the same every time
    flying: list[str] = []
    for number in range(60):
        now, draw = NOW + number * KEEP_NS // 60, dice.random()
        expected = house.decided(house.ask(), now, draw)
        found = house.cache.plan(house.ask(), now, draw)
        # The order behind the first is of the moment at which the ranking was made.
        assert found == expected if number == 0 else found.steps[0] == expected.steps[0]
        flying.append(found.steps[0].target)
        house.forms.started(flying[-1])
        if len(flying) > 12 or dice.random() < 0.3:
            house.forms.ended(flying.pop(0))


def test_it_is_the_same_plan_for_a_few_milliseconds() -> None:
    house = House()
    first = house.cache.plan(house.ask(), NOW, 0.5)
    house.forms.first(NAMES[3], 0, NOW, 300 * MS)  # one more ordinary sample
    assert house.cache.plan(house.ask(), NOW + KEEP_NS, 0.5) is first
    assert house.cache.plan(house.ask(), NOW + KEEP_NS + 1, 0.5) is not first
    assert house.cache.plan(house.ask(), NOW - 1, 0.5) is not first  # a clock that went back


def _fail(house: House) -> None:
    house.forms.failed(NAMES[3], 0, NOW, OVERLOADED, None)


def _stall(house: House) -> None:
    house.forms.waited(NAMES[3], 0, NOW, 5 * S)


def _change(house: House) -> None:
    for number in range(4):
        house.forms.first(NAMES[3], 0, NOW + number, 9 * S)


def _limit(house: House) -> None:
    form = house.forms.form(NAMES[3])
    form.limit.refused(2, NOW)
    house.forms.started(NAMES[3])


def _adopt(house: House) -> None:
    house.forms.adopt(House(seed=2).forms.export(), NOW)


def _snapshot(house: House) -> None:
    house.forms.use({name: Prior(300.0, 700.0, 100.0, 70.0) for name in NAMES})


@pytest.mark.parametrize("event", [_fail, _stall, _change, _limit, _adopt, _snapshot])
def test_an_event_that_can_change_it_drops_it_at_once(event: Callable[[House], None]) -> None:
    house = House()
    first = house.cache.plan(house.ask(), NOW, 0.5)
    assert house.cache.plan(house.ask(), NOW, 0.5) is first
    before = house.forms.version
    event(house)
    assert house.forms.version > before  # never back to one that a kept plan may have
    assert house.cache.plan(house.ask(), NOW, 0.5) is not first
    assert house.cache.plan(house.ask(), NOW, 0.5) == house.decided(house.ask(), NOW, 0.5)


def test_the_first_answers_of_a_newcomer_drop_it() -> None:
    house = House()
    house.forms.use({"new/m": Prior(300.0, 700.0, 100.0, 70.0, weight=DOUBTFUL)})
    for number in range(5):
        before = house.forms.version
        house.forms.finished("new/m", NOW + number, 300, 3 * S)
        assert house.forms.version == before + (number < 3)


def test_another_margin_of_a_promise_drops_it() -> None:
    house = House(policy="cheapest", slo=ServiceLevels(ttft_p95=900 * MS))
    first = house.cache.plan(house.ask(), NOW, 0.5)
    house.forms.answered("m", 100 * MS, 100, S)  # in time: the margin stays at nothing
    assert house.cache.plan(house.ask(), NOW, 0.5) is first
    house.forms.unanswered("m")
    assert house.cache.plan(house.ask(), NOW, 0.5) is not first


def test_a_breaker_is_seen_at_once_and_nothing_is_kept_while_it_is_open() -> None:
    house = House()
    best = house.cache.plan(house.ask(), NOW, 0.5).steps[0].target
    house.breakers.failed(best, NOW, RATE_LIMITED, 2.0, NOW)
    plan = house.cache.plan(house.ask(), NOW, 0.5)
    assert plan.steps[-1].target == best
    assert plan.reason.endswith("1 held")
    assert house.cache.plan(house.ask(), NOW, 0.5) is not plan
    house.breakers.failed("z/other", NOW, RATE_LIMITED, 2.0, NOW)
    house.breakers.succeeded(best, NOW + 1, NOW + 1)
    again = house.cache.plan(house.ask(), NOW + 1, 0.5)
    assert again.steps[0].target == best
    assert house.cache.plan(house.ask(), NOW + 1, 0.5) is again  # the other is not of this alias


def test_each_key_has_its_own_budget() -> None:
    house = House(hedge="100ms")
    assert house.cache.plan(house.ask(), NOW, 0.5).hedge_ns == 100 * MS
    house.budgets.deposit("poor")
    for _ in range(LOANS):  # of what others have saved up; then it has to save up itself
        assert house.cache.plan(house.ask(key="poor"), NOW, 0.5).hedge_ns == 100 * MS
        house.budgets.take("poor", "hedge", 0.0)
    assert house.cache.plan(house.ask(key="poor"), NOW, 0.5).hedge_ns is None
    while house.budgets.take("key", "hedge", 0.0):
        pass
    assert house.cache.plan(house.ask(), NOW, 0.5).hedge_ns is None


def test_a_burst_goes_where_the_next_one_waits_least() -> None:
    house = House()
    for name in NAMES:
        for number in range(60):
            house.forms.first(name, 0, NOW - S + number, 300 * MS)
            house.forms.finished(name, NOW - S + number, 300, 3 * S)
    firsts = []
    for at in range(60):
        firsts.append(house.cache.plan(house.ask(), NOW, at / 60).steps[0].target)
        house.forms.started(firsts[-1])
    assert len(set(firsts)) == len(NAMES)  # nobody knows yet whether one could take them all
    assert max(firsts.count(name) for name in NAMES) < 30


def test_what_is_set_aside_is_never_too_little() -> None:
    house = House(hedge="100ms")
    for tokens_in in (1, 31, 33, 500, 1023, 1024, 1025, 9000, 123_457):
        ask = house.ask(tokens_in=tokens_in, expected_tokens=301)
        found, exact = house.cache.plan(ask, NOW, 0.5), house.decided(ask, NOW, 0.5)
        assert exact.reserve_nano <= found.reserve_nano <= exact.reserve_nano * 17 / 16
        assert exact.own_nano <= found.own_nano <= exact.own_nano * 17 / 16
        assert found.predicted_ttft_ns == exact.predicted_ttft_ns  # the prompt size is its own


def test_another_snapshot_and_its_prices_are_seen_at_once() -> None:
    house = House(policy="cheapest")
    assert house.cache.plan(house.ask(), NOW, 0.5).steps[0].target == NAMES[0]
    dear = PRICES | {NAMES[0]: TargetPrice(900.0, 900.0)}
    assert house.cache.plan(house.ask(prices=dear), NOW, 0.5).steps[0].target != NAMES[0]
    house.alias = Alias(name="m", targets=NAMES[2:], policy="cheapest")
    assert house.cache.plan(house.ask(), NOW, 0.5).steps[0].target == NAMES[2]


def test_memory_is_bounded() -> None:
    house = House()
    for tokens in range(1, 3 * MOST):
        house.cache.plan(house.ask(max_tokens=tokens), NOW, 0.5)
    assert len(house.cache._kept) <= MOST


def test_what_a_race_costs_is_worked_out_once_for_a_kept_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worked: list[object] = []
    real = second_price.race_nano

    def counted(*asked: Any) -> float:
        worked.append(asked)
        return real(*asked)

    monkeypatch.setattr(ranking, "race_nano", counted)
    house = House(race=2)
    first = house.cache.plan(house.ask(), NOW, 0.5)
    assert len(worked) == 1
    assert house.cache.plan(house.ask(), NOW, 0.5) is first
    assert len(worked) == 1


def test_a_hedge_that_starts_late_is_the_same_plan_but_for_its_time() -> None:
    house = House(hedge="p75")
    plans = [house.cache.plan(house.ask(), NOW, number / 997) for number in range(997)]
    laid_out = {tuple(step.target for step in plan.steps) for plan in plans}
    assert len(laid_out) == 1
    assert sorted(laid_out.pop()) == sorted(NAMES)
    starts = {plan.steps[1].start_ns for plan in plans}
    assert len(starts) == 2  # early and late
    assert {plan.hedge_ns for plan in plans} == starts
