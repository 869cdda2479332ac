"""What is reserved for a plan, worked out by hand at targets whose prices are plain."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.gateway.admit import worst as module
from lightgate.gateway.admit.worst import Reservation, _tier_of, reserve_plan, without
from lightgate.gateway.request.refusal import Refusing
from lightgate.gateway.served.price import SLACK, USUAL_ANSWER, Ceiling
from lightgate.route.plan.plan import Plan, Step

BODY = 100
TEXT = BODY // 2 + 1  # tokens of the body, at most
PARTS = SimpleNamespace(image=100, file=1000, sound=50, call=7, reasoning=5)


class Prices:
    """A nano-dollar for a token of the prompt, a thousand for one of the answer."""

    known, hears = True, True
    calls: dict[str, int] = {"search": 10**6}  # noqa: RUF012 - never changed
    tiers: dict[str, int] = {"fast": 2}  # noqa: RUF012
    unknown: str | None = None

    def __init__(self, *, hourly: bool = False) -> None:
        self.hourly = hourly

    def worst(self, tokens_in: int, out: int) -> int:
        return tokens_in + 1000 * out

    def worst_tier(self, tokens_in: int, out: int, tier: str) -> int | None:
        times = self.tiers.get(tier)
        return None if times is None else times * self.worst(tokens_in, out)

    def worst_call(self, kind: str, count: int) -> int | None:
        fee = self.calls.get(kind)
        return None if fee is None else count * fee

    def worst_kept(self, tokens_in: int) -> int:
        return 3 * tokens_in

    def worst_answer(self, kinds: frozenset[str], tokens_in: int, out: int) -> int | str:
        del tokens_in, out
        return self.unknown or len(kinds)

    def worst_heard(self, tokens_in: int, parts: int) -> int:
        del tokens_in
        return 10**9 * parts


def target(name: str, prices: Prices | None = None, longest: int = 300) -> Any:
    """A target that carries out every tool but those of the client's own."""
    return SimpleNamespace(
        target=SimpleNamespace(name=name, model=name, provider=SimpleNamespace(part_tokens=PARTS)),
        prices=prices or Prices(),
        longest_answer=longest,
        carries_out=lambda kind, dialect: kind != "own" and dialect == "openai-chat",
    )


class Asked:
    """A request of a hundred bytes, and an exchange that has a plan for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given = SimpleNamespace(images=0, files=0, sounds=0, value_bytes=0, unknown=False,
                                     doubled=False)  # fmt: skip
        self.hour = self.kept = False
        self.tools: dict[str, int] = {}
        self.kinds: frozenset[str] = frozenset()
        self.fields: dict[str, bytes] = {}
        self.answers, self.tokens = 1, True
        self.targets = {"a": target("a")}
        self.steps: tuple[Step, ...] = (Step("a", 0, None, "primary"),)
        monkeypatch.setattr(module, "billed_parts", lambda _: (self.given, self.hour))
        monkeypatch.setattr(module, "offered_tools", lambda _: self.tools)
        monkeypatch.setattr(module, "refers", lambda _: self.kept)
        monkeypatch.setattr(module, "answer_kinds", lambda _: self.kinds)

    def reserved(self, out: int | None = 10) -> tuple[Reservation, Any]:
        endpoint = SimpleNamespace(tokens=self.tokens, dialect="openai-chat")
        exchange: Any = SimpleNamespace(
            request=SimpleNamespace(
                body=bytes(BODY), answers=self.answers, endpoint=endpoint, fields=self.fields
            ),
            plan=Plan(self.steps, "ordered", "because"),
            served=SimpleNamespace(targets=self.targets),
            alias=SimpleNamespace(verify=()),
            skipped=(),
            ceilings=None,
        )
        return reserve_plan(exchange, out), exchange

    def most(self, out: int | None = 10) -> int:
        reservation, _ = self.reserved(out)
        return reservation.most

    def ceiling(self, out: int | None = 10) -> Ceiling:
        found: Ceiling = self.reserved(out)[1].ceilings["a"]
        return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


def answer(out: int) -> int:
    return 1000 * (out + SLACK + int(PARTS.reasoning))


def test_text_with_a_limit_costs_its_tokens_and_some_slack(asked: Asked) -> None:
    most = TEXT + answer(10)
    reservation, exchange = asked.reserved()
    assert reservation == Reservation(most, most, unbounded=False, beside=1)
    assert exchange.ceilings == {"a": Ceiling(most, TEXT, 10 + SLACK + PARTS.reasoning, text=True)}
    asked.given.value_bytes = 40  # of pictures that came within the body
    assert asked.most() == 31 + answer(10)
    asked.given.value_bytes = 1000
    assert asked.most() == 1 + answer(10)


def test_without_a_limit_each_answer_is_as_long_as_its_model_can_say(asked: Asked) -> None:
    asked.answers = 3
    reservation, _ = asked.reserved(None)
    assert reservation.most == TEXT + answer(3 * 300)
    assert reservation.least == min(reservation.most, TEXT + answer(3 * USUAL_ANSWER))
    asked.targets["a"] = target("a", longest=10 * USUAL_ANSWER)
    reservation, _ = asked.reserved(None)
    assert reservation.most == TEXT + answer(30 * USUAL_ANSWER)
    assert reservation.least == TEXT + answer(3 * USUAL_ANSWER)
    asked.tokens = False  # a vector, say
    assert asked.most(None) == TEXT + answer(3 * USUAL_ANSWER)


def test_what_the_provider_keeps_is_reserved_as_a_file_and_begun_without(asked: Asked) -> None:
    asked.kept = True
    reservation, exchange = asked.reserved()
    heard = 10**9 * PARTS.file
    assert reservation.most == TEXT + PARTS.file + answer(10) + heard
    assert reservation.least == TEXT + answer(10)
    assert not exchange.ceilings["a"].text


def test_parts_that_are_no_text_are_counted_each(asked: Asked) -> None:
    asked.given.images, asked.given.files, asked.given.sounds = 2, 3, 4
    parts = 2 * 100 + 3 * 1000 + 4 * 50
    assert asked.most() == TEXT + parts + answer(10) + 10**9 * parts
    for name in ("images", "files", "sounds"):
        asked.given.images = asked.given.files = asked.given.sounds = 0
        assert asked.ceiling().text
        setattr(asked.given, name, 1)
        assert not asked.ceiling().text


def test_a_prompt_that_is_kept_for_an_hour_costs_more(asked: Asked) -> None:
    asked.hour = True
    assert asked.most() == 4 * TEXT + answer(10)
    assert not asked.ceiling().text


def test_each_call_of_a_tool_has_a_fee_and_reads_the_prompt_again(asked: Asked) -> None:
    asked.tools = {"own": 9, "search": 2}
    assert asked.most() == 3 * TEXT + 2 * PARTS.call + 2 * 10**6 + answer(10)
    asked.given.images = 1
    tokens_in = 3 * (TEXT + 100) + 2 * PARTS.call
    assert asked.most() == tokens_in + 2 * 10**6 + answer(10) + 10**9 * 300
    assert not asked.ceiling().text


def test_a_service_tier_and_kinds_of_answers_have_their_price(asked: Asked) -> None:
    asked.fields = {"service_tier": b'"fast"'}
    assert asked.most() == 2 * (TEXT + answer(10))
    asked.fields = {}
    asked.kinds = frozenset(("audio", "image"))
    assert asked.most() == TEXT + answer(10) + 2


@pytest.mark.parametrize("lacks", ["price", "price:call", "price:service_tier", "price:audio"])
def test_what_has_no_price_is_refused_and_named(asked: Asked, lacks: str) -> None:
    prices: Any = Prices()
    asked.targets["b"] = target("b", prices)
    if lacks == "price":
        prices.known = False
    elif lacks == "price:call":
        asked.tools = {"call": 1}
        asked.targets["a"].prices.calls = {"call": 5}
    elif lacks == "price:service_tier":
        asked.fields = {"service_tier": b'"fast"'}
        prices.tiers = {}
    else:
        prices.unknown = "audio"
    asked.steps = (Step("b", 0, None, "primary"), Step("a", None, None, "fallback"))
    reservation, exchange = asked.reserved()
    assert [step.target for step in exchange.plan.steps] == ["a"]
    assert exchange.skipped == (("b", lacks),)
    assert list(exchange.ceilings) == ["a"]
    assert reservation.most > 0
    asked.steps = (Step("b", 0, None, "primary"),)
    with pytest.raises(Refusing) as refused:
        asked.reserved()
    assert "b" in refused.value.refusal.message


def test_sound_without_a_price_is_unknown_where_the_model_is_named_for_it(asked: Asked) -> None:
    prices: Any = Prices()
    prices.hears = False
    asked.targets = {"audio-1": target("audio-1", prices), "text-1": target("text-1", prices)}
    asked.steps = (Step("audio-1", 0, None, "primary"), Step("text-1", None, None, "fallback"))
    assert asked.reserved()[1].skipped == ()
    asked.given.sounds = 1
    assert asked.reserved()[1].skipped == (("audio-1", "price:sound"),)


def test_parts_of_an_unknown_kind_have_no_bound_where_they_are_paid_for(asked: Asked) -> None:
    asked.given.unknown = True
    assert asked.reserved()[0].unbounded is True
    asked.targets["a"] = target("a", Prices(hourly=True))
    assert asked.reserved()[0].unbounded is False
    asked.given.unknown = False
    asked.targets["a"] = target("a")
    assert asked.reserved()[0].unbounded is False


def test_attempts_beside_each_other_are_counted_and_what_lacks_a_price_costs_nothing(
    asked: Asked,
) -> None:
    asked.targets["b"] = target("b", longest=900)
    asked.steps = (Step("a", 0, None, "racer"), Step("b", 0, None, "racer"))
    reservation, _ = asked.reserved(None)
    assert reservation.most == 2 * (TEXT + answer(900))
    assert reservation.least == min(reservation.most, 2 * (TEXT + answer(USUAL_ANSWER)))
    asked.given.unknown = True  # each of them may cost all that the key has
    assert asked.reserved(None)[0].beside == 2


def test_a_plan_without_its_first_target_predicts_nothing_and_ends_without_a_deadline() -> None:
    steps = (Step("a", 0, 5, "primary"), Step("b", 7, 5, "hedge"), Step("c", None, 5, "fallback"))
    plan = Plan(
        steps, "fastest", "because",
        predicted_ttft_ns=4, predicted_low_ns=3, predicted_high_ns=9, in_flight=2, runner_up="b",
    )  # fmt: skip
    kept = without(plan, {"a": "price"})
    predicted = (kept.predicted_low_ns, kept.predicted_high_ns, kept.in_flight)
    assert (kept.predicted_ttft_ns, *predicted, kept.runner_up) == (None,) * 5
    assert [(step.target, step.ttft_ns) for step in kept.steps] == [("b", 5), ("c", None)]
    later = without(plan, {"b": "price"})
    predicted = (later.predicted_low_ns, later.predicted_high_ns, later.in_flight)
    assert (later.predicted_ttft_ns, *predicted, later.runner_up) == (4, 3, 9, 2, "b")
    endless = Plan((Step("a", 0, None, "primary"), Step("b", None, None, "fallback")), "x", "y")
    assert without(endless, {"b": ""}).steps == endless.steps[:1]


def test_of_a_longer_plan_only_the_last_step_has_all_the_time() -> None:
    steps = tuple(Step(name, 0, 5, "racer") for name in "abcd")
    kept = without(Plan(steps, "race", "because"), {"a": "price"})
    assert [(step.target, step.ttft_ns) for step in kept.steps] == [("b", 5), ("c", 5), ("d", None)]


def test_a_word_for_speed_that_cannot_be_read_leaves_the_tier_beside_it(asked: Asked) -> None:
    asked.fields = {"speed": b"5", "service_tier": b'"fast"'}
    assert asked.most() == 2 * (TEXT + answer(10))
    request: Any = SimpleNamespace(
        endpoint=SimpleNamespace(dialect="anthropic-messages"), fields=asked.fields
    )
    assert _tier_of(request) == "fast"
