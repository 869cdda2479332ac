"""What a key with a budget reserves: everything that can be billed; else a target is left out."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gateway.security.conftest import ENV, chat_body, providers, whole
from lightgate.gateway.admit.admit import _reserve_sound
from lightgate.gateway.admit.worst import _Asked, _ceiling, without, worst
from lightgate.gateway.request.given import NOTHING, Given
from lightgate.gateway.served.price import SLACK, TokenPrices
from lightgate.ledger.store.keys import KeyTerms
from lightgate.price.rates import LongRates, Rates
from lightgate.provider.catalogue import PartTokens
from lightgate.route.plan.plan import Plan, Step
from sim.conftest import SAY

if TYPE_CHECKING:
    from gateway.conftest import Rig, Start
    from gateway.security.conftest import Upstream
    from sim.conftest import Answer

NANO = 10**9
TERMS = {"me": KeyTerms(name="me", budget_usd=Decimal(5), may_race=True, max_fanout=3)}
CALLS = """
[prices."rawant/m"]
input = 1
output = 2
[prices."rawant/m".calls]
web_search = 10
web_fetch = 0
[prices."raw/searching"]
input = 1
output = 2
calls = {{ web_search = 10, file_search = 2.5, request = 12 }}
"""


async def started(start: Start, upstream: Upstream, more: str = "") -> Rig:
    return await start(providers(upstream.port) + more, env=ENV, terms=TERMS)


async def asked(rig: Rig, path: str = "/v1/chat/completions", **fields: Any) -> tuple[Answer, int]:
    """A request of the key, and the bytes of its body."""
    body = {"max_tokens": 100, **({} if "input" in fields else {"messages": SAY}), **fields}
    if "input" in fields:
        body["max_output_tokens"] = body.pop("max_tokens")
    raw = json.dumps(body).encode()
    return await rig.ask(path, raw, x_api_key=rig.keys["me"]), len(raw)


def text(size: int, calls: int = 0) -> int:
    """What is reserved for the tokens of a request of so many bytes, in nano-dollars."""
    return ((size // 2 + 1) * (calls + 1) + calls * 16_000) * 1000 + (100 + SLACK) * 2000


@pytest.mark.parametrize(
    "rates",
    [
        Rates(source="list", input=Decimal("0.59"), output=Decimal("0.79")),
        Rates(
            source="list", input=Decimal("1.23456"), output=Decimal(7), cache_write=Decimal("1.6"),
            calls={"request": Decimal("0.005"), "web_search": Decimal(10)},
        ),
        Rates(
            source="list", input=Decimal(3), output=Decimal(15), cached=Decimal("0.3"),
            long=(LongRates(above=200, input=Decimal(6), output=Decimal(30)),),
        ),
        Rates(source="list", input=Decimal(1), output=Decimal(2), output_image=Decimal(30)),
        Rates(source="list", input=None, output=None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("hourly", [False, True])
@pytest.mark.parametrize("out", [1, 100, 4096, None])
def test_the_short_way_for_text_reserves_as_much_as_the_long_one(
    rates: Rates, hourly: bool, out: int | None
) -> None:
    provider = SimpleNamespace(part_tokens=PartTokens(reasoning=25))
    target: Any = SimpleNamespace(
        target=SimpleNamespace(name="lab/m", model="m", provider=provider),
        prices=TokenPrices(rates, hourly=hourly), longest_answer=777, carries_out=lambda *_: True,
    )  # fmt: skip
    for size in (0, 1, 398, 399, 400, 401, 5000):
        endpoint = SimpleNamespace(tokens=True, dialect="openai-chat")
        request: Any = SimpleNamespace(body=b"x" * size, answers=2, endpoint=endpoint)
        wish = _Asked(request, out, False, NOTHING, False, {}, None, frozenset())
        assert wish.is_text
        assert _ceiling(target, wish, text=True) == _ceiling(target, wish, text=False)


@pytest.mark.parametrize(
    "more",
    [
        {"refers": True}, {"hour": True}, {"tools": {"web_search": 1}}, {"tier": "flex"},
        {"kinds": frozenset(("audio",))}, {"given": Given(images=1)}, {"given": Given(unknown=1)},
        {"given": Given(value_bytes=9)},
    ],
)  # fmt: skip
def test_what_is_more_than_text_goes_the_long_way(more: dict[str, Any]) -> None:
    request: Any = None
    wish = _Asked(request, 1, False, NOTHING, False, {}, None, frozenset())
    assert wish.is_text
    assert not wish._replace(**more).is_text


SEARCH = {"type": "web_search_20250305", "name": "web_search"}
OFFERED: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "ten searches, unless said": ("rawant/m", {"tools": [SEARCH]}, 10, 10 * 10_000_000),
    "as many as it may use": ("rawant/m", {"tools": [{**SEARCH, "max_uses": 2}]}, 2, 20_000_000),
    "a fetch costs its tokens": (
        "rawant/m", {"tools": [{"type": "web_fetch_20250910", "max_uses": 1}]}, 1, 0,
    ),
    "tools of the client's own": (
        "rawant/m",
        {"tools": [{"name": "f", "input_schema": {}}, {"type": "bash_20250124", "name": "bash"}]},
        0,
        0,
    ),
    "options of a chat": ("raw/searching", {"web_search_options": {}}, 1, 10_000_000 + 12_000_000),
    "a fee for each request": ("raw/searching", {}, 0, 12_000_000),
}  # fmt: skip


@pytest.mark.parametrize("name", OFFERED)
async def test_tools_of_the_provider_are_reserved(
    start: Start, upstream: Upstream, name: str
) -> None:
    model, fields, calls, fees = OFFERED[name]
    rig = await started(start, upstream, CALLS)
    path = "/v1/messages" if model.startswith("rawant") else "/v1/chat/completions"
    _, size = await asked(rig, path, model=model, **fields)
    assert rig.reserved()[0].nano_usd == text(size, calls) + fees


async def test_calls_of_a_response_are_limited_by_its_own_limit(
    start: Start, upstream: Upstream
) -> None:
    provider = (
        f'[providers.answers]\nbase_url = "http://127.0.0.1:{upstream.port}/v1"\n'
        'api_key = "env:RAW_KEY"\nkinds = ["chat", "responses"]\n'
    )
    rig = await started(start, upstream, CALLS.replace("raw/searching", "answers/m") + provider)
    tools = [{"type": "web_search"}, {"type": "file_search", "vector_store_ids": ["v"]}]
    fields = {"input": "Hi", "tools": tools, "max_tool_calls": 3}
    _, size = await asked(rig, "/v1/responses", model="answers/m", **fields)
    fees = 3 * 10_000_000 + 3 * 2_500_000 + 12_000_000
    assert rig.reserved()[0].nano_usd == text(size, 6) + fees


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"tools": [{"type": "teleport"}]}, "what raw/m bills for 'teleport' is not known"),
        ({"plugins": [{"id": "web"}]}, "what raw/m bills for 'plugin:web' is not known"),
        ({"search_parameters": {"mode": "auto"}}, "what raw/m bills for 'source' is not known"),
        ({"service_tier": "priority"}, "the price of the service tier 'priority' at raw/m"),
    ],
)
async def test_what_has_no_known_price_is_refused_with_a_sentence(
    start: Start, upstream: Upstream, fields: dict[str, Any], says: str
) -> None:
    rig = await started(start, upstream)
    answer, _ = await asked(rig, model="raw/m", **fields)
    assert answer.status == 403
    assert says in answer.json["error"]["message"]
    assert "under [prices] in lightgate.toml" in answer.json["error"]["message"]
    assert upstream.heard == []


async def test_without_a_budget_nothing_is_refused(start: Start, upstream: Upstream) -> None:
    upstream.script = whole(chat_body())
    rig = await start(providers(upstream.port), env=ENV)
    body = {"model": "raw/m", "messages": SAY, "tools": [{"type": "teleport"}]}
    assert (await rig.ask("/v1/chat/completions", body)).status == 200


async def test_a_flex_tier_needs_no_price_of_its_own(start: Start, upstream: Upstream) -> None:
    upstream.script = whole(chat_body())
    rig = await started(start, upstream)
    answer, size = await asked(rig, model="raw/m", service_tier="flex")
    assert answer.status == 200
    assert rig.reserved()[0].nano_usd == text(size)


async def test_a_tier_that_is_no_word_is_the_providers_to_refuse(
    start: Start, upstream: Upstream
) -> None:
    upstream.script = whole(chat_body())
    rig = await started(start, upstream)
    answer, size = await asked(rig, model="raw/m", service_tier=5)
    assert answer.status == 200
    assert rig.reserved()[0].nano_usd == text(size)


async def test_what_was_called_is_paid(start: Start, upstream: Upstream) -> None:
    rig = await started(start, upstream, CALLS)
    usage = {
        "input_tokens": 1000,
        "output_tokens": 50,
        "server_tool_use": {"web_search_requests": 3, "web_fetch_requests": 1},
    }
    upstream.script = whole(
        json.dumps(
            {"content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn", "usage": usage}
        ).encode()
    )
    answer, _ = await asked(rig, "/v1/messages", model="rawant/m", tools=[SEARCH])
    assert answer.headers["x-lightgate-cost-usd"] == "0.0311"  # 1,000 + 50 tokens, 3 searches


async def test_what_chat_does_not_count_is_paid_as_reserved(
    start: Start, upstream: Upstream
) -> None:
    rig = await started(start, upstream, CALLS)
    upstream.script = whole(chat_body(usage={"prompt_tokens": 1000, "completion_tokens": 50}))
    fields: dict[str, Any] = {"model": "raw/searching", "web_search_options": {}}
    answer, _ = await asked(rig, **fields)
    assert answer.headers["x-lightgate-cost-usd"] == "0.0231"
    assert rig.settled()[0].exchange.cost_source == "estimated"


# A target without a price is left out; the others answer.

UNPRICED = """
[models.three]
targets = ["raw/new", "raw/m", "raw/newer"]
policy = "ordered"
hedge = "off"
[models.none]
targets = ["raw/new", "raw/newer"]
"""


async def test_a_target_without_a_price_is_left_out_and_named(
    start: Start, upstream: Upstream
) -> None:
    upstream.script = whole(chat_body())
    rig = await started(start, upstream, UNPRICED)
    answer, _ = await asked(rig, model="three")
    assert answer.status == 200
    assert answer.headers["x-lightgate-target"] == "raw/m"
    assert answer.headers["x-lightgate-skipped"] == "raw/new=price, raw/newer=price"
    [settled] = rig.settled()
    assert settled.exchange.plan.startswith("raw/m (configured order, not asked: raw/new (price),")
    assert rig.reserved()[0].targets == ("raw/m",)


async def test_without_a_budget_the_first_target_is_asked(start: Start, upstream: Upstream) -> None:
    upstream.script = whole(chat_body())
    rig = await start(providers(upstream.port) + UNPRICED, env=ENV)
    answer = await rig.chat("three", stream=False)
    assert answer.headers["x-lightgate-target"] == "raw/new"
    assert "x-lightgate-skipped" not in answer.headers


async def test_only_where_no_target_is_left_the_request_is_refused(
    start: Start, upstream: Upstream
) -> None:
    rig = await started(start, upstream, UNPRICED)
    answer, _ = await asked(rig, model="none")
    assert answer.status == 403
    assert "raw/new has no known price" in answer.json["error"]["message"]
    assert upstream.heard == []


def step(target: str, start_ns: int | None, role: Any, tier: int = 0) -> Step:
    return Step(target, start_ns, 5, role, tier)


def test_the_others_move_up_to_the_starts() -> None:
    race = (step("a", 0, "racer"), step("b", 0, "racer"), step("c", None, "fallback"))
    plan = Plan(race, "fastest", "because", predicted_ttft_ns=7, runner_up="b")
    kept = without(plan, {"a": "price"})
    assert [(s.target, s.start_ns, s.role) for s in kept.steps] == [
        ("b", 0, "racer"),
        ("c", 0, "racer"),
    ]
    assert kept.steps[-1].ttft_ns is None
    assert (kept.predicted_ttft_ns, kept.runner_up) == (None, None)
    assert without(plan, {"c": "price"}).predicted_ttft_ns == 7
    tiers = (step("a", 0, "primary"), step("b", None, "fallback"), step("c", None, "fallback", 1))
    cascade = without(Plan(tiers, "cascade", "because"), {"a": "price"})
    assert [(s.target, s.start_ns, s.tier) for s in cascade.steps] == [("b", 0, 0), ("c", None, 1)]
    assert without(plan, {"a": "", "b": "", "c": ""}).steps == ()


def test_the_dearest_target_is_reserved_for_each_attempt_beside_another() -> None:
    race = (step("a", 0, "racer"), step("b", 0, "racer"), step("c", None, "fallback"))
    assert worst(race, [3, 5, 9], checked=False) == 2 * 9
    alone = (step("a", None, "fallback"), step("b", None, "fallback"))
    assert worst(alone, [3, 5], checked=False) == 5
    # A tier that starts ahead is no attempt beside the first one's.
    ahead = (step("a", 0, "primary"), step("b", 0, "racer", 1))
    assert worst(ahead, [3, 5], checked=False) == 5


def test_where_answers_are_checked_every_tier_from_the_first_on_is_reserved() -> None:
    tiers = (
        step("a", 0, "racer", 1), step("b", 0, "racer", 1), step("c", None, "fallback", 1),
        step("d", None, "fallback", 2), step("e", None, "fallback", 2),
        step("f", None, "fallback", 3),
    )  # fmt: skip
    assert worst(tiers, [3, 4, 2, 20, 10, 100], checked=True) == 2 * 4 + 20 + 100
    assert worst(tiers[:3], [3, 4, 2], checked=True) == 2 * 4
    # A tier below the first one is only asked where all above it fail: nothing adds up.
    down = (step("a", 0, "primary", 1), step("b", None, "fallback", 0))
    assert worst(down, [3, 2], checked=True) == 3
    assert worst(down, [3, 7], checked=True) == 7
    assert worst(down, [0, 0], checked=True) == 0


# An upstream that bills far more than it was asked for.

LIES = [
    {"prompt_tokens": 10, "completion_tokens": 10**7},
    {"prompt_tokens": 10**6, "completion_tokens": 10},
    {
        "prompt_tokens": 10,
        "completion_tokens": 10**5,
        "completion_tokens_details": {"reasoning_tokens": 10**5},
    },
]


@pytest.mark.parametrize("usage", LIES)
async def test_no_bill_is_above_what_was_reserved(
    start: Start, upstream: Upstream, usage: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """200 requests at once with 5 cents: not a cent above them."""
    upstream.script = whole(chat_body(usage=usage))
    budget = Decimal("0.05")
    terms = {"me": KeyTerms(name="me", budget_usd=budget)}
    rig = await start(providers(upstream.port), env=ENV, terms=terms)
    headers = {"x_api_key": rig.keys["me"]}
    answers = await asyncio.gather(
        *(rig.chat("raw/m", headers=headers, stream=False, max_tokens=500) for _ in range(200))
    )
    assert {answer.status for answer in answers} == {200, 402}
    admitted = [answer for answer in answers if answer.status == 200]
    await rig.until(lambda: len(rig.settled()) == len(admitted))
    spent = sum(note.exchange.cost_nano or 0 for note in rig.settled())
    assert 0 < spent <= budget * NANO
    assert {note.exchange.cost_source for note in rig.settled()} == {"estimated"}
    cut = sum("compare the provider's own" in line for line in caplog.messages)
    assert cut == (usage is not LIES[0])  # once; an answer longer than its limit is no count


@pytest.mark.parametrize(("costs", "reserved"), [((None, None), 0), ((None, 7), 7), ((9, 7), 9)])
def test_sound_without_a_price_reserves_nothing_where_there_is_no_budget(
    costs: tuple[int | None, ...], reserved: int
) -> None:
    steps = [Step(f"lab/{place}", None, None, "fallback", 0) for place in range(len(costs))]
    targets = {
        step.target: SimpleNamespace(
            prices=SimpleNamespace(worst_spoken=lambda sound, cost=cost: cost)
        )
        for step, cost in zip(steps, costs, strict=True)
    }
    key: Any = SimpleNamespace(budget_usd=None)
    exchange: Any = SimpleNamespace(
        caller=SimpleNamespace(key=key),
        request=SimpleNamespace(sound=None),
        served=SimpleNamespace(targets=targets),
        wall_ns=5,
    )
    state: Any = SimpleNamespace(spend=object())
    assert list(_reserve_sound(state, exchange, steps)) == [(key, 5, 0, reserved)]
    assert exchange.reserved == reserved


async def test_a_prompt_that_the_provider_keeps_is_reserved_as_long_as_a_file(
    start: Start, upstream: Upstream
) -> None:
    rig = await started(start, upstream, CALLS)
    fields = {"model": "rawant/m", "messages": SAY}
    await asked(rig, "/v1/messages", **fields)
    await asked(rig, "/v1/messages", container={"skills": []}, **fields)
    plain, kept = (each.nano_usd for each in rig.reserved()[:2])
    each = rig.state.served.targets["rawant/m"].target.provider.part_tokens
    assert kept - plain >= each.file * 1000


async def test_where_less_is_left_a_kept_prompt_reserves_all_of_it(
    start: Start, upstream: Upstream
) -> None:
    terms = {"me": KeyTerms(name="me", budget_usd=Decimal("0.05"))}
    rig = await start(providers(upstream.port) + CALLS, env=ENV, terms=terms)
    await asked(rig, "/v1/messages", model="rawant/m", container={"skills": []})
    assert rig.reserved()[0].nano_usd == NANO // 20


FAST = """
[prices."rawant/m"]
input = 1
output = 2
[prices."rawant/m".tiers.fast]
input = 6
output = 12
"""


async def test_a_faster_answer_of_anthropic_is_a_tier(start: Start, upstream: Upstream) -> None:
    usage = {"input_tokens": 10, "output_tokens": 5, "service_tier": "standard", "speed": "fast"}
    said = {"type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
    body = {**said, "id": "x", "content": [{"type": "text", "text": "hi"}], "usage": usage}
    upstream.script = whole(json.dumps(body).encode())
    rig = await started(start, upstream, FAST)
    for fields, times in (({"speed": "fast"}, 6), ({"speed": "standard"}, 1), ({}, 1)):
        answer, size = await asked(rig, "/v1/messages", model="rawant/m", **fields)
        assert answer.status == 200
        assert rig.reserved()[-1].nano_usd == times * text(size)
        assert answer.headers["x-lightgate-cost-usd"] == "0.00012"  # the answer says which it was
    answer, _ = await asked(rig, "/v1/messages", model="rawant/m", speed="faster")
    assert answer.status == 403
    assert "the service tier 'faster'" in answer.body.decode()


async def test_a_tier_of_gemini_has_a_price_too(start: Start, upstream: Upstream) -> None:
    rig = await started(start, upstream)
    body = json.dumps({"contents": [], "serviceTier": "priority"}).encode()
    path = "/v1beta/models/rawgem/m:generateContent"
    answer = await rig.ask(path, body, x_api_key=rig.keys["me"])
    assert answer.status == 403
    assert "the service tier 'priority'" in answer.body.decode()
