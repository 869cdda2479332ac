from __future__ import annotations

import random
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.errors import ConfigError
from lightgate.route.admission.headers import RateFact
from lightgate.route.form.forms import Forms
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.health.failure import RATE_LIMITED, SERVER
from lightgate.route.plan.alias import Alias, PlanAsk
from lightgate.route.plan.decide import decide
from lightgate.route.plan.plan import Plan, Step

S = 1_000_000_000
NAMES = tuple(f"{name}/m" for name in "abcde")


def alias(count: int = 3, **changes: Any) -> Alias:
    return Alias(name="fast", targets=NAMES[:count], **changes)


def breakers(**holds_s: float) -> Breakers:
    """Breakers at instant 0, with holds by the first letter of the target."""
    found = Breakers(Rules(), lambda: 1.0)
    for letter, seconds in holds_s.items():
        found.failed(f"{letter}/m", 0, RATE_LIMITED, seconds, 0)
    return found


def plan(of: Alias, held: Breakers | None = None, draw: float = 0.5, **asked: Any) -> Plan:
    return decide(PlanAsk(alias=of, **asked), held or breakers(), 1, draw)


def order(found: Plan) -> str:
    return "".join(step.target[0] for step in found.steps)


# Ordered


def test_ordered_is_the_order_of_the_configuration() -> None:
    found = plan(alias(3, ttft_timeout_ns=8 * S))
    assert found.steps == (
        Step("a/m", 0, 8 * S, "primary"),
        Step("b/m", None, 8 * S, "fallback"),
        Step("c/m", None, None, "fallback"),
    )
    assert found.policy == "ordered"
    assert found.text == "a/m > b/m > c/m"


def test_one_target_is_the_only_one() -> None:
    assert plan(alias(1)).steps == (Step("a/m", 0, None, "only"),)


def test_the_usual_plan_is_made_once() -> None:
    of = alias()
    assert plan(of) is plan(of)
    assert plan(of, breakers(e=5.0)) is plan(of), "somebody else's trouble"


def test_a_held_target_goes_last() -> None:
    found = plan(alias(), breakers(a=30.0))
    assert order(found) == "bca"
    assert found.reason == "configured order, 1 held"


def test_held_targets_come_back_soonest_first() -> None:
    found = plan(alias(5), breakers(a=30.0, b=10.0, d=20.0))
    assert order(found) == "cebda"


def test_if_all_are_held_all_are_still_there() -> None:
    held = breakers(a=30.0, b=10.0, c=20.0)
    found = plan(alias(), held)
    assert order(found) == "bca"
    assert found.reason == "configured order, all held: soonest first"
    assert held.soonest_ns(NAMES[:3], 1) == 10 * S


def test_an_open_target_whose_pause_is_over_gets_one_probe_in_its_place() -> None:
    held = breakers()
    for _ in range(3):
        held.failed("a/m", 0, SERVER, None, 0)
    ask = PlanAsk(alias=alias())
    assert order(decide(ask, held, 5 * S - 1, 0.5)) == "bca"
    assert order(decide(ask, held, 5 * S, 0.5)) == "abc"
    held.started("a/m", 5 * S)
    assert order(decide(ask, held, 5 * S, 0.5)) == "bca"
    held.spoke("a/m", 6 * S, 5 * S)
    assert order(decide(ask, held, 6 * S, 0.5)) == "abc"


def test_retries_ask_the_same_target_before_the_next() -> None:
    found = plan(alias(2, retries=2, ttft_timeout_ns=S))
    assert order(found) == "aaabbb"
    assert [step.role for step in found.steps] == ["primary", *["fallback"] * 5]
    assert [step.ttft_ns for step in found.steps] == [S] * 5 + [None]


@pytest.mark.parametrize("policy", ["fastest", "cheapest", "voice"])
def test_a_policy_without_knowledge_is_in_order_and_says_so(policy: str) -> None:
    found = plan(alias(policy=policy))
    assert order(found) == "abc"
    assert found.policy == "ordered"


# Race and hedge


def test_racers_start_together() -> None:
    found = plan(alias(4, race=2, retries=1, ttft_timeout_ns=S))
    assert [step.start_ns for step in found.steps] == [0, 0, *[None] * 6]
    assert [step.role for step in found.steps[:3]] == ["racer", "racer", "fallback"]
    assert order(found) == "ababccdd"
    assert found.text.startswith("a/m + b/m > a/m > b/m > c/m")


def test_a_held_target_does_not_race() -> None:
    found = plan(alias(3, race=3), breakers(a=5.0))
    assert order(found) == "bca"
    assert [step.start_ns for step in found.steps] == [0, 0, None]
    alone = plan(alias(2, race=2), breakers(a=5.0))
    assert [step.role for step in alone.steps] == ["primary", "fallback"]


def test_a_hedge_starts_at_its_time() -> None:
    found = plan(alias(3, hedge="800ms"))
    assert [step.start_ns for step in found.steps] == [0, 800_000_000, None]
    assert [step.role for step in found.steps] == ["primary", "hedge", "fallback"]
    assert found.text == "a/m ~800ms b/m > c/m"


@pytest.mark.parametrize("hedge", ["off", "auto", "p95"])
def test_a_hedge_without_a_time_is_not_planned(hedge: str) -> None:
    assert plan(alias(3, hedge=hedge)).steps[1].role == "fallback"


def test_nobody_hedges_with_a_held_target_or_with_itself() -> None:
    assert plan(alias(2, hedge="1s"), breakers(b=5.0)).steps[1].role == "fallback"
    assert plan(alias(1, hedge="1s")).steps == (Step("a/m", 0, None, "only"),)


def test_the_request_may_ask_otherwise() -> None:
    of = alias(3, hedge="1s")
    assert [step.role for step in plan(of, race=2).steps] == ["racer", "racer", "fallback"]
    assert plan(of, hedge="off").steps[1].role == "fallback"
    assert plan(of, hedge="50ms").steps[1].start_ns == 50_000_000
    assert [step.ttft_ns for step in plan(of, ttft_timeout_ns=7).steps] == [7, 7, None]
    assert plan(of, policy="weighted").policy == "weighted"


# Weighted

CHI2_999 = {1: 10.83, 2: 13.82, 5: 20.52, 23: 49.73}  # 0.1 % of fair draws exceed it


def first_places(of: Alias, count: int, held: Breakers | None = None) -> Counter[str]:
    draws = random.Random(7)  # noqa: S311 - a test's own draws
    return Counter(order(plan(of, held, draws.random()))[0] for _ in range(count))


def chi2(seen: Counter[Any], shares: dict[Any, float]) -> float:
    n, whole = seen.total(), sum(shares.values())
    return sum((seen[k] - n * w / whole) ** 2 / (n * w / whole) for k, w in shares.items())


def test_weights_are_kept_in_the_long_run() -> None:
    of = alias(3, policy="weighted", weights=(5.0, 3.0, 2.0))
    assert chi2(first_places(of, 20_000), {"a": 5, "b": 3, "c": 2}) < CHI2_999[2]


def test_the_second_place_is_drawn_by_weight_too() -> None:
    of = alias(4, policy="weighted")
    draws = random.Random(11)  # noqa: S311 - a test's own draws
    seen = Counter(order(plan(of, None, draws.random())) for _ in range(24_000))
    assert len(seen) == 24
    assert chi2(seen, dict.fromkeys(seen, 1.0)) < CHI2_999[23]


def test_among_the_rest_the_weights_still_hold() -> None:
    of = alias(3, policy="weighted", weights=(5.0, 3.0, 2.0))
    seen = first_places(of, 20_000, breakers(a=30.0))
    assert seen["a"] == 0
    assert chi2(seen, {"b": 3, "c": 2}) < CHI2_999[1]


def test_weight_zero_is_a_fallback_only() -> None:
    of = alias(3, policy="weighted", weights=(0.0, 1.0, 1.0))
    for draw in (0.0, 0.3, 0.6, 0.999):
        assert order(plan(of, None, draw))[-1] == "a"


# Everything

ANY_ALIAS = st.builds(
    alias,
    st.integers(1, 5),
    policy=st.sampled_from(["ordered", "weighted", "fastest"]),
    retries=st.integers(0, 3),
    race=st.integers(1, 8),
    hedge=st.sampled_from(["off", "auto", "p90", "10ms"]),
    ttft_timeout_ns=st.none() | st.integers(1, 10 * S),
)
ANY_HOLDS = st.dictionaries(st.sampled_from("abcde"), st.floats(0.5, 100.0))


@given(
    ANY_ALIAS,
    ANY_HOLDS,
    st.floats(0.0, 1.0, exclude_max=True),
    st.none() | st.integers(1, 8),
    st.integers(0, 120 * S),
)
def test_every_plan_keeps_its_promises(
    of: Alias, holds: dict[str, float], draw: float, race: int | None, now_ns: int
) -> None:
    held = breakers(**holds)
    found = decide(PlanAsk(alias=of, race=race), held, now_ns, draw)
    counts = Counter(step.target for step in found.steps)
    assert counts == dict.fromkeys(of.targets, of.retries + 1)
    assert found.steps[-1].ttft_ns is None
    assert all(step.ttft_ns == of.ttft_timeout_ns for step in found.steps[:-1])
    assert found.steps[0].start_ns == 0
    starts = [step.start_ns for step in found.steps if step.start_ns is not None]
    assert starts == sorted(starts)
    assert all(step.start_ns is None for step in found.steps[len(starts) :])
    early = [step.target for step in found.steps[: len(starts)]]
    assert len(set(early)) == len(early)
    assert len(early) <= max(race or of.race, 2)
    allowed = [
        held.allows(target, now_ns) for target in dict.fromkeys(s.target for s in found.steps)
    ]
    assert allowed == sorted(allowed, reverse=True), "a held one before one that is well"
    if len(early) > 1:
        assert all(held.allows(target, now_ns) for target in early)
    assert decide(PlanAsk(alias=of, race=race), held, now_ns, draw) == found


@given(st.integers(1, 30), st.floats(0.0, 1.0))
def test_a_draw_at_the_edge_loses_nobody(count: int, draw: float) -> None:
    targets = tuple(f"p/{number}" for number in range(count))
    of = Alias(name="x", targets=targets, policy="weighted", weights=(0.1,) * count)
    assert sorted(step.target for step in plan(of, None, draw).steps) == sorted(targets)


# Aliases


@pytest.mark.parametrize(
    "wrong",
    [
        {"targets": ()},
        {"targets": ("a/m", "a/m")},
        {"targets": ("a/m", "b/m"), "weights": (1.0,)},
        {"targets": ("a/m",), "weights": (-1.0,)},
        {"targets": ("a/m",), "weights": (float("nan"),)},
    ],
)
def test_an_alias_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Alias(name="x", **wrong)


def test_an_alias_survives_the_snapshot() -> None:
    of = alias(3, hedge="800ms", weights=(1.0, 2.0, 3.0))
    assert of.in_order.steps
    copy = msgspec.json.decode(msgspec.json.encode(of), type=Alias)
    assert copy == of
    assert copy.in_order == of.in_order


# The one target itself


def itself(forms: Forms, now_ns: int = 1) -> Plan:
    """The plan of a request that asks one target for a hedge after a second."""
    ask = PlanAsk(alias=alias(1, policy="fastest"), hedge="1s")
    return decide(ask, breakers(), now_ns, 0.5, forms)


def test_a_request_may_ask_for_a_hedge_at_the_one_target_itself() -> None:
    assert [step.role for step in itself(Forms({})).steps] == ["primary", "hedge"]
    assert [step.target for step in itself(Forms({})).steps] == ["a/m", "a/m"]


def test_a_target_at_its_limit_is_not_hedged_with_itself() -> None:
    forms = Forms({})
    empty = RateFact("requests", 100.0, 0.0, 10.0, None)
    forms.stated("a/m", 0, 0, [empty], tokens=0, refused=False)
    assert [step.role for step in itself(forms).steps] == ["only"]


def test_a_target_in_trouble_is_not_hedged_with_itself() -> None:
    forms = Forms({})
    for _ in range(20):
        forms.failed("a/m", 0, S, SERVER, None)
    assert [step.role for step in itself(forms, S).steps] == ["only"]
