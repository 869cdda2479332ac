"""Plans through the tiers of a cascade: which step starts when, by which clock, at whose cost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.gateway.admit.tier_plan import plan_tiers
from lightgate.route.cascade.tiers import cascade_of
from lightgate.route.form.forms import Forms
from lightgate.route.plan.alias import Alias, PlanAsk
from lightgate.route.plan.hedge import TargetPrice
from lightgate.route.plan.plan import Plan, Step

S = 1_000_000_000
TIERS: Any = (("simple", ("lab/s", "lab/t")), ("medium", ("lab/m",)), (None, ("lab/l", "lab/k")))
NAMES = ("lab/s", "lab/t", "lab/m", "lab/l", "lab/k")
PRICES = {name: TargetPrice(1.0 + place, 10.0) for place, name in enumerate(NAMES)}


class Planner:
    """Decides in the order of the targets, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[PlanAsk] = []

    def __call__(self, ask: PlanAsk) -> Plan:
        self.asked.append(ask)
        steps = [
            Step(target, 0 if place == 0 else None, None, "fallback" if place else "only")
            for place, target in enumerate(ask.alias.targets)
        ]
        return Plan(steps=tuple(steps), policy="balanced", reason="so", again=lambda: None)


def planned(
    level: Any = "simple", *, ahead_ns: int | None = 3 * S, verify: tuple[str, ...] = ("json",),
    bounds: Any = None, **ask: Any,
) -> tuple[Plan, Planner]:  # fmt: skip
    alias = Alias(name="m", targets=NAMES, policy="cascade", ahead_ns=ahead_ns)
    endpoint = SimpleNamespace(dialect="openai-chat")
    found = SimpleNamespace(level=level, score=0.25, reasons=("a", "b", "c", "d"))
    request: Any = SimpleNamespace(endpoint=endpoint, found=SimpleNamespace(complexity=found))
    facts: dict[str, Any] = {"tokens_in": 100, "max_tokens": 7, "prices": PRICES} | ask
    planner = Planner()
    plan = plan_tiers(
        cascade_of(alias, TIERS, verify), PlanAsk(alias=alias, **facts), request, planner,
        Forms({}), bounds,
    )  # fmt: skip
    return plan, planner


def shown(plan: Plan) -> list[tuple[str, int | None, str, int]]:
    return [(step.target, step.start_ns, step.role, step.tier) for step in plan.steps]


def test_the_next_tier_starts_ahead_and_keeps_what_a_whole_answer_costs() -> None:
    plan, planner = planned()
    assert shown(plan) == [
        ("lab/s", 0, "primary", 0),
        ("lab/t", None, "fallback", 0),
        ("lab/m", 3 * S, "hedge", 1),
        ("lab/l", None, "fallback", 2),
        ("lab/k", None, "fallback", 2),
    ]
    assert (plan.hedge_ns, plan.reserve_nano) == (3 * S, 100 * 3.0 + 7 * 10.0)
    assert [ask.hedge for ask in planner.asked] == ["off"] * 3
    assert [ask.race for ask in planner.asked] == [None, 1, 1]
    assert (plan.policy, plan.level, plan.points, plan.again) == ("cascade", "simple", 0.25, None)
    assert plan.reason == "simple: a, b, c; tier 1 of 3, so"


@pytest.mark.parametrize(
    ("ask", "nano"),
    [
        ({"max_tokens": None, "expected_tokens": 20}, 300.0 + 200.0),
        ({"prices": {name: PRICES[name] for name in ("lab/s", "lab/k")}}, 500.0 + 70.0),
        ({"prices": None}, 0.0),
    ],
)
def test_what_is_unknown_of_the_cost_is_taken_for_the_dearest(
    ask: dict[str, Any], nano: float
) -> None:
    assert planned(**ask)[0].reserve_nano == nano


@pytest.mark.parametrize(
    "why",
    [{"ahead_ns": None}, {"race": 2}, {"hedge": "off"}, {"level": "complex"}],
)
def test_nothing_starts_ahead_without_a_right_to(why: dict[str, Any]) -> None:
    plan, planner = planned(**why)
    assert [step.start_ns for step in plan.steps] == [0, *[None] * (len(plan.steps) - 1)]
    assert plan.hedge_ns is None
    assert planner.asked[0].hedge == why.get("hedge")  # the first tier may be hedged instead


def test_every_step_but_the_last_has_a_deadline_for_its_first_token() -> None:
    plan, _ = planned(ttft_timeout_ns=4 * S)
    assert [step.ttft_ns for step in plan.steps] == [4 * S] * 4 + [None]


def test_harder_requests_begin_higher_and_what_was_learned_raises_them() -> None:
    plan, _ = planned("medium")
    assert [step.tier for step in plan.steps] == [1, 2, 2, 0, 0]
    assert plan.steps[1].start_ns == 3 * S
    bounds = SimpleNamespace(higher=lambda points: 1 if points == 0.25 else 0, checked=9)
    plan, _ = planned(bounds=bounds)
    assert [step.tier for step in plan.steps] == [1, 2, 2, 0, 0]
    assert plan.reason == "simple: a, b, c; tier 2 of 3 by 9 checks of answers, so"
    bounds = SimpleNamespace(higher=lambda _: 0, checked=9)
    assert planned(bounds=bounds)[0].reason.startswith("simple: a, b, c; tier 1 of 3, ")


def test_a_target_that_was_tried_is_left_to_the_tier_before() -> None:
    alias = Alias(name="m", targets=("lab/s",), policy="cascade", ahead_ns=S)
    tiers: Any = (("simple", ("lab/s",)), (None, ("lab/s",)))
    found = SimpleNamespace(level="simple", score=0.0, reasons=())
    endpoint = SimpleNamespace(dialect="openai-chat")
    request: Any = SimpleNamespace(endpoint=endpoint, found=SimpleNamespace(complexity=found))
    plan = plan_tiers(
        cascade_of(alias, tiers, ("json",)), PlanAsk(alias=alias), request, Planner(), Forms({})
    )
    # It does not start beside itself.
    assert shown(plan) == [("lab/s", 0, "primary", 0), ("lab/s", None, "fallback", 1)]
    assert plan.hedge_ns is None
    assert "says nothing hard" in plan.reason
