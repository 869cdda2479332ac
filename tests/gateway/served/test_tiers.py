"""The cost under the service tier that an answer reports."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from gateway.security.conftest import whole
from lightgate.clock.tokens import Tokens
from lightgate.dialect.registry import DIALECTS
from lightgate.dialect.scanner import Scanner
from lightgate.gateway.served.price import TokenPrices
from lightgate.ledger.store.keys import KeyTerms
from lightgate.price.rates import Rates, TierRates, rates_of

if TYPE_CHECKING:
    from gateway.conftest import Start
    from gateway.security.conftest import Upstream

RATES = Rates(
    input=Decimal(2),
    output=Decimal(8),
    cached=Decimal(1),
    tiers={
        "flex": TierRates(input=Decimal(1), output=Decimal(4)),
        "priority": TierRates(input=Decimal(4), output=Decimal(16), cached=Decimal(2)),
    },
)
USED: dict[str, Any] = {"out": 100, "tokens_in": 1000, "cached": 200, "source": "usage"}


@pytest.mark.parametrize(
    ("tier", "micro", "source"),
    [
        (None, 800 * 2 + 200 * 1 + 100 * 8, "list"),
        ("default", 800 * 2 + 200 * 1 + 100 * 8, "list"),
        ("flex", 1000 * 1 + 100 * 4, "list"),  # cached tokens have no price of their own there
        ("priority", 800 * 4 + 200 * 2 + 100 * 16, "list"),
        ("warp", 800 * 2 + 200 * 1 + 100 * 8, "estimated"),
    ],
)
def test_the_bill_is_the_tiers(tier: str | None, micro: int, source: str) -> None:
    bill = TokenPrices(RATES).bill(Tokens(**USED, tier=tier))
    assert (bill.nano_usd, bill.source) == (micro * 1000, source)


def test_a_request_that_names_a_tier_is_reserved_at_the_dearest() -> None:
    prices = TokenPrices(RATES)
    assert prices.worst(1000, 100) == (1000 * 2 + 100 * 8) * 1000
    for tier in ("priority", "flex", "auto"):
        assert prices.worst_tier(1000, 100, tier) == (1000 * 4 + 100 * 16) * 1000
    assert prices.worst_tier(1000, 100, "warp") is None
    assert TokenPrices(None, hourly=True).worst_tier(1000, 100, "warp") == 0


def test_the_list_knows_tiers_and_sound() -> None:
    at = datetime(2026, 11, 15, tzinfo=UTC)
    gpt, tts, ear = (rates_of("openai", name, at) for name in ("gpt-5", "tts-1", "whisper-1"))
    assert gpt is not None
    assert gpt.input is not None
    assert gpt.tiers["flex"].input == gpt.input / 2
    assert tts is not None
    assert (tts.characters, tts.input, tts.priced) == (Decimal(15), None, True)
    assert ear is not None
    assert ear.audio_hour == Decimal("0.36")


CHAT = {"object": "chat.completion", "choices": [
    {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
]}  # fmt: skip
ANSWERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "/v1/chat/completions": (
        {"messages": [{"role": "user", "content": "x"}]},
        CHAT | {"usage": {"prompt_tokens": 1000, "completion_tokens": 100}, "service_tier": "flex"},
    ),
    "/v1/responses": (
        {"input": "x"},
        {"id": "resp_1", "object": "response", "status": "completed", "service_tier": "flex",
         "output": [{"type": "message", "role": "assistant", "content": [
             {"type": "output_text", "text": "hi"}]}],
         "usage": {"input_tokens": 1000, "output_tokens": 100}},
    ),
}  # fmt: skip


ANTHROPIC = {
    "id": "msg_1", "type": "message", "role": "assistant", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "hi"}],
    "usage": {"input_tokens": 1000, "output_tokens": 100, "service_tier": "priority"},
}  # fmt: skip


def test_anthropic_says_its_tier_in_usage() -> None:
    scanner = Scanner(DIALECTS["anthropic-messages"].reader)
    scanner.whole(json.dumps(ANTHROPIC).encode())
    assert scanner.usage is not None
    assert scanner.usage.tier == "priority"


def test_a_stream_says_its_tier_beside_its_usage() -> None:
    scanner = Scanner(DIALECTS["openai-chat"].reader)
    usage = {"prompt_tokens": 10, "completion_tokens": 2}
    for more in (
        {"choices": [{"index": 0, "delta": {"content": "hi"}}]},
        {"choices": [], "usage": usage},
    ):
        scanner.event(b"", json.dumps({"service_tier": "flex", **more}).encode())
    assert scanner.usage is not None
    assert (scanner.usage.tokens_in, scanner.usage.tier) == (10, "flex")


@pytest.mark.parametrize("path", ANSWERS)
async def test_the_answers_own_tier_decides(start: Start, upstream: Upstream, path: str) -> None:
    """Not the one that was asked for: a provider may answer under another."""
    asked, answered = ANSWERS[path]
    upstream.script = whole(json.dumps(answered).encode())
    rig = await start(
        f'[providers.openai]\nbase_url = "http://127.0.0.1:{upstream.port}/v1"\napi_key = "none"\n'
        '[prices."openai/m"]\ninput = 2\noutput = 8\n'
        '[prices."openai/m".tiers.flex]\ninput = 1\noutput = 4\n'
        '[prices."openai/m".tiers.priority]\ninput = 4\noutput = 16\n',
        terms={"me": KeyTerms(name="me", budget_usd=Decimal(1))},
    )
    body = {"model": "openai/m", "service_tier": "priority", **asked}
    answer = await rig.ask(path, body, x_api_key=rig.keys["me"])
    assert answer.status == 200, answer.body
    assert answer.headers["x-lightgate-cost-usd"] == "0.0014"
