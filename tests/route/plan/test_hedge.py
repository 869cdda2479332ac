from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.route.form.forms import Forms
from lightgate.route.form.prior import Prior
from lightgate.route.form.size import PromptSize
from lightgate.route.health.failure import SERVER
from lightgate.route.plan.finish import PATIENCE_S, WORTH, ExpectedAnswer, Rival, still_s, waits_ns
from lightgate.route.plan.hedge import (
    LATE,
    LOANS,
    RACE_SPEND,
    SHARE,
    SPEND,
    HedgeBudgets,
    TargetPrice,
    chance,
    delay_ns,
    quantile_of,
    reserve_nano,
    sick,
)

S = 1_000_000_000


def size(*ttfts_s: float) -> PromptSize:
    found = PromptSize(-1.609, 0.25)  # 200 ms
    found.fill(ttfts_s)
    return found


def test_the_delay_is_the_targets_own_quantile() -> None:
    assert delay_ns(size(*[0.1 + n / 1000 for n in range(100)]), 0.90) == pytest.approx(0.19 * S)


def test_few_samples_leave_it_to_the_long_run() -> None:
    assert delay_ns(size(9.0, 9.0), 0.90) == pytest.approx(0.2 * 1.3776 * S, rel=0.01)


def test_a_sick_target_does_not_put_its_hedge_off() -> None:
    assert delay_ns(size(*[9.0] * 100), 0.90) == pytest.approx(1.5 * 0.2 * 1.3776 * S, rel=0.01)


def test_no_hedge_before_50_ms() -> None:
    assert delay_ns(size(*[0.001] * 100), 0.90) == 50_000_000


def test_words_for_hedges() -> None:
    assert quantile_of("auto", thrifty=False) == 0.88
    assert quantile_of("auto", thrifty=True) == 0.95
    assert quantile_of("p75", thrifty=True) == 0.75
    assert quantile_of("800ms", thrifty=False) is None


def test_an_early_hedge_is_planned_for_some_only() -> None:
    assert chance(0.90) == 1.0
    for q in (0.75, 0.80):  # early or late, all of them together are the share
        assert chance(q) * (1.0 - q) + (1.0 - chance(q)) * (1.0 - LATE) == pytest.approx(SHARE)


def test_a_target_that_fails_is_nobodys_second() -> None:
    forms = Forms({})
    form = forms.form("a/m")
    for _ in range(4):
        forms.first("a/m", 0, 0, S)
    forms.failed("a/m", 0, 0, SERVER, None)
    assert sick(form, 0)
    assert not sick(form, 60 * S)


def test_what_a_loser_costs() -> None:
    assert reserve_nano(TargetPrice(100.0, 400.0), 500, 512) == 500 * 100 + 15 * 400
    assert (
        reserve_nano(TargetPrice(100.0, 400.0, abort_stops=False), 500, 512)
        == 500 * 100 + 512 * 400
    )


@given(
    st.lists(
        st.tuples(st.sampled_from(["ask", "hedge", "racer"]), st.floats(0, 1e6), st.floats(0, 1)),
        max_size=200,
    )
)
def test_no_sequence_of_requests_exceeds_the_caps(
    events: list[tuple[str, float, float]],
) -> None:
    budgets = HedgeBudgets()
    hedges = 0
    hedged = raced = paid = 0.0
    for requests, (kind, nano, part) in enumerate(events, start=1):
        budgets.deposit("k")
        if kind == "hedge" and budgets.take("k", "hedge", nano):
            hedges += 1
            hedged += nano * part
            budgets.settle("k", "hedge", nano, nano * part)
        own = 1000.0
        if kind == "racer" and budgets.take("k", "racer", nano, own):
            raced += nano * part
            budgets.settle("k", "racer", nano, nano * part)
        budgets.paid("k", own)
        paid += own
        assert hedges <= SHARE * requests + 1e-6
        assert hedged <= SPEND * paid + 1e-6
        assert raced <= RACE_SPEND * paid + 1e-6


def rich() -> HedgeBudgets:
    budgets = HedgeBudgets()
    for _ in range(100):
        budgets.deposit("rich")
        budgets.paid("rich", 1000.0)
    return budgets


def test_a_young_key_is_lent_a_few_hedges_and_pays_them_back() -> None:
    budgets = rich()
    assert budgets.may("rich", "hedge", 500.0)
    for _ in range(LOANS):
        budgets.deposit("young")
        assert budgets.take("young", "hedge", 500.0)
        budgets.settle("young", "hedge", 500.0, 100.0)
    budgets.deposit("young")
    assert not budgets.may("young", "hedge", 500.0)
    assert budgets.may("young", "racer", 0.0)
    asked = LOANS + 1
    while not budgets.may("young", "hedge", 100.0):
        budgets.deposit("young")
        budgets.paid("young", 1000.0)
        asked += 1
    # What was lent is paid back before it may hedge of its own.
    assert asked == math.ceil((LOANS + 1) / SHARE)


def test_nothing_is_lent_where_nobody_has_saved_up() -> None:
    budgets = HedgeBudgets()
    assert not budgets.may("first", "hedge", 0.0)
    budgets.deposit("first")
    assert not budgets.take("first", "hedge", 0.0)
    assert not rich().take("young", "hedge", 100 * 1000.0 * SPEND + 1.0)


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.booleans(), st.floats(0, 2e4), st.floats(0, 1)),
        max_size=300,
    )
)
def test_loans_included_all_keys_together_keep_the_caps_at_every_instant(
    events: list[tuple[int, bool, float, float]],
) -> None:
    budgets, hedges, hedged, paid = HedgeBudgets(), 0, 0.0, 0.0
    for requests, (number, wants, nano, part) in enumerate(events, start=1):
        key = f"k{number}"
        budgets.deposit(key)
        if wants and budgets.take(key, "hedge", nano):
            hedges += 1
            hedged += nano * part
            assert hedged <= SPEND * paid + 1e-6
            budgets.settle(key, "hedge", nano, nano * part)
        assert hedges <= SHARE * requests + 1e-6
        budgets.paid(key, 1000.0)
        paid += 1000.0


# Who wins


def two(fast_tps: float, slow_tps: float) -> Forms:
    return Forms(
        {"f/m": Prior(300.0, 600.0, fast_tps, fast_tps), "s/m": Prior(200.0, 300.0, slow_tps, 1.0)}
    )


def held(
    forms: Forms, tokens: int, now: int, worth: float = WORTH, since: int | None = None
) -> int:
    """For how long the slower one, which has just spoken, is held back for the faster one."""
    spoke = Rival("s/m", now if since is None else since)
    until = waits_ns(spoke, [Rival("f/m", 0)], forms, ExpectedAnswer(0, tokens, worth), now)
    return 0 if until is None else until - now


def test_the_first_token_wins_where_the_rest_is_alike() -> None:
    assert held(two(100.0, 95.0), 300, S // 5) == 0


def test_a_far_faster_rival_is_waited_for_for_a_bounded_time() -> None:
    assert 0 < held(two(200.0, 40.0), 500, S // 5) < int((0.3 + PATIENCE_S) * S)


def test_one_that_has_stalled_is_waited_for_as_long_again_where_that_is_worth_it() -> None:
    far = two(200.0, 40.0)  # 2.5 seconds against 12.5
    assert held(far, 500, 3 * S) == pytest.approx(3 * S + PATIENCE_S * S, rel=1e-6)
    assert held(far, 500, 5 * S) == 0  # a second of silence is worth a second of the end
    assert held(far, 500, 5 * S, worth=0.0) > 5 * S  # ... unless nobody hears it
    assert held(far, 500, 11 * S, worth=0.0) == 0  # too late whatever it does
    assert held(far, 500, 3 * S, since=-6 * S) == 0  # what was said meanwhile is not lost


def test_the_longer_it_took_the_longer_it_takes() -> None:
    rest = [still_s(-1.2, 0.9, waited) for waited in (0.3, 0.6, 1.2)]
    assert rest == sorted(rest)
    assert still_s(-1.2, 0.3, 10.0) == 10.0
