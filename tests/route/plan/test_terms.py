"""The terms of a decision one by one: values, prices, second attempts and what is said of them."""

from __future__ import annotations

from math import exp, log
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.route.form.forms import Forms
from lightgate.route.form.prior import Z80, Z95, Prior
from lightgate.route.form.size import size_of
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.health.failure import SERVER
from lightgate.route.plan import hedge as hedges
from lightgate.route.plan.alias import Alias, PlanAsk
from lightgate.route.plan.candidates import Basis, Candidate
from lightgate.route.plan.decide import decide
from lightgate.route.plan.finish import ExpectedAnswer, Rival, still_s, waits_ns
from lightgate.route.plan.hedge import HedgeBudgets, TargetPrice, delay_ns, reserve_nano, sick
from lightgate.route.plan.kept import _rounded_up
from lightgate.route.plan.second_price import (
    hedge_price,
    lost_nano,
    own_nano,
    premium_nano,
    race_nano,
)

if TYPE_CHECKING:
    from lightgate.route.plan.plan import Plan

S = 1_000_000_000
NORMAL = NormalDist()
A, B, C = "a/m", "b/m", "c/m"


def prior(ttft_s: float, speed: float = 100.0, sigma: float = 0.5, weight: float = 5.0) -> Prior:
    """First tokens of this median and sigma; speeds with sigma 0.2."""
    late, slow = exp(sigma * Z95), exp(-0.2 * Z95)
    return Prior(1e3 * ttft_s, 1e3 * ttft_s * late, speed, speed * slow, weight)


def house() -> Forms:
    return Forms({A: prior(1.0), B: prior(3.0, 200.0)})


def plan(forms: Forms, policy: str = "fastest", *, hedge: str = "off", **ask: Any) -> Plan:
    targets = tuple(forms.by_target)
    alias = Alias(name="m", targets=targets, policy=policy, hedge=hedge)
    facts = {"tokens_in": 100, "expected_tokens": 100} | ask
    asked = PlanAsk(alias=alias, **facts)
    return decide(asked, Breakers(Rules(), lambda: 0.5), 10 * S, 0.5, forms)


def values(found: Plan) -> dict[str, float]:
    return {one.target: one.value for one in found.candidates if one.value is not None}


# Values


MEAN, TAIL, TOKEN = exp(0.125), exp(Z80 * 0.5), exp(0.02) / 100


@pytest.mark.parametrize(
    ("policy", "value"),
    [
        ("fastest", MEAN + 100 * TOKEN + 0.005),
        ("chat", 3.3 * TAIL + 100 * TOKEN + 0.005),
        ("voice", TAIL + 20 * TOKEN + 0.005),
        ("coding", 0.3 * MEAN + 100 * TOKEN + 0.005),
        ("agent", MEAN + 100 * TOKEN + 0.01),
        ("batch", MEAN + 100 * TOKEN + 0.005),
    ],
)
def test_the_seconds_of_a_target_by_policy(policy: str, value: float) -> None:
    assert values(plan(house(), policy))[A] == pytest.approx(value)


def test_money_beside_seconds_is_a_multiple_of_the_least() -> None:
    prices = {A: TargetPrice(10.0, 40.0), B: TargetPrice(5.0, 20.0)}
    found = values(plan(house(), "balanced", prices=prices))
    quick = MEAN + 100 * TOKEN + 0.005
    slow = 3 * MEAN + 50 * TOKEN + 0.005
    assert found[A] == pytest.approx(1.0 + 2.0)
    assert found[B] == pytest.approx(slow / quick + 1.0)


@pytest.mark.parametrize(("size", "saved"), [(100, 0.0), (2000, 0.15), (9000, 0.4)])
def test_a_warm_prompt_saves_a_part_of_the_time(size: int, saved: float) -> None:
    cold = values(plan(house(), "agent", tokens_in=size, session="s"))
    forms = house()
    forms.stick("s", A, 10 * S)
    warm = values(plan(forms, "agent", tokens_in=size, session="s"))
    assert warm[A] == pytest.approx((1.0 - saved - 0.1) * cold[A])
    assert warm[B] == cold[B]


@pytest.mark.parametrize(("rival", "first"), [(18.0, B), (20.0, A)])
@pytest.mark.parametrize("policy", ["cheapest", "batch"])
def test_nine_tenths_of_a_warm_prompt_cost_what_cached_tokens_do(
    policy: str, rival: float, first: str
) -> None:
    """Of 1000 tokens at 100, 900 cost 10 each: 19 000 in all."""
    forms = house()
    forms.stick("s", A, 10 * S)
    prices = {A: TargetPrice(100.0, 0.0, cached_in=10.0), B: TargetPrice(rival, 0.0)}
    found = plan(forms, policy, tokens_in=1000, session="s", prices=prices)
    assert found.steps[0].target == first
    assert plan(forms, policy, tokens_in=1000, prices=prices).steps[0].target == B
    unsaid = {**prices, A: TargetPrice(100.0, 0.0)}
    found = plan(forms, policy, tokens_in=1000, session="s", prices=unsaid)
    assert found.steps[0].target == B


@pytest.mark.parametrize(
    ("flying", "behind"), [(4, 2.5), (6, 3.25), (7, 3.625), (8, 4.0), (12, 4.0)]
)
def test_a_wait_counts_for_those_behind_as_well(flying: int, behind: float) -> None:
    """Beyond four in flight nothing was tried: there each one waits a quarter of a second."""
    forms = house()
    before = values(plan(forms))[A]
    for _ in range(flying):
        forms.started(A)
    found = plan(forms)
    wait_s = 0.25 * (flying + 1 - 4)
    assert values(found)[A] == pytest.approx(before + behind * wait_s)


def test_those_of_other_workers_are_behind_it_as_well() -> None:
    """Six of eight are another worker's: the next waits, and delays others, as behind eight."""
    forms = house()
    before = values(plan(forms))[A]
    forms.started(A)
    forms.started(A)
    forms.beside({"1": (10 * S, {A: 6})}, 10 * S)
    assert values(plan(forms))[A] == pytest.approx(before + 4.0 * 0.25 * 5)


@pytest.mark.parametrize(("flying", "first"), [(11, A), (12, B), (40, B)])
def test_the_cheapest_is_left_for_a_wait_of_more_than_two_seconds(flying: int, first: str) -> None:
    """With eleven in flight one more waits for two seconds, with twelve for a quarter more."""
    forms = house()
    prices = {A: TargetPrice(1.0, 1.0), B: TargetPrice(2.0, 2.0)}
    assert plan(forms, "cheapest", prices=prices).steps[0].target == A
    for _ in range(flying):
        forms.started(A)
    assert plan(forms, "cheapest", prices=prices).steps[0].target == first


def test_a_newcomer_counts_each_request_in_flight_in_full() -> None:
    forms = Forms({A: prior(1.0, weight=2.0), B: prior(30.0)})
    for _ in range(2):
        forms.started(A)
    assert values(plan(forms))[A] == pytest.approx(3 * MEAN + 100 * TOKEN + 0.005)


def test_the_last_choice_counts_as_seven_percent_better_while_few_are_in_flight() -> None:
    forms = Forms({A: prior(1.0), B: prior(1.05)})
    forms.incumbents["m", "fastest"] = B
    alone = 1.05 * MEAN + 100 * TOKEN + 0.005
    for _ in range(3):
        forms.started(B)
    assert values(plan(forms))[B] == pytest.approx(0.93 * alone)
    forms.incumbents["m", "fastest"] = B
    forms.started(A)  # two for each target
    assert values(plan(forms))[B] == pytest.approx(alone)


def test_a_plan_predicts_the_first_token_with_its_wait_and_its_band() -> None:
    forms = Forms({A: prior(1.0)})
    found = plan(forms)
    assert found.predicted_ttft_ns == pytest.approx(S)
    assert found.predicted_low_ns == pytest.approx(S * exp(-1.2816 * 0.5), abs=2)
    assert found.predicted_high_ns == pytest.approx(S * exp(1.2816 * 0.5), abs=2)
    for _ in range(5):
        forms.started(A)
    found = plan(forms)
    assert found.predicted_ttft_ns == pytest.approx(1.5 * S)
    assert found.in_flight == 5


def test_a_target_with_a_queue_is_waited_for_four_times_its_wait_longer() -> None:
    forms = Forms({A: prior(1.0, sigma=0.1), B: prior(9.0)})
    for second in range(20):
        forms.first(A, size_of(100), second * S // 10, S)
    usual = plan(forms).steps[0].ttft_ns
    assert usual == forms.form(A).due_ns(size_of(100))
    assert usual is not None
    for _ in range(6):
        forms.started(A)
    wait_s = forms.form(A).wait_s(10 * S)
    assert wait_s > 0.0
    assert plan(forms).steps[0].ttft_ns == usual + int(4.0 * wait_s * S)
    assert plan(forms, ttft_timeout_ns=7 * S).steps[0].ttft_ns == 7 * S


# Hedges


def hedged(second_s: float, weather: float = 1.0, **ask: Any) -> tuple[int | None, int]:
    """The delay of a hedge of a target of four seconds, and the quantile that it goes by."""
    forms = Forms({A: prior(4.0, sigma=0.25), B: prior(second_s, 1.0, sigma=0.25)})
    form = forms.form(A)
    form.deviation, form.last_ns = log(weather), 10 * S
    found = plan(forms, hedge="auto", **ask)
    assert found.steps[0].target == A
    return found.hedge_ns, delay_ns(form.sizes[0], 0.88)


def test_a_hedge_starts_once_it_could_be_sooner_than_the_slowest_first_tokens() -> None:
    """A second of five seconds is too late for any that was seen: only a stall is left."""
    assert delay_ns(Forms({A: prior(4.0, sigma=0.25)}).form(A).sizes[0], 0.88) == pytest.approx(
        4 * S * exp(0.25 * NORMAL.inv_cdf(0.88)), abs=1
    )
    at_ns, usual_ns = hedged(1.0)
    assert at_ns == usual_ns
    at_ns, usual_ns = hedged(5.0)
    assert at_ns == pytest.approx(2 * usual_ns, abs=2)
    assert hedged(50.0)[0] is None


def test_bad_weather_makes_the_first_tokens_that_were_seen_slower() -> None:
    """Twice as slow: what the second would need counts for half as much."""
    at_ns, usual_ns = hedged(10.0, weather=2.0)
    assert at_ns == pytest.approx(usual_ns, abs=2)
    at_ns, usual_ns = hedged(14.0, weather=2.0)
    assert at_ns == pytest.approx(4 * usual_ns, abs=4)


@pytest.mark.parametrize(
    ("draw", "q"), [(0.0, 0.75), (0.54 / 1024, 0.75), (0.55 / 1024, 0.97), (1.2 / 1024, 0.75)]
)
def test_an_early_hedge_is_drawn_and_the_others_start_late(draw: float, q: float) -> None:
    """At 75 % a hedge is early for 0.12 of 0.22 of the requests: 0.545 of them."""
    forms = Forms({A: prior(4.0, sigma=0.25), B: prior(1.0, 1.0)})
    alias = Alias(name="m", targets=(A, B), policy="fastest", hedge="p75")
    ask = PlanAsk(alias=alias, expected_tokens=100)
    found = decide(ask, Breakers(Rules(), lambda: 0.5), 10 * S, draw, forms)
    assert found.hedge_ns == found.steps[1].start_ns == delay_ns(forms.form(A).sizes[0], q)
    for _ in range(7):
        forms.started(A)
    waiting = decide(ask, Breakers(Rules(), lambda: 0.5), 10 * S, draw, forms)
    assert waiting.steps[0].target == A
    assert waiting.hedge_ns == pytest.approx(1.25 * (found.hedge_ns or 0), abs=2)


def test_a_hedge_of_the_second_is_prepared_where_there_is_a_third() -> None:
    forms = Forms({A: prior(1.0), B: prior(3.0), C: prior(3.2)})
    prices = {A: TargetPrice(1.0, 0.0), B: TargetPrice(2.0, 0.0), C: TargetPrice(4.0, 0.0)}
    found = plan(forms, hedge="auto", prices=prices)
    assert found.steps[1].target == B
    assert found.again is not None
    again = found.again()
    assert again is not None
    assert again.delay_ns == delay_ns(forms.form(B).sizes[0], 0.88)
    # 100 tokens in: what the first has cost, and the third, which is dearer than the second.
    assert again.reserve_nano == pytest.approx(100 + max(200 + 300, 400))
    assert again.premium == pytest.approx(0.75)
    assert plan(Forms({A: prior(1.0), B: prior(3.0)}), hedge="auto").again is None
    assert plan(forms, "cheapest", hedge="auto", prices=prices).again is None
    fixed = plan(forms, hedge="2s").again
    assert fixed is not None
    stand_in = fixed()
    assert stand_in is not None
    assert stand_in.delay_ns == 2 * S  # a set time holds for whoever stands in


@pytest.mark.parametrize(("race", "racers"), [(2, (A, B)), (3, (A, B, C)), (9, (A, B, C))])
def test_a_race_is_as_wide_as_asked_for_and_sets_the_dearest_aside(
    race: int, racers: tuple[str, ...]
) -> None:
    forms = Forms({A: prior(1.0), B: prior(3.0), C: prior(5.0)})
    prices = {A: TargetPrice(10.0, 0.0), B: TargetPrice(12.0, 0.0), C: TargetPrice(14.0, 0.0)}
    found = plan(forms, race=race, prices=prices)
    assert tuple(one.target for one in found.steps if one.role == "racer") == racers
    dearest = 100 * prices[racers[-1]].tokens_in
    assert found.reserve_nano == pytest.approx(dearest + dearest - 1000)
    assert found.premium == pytest.approx((dearest - 1000) / dearest)
    assert found.own_nano == 1000
    alone = plan(forms, race=1, prices=prices)
    assert (alone.reserve_nano, alone.premium, alone.extra_nano, alone.hedge_ns) == (0, 0, 0, None)


def test_a_hedge_waits_for_the_queue_of_the_first() -> None:
    forms = Forms({A: prior(4.0, sigma=0.25), B: prior(60.0, 1.0)})
    for _ in range(7):
        forms.started(A)
    found = plan(forms, hedge="p90")
    usual_ns = delay_ns(forms.form(A).sizes[0], 0.90)
    assert found.hedge_ns is None  # the second is no help
    forms = Forms({A: prior(4.0, sigma=0.25), B: prior(1.0, 0.1)})
    for _ in range(7):
        forms.started(A)
    found = plan(forms, hedge="p90")
    assert found.steps[0].target == A
    assert found.hedge_ns == pytest.approx(usual_ns * 1.25, abs=2)  # one second of four


def test_no_hedge_is_planned_that_could_not_answer_in_time() -> None:
    for timeout_ns, planned in ((9 * S + 1, True), (9 * S - 1, False)):
        forms = house()
        alias = Alias(name="m", targets=(A, B), policy="fastest", hedge="6s", timeout_ns=timeout_ns)
        ask = PlanAsk(alias=alias, expected_tokens=10)
        found = decide(ask, Breakers(Rules(), lambda: 0.5), 10 * S, 0.5, forms)
        assert (found.hedge_ns == 6 * S) is planned


def test_a_target_that_bills_closed_streams_is_a_tenth_worse_as_a_second() -> None:
    forms = Forms({A: prior(1.0), B: prior(3.0), C: prior(3.2)})
    prices = dict.fromkeys((A, B, C), TargetPrice(1.0, 1.0))
    assert plan(forms, hedge="auto", prices=prices).steps[1].target == B
    prices[B] = TargetPrice(1.0, 1.0, abort_stops=False)
    assert plan(forms, hedge="auto", prices=prices).steps[1].target == C


@pytest.mark.parametrize(("dear", "hedged"), [(133.0, True), (134.0, False)])
def test_where_money_comes_first_no_hedge_costs_a_quarter_more_of_its_price(
    dear: float, hedged: bool
) -> None:
    prices = {A: TargetPrice(100.0, 100.0), B: TargetPrice(dear, dear)}
    found = plan(house(), "cheapest", hedge="auto", prices=prices)
    assert found.steps[0].target == A
    assert (found.hedge_ns is not None) is hedged


@pytest.mark.parametrize(
    ("failed", "ends", "ill"), [(1, 4, False), (1, 5, True), (1, 9, True), (1, 10, False)]
)
def test_more_than_a_tenth_of_five_or_more_that_failed_is_sick(
    failed: int, ends: int, ill: bool
) -> None:
    form = Forms({A: prior(1.0)}).form(A)
    form.trouble.add(10 * S, failed, ends)
    assert sick(form, 10 * S) is ill


# Prices of second attempts


PRICES = {A: TargetPrice(10.0, 40.0), B: TargetPrice(20.0, 60.0, abort_stops=False)}


def asked(**facts: Any) -> PlanAsk:
    alias = Alias(name="m", targets=(A, B, C))
    usual: dict[str, Any] = {"tokens_in": 100, "max_tokens": 50, "prices": PRICES}
    return PlanAsk(alias=alias, **usual | facts)


def test_what_a_hedge_may_cost_and_is_expected_to() -> None:
    """100 tokens in; 50 out at most and 20 as a rule; a closed stream makes 15 more."""
    # Set aside: the second's whole answer. Of its 5000, 2000 are beyond what the first costs.
    assert hedge_price(asked(), 20, A, B) == pytest.approx((5000.0, 0.4, 3000.0, 3200.0))
    assert hedge_price(asked(), 20, B, A) == pytest.approx((5000.0, 0.0, 1800.0, 1600.0))
    # Without a limit an answer may be four times as long as it is as a rule.
    assert hedge_price(asked(max_tokens=None), 20, A, B) == pytest.approx(
        (2000.0 + 80 * 60, (6800 - 4200) / 6800, 3000.0, 3200.0)
    )
    # An answer that is shorter than what is made meanwhile is all that is lost.
    assert hedge_price(asked(max_tokens=10), 10, A, A) == pytest.approx(
        (1000.0 + 400, 0.0, 1000.0 + 400, 1000.0 + 400)
    )
    dear = {A: TargetPrice(10.0, 40.0), B: TargetPrice(20.0, 80.0)}
    # The first is lost, and the second costs 3000 more.
    assert hedge_price(asked(prices=dear), 20, A, B)[0] == pytest.approx(1600 + 3000)


def test_what_is_not_known_costs_the_most_and_no_more_than_the_other() -> None:
    assert hedge_price(asked(), 20, A, C) == (5000.0, 0.0, 5000.0, 5000.0)
    assert hedge_price(asked(prices=None), 20, A, B) == (0.0, 0.0, 0.0, 0.0)
    assert lost_nano(asked(), 20, A) == 1000 + 15 * 40
    assert lost_nano(asked(max_tokens=None), 20, B) == 2000 + 80 * 60
    assert lost_nano(asked(), 20, C) == 2000 + 50 * 60
    assert lost_nano(asked(prices=None), 20, A) == 0.0
    assert own_nano(asked(), 20, A) == 1000 + 20 * 40
    assert own_nano(asked(), 20, C) == 1000 + 20 * 40
    assert own_nano(asked(prices=None), 20, A) == 0.0
    assert premium_nano(asked(), 20, A, B) == pytest.approx((2000.0, 0.4))
    assert premium_nano(asked(), 20, B, A) == premium_nano(asked(), 20, A, C) == (0.0, 0.0)
    assert reserve_nano(PRICES[A], 100, 7) == 1000 + 7 * 40


# Budgets of second attempts


def test_twenty_hedges_are_saved_up_and_two_are_lent() -> None:
    budgets = HedgeBudgets()
    for _ in range(1000):
        budgets.deposit("k")
    budgets.paid("k", 1e9)
    taken = 0
    while budgets.take("k", "hedge", 1.0):
        taken += 1
    assert taken == 22
    assert budgets.spent("k") == (1e9, 22.0, 0.0)
    budgets.settle("k", "hedge", 1.0, 0.25)
    assert budgets.spent("k") == (1e9, 21.25, 0.0)
    assert budgets.spent("nobody") == (0.0, 0.0, 0.0)


def test_who_has_paid_its_loans_back_is_lent_as_many_again() -> None:
    budgets = HedgeBudgets()
    for _ in range(100):
        budgets.deposit("rich")
    budgets.paid("rich", 1e6)
    assert [budgets.take("young", "hedge", 1.0) for _ in range(3)] == [True, True, False]
    for _ in range(20):  # three hedges: two that were lent, and one of its own
        budgets.deposit("young")
    budgets.paid("young", 1000.0)
    taken = [budgets.take("young", "hedge", 1.0) for _ in range(4)]
    assert taken == [True, True, True, False]


def test_hedges_may_cost_a_tenth_and_racers_as_much_as_was_paid() -> None:
    budgets = HedgeBudgets()
    for _ in range(7):
        budgets.deposit("k")
    budgets.paid("k", 1000.0)
    assert budgets.may("k", "hedge", 100.0)
    assert not budgets.may("k", "hedge", 100.1)
    assert budgets.may("k", "racer", 1500.0, 500.0)
    assert not budgets.may("k", "racer", 1500.1, 500.0)
    assert budgets.take("k", "racer", 1500.0, 500.0)
    assert budgets.may("k", "racer", 0.0)
    assert not budgets.may("k", "racer", 0.1)
    assert budgets.may("k", "racer", 200.0, 200.0)
    budgets.settle("k", "racer", 1500.0, 600.0, 500.0)
    assert budgets.spent("k") == (1000.0, 0.0, 600.0)
    assert budgets.may("k", "racer", 400.0)
    assert not budgets.may("k", "racer", 400.1)
    assert budgets.may("new", "racer", 5.0, 5.0)
    assert not budgets.may("new", "racer", 5.1, 5.0)
    for _ in range(2):
        budgets.settle("k", "racer", 900.0, 0.0, 900.0)
    assert budgets.spent("k")[2] == 0.0  # never below nothing


def test_the_seventh_request_earns_the_first_hedge() -> None:
    budgets = HedgeBudgets()
    budgets.paid("k", 1000.0)
    for _ in range(7):
        assert not budgets.may("k", "hedge", 0.0)
        budgets.deposit("k")
    assert budgets.may("k", "hedge", 0.0)


def test_the_oldest_key_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hedges, "MOST", 2)
    budgets = HedgeBudgets()
    for key in ("one", "two", "three"):
        budgets.paid(key, 5.0)
    assert [budgets.spent(key)[0] for key in ("one", "two", "three")] == [0.0, 5.0, 5.0]


# Who wins


def test_what_is_still_to_come_after_a_wait() -> None:
    assert still_s(log(2.0), 0.5, 0.0) == pytest.approx(2.0)
    half = NORMAL.inv_cdf(0.75)
    assert still_s(log(2.0), 0.5, 2.0) == pytest.approx(2.0 * exp(0.5 * half) - 2.0)
    assert still_s(log(2.0), 0.001, 2.0) == pytest.approx(2.0 * exp(0.05 * half) - 2.0)
    far = exp(0.5 * NORMAL.inv_cdf(0.98))
    assert still_s(0.0, 0.5, far * 1.001) == pytest.approx(far * 1.001)  # it stalls: as long again
    assert still_s(0.0, 0.5, far * 0.999) < 0.5 * far


@pytest.mark.parametrize(("tokens", "waits"), [(310, False), (330, True)])
def test_a_rival_is_waited_for_where_its_end_is_sooner_by_more_than_the_silence(
    tokens: int, waits: bool
) -> None:
    """Its first token needs a second, its tokens half the time: n/200 - 1 > 0.2 + 0.3 * 1.3."""
    forms = Forms({A: prior(9.0, 100.0), B: prior(1.0, 200.0)})
    answer = ExpectedAnswer(0, tokens, 0.3)
    spoke, rival = Rival(A, 10 * S), Rival(B, 10 * S)
    until = waits_ns(spoke, [rival], forms, answer, 10 * S)
    assert until == (pytest.approx(11.3 * S) if waits else None)


def test_of_two_rivals_the_one_that_ends_first_is_waited_for() -> None:
    forms = Forms({A: prior(9.0, 10.0), B: prior(1.0, 100.0), C: prior(0.5, 50.0)})
    spoke = Rival(A, 10 * S)
    answer = ExpectedAnswer(0, 100)  # 10 s; 2 s; 2.5 s
    rivals = [Rival(C, 10 * S), Rival(B, 10 * S)]
    for order in (rivals, rivals[::-1]):
        assert waits_ns(spoke, order, forms, answer, 10 * S) == pytest.approx(11.3 * S)
    assert waits_ns(spoke, rivals[:1], forms, answer, 10 * S) == pytest.approx(10.8 * S)
    assert waits_ns(spoke, [], forms, answer, 10 * S) is None
    # What was said in the last seven seconds leaves three: too few to wait.
    early = Rival(A, 3 * S)
    assert waits_ns(early, rivals[1:], forms, answer, 10 * S) is None


@pytest.mark.parametrize(
    ("tokens", "rounded"),
    [(0, 0), (31, 31), (32, 32), (33, 34), (64, 64), (65, 68), (1000, 1024), (1025, 1088)],
)
def test_like_requests_share_a_plan_within_a_sixteenth(tokens: int, rounded: int) -> None:
    assert _rounded_up(tokens) == rounded


# What is said of the candidates


def basis(**facts: Any) -> Basis:
    """Two targets: a second and 10 ms a token each, twice as large a value for the other."""
    belief = ((1.0,), 0.0, 0.01, (3,), 4 * S, 0.01)
    usual: dict[str, Any] = {
        "order": (A, B), "size": 0, "beliefs": (belief, belief), "flying": (0, 7),
        "waits": (0.0, 0.0), "slows": (0.0, 0.0), "values": (1.0, 2.0), "over": (), "prices": None,
        "tokens": (100, 10), "well": 2, "full": 0, "now_ns": 10 * S,
    }  # fmt: skip
    return Basis(**usual | facts)


def other(beside: dict[str, str] | None = None, **facts: Any) -> Candidate:
    found = basis(**facts).candidates(A, beside or {})
    return next(one for one in found if one.target == B)


def believed(ttft_s: float = 1.0, slowness: float = 0.01, p_error: float = 0.01) -> Any:
    alike = ((1.0,), 0.0, 0.01, (3,), 4 * S, 0.01)
    return (alike, ((ttft_s,), 0.0, slowness, (3,), 4 * S, p_error))


def priced(times: float) -> dict[str, TargetPrice]:
    return {A: TargetPrice(10.0, 0.0), B: TargetPrice(10.0 * times, 0.0)}


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"values": ()}, "comes later in the order of the configuration or the draw"),
        ({"over": (0.0, 0.1)}, "is expected to miss a service level"),
        ({"over": (0.1, 0.1), "prices": priced(2)}, "costs 2 times as much"),
        ({"over": (0.1, 0.0), "prices": priced(2.5)}, "costs 2.5 times as much"),
        ({"values": (2.0, 2.0)}, "is as good; load is shared, or the last choice was kept"),
        ({"beliefs": believed(2.5)}, "its answer is expected to end 1.5 s later"),
        ({"beliefs": believed(1.25)}, "its answer is expected to end 250 ms later"),
        ({"beliefs": believed(1.0, 0.02)}, "its answer is expected to end 100 ms later"),
        ({"beliefs": believed(1.05, 0.005)}, "its first token is expected 50 ms later"),
        ({"waits": (0.0, 0.5)}, "its answer is expected to end 500 ms later"),
        ({"prices": priced(2)}, "costs 2 times as much"),
        ({"prices": {A: TargetPrice(0.0, 0.0), B: TargetPrice(1.0, 0.0)}}, "costs more"),
        ({"beliefs": believed(p_error=0.05)}, "fails more often (5.0% of its attempts)"),
        (
            {"prices": priced(1.004), "beliefs": believed(1.0009)},
            "is ranked lower by the policy: rare long waits, or load",
        ),
        (
            {"beliefs": believed(0.5, 0.001, 0.001), "prices": priced(0.5)},
            "is ranked lower by the policy: rare long waits, or load",
        ),
        (
            {"well": 1, "full": 1},
            "is at its limit: of requests in flight, or of what it says is left",
        ),
        ({"well": 1}, "is left alone for a while: it failed"),
    ],
)
def test_the_weightiest_reason_is_said(facts: dict[str, Any], why: str) -> None:
    assert other(**facts).why == why


def test_a_second_attempt_is_said_before_the_reason() -> None:
    later = {"beliefs": believed(1.25)}
    assert other({B: "hedge"}, **later).why == (
        "starts too if the first is slow; its answer is expected to end 250 ms later"
    )
    assert other({B: "racer"}, **later).why.startswith("starts at once as well; ")


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({}, "taken: the best value for the policy"),
        ({"values": ()}, "taken: first in the order of the configuration or the draw"),
        (
            {"values": (2.0, 1.0)},
            "taken: nearly the best, and load is shared or the last choice kept",
        ),
        ({"over": (0.1, 0.2)}, "taken: misses its service levels least"),
        ({"over": (0.0, 0.2)}, "taken: the best value for the policy"),
    ],
)
def test_why_the_first_was_taken(facts: dict[str, Any], why: str) -> None:
    assert basis(**facts).candidates(A, {})[0].why == why


def test_the_figures_of_a_candidate() -> None:
    seen = ((2.0,), log(2.0), 0.1, (3,), 4 * S, 0.01)
    new = ((2.0,), 0.0, 0.1, (0,), 4 * S, 0.01)
    found = basis(beliefs=(seen, new), waits=(0.5, 0.0), prices=priced(3), values=(1.0,))
    one, two = found.candidates(A, {})
    part = exp(-log(2.0) * exp(-6 / 180))  # failures of six seconds ago
    assert one.ttft_s == pytest.approx(2.0 * part + 0.5)
    assert one.end_s == pytest.approx(one.ttft_s + 1.0)
    batched = basis(beliefs=(seen, new), slows=(0.5, 0.0)).candidates(A, {})[0]
    assert batched.end_s == pytest.approx(batched.ttft_s + 1.5)
    assert (one.samples, one.age_s, one.in_flight, one.nano, one.value) == (3, 6.0, 0, 1000, 1)
    assert (two.samples, two.age_s, two.in_flight, two.nano, two.value) == (0, None, 7, 3000, None)
    assert found.candidates("gone/m", {}) == ()
    third = basis(
        order=(A, B, C), beliefs=(seen,) * 3, flying=(0,) * 3, waits=(0.0,) * 3,
        slows=(0.0,) * 3, values=(2.0, 3.0, 1.0),
    )  # fmt: skip
    assert [each.target for each in third.candidates(A, {})] == [A, C, B]


def test_a_failed_target_is_no_second_while_it_is_sick() -> None:
    forms = house()
    assert plan(forms, hedge="auto").overlaps
    for place in range(5):
        forms.failed(B, 0, 10 * S - place, SERVER, None)
    assert not plan(forms, hedge="auto").overlaps


def test_what_a_race_is_expected_to_cost() -> None:
    """The losers, each as likely as another, and what the winner costs beyond the first."""
    alias = Alias(name="m", targets=("a/m", "b/m"), policy="fastest")
    one = TargetPrice(1.0, 2.0, abort_stops=False)
    other = TargetPrice(3.0, 4.0, abort_stops=False)
    racers = ("a/m", "b/m")
    both = PlanAsk(alias=alias, tokens_in=100, prices={"a/m": one, "b/m": other})
    # 200 and 500 for fifty tokens: one of both loses, and the winner costs 150 more than the first.
    assert race_nano(both, 50, racers) == pytest.approx(0.5 * (200 + 500) + 350 - 200)
    assert race_nano(both, 50, racers[::-1]) == pytest.approx(0.5 * (200 + 500) + 350 - 500)
    partly: tuple[dict[str, TargetPrice] | None, ...] = ({}, {"a/m": one}, {"b/m": other}, None)
    for prices in partly:
        assert race_nano(PlanAsk(alias=alias, tokens_in=100, prices=prices), 50, racers) == 0.0
