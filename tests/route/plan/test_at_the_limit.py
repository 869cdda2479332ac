"""Plans at their limits: lists that are full, budgets that just suffice, draws at an edge."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.route.cascade.tiers import cascade_of
from lightgate.route.form.forms import Forms
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.plan import kept as kept_module
from lightgate.route.plan import standing as standing_module
from lightgate.route.plan import worth as worth_module
from lightgate.route.plan.alias import Alias, PlanAsk
from lightgate.route.plan.candidates import Basis
from lightgate.route.plan.decide import _drawn, decide
from lightgate.route.plan.hedge import SPEND, HedgeBudgets, TargetPrice, _Account
from lightgate.route.plan.kept import PlanCache
from lightgate.route.plan.policy import POLICIES
from lightgate.route.plan.ranking import Ranking
from lightgate.route.plan.score import costs
from lightgate.route.plan.stand_in import StandIn
from lightgate.route.plan.standing import Standing, standing

NAMES = ("a/m", "b/m", "c/m")


def breakers() -> Breakers:
    return Breakers(Rules(), lambda: 0.5)


def test_as_many_plans_are_kept_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_module, "MOST", 3)
    forms = Forms({})
    cache = PlanCache(breakers(), forms, HedgeBudgets())
    alias = Alias(name="m", targets=NAMES, policy="fastest")
    counts = []
    for tokens in (1, 2, 3, 4, 5):
        cache.plan(PlanAsk(alias=alias, max_tokens=tokens), 1, 0.5)
        counts.append(len(cache._kept))
    assert counts == [1, 2, 3, 1, 2]


def test_as_many_lists_of_targets_are_kept_as_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standing_module, "MOST", 3)
    forms = Forms({})
    alias = Alias(name="m", targets=NAMES, policy="fastest")
    counts = []
    for timeout in (1, 2, 3, 4, 5):
        ask = PlanAsk(alias=alias, ttft_timeout_ns=timeout)
        standing(ask, alias.targets, forms, POLICIES["fastest"], 0)
        counts.append(len(forms.standings))
    assert counts == [1, 2, 3, 1, 2]


def test_as_many_misses_are_kept_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_module, "MOST", 2)
    found = Standing(NAMES, Forms({}), POLICIES["fastest"], 0, None)
    found.look(1)
    counts = []
    for tokens in (1, 2, 3, 4):
        assert found.misses(None, 3, {}, (0, tokens, 1.0, ())) == [0.0, 0.0, 0.0]  # type: ignore[arg-type] # no levels
        counts.append(len(found._over))
    assert counts == [1, 2, 1, 2]


@pytest.mark.parametrize("policy", ["fastest", "voice"])
def test_a_policy_counts_the_slow_end_of_first_tokens_or_their_mean(policy: str) -> None:
    forms = Forms({})
    form = forms.form("a/m")
    row = POLICIES[policy]
    found = Standing(("a/m",), forms, row, 0, None)
    found.look(1)
    assert form.tail != form.mean
    times = form.tail if row.tail else form.mean
    assert found.firsts == [row.ttft * form.ttfts_s[0] * times]
    assert found.failing == [row.failure * form.p_error]
    assert {POLICIES["fastest"].tail, POLICIES["voice"].tail} == {False, True}


@pytest.mark.parametrize(
    ("credit", "spent", "may"),
    [
        (1.0, 0.0, True), (1.0 - 0.9e-9, 0.0, True), (1.0 - 1.5e-9, 0.0, False),
        (1.0, SPEND * 1000.0 - 10.0, True), (1.0, SPEND * 1000.0 - 9.0, False),
    ],
)  # fmt: skip
def test_a_hedge_needs_a_whole_credit_and_money_for_it(
    credit: float, spent: float, may: bool
) -> None:
    account = _Account()
    account.credit, account.paid_nano, account.hedge_nano = credit, 1000.0, spent
    assert account.hedges(10.0) is may


def test_a_draw_at_the_edge_of_a_slice_belongs_to_the_next() -> None:
    alias = Alias(name="m", targets=("a/m", "b/m"), policy="weighted", weights=(1.0, 3.0))
    assert _drawn(alias, 0.2499) == ["a/m", "b/m"]
    assert _drawn(alias, 0.25) == ["b/m", "a/m"]
    assert _drawn(alias, 0.0) == ["a/m", "b/m"]


@pytest.mark.parametrize(
    ("known", "nanos"),
    [
        ({"a/m": 2.0, "b/m": 5.0}, [20.0, 50.0, 50.0]),
        ({"b/m": 0.0}, [0.0, 0.0, 0.0]), ({}, [0.0, 0.0, 0.0]),
        ({"a/m": 0.05}, [0.5, 0.5, 0.5]),
    ],
)  # fmt: skip
def test_an_unknown_price_is_the_dearest_known_one(
    known: dict[str, float], nanos: list[float]
) -> None:
    prices = {name: TargetPrice(price, 0.0) for name, price in known.items()}
    assert costs(NAMES, prices, 10, 0) == nanos
    whole = {name: TargetPrice(1.0, 2.0) for name in NAMES}
    assert costs(NAMES, whole, 10, 5) == [20.0, 20.0, 20.0]


@pytest.mark.parametrize("policy", ["fastest", "cheapest", "ordered"])
def test_plans_that_do_the_same_are_equal_whatever_they_were_made_of(policy: str) -> None:
    alias = Alias(name="m", targets=NAMES, policy=policy, hedge="p90")
    plans = [
        decide(PlanAsk(alias=alias), breakers(), now_ns, 0.5, Forms({}), HedgeBudgets())
        for now_ns in (1, 2)
    ]
    assert plans[0].basis is not plans[1].basis or plans[0].basis is None
    assert plans[0] == plans[1]


def test_what_plans_were_made_of_is_equal_and_has_one_hash() -> None:
    made: Any = [StandIn((), NAMES, (), (0, 1, 2)), StandIn((), (), (), (2, 1, 0))]  # type: ignore[arg-type] # not looked at
    facts = [("of", n) for n in range(len(Basis.__struct_fields__))]
    bases: Any = [Basis(*facts), Basis(*reversed(facts))]  # type: ignore[arg-type] # same
    for one, other in (made, bases):
        assert one == other
        assert hash(one) == hash(other)
    assert made[0] != bases[0]


def test_a_second_target_with_requests_of_its_own_needs_room_for_one_more() -> None:
    asked: list[float] = []

    def spare(flying: float) -> bool:
        asked.append(flying)
        return flying <= 4.0

    def form(flying: int) -> Any:
        trouble = SimpleNamespace(first=0)
        curve = SimpleNamespace(spare=spare)
        return SimpleNamespace(trouble=trouble, shared=False, in_flight=flying, curve=curve)

    ranking: Any = SimpleNamespace(
        order=NAMES, known=[form(0), form(4), form(3)], ask=SimpleNamespace(prices=None),
        forms=SimpleNamespace(pairs=SimpleNamespace(worse=None)), well=3, _over=(),
    )  # fmt: skip
    lead: Any = SimpleNamespace(values=(), first="a/m", places=(0, 1, 2))
    assert Ranking._backup(ranking, lead) == 2
    assert asked == [5.0, 4.0]
    ranking.known[1] = form(0)  # one without requests is not asked about its room
    assert Ranking._backup(ranking, lead) == 1
    assert len(asked) == 2


class Budgets:
    """Budgets that allow everything and keep what they are asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def quarters(self, key: str) -> int:
        del key
        return 4

    def may(self, key: str, role: str, nano: float, own_nano: float) -> bool:
        del nano, own_nano
        self.asked.append((key, role))
        return True


@pytest.mark.parametrize(("more", "role"), [({"hedge": "p90"}, "hedge"), ({"race": 2}, "racer")])
def test_a_budget_is_asked_in_the_role_of_the_second_attempt(
    more: dict[str, Any], role: str
) -> None:
    alias = Alias(name="m", targets=NAMES, policy="fastest", **more)
    budgets: Any = Budgets()
    plan = decide(PlanAsk(alias=alias, key="k"), breakers(), 1, 0.5, Forms({}), budgets)
    assert budgets.asked == [("k", role)]
    assert plan.steps[1].role == role


@pytest.mark.parametrize(
    ("well", "together", "known"), [(3, 3, True), (2, 3, False), (3, 2, False), (4, 4, True)]
)
def test_a_stand_in_is_hedged_where_a_third_target_is_well_and_has_room(
    well: int, together: int, known: bool
) -> None:
    ranking: Any = SimpleNamespace(
        well=well, together=together, policy=SimpleNamespace(money="none"), ask=None, tokens=1,
        size=0, now_ns=1, order=NAMES, known=[None] * 4,
    )  # fmt: skip
    lead: Any = SimpleNamespace(hedge_ns=5, quantile=None, backup=1, places=(2, 0, 1))
    found = Ranking._again(ranking, lead)
    assert (found is not None) is known
    if found is not None:
        assert found._places == (2, 0, 1)
        lead.backup = 2
        other = Ranking._again(ranking, lead)
        assert other is not None
        assert other._places == (2, 1, 0)
    lead.backup = 0
    assert Ranking._again(ranking, lead) is None


def test_a_wait_at_the_second_target_counts_where_it_has_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []

    def worth_after(late: Any, delay_s: float, second_s: float, stakes: Any) -> float:
        del late, delay_s, stakes
        asked.append(second_s)
        return 2.0

    monkeypatch.setattr(worth_module, "worth_after", worth_after)
    size = SimpleNamespace(long=0.0, slowest=lambda q: None)
    first: Any = SimpleNamespace(sizes=[size], ttfts_s=[1.0])
    for flying, seconds in ((0, 0.5), (1, 0.75)):
        second: Any = SimpleNamespace(ttfts_s=[0.5], in_flight=flying)
        first.sizes = [size] * 3
        found = worth_module.worth_ns(first, second, 0, (0.0, 0.25), (0.9, 5), (1.0, 2.0, 3.0))
        assert (asked.pop(), found) == (seconds, 2_000_000_000)
    second = SimpleNamespace(ttfts_s=[0.5], in_flight=1)
    found = worth_module.worth_ns(first, second, 0, (1.0, 0.5), (0.9, 5), (1.0, 2.0, 3.0))
    assert (asked.pop(), found) == (0.5, 4_000_000_000)  # in times of the first one's own


def test_tiers_are_counted_from_one() -> None:
    alias = Alias(name="m", targets=("a/m", "b/m"), policy="cascade")
    found = cascade_of(alias, (("simple", ("a/m",)), (None, ("b/m",))))
    assert [tier.alias.name for tier in found.tiers] == ["m tier 1", "m tier 2"]
