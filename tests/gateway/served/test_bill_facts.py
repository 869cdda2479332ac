"""The bill of an attempt, made of its facts with real prices."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Tokens
from lightgate.errors import PeerReset
from lightgate.gateway.served.price import NO_BILL, Bill, BillFacts, Ceiling, TokenPrices, billed
from lightgate.price.rates import Rates

D = Decimal
PRICES: dict[str, Any] = {"input": D(2), "output": D(8)}  # 2,000 and 8,000 nano-dollars a token


def facts(prices: TokenPrices, **more: Any) -> BillFacts:
    """An answered chat request with a prompt of 70 tokens, unless `more` says otherwise."""
    endpoint = SimpleNamespace(tokens=True, free=False, sound=None, dialect="openai-chat")
    request: Any = SimpleNamespace(
        endpoint=more.pop("endpoint", endpoint),
        tokens_in=70,
        answers=1,
        fields=more.pop("fields", {}),
        found=SimpleNamespace(tools=more.pop("tools", {})),
        sound=SimpleNamespace(characters=None),
    )
    called: Any = SimpleNamespace(
        error=more.pop("error", None),
        status=more.pop("status", 200),
        outcome=more.pop("outcome", Outcome.OK),
        tokens=more.pop("tokens", Tokens()),
    )
    plain: dict[str, Any] = {
        "dialect": "openai-chat", "sent": True, "stops": True, "limit": None, "ceiling": None,
        "carries_out": lambda *_: True,
    } | more  # fmt: skip
    return BillFacts(prices, request, called, **plain)


def test_an_answer_that_counts_nothing_is_billed_for_its_prompt() -> None:
    found = billed(facts(TokenPrices(Rates(**PRICES))))
    assert (found.nano_usd, found.source) == (70 * 2000, "estimated")


def test_sound_that_nobody_counted_is_billed_for_the_answer_that_came_and_no_more() -> None:
    prices = TokenPrices(Rates(**PRICES, output_audio=D(20)))
    asked: dict[str, Any] = {"fields": {"modalities": b'["text","audio"]'}}
    none = billed(facts(prices, **asked))
    assert none.nano_usd == 70 * 2000
    told = billed(facts(prices, tokens=Tokens(tokens_in=70, out=10, source="usage"), **asked))
    assert told.nano_usd == 70 * 2000 + 10 * 20_000


def test_a_tool_without_a_price_adds_nothing() -> None:
    prices = TokenPrices(Rates(**PRICES, calls={"web_search": D(10)}))
    counted = Tokens(tokens_in=70, out=10, source="usage")
    plain = 70 * 2000 + 10 * 8000
    free = billed(facts(prices, tokens=counted, tools={"code_interpreter": 2}))
    assert (free.nano_usd, free.source) == (plain, prices.bill(counted).source)
    both = billed(facts(prices, tokens=counted, tools={"code_interpreter": 2, "web_search": 3}))
    assert (both.nano_usd, both.source) == (plain + 3 * 10_000_000, "estimated")


def test_a_counted_prompt_whose_answer_goes_on_is_billed_to_its_limit() -> None:
    """The provider counted the prompt at the beginning; closing does not stop the answer."""
    left: dict[str, Any] = {
        "error": PeerReset("gone"), "outcome": Outcome.CANCELLED, "stops": False, "limit": 400,
        "tokens": Tokens(tokens_in=900, out=30, source="usage"),
    }  # fmt: skip
    found = billed(facts(TokenPrices(Rates(**PRICES)), **left))
    assert (found.nano_usd, found.source) == (900 * 2000 + 400 * 8000, "estimated")


def test_sound_that_was_never_sent_or_was_refused_costs_nothing() -> None:
    prices: Any = SimpleNamespace(spoken=lambda *_: Bill(3, "list", "now"))
    endpoint = SimpleNamespace(tokens=False, free=False, sound="form")

    def heard(**more: Any) -> Bill:
        return billed(facts(prices, endpoint=endpoint, **more))

    assert heard(sent=False) is NO_BILL
    assert heard(status=429) is NO_BILL
    assert heard(sent=False, status=None) is NO_BILL
    assert heard(status=None) == Bill(3, "list", "now")
    most = Ceiling(9000, 9000, 0)
    assert heard(ceiling=most) == Bill(9000, "estimated", "now")


def test_an_answer_that_may_have_no_token_costs_the_most_at_once() -> None:
    assert Ceiling(most=9000, prompt=9000, out=0).after(0) == 9000
