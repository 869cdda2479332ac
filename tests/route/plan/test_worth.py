"""Hedges by value: seconds saved beside the money that they cost."""

from __future__ import annotations

from math import exp
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lightgate.route.form.forms import Forms
from lightgate.route.form.prior import Prior
from lightgate.route.form.size import PromptSize, SlowEnd
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.plan.alias import Alias, PlanAsk
from lightgate.route.plan.decide import decide, rank
from lightgate.route.plan.hedge import HedgeBudgets, TargetPrice, delay_ns
from lightgate.route.plan.worth import (
    FLOOR_S,
    QUARTERS,
    STARTS,
    best_start,
    saved,
    start_ns,
    worth_after,
)

if TYPE_CHECKING:
    from lightgate.route.plan.plan import Plan

S = 1_000_000_000


def test_what_is_saved_is_what_the_first_would_still_need() -> None:
    late = SlowEnd.of([1.0, 2.0, 4.0])
    assert saved(late, 1.0, 0.5) == pytest.approx(((0.5 + 2.5) / 2, 1.0))
    assert saved(late, 0.5, 1.0) == pytest.approx(((0.5 + 2.5) / 3, 2 / 3))
    assert saved(late, 0.5, 9.0) == (0.0, 0.0)


def test_a_silence_longer_than_any_is_taken_to_last_as_long_again() -> None:
    assert saved(SlowEnd.of([1.0, 2.0]), 5.0, 0.5) == (4.5, 1.0)
    assert saved(SlowEnd.of([]), 0.5, 0.6) == (0.0, 0.0)


@given(st.lists(st.floats(0.01, 60.0), max_size=20), st.floats(0.01, 60.0), st.floats(0.01, 60.0))
def test_sums_say_what_the_single_first_tokens_say(
    seconds: list[float], age_s: float, second_s: float
) -> None:
    rests = [one - age_s for one in seconds if one > age_s] or [age_s]
    found = saved(SlowEnd.of(sorted(seconds)), age_s, second_s)
    expected = sum(max(0.0, rest - second_s) for rest in rests) / len(rests)
    assert found[0] == pytest.approx(expected, abs=1e-6)
    assert found[1] == pytest.approx(sum(rest > second_s for rest in rests) / len(rests), abs=0.1)


def test_seconds_count_against_the_premium_of_a_winner_and_the_price_of_a_loser() -> None:
    late = SlowEnd.of([2.5])  # of which a second attempt after 1 s saves 1 s

    def after(second: float, won: float, lost: float = 0.0) -> float | None:
        return worth_after(late, 1.0, 0.5, (second, won, lost))

    assert after(20.0, 20.0) == 1.0
    assert after(19.9, 20.0) == 4.0  # it is worth it once the first has been silent for long
    assert after(19.9, 20.0, 99.0) == 4.0
    assert after(1.0, 20.0) is None
    assert after(0.0, -1.0) == 1.0  # it even saves money
    assert worth_after(late, 1.0, 9.0, (1e9, 0.0, 0.0)) is None


def test_one_that_seldom_wins_pays_for_the_losers() -> None:
    late = SlowEnd.of([1.1, 1.2, 1.3, 9.5])
    assert worth_after(late, 1.0, 0.5, (1.0, 0.0, 2.0)) == 1.0
    assert worth_after(late, 1.0, 0.5, (1.0, 0.0, 9.0)) == 2.0  # only the last one is left


def test_the_slow_end_of_a_target_is_that_of_its_last_first_tokens() -> None:
    size = PromptSize(-1.609, 0.25)
    assert len(size.slowest(0.9).seconds) == 7  # one stall more than was seen
    assert size.slowest(0.9).seconds == sorted(size.slowest(0.9).seconds)
    assert size.slowest(0.9).seconds[0] > size.usual(1.28)  # the long run's, before there are any
    size.fill(tuple(n / 10 for n in range(100)))
    assert size.slowest(0.95).seconds == pytest.approx([9.5, 9.6, 9.7, 9.8, 9.9, 11.9])
    size.fill(tuple(n / 10 for n in range(50)))
    assert size.slowest(0.95).seconds[-2] == pytest.approx(4.9)


# When "auto" starts a hedge


def net(late: list[float], start: float, behind: float, costs: float) -> float:
    """What a hedge after this silence saves of all those first tokens, beyond its costs."""
    hedged = [one for one in late if one > start]
    return sum(max(0.0, one - start - behind) for one in hedged) - costs * len(hedged)


@given(
    st.lists(st.floats(0.1, 9.0), min_size=20, max_size=64, unique=True),
    st.floats(0.01, 5.0),
    st.floats(0.0, 2.0),
)
def test_a_hedge_starts_where_it_saves_most(seen: list[float], behind: float, costs: float) -> None:
    late = [*sorted(seen), max(seen) + 2.0]
    found = best_start(SlowEnd.of(late), behind, costs)
    places = [*(int(part * len(late)) for part in STARTS), len(late) - 2]
    best = max(net(late, late[place], behind, costs) for place in places)
    assert net(late, found, behind, costs) == pytest.approx(best, abs=1e-6)


def test_a_hedge_waits_until_those_left_are_stalls() -> None:
    late = SlowEnd.of([*(0.8 + n / 100 for n in range(40)), 10.0, 10.0, 12.0])
    cheap, usual, dear = [best_start(late, 1.0, costs) for costs in (0.001, 0.5, 20.0)]
    assert cheap < 1.0  # the sooner the better
    assert usual == pytest.approx(1.19)
    assert dear == 10.0  # at the latest after the longest silence that was seen


def test_a_second_whose_answer_ends_much_later_is_started_late() -> None:
    late = SlowEnd.of([0.5 * 1.05**n for n in range(64)])
    starts = [best_start(late, behind, 0.3) for behind in (1.0, 6.0, 12.0)]
    assert starts == sorted(starts)
    assert starts[0] < starts[-1]


# Lognormal first tokens around 200 ms in no order, of which one in twenty stalls.
STALLING = [
    0.2 * exp(0.3 * NormalDist().inv_cdf((n * 37 % 80 + 0.5) / 80)) if n % 20 else 2.0
    for n in range(80)
]


def seen(*ttfts_s: float) -> Forms:
    """Two targets, of which the first has had these first tokens."""
    soon, later = Prior(200.0, 300.0, 100.0, 80.0), Prior(500.0, 700.0, 100.0, 80.0)
    forms = Forms({"a/m": soon, "b/m": later})
    for second, ttft_s in enumerate(ttfts_s):
        forms.first("a/m", 0, second * S, int(ttft_s * S))
    for target in ("a/m", "b/m"):
        forms.form(target).look(100 * S)
    return forms


def test_the_less_is_saved_up_the_later_a_hedge_starts() -> None:
    forms = seen(*STALLING)
    first, second = forms.form("a/m"), forms.form("b/m")
    none = (0.0, 0.0)
    starts = [start_ns(first, second, 0, none, 0.0, quarters) for quarters in range(QUARTERS + 1)]
    assert starts == sorted(starts, reverse=True)
    assert starts[0] > starts[-1]
    assert start_ns(first, second, 0, none, 1.4, QUARTERS) > starts[-1]  # it would end later
    assert start_ns(first, second, 0, (0.0, 1.4), 0.0, QUARTERS) > starts[-1]  # it would wait
    waiting = start_ns(first, second, 0, (1.5, 0.0), 0.0, QUARTERS)
    assert waiting > 1.5 * S  # a wait at the first is expected, and no reason to hedge


def test_no_hedge_starts_at_once() -> None:
    forms = seen(*(0.002 for _ in range(40)))
    first, second = forms.form("a/m"), forms.form("b/m")
    assert start_ns(first, second, 0, (0.0, 0.0), 0.0, QUARTERS) == int(FLOOR_S * S)


def test_what_is_saved_up_for_hedges_is_counted_in_quarters() -> None:
    budgets = HedgeBudgets()
    assert budgets.quarters("key") == 0
    found = []
    for _ in range(200):
        budgets.deposit("key")
        found.append(budgets.quarters("key"))
    assert found == sorted(found)
    assert set(found) == set(range(QUARTERS + 1))
    budgets.paid("key", 1e9)
    for _ in range(19):
        assert budgets.take("key", "hedge", 1.0)
    assert budgets.quarters("key") == 0


# In plans


def planned(prices: dict[str, TargetPrice], speeds: tuple[float, float, float]) -> Plan:
    """The plan of a request, once the first target has been seen to stall now and then."""
    names = ("a/m", "b/m", "c/m")
    priors = {
        name: Prior(200.0 + 300 * place, 400.0 + 600 * place, speed, speed * 0.8)
        for place, (name, speed) in enumerate(zip(names, speeds, strict=True))
    }
    forms = Forms(priors)
    for second in range(100):
        forms.first("a/m", 0, second * S, S if second % 8 == 0 else S // 5)
    alias = Alias(name="fast", targets=names, policy="fastest", hedge="auto")
    ask = PlanAsk(alias=alias, tokens_in=200, max_tokens=100, prices=prices)
    return decide(ask, Breakers(Rules(), lambda: 0.5), 100 * S, 0.5, forms)


def test_a_hedge_at_like_prices_starts_when_it_saves_most_and_a_dear_one_later() -> None:
    like = {name: TargetPrice(100.0, 400.0) for name in ("a/m", "b/m", "c/m")}
    usual = planned(like, (100.0, 90.0, 80.0))
    assert usual.hedge_ns is not None
    assert usual.steps[1].target == "b/m"
    at: list[int] = []
    for times in (40, 100):
        price = TargetPrice(100.0 * times, 400.0 * times)
        dear = planned({**like, "b/m": price, "c/m": price}, (100.0, 90.0, 80.0)).hedge_ns
        assert dear is not None
        at.append(dear)
    assert usual.hedge_ns < at[0] < at[1]


def test_a_plan_knows_how_a_fallback_is_hedged() -> None:
    like = {name: TargetPrice(100.0, 400.0) for name in ("a/m", "b/m", "c/m")}
    found = planned(like, (100.0, 90.0, 80.0))
    assert found.again is not None
    again = found.again()
    assert again is not None
    assert again.delay_ns > 0
    assert again.premium == 0.0
    # The first may have been billed before it failed, and one of the others is lost.
    assert again.reserve_nano == pytest.approx(2 * (200 * 100.0 + 15 * 400.0))
    third = found.steps[2].target
    dear = planned({**like, third: TargetPrice(200.0, 800.0)}, (100.0, 90.0, 80.0))
    assert dear.again is not None
    again = dear.again()
    assert again is not None
    assert again.premium == pytest.approx(0.5)


# Races


def test_a_race_is_priced_before_it_starts() -> None:
    names = ("a/m", "b/m")
    forms = Forms({name: Prior(200.0, 400.0, 100.0, 80.0) for name in names})
    alias = Alias(name="fast", targets=names, policy="ordered", race=2)
    prices = {"a/m": TargetPrice(1000.0, 4000.0), "b/m": TargetPrice(1100.0, 4400.0)}

    def plan(key: str, **facts: Any) -> Plan:
        ask = PlanAsk(alias=alias, tokens_in=200, max_tokens=100, key=key, **facts)
        return decide(ask, Breakers(Rules(), lambda: 0.5), S, 0.5, forms, HedgeBudgets())

    found = plan("k", prices=prices)
    # Both are as likely to win: half of each loser, and half of the second's premium.
    losers = (200 * 1000 + 15 * 4000 + 200 * 1100 + 15 * 4400) / 2
    premium = (200 * 100 + 100 * 400) / 2
    assert found.extra_nano == pytest.approx(losers + premium)
    assert found.story.endswith(f"the race costs about ${(losers + premium) / 1e9:.2g} more)")
    assert plan("k", prices=None).extra_nano == 0.0
    dear = {**prices, "b/m": TargetPrice(9000.0, 36_000.0)}
    refused = plan("k", prices=dear)  # a race of two may double the bill, and no more
    assert refused.text == "a/m > b/m"
    assert refused.extra_nano == 0.0


def test_one_ranking_hedges_a_key_that_has_saved_up_sooner_than_one_that_has_not() -> None:
    names = ("a/m", "b/m")
    forms = seen(*STALLING)
    budgets = HedgeBudgets()
    for key, count in (("rich", 200), ("poor", 10)):
        for _ in range(count):
            budgets.deposit(key)
        budgets.paid(key, 1e9)
    alias = Alias(name="fast", targets=names, policy="chat", hedge="auto")
    ask = PlanAsk(alias=alias, tokens_in=200, max_tokens=100)
    ranking = rank(ask, 0, Breakers(Rules(), lambda: 0.5), 100 * S, 0.5, forms)
    plans = [ranking.plan(0.5, key, budgets) for key in ("rich", "poor", "rich")]
    rich, poor, again = [plan.hedge_ns for plan in plans]
    assert rich is not None
    assert poor is not None
    assert rich < poor
    assert rich == again
    quantile = decide(
        replace(ask, hedge="p88"), Breakers(Rules(), lambda: 0.5), 100 * S, 0.5, forms
    )
    assert quantile.hedge_ns is not None  # what was asked for is not changed
    assert quantile.hedge_ns == delay_ns(forms.form("a/m").sizes[0], 0.88)
