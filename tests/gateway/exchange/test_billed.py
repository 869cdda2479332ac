"""The bill of an attempt that failed: nothing, what came, or all that was asked for."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Tokens
from lightgate.errors import PeerReset
from lightgate.gateway.exchange.attempt import Attempt, Held
from lightgate.gateway.served.price import NO_BILL, USUAL_ANSWER, Bill, TokenPrices
from lightgate.price.rates import Rates


class Prices:
    """Prices that tell what they were asked for: tokens of the prompt, tokens of the answer."""

    known = True

    def estimate(self, tokens_in: int, tokens_out: int) -> tuple[int, int]:
        return tokens_in, tokens_out

    def in_kind(self, bill: tuple[int, int], _request: Any, out: int) -> tuple[int, int]:
        assert out == bill[1]
        return bill


def billed(
    status: int | None,
    outcome: Outcome,
    *,
    sent: int | None = 5,
    cap: int | None = None,
    max_tokens: int | None = None,
    answers: int = 1,
    stops: bool = True,
    streamed: bool = True,
) -> Any:
    endpoint = SimpleNamespace(tokens=True, free=False, sound=None)
    request = SimpleNamespace(
        endpoint=endpoint, tokens_in=70, max_tokens=max_tokens, answers=answers
    )
    played: Any = SimpleNamespace(
        target=SimpleNamespace(prices=Prices(), abort_stops_billing=stops),
        exchange=SimpleNamespace(request=request, cap=cap),
        marks=SimpleNamespace(send=sent),
        prepared=SimpleNamespace(streamed=streamed),
    )
    called: Any = SimpleNamespace(
        error=PeerReset("gone"), status=status, outcome=outcome, tokens=Tokens(out=30)
    )
    return Attempt._billed(played, called)


def test_what_was_never_sent_or_was_refused_costs_nothing() -> None:
    assert billed(None, Outcome.CANCELLED, sent=None) is NO_BILL
    assert billed(200, Outcome.CANCELLED, sent=None) is NO_BILL
    assert billed(429, Outcome.CANCELLED) is NO_BILL
    assert billed(201, Outcome.CANCELLED) is NO_BILL
    assert billed(None, Outcome.CANCELLED, sent=0) is not NO_BILL  # an instant like any other


@pytest.mark.parametrize("status", [None, 200])
def test_what_broke_costs_what_came_of_it(status: int | None) -> None:
    assert billed(status, Outcome.RESET, stops=False, streamed=False) == (70, 30)
    assert billed(status, Outcome.CANCELLED) == (70, 30)
    assert billed(status, Outcome.TIMEOUT) == (70, 30)


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.TIMEOUT])
@pytest.mark.parametrize("ends", [{"stops": False}, {"streamed": False}])
def test_what_the_provider_goes_on_with_costs_all_that_was_asked_for(
    outcome: Outcome, ends: dict[str, bool]
) -> None:
    assert billed(200, outcome, **ends) == (70, USUAL_ANSWER)
    assert billed(200, outcome, max_tokens=400, **ends) == (70, 400)
    assert billed(200, outcome, max_tokens=400, cap=300, **ends) == (70, 300)
    assert billed(200, outcome, max_tokens=400, answers=3, **ends) == (70, 1200)
    assert billed(200, outcome, max_tokens=20, **ends) == (70, 30)  # as much came already


def test_an_attempt_that_waited_for_a_better_one_goes_on_when_its_time_is_over() -> None:
    released: list[str] = []
    attempt: Any = SimpleNamespace(release=lambda: released.append("now"))
    Held(attempt).give_up()
    assert released == ["now"]


@pytest.mark.parametrize(
    ("first", "last", "tokens", "decoded"),
    [
        (100, 400, Tokens(streamed=9, first_burst=2), (7, 300)),
        (100, 400, Tokens(streamed=9), (9, 300)),
        (100, 400, Tokens(), (0, 300)),
        (None, 400, Tokens(streamed=9, first_burst=2), (0, 0)),
        (100, None, Tokens(streamed=9, first_burst=2), (0, 0)),
    ],
)
def test_what_came_after_the_first_burst_and_its_time(
    first: int | None, last: int | None, tokens: Tokens, decoded: tuple[int, int]
) -> None:
    played: Any = SimpleNamespace(marks=SimpleNamespace(first=first, last=last))
    called: Any = SimpleNamespace(tokens=tokens)
    assert Attempt._decoded(played, called) == decoded


# Good answers, at real prices: a token of a prompt costs 1,000 nano-dollars, one of an answer 2,000


def good(
    tokens: Tokens, *, dialect: str = "openai-chat", fields: dict[str, Any] | None = None,
    carries_out: bool = True, **rates: Any,
) -> Any:  # fmt: skip
    endpoint = SimpleNamespace(tokens=True, free=False, sound=None, dialect="openai-chat")
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in (fields or {}).items()}
    request = SimpleNamespace(endpoint=endpoint, tokens_in=70, fields=raw, found=None)
    prices = TokenPrices(Rates(input=Decimal(1), output=Decimal(2), source="list", **rates))
    target = SimpleNamespace(prices=prices, carries_out=lambda *_: carries_out)
    played: Any = SimpleNamespace(
        target=target,
        exchange=SimpleNamespace(request=request),
        prepared=SimpleNamespace(dialect=SimpleNamespace(name=dialect)),
    )
    played._with_calls = partial(Attempt._with_calls, played)
    called: Any = SimpleNamespace(error=None, tokens=tokens)
    return Attempt._billed(played, called)


COUNTED = Tokens(tokens_in=100, out=10, source="usage")
SPOKEN: dict[str, Any] = {"fields": {"modalities": ["audio"]}, "output_audio": Decimal(20)}


def test_an_answer_that_was_to_be_sound_is_estimated_where_it_counts_none() -> None:
    assert good(COUNTED) == Bill(120_000, "list", None)
    assert good(COUNTED, **SPOKEN) == Bill(300_000, "estimated", None)
    told = msgspec.structs.replace(COUNTED, media=(("audio", 3),))
    assert good(told, **SPOKEN) == Bill(120_000 + 3 * 18_000, "list", None)
    assert good(COUNTED, output_audio=Decimal(20)) == Bill(120_000, "list", None)


def test_calls_that_nobody_counts_are_billed_as_many_as_there_may_be() -> None:
    searched: dict[str, Any] = {
        "fields": {"web_search_options": {}}, "calls": {"web_search": Decimal(10)},
    }  # fmt: skip
    found = good(COUNTED, **searched)
    assert (found.nano_usd - 120_000) % 10_000_000 == 0
    assert (found.nano_usd > 120_000, found.source) == (True, "estimated")
    assert good(COUNTED, carries_out=False, **searched) == Bill(120_000, "list", None)
    assert good(COUNTED, dialect="gemini", **searched) == Bill(120_000, "list", None)
    told = msgspec.structs.replace(COUNTED, calls=(("web_search", 1),))
    assert good(told, **searched).source == "list"
