"""Aliases: which plans are fixed, which targets hedge themselves, and the steps of an order."""

from __future__ import annotations

from typing import Any

import pytest

from lightgate.errors import ConfigError
from lightgate.route.plan.alias import Alias, Layout, fixed_hedge_ns, lay_out, lay_out_twice
from lightgate.route.plan.plan import Step


def alias(*targets: str, **more: Any) -> Alias:
    return Alias(name="m", targets=targets or ("a", "b"), **more)


@pytest.mark.parametrize(
    ("targets", "more", "static"),
    [
        (("a",), {}, True),
        (("a", "b"), {}, True),
        (("a", "b"), {"race": 2}, False),
        (("a", "b"), {"hedge": "auto"}, False),
        (("a", "b"), {"policy": "fastest"}, False),
        (("a",), {"policy": "fastest"}, False),
        (("a", "b"), {"tiers": ((None, ("a",)), (None, ("b",)))}, False),
        (("a",), {"race": 2}, True),
        (("a",), {"hedge": "auto"}, True),
        (("a",), {"hedge": "auto", "self_hedge": True}, False),
        (("a",), {"hedge": "off", "self_hedge": True}, True),
    ],
)
def test_which_plans_are_always_the_configured_order(
    targets: tuple[str, ...], more: dict[str, Any], static: bool
) -> None:
    assert alias(*targets, **more).is_static is static


@pytest.mark.parametrize(
    ("targets", "self_hedge", "hedge", "asked", "twice"),
    [
        (("a", "b"), True, "auto", "auto", False),
        (("a",), False, "auto", "auto", False),
        (("a",), None, "off", "auto", True),
        (("a",), None, "auto", "off", False),
        (("a",), None, "auto", None, False),
        (("a",), True, "auto", None, True),
        (("a",), True, "off", None, False),
        (("a",), True, "off", "200ms", True),
        (("a",), True, "auto", "off", False),
    ],
)
def test_which_target_hedges_itself(
    targets: tuple[str, ...], self_hedge: bool | None, hedge: str, asked: str | None, twice: bool
) -> None:
    assert alias(*targets, self_hedge=self_hedge, hedge=hedge).hedges_itself(asked) is twice


def test_weights_say_which_targets_are_drawn() -> None:
    assert alias().shares == ((0, 1.0), (1, 1.0))
    assert alias().undrawn == ()
    assert alias(weights=(0.0, 0.0)).shares == ((0, 1.0), (1, 1.0))
    some = alias("a", "b", "c", weights=(2.0, 0.0, 1.0))
    assert (some.shares, some.undrawn) == (((0, 2.0), (2, 1.0)), (1,))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"targets": ()}, "has no targets"),
        ({"targets": ("a", "a")}, "names a target twice"),
        ({"targets": ("a",), "weights": (1.0, 2.0)}, "one weight for each"),
        ({"targets": ("a",), "weights": (-0.1,)}, "not a number from 0 up"),
        ({"targets": ("a",), "weights": (float("nan"),)}, "not a number from 0 up"),
        ({"targets": ("a",), "weights": (float("inf"),)}, "not a number from 0 up"),
    ],
)
def test_an_alias_that_makes_no_sense(more: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Alias(name="m", **more)


@pytest.mark.parametrize(
    ("hedge", "ns"),
    [("off", None), ("auto", None), ("p90", None), ("800ms", 800_000_000), ("1s", 1_000_000_000)],
)
def test_a_hedge_with_a_fixed_time(hedge: str, ns: int | None) -> None:
    assert fixed_hedge_ns(hedge) == alias(hedge=hedge).hedge_ns == ns


def laid(order: str, well: int, **more: Any) -> list[tuple[str, int | None, int | None, str]]:
    facts: dict[str, Any] = {"retries": 0, "ttft_ns": 7, "race": 1, "hedge_ns": None} | more
    steps = lay_out(order, well, Layout(**facts))
    return [(one.target, one.start_ns, one.ttft_ns, one.role) for one in steps]


def test_an_order_becomes_steps() -> None:
    assert laid("a", 1) == [("a", 0, None, "only")]
    assert laid("ab", 2) == [("a", 0, 7, "primary"), ("b", None, None, "fallback")]
    ready = [Step(name, None, due, "fallback") for name, due in (("a", 1), ("b", 2), ("c", 3))]
    found = lay_out("abc", 3, Layout(0, None, 1, None), ready)
    assert found == (Step("a", 0, 1, "primary"), ready[1], Step("c", None, None, "fallback"))
    found = lay_out("abc", 3, Layout(1, None, 1, None), ready)  # with a retry of each
    assert found[:4] == (Step("a", 0, 1, "primary"), ready[0], ready[1], ready[1])
    assert found[4:] == (ready[2], Step("c", None, None, "fallback"))


def test_retries_come_before_the_next_target() -> None:
    assert laid("a", 1, retries=1) == [("a", 0, 7, "primary"), ("a", None, None, "fallback")]
    assert laid("ab", 2, retries=1) == [
        ("a", 0, 7, "primary"), ("a", None, 7, "fallback"), ("b", None, 7, "fallback"),
        ("b", None, None, "fallback"),
    ]  # fmt: skip


def test_allowed_targets_race() -> None:
    assert laid("abc", 3, race=2) == [
        ("a", 0, 7, "racer"), ("b", 0, 7, "racer"), ("c", None, None, "fallback"),
    ]  # fmt: skip
    assert laid("abc", 1, race=2)[0] == ("a", 0, 7, "primary")
    assert laid("ab", 0, race=2)[0] == ("a", 0, 7, "primary")
    assert laid("ab", 2, race=2, retries=1)[2:] == [
        ("a", None, 7, "fallback"), ("b", None, None, "fallback"),
    ]  # fmt: skip


def test_allowed_targets_hedge() -> None:
    assert laid("abc", 2, hedge_ns=5) == [
        ("a", 0, 7, "primary"), ("b", 5, 7, "hedge"), ("c", None, None, "fallback"),
    ]  # fmt: skip
    assert laid("ab", 2, hedge_ns=5) == [("a", 0, 7, "primary"), ("b", 5, None, "hedge")]
    assert laid("ab", 1, hedge_ns=5) == [("a", 0, 7, "primary"), ("b", None, None, "fallback")]
    assert [role for *_, role in laid("abc", 3, hedge_ns=5, race=2)] == [
        "racer", "racer", "fallback",
    ]  # fmt: skip
    assert laid("ab", 2, hedge_ns=5, retries=1)[2:] == [
        ("a", None, 7, "fallback"), ("b", None, None, "fallback"),
    ]  # fmt: skip


def test_a_target_may_be_laid_out_twice() -> None:
    assert lay_out_twice("a", Layout(1, 7, 1, 5)) == (
        Step("a", 0, None, "primary"),
        Step("a", 5, None, "hedge"),
        Step("a", None, None, "fallback"),
    )


def test_the_configured_order_is_a_plan() -> None:
    plan = alias(ttft_timeout_ns=9, retries=1).in_order
    assert [(one.target, one.ttft_ns) for one in plan.steps] == [
        ("a", 9), ("a", 9), ("b", 9), ("b", None),
    ]  # fmt: skip
    assert (plan.policy, plan.reason) == ("ordered", "configured order")
