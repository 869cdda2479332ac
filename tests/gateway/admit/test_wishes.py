"""What is asked of the limits of a key for one request, and what is asked for once more."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from lightgate.gateway.admit import admit as module
from lightgate.gateway.admit.worst import Reservation
from lightgate.gateway.request.refusal import Refusing
from lightgate.gateway.served.price import USUAL_ANSWER, Ceiling
from lightgate.gateway.spend.denial import Denied
from lightgate.ledger.store.keys import KeyRecord, KeyTerms, new_key
from lightgate.route.plan.plan import Plan, Step

PLAN = Plan((Step("a", 0, None, "primary"),), "ordered", "because")
WALL_NS = 1_700_000_000_000_000_000


def key(**terms: Any) -> KeyRecord:
    return new_key(KeyTerms(name="k", **terms))[1]


RICH = key(budget_usd=Decimal(1))
OFTEN = key(rpm=5)


def denied(reason: Any = "budget") -> Denied:
    return Denied(reason=reason, retry_after_s=7.0, message="No.")


class Desk:
    """An exchange with one target, and limits that give the answers that a test has for them."""

    def __init__(
        self, record: KeyRecord | None, *, free: bool = False, sound: str = "", left: int = 0
    ) -> None:
        prices = SimpleNamespace(worst=lambda tokens_in, out: 2 * tokens_in + 3 * (out or 0))
        self.exchange: Any = SimpleNamespace(
            request=SimpleNamespace(
                endpoint=SimpleNamespace(free=free, sound=sound), sound="read this",
                max_tokens=100, answers=1, tokens_in=10,
            ),
            caller=SimpleNamespace(key=record), wall_ns=WALL_NS, plan=PLAN, cap=None,
            served=SimpleNamespace(targets={"a": SimpleNamespace(prices=prices)}),
            ceilings=None, skipped=(), reserved=0, reserved_tokens=0,
        )  # fmt: skip
        self.state: Any = SimpleNamespace(spend=SimpleNamespace(left_nano=lambda _key: left))

    def wishes(self, *answers: Denied | None) -> list[tuple[int, int]]:
        """Answer the wishes in turn; the tokens and nano-dollars of each."""
        asked: list[tuple[int, int]] = []
        said = iter(answers)
        wishes = module._reserve(self.state, self.exchange, self.exchange.plan)
        try:
            record, wall_ns, *amounts = next(wishes)
            while True:
                assert (record, wall_ns) == (self.exchange.caller.key, WALL_NS)
                asked.append((amounts[0], amounts[1]))
                record, wall_ns, *amounts = wishes.send(next(said))
        except StopIteration:
            assert not [*said]
            return asked


def test_a_request_that_costs_nothing_is_counted_and_takes_nothing() -> None:
    assert Desk(OFTEN, free=True).wishes(None) == [(0, 0)]
    with pytest.raises(Refusing) as refused:
        Desk(OFTEN, free=True).wishes(denied("rpm"))
    assert (refused.value.refusal.status, refused.value.refusal.code) == (429, "rpm")


def test_without_a_budget_the_worst_of_the_first_target_is_wished_for() -> None:
    desk = Desk(OFTEN)
    assert desk.wishes(None) == [(110, 2 * 10 + 3 * 100)]
    assert (desk.exchange.reserved, desk.exchange.reserved_tokens) == (320, 110)
    assert desk.exchange.ceilings is None


def test_without_a_key_nothing_is_wished_for_and_the_worst_is_noted() -> None:
    desk = Desk(None)
    assert desk.wishes() == []
    assert (desk.exchange.reserved, desk.exchange.reserved_tokens) == (320, 110)


def plan_costs(monkeypatch: pytest.MonkeyPatch, reservation: Reservation) -> list[int | None]:
    """Let a plan cost this much; the limits on its answers that it was asked for with."""
    outs: list[int | None] = []

    def reserve_plan(exchange: Any, out: int | None) -> Reservation:
        outs.append(out)
        exchange.ceilings = {"a": Ceiling(1, 1, 1), "b": Ceiling(2, 2, 2)}
        return reservation

    monkeypatch.setattr(module, "reserve_plan", reserve_plan)
    return outs


def test_a_budget_is_asked_for_the_most_that_a_plan_may_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outs = plan_costs(monkeypatch, Reservation(500, 500, unbounded=False, beside=1))
    desk = Desk(RICH)
    assert desk.wishes(None) == [(110, 500)]
    assert (desk.exchange.reserved, outs) == (500, [100])
    desk.exchange.cap = 40  # the limit that is written into the request
    assert desk.wishes(None) == [(50, 500)]
    desk.exchange.cap = desk.exchange.request.max_tokens = None
    assert desk.wishes(None) == [(10 + USUAL_ANSWER, 500)]
    assert outs == [100, 40, None]


@pytest.mark.parametrize("left", [300, 200])
def test_an_answer_without_a_limit_may_take_all_that_is_left_where_that_is_enough(
    monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    plan_costs(monkeypatch, Reservation(500, 200, unbounded=False, beside=1))
    desk = Desk(RICH, left=left)
    assert desk.wishes(denied(), None) == [(110, 500), (110, left)]
    assert desk.exchange.reserved == left
    with pytest.raises(Refusing) as refused:
        desk.wishes(denied(), denied())
    assert refused.value.refusal.status == 402


def test_what_is_less_than_a_usual_answer_costs_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan_costs(monkeypatch, Reservation(500, 200, unbounded=False, beside=1))
    with pytest.raises(Refusing) as refused:
        Desk(RICH, left=199).wishes(denied())
    assert refused.value.refusal.status == 402


@pytest.mark.parametrize(("least", "reason"), [(500, "budget"), (200, "rpm")])
def test_a_wish_is_repeated_only_where_less_would_do_and_money_is_short(
    monkeypatch: pytest.MonkeyPatch, least: int, reason: str
) -> None:
    """Another machine may have spent what this one takes to be left: then more is not asked for."""
    plan_costs(monkeypatch, Reservation(500, least, unbounded=False, beside=1))
    with pytest.raises(Refusing) as refused:
        Desk(RICH, left=900).wishes(denied(reason))
    assert refused.value.refusal.message == "No."
    assert refused.value.refusal.retry_after_s == 7.0


def test_a_part_of_an_unknown_kind_takes_all_that_is_left_and_each_attempt_its_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan_costs(monkeypatch, Reservation(500, 500, unbounded=True, beside=2))
    desk = Desk(RICH, left=900)
    assert desk.wishes(None) == [(110, 900)]
    assert desk.exchange.reserved == 900
    assert {name: found.most for name, found in desk.exchange.ceilings.items()} == {
        "a": 450, "b": 450,
    }  # fmt: skip
    assert [found.after(0) for found in desk.exchange.ceilings.values()] == [450, 450]
    desk = Desk(RICH, left=100)  # and no less than what is known of it
    assert desk.wishes(None) == [(110, 500)]


def spoken(most: int | None, least: int = 0) -> Any:
    """A target whose sound costs at most and at least so much; None: it has no price."""
    prices = SimpleNamespace(worst_spoken=lambda _: most, least_spoken=lambda _: least)
    return SimpleNamespace(prices=prices)


def sound_desk(record: KeyRecord | None, left: int = 0, **targets: Any) -> Desk:
    """An exchange of sound whose plan goes from one target to the next."""
    desk = Desk(record, sound="speech", left=left)
    desk.exchange.served.targets = targets
    first, *rest = targets
    later = (Step(name, None, None, "fallback") for name in rest)
    desk.exchange.plan = Plan((Step(first, 0, None, "primary"), *later), "ordered", "because")
    return desk


def test_sound_is_reserved_at_the_dearest_of_its_targets() -> None:
    desk = sound_desk(RICH, a=spoken(300, 300), b=spoken(700, 700))
    assert desk.wishes(None) == [(0, 700)]
    assert desk.exchange.reserved == 700
    found = desk.exchange.ceilings
    assert {name: (each.most, each.after(0)) for name, each in found.items()} == {
        "a": (300, 300), "b": (700, 700),
    }  # fmt: skip
    with pytest.raises(Refusing):  # no less would do
        desk.wishes(denied())


def test_sound_whose_least_is_left_takes_what_is_left() -> None:
    desk = sound_desk(RICH, left=450, a=spoken(900, 400))
    assert desk.wishes(denied(), None) == [(0, 900), (0, 450)]
    assert desk.exchange.reserved == 450


def test_sound_without_a_price_is_left_out_for_a_budget_alone() -> None:
    desk = sound_desk(RICH, a=spoken(None), b=spoken(700, 700))
    assert desk.wishes(None) == [(0, 700)]
    assert desk.exchange.skipped == (("a", "price:sound"),)
    assert [step.target for step in desk.exchange.plan.steps] == ["b"]
    assert list(desk.exchange.ceilings) == ["b"]
    with pytest.raises(Refusing) as refused:
        sound_desk(RICH, a=spoken(None)).wishes()
    assert "a has no known price for sound" in refused.value.refusal.message
    desk = sound_desk(OFTEN, a=spoken(None), b=spoken(700, 700))
    assert desk.wishes(None) == [(0, 700)]
    assert (desk.exchange.skipped, desk.exchange.ceilings) == ((), None)
    desk = sound_desk(None, a=spoken(None))
    assert desk.wishes() == []
    assert desk.exchange.reserved == 0


def test_of_the_tiers_of_sound_one_is_paid_since_its_answers_are_not_checked() -> None:
    desk = sound_desk(RICH, left=400, a=spoken(900, 300), b=spoken(900, 350))
    first, later = desk.exchange.plan.steps
    desk.exchange.plan = Plan((first, replace(later, tier=1)), "cascade", "because")
    assert desk.wishes(denied(), None) == [(0, 900), (0, 400)]
