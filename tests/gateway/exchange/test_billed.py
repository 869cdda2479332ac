"""The bill of an attempt that failed: nothing, what came, or all that was asked for."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest

from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Tokens
from lightgate.errors import PeerReset
from lightgate.gateway.exchange.attempt import Attempt, Held
from lightgate.gateway.served.price import (
    NO_BILL,
    USUAL_ANSWER,
    Bill,
    Ceiling,
    TokenPrices,
)
from lightgate.price.rates import Rates


class Told(NamedTuple):
    """A bill that tells what it is of: tokens of the prompt, tokens of the answer."""

    tokens_in: int
    out: int
    source: str = "estimated"
    as_of: str | None = None

    @property
    def nano_usd(self) -> int:
        return self.tokens_in + self.out


OVERBILLED: set[str] = set()  # targets of which the log has said so


class Prices:
    """Prices of a nano-dollar for each token."""

    known = True

    def bill(self, tokens: Tokens) -> Told:
        assert tokens.source == "estimate"
        return Told(tokens.tokens_in or 0, tokens.out or 0, "counted")

    def estimate(self, tokens_in: int, tokens_out: int) -> Told:
        return Told(tokens_in, tokens_out)

    def in_kind(self, bill: Told, _request: Any, out: int) -> Told:
        assert out == bill.out
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
    lost: bool = False,
    ceiling: Ceiling | None = None,
    hurried: bool = False,
    counted: int | None = None,
    tools: bool = False,
) -> Any:
    endpoint = SimpleNamespace(tokens=True, free=False, sound=None, dialect="openai-chat")
    request = SimpleNamespace(
        endpoint=endpoint,
        tokens_in=70,
        max_tokens=max_tokens,
        answers=answers,
        fields={},
        found=SimpleNamespace(tools={"web_search": 1} if tools else {}),
    )
    played: Any = SimpleNamespace(
        target=SimpleNamespace(
            prices=Prices(), abort_stops_billing=stops, carries_out=lambda *_: tools
        ),
        exchange=SimpleNamespace(
            request=request,
            cap=cap,
            ceilings=None if ceiling is None else {"lab/a": ceiling},
            caller=SimpleNamespace(overrides=SimpleNamespace(hurried=hurried)),
            state=SimpleNamespace(learned=SimpleNamespace(overbilled=OVERBILLED)),
        ),
        lost=lost,
        step=SimpleNamespace(target="lab/a"),
        marks=SimpleNamespace(send=sent),
        prepared=SimpleNamespace(streamed=streamed, dialect=SimpleNamespace(name="x")),
    )
    called: Any = SimpleNamespace(
        error=PeerReset("gone"),
        status=status,
        outcome=outcome,
        tokens=Tokens(out=30, tokens_in=counted),
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
    assert billed(status, Outcome.RESET, stops=False, streamed=False) == Told(70, 30)
    assert billed(status, Outcome.CANCELLED) == Told(70, 30)
    assert billed(status, Outcome.TIMEOUT) == Told(70, 30)


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.TIMEOUT])
@pytest.mark.parametrize("ends", [{"stops": False}, {"streamed": False}])
def test_what_the_provider_goes_on_with_costs_all_that_was_asked_for(
    outcome: Outcome, ends: dict[str, Any]
) -> None:
    assert billed(200, outcome, **ends) == Told(70, USUAL_ANSWER)
    assert billed(200, outcome, max_tokens=400, **ends) == Told(70, 400)
    assert billed(200, outcome, max_tokens=400, cap=300, **ends) == Told(70, 300)
    assert billed(200, outcome, max_tokens=400, answers=3, **ends) == Told(70, 1200)
    assert billed(200, outcome, max_tokens=20, **ends) == Told(70, 30)  # as much came already


CEILING = Ceiling(most=9000, prompt=5000, out=400)


def test_who_leaves_pays_the_most_that_a_prompt_can_cost() -> None:
    """Pictures, files and searches cost what no number of bytes tells."""
    assert billed(200, Outcome.CANCELLED, ceiling=CEILING) == Bill(5300, "estimated", None)
    assert billed(None, Outcome.CANCELLED, ceiling=CEILING) == Bill(5300, "estimated", None)
    text = msgspec.structs.replace(CEILING, text=True)
    assert billed(200, Outcome.CANCELLED, ceiling=text) == Told(70, 30)


def test_only_a_client_pays_for_what_it_ended() -> None:
    assert billed(200, Outcome.CANCELLED, ceiling=CEILING, lost=True) == Told(70, 30)
    assert billed(200, Outcome.RESET, ceiling=CEILING) == Told(70, 30)
    assert billed(200, Outcome.RESET, ceiling=CEILING, hurried=True) == Told(70, 30)
    assert billed(200, Outcome.TIMEOUT, ceiling=CEILING) == Told(70, 30)
    assert billed(200, Outcome.TIMEOUT, ceiling=CEILING, hurried=True).nano_usd == 5300


def test_a_prompt_that_was_counted_costs_its_count() -> None:
    """Tools are counted at the end, which has not come."""
    assert billed(200, Outcome.CANCELLED, counted=900) == Told(900, 30, "counted")
    assert billed(200, Outcome.RESET, counted=900) == Told(900, 30, "counted")
    assert billed(200, Outcome.CANCELLED, counted=900, ceiling=CEILING) == Told(900, 30, "counted")
    tools: dict[str, Any] = {"counted": 900, "ceiling": CEILING, "tools": True}
    assert billed(200, Outcome.CANCELLED, **tools) == Bill(5300, "counted", None)
    tools["counted"] = 6000
    assert billed(200, Outcome.CANCELLED, **tools) == Bill(6030, "counted", None)


def test_a_bill_is_cut_to_what_was_reserved(caplog: pytest.LogCaptureFixture) -> None:
    """It is said once of each target; a bill of exactly that is the provider's own."""
    OVERBILLED.clear()
    assert billed(200, Outcome.RESET, ceiling=Ceiling(100, 0, 9)) == Told(70, 30)
    assert not OVERBILLED
    for _ in range(2):
        assert billed(200, Outcome.RESET, ceiling=Ceiling(99, 0, 9)) == Bill(99, "estimated", None)
    assert {"lab/a"} == OVERBILLED
    (line,) = [one.getMessage() for one in caplog.records]
    assert line.startswith("lab/a counts tokens for $0.0000001 where $0.000000099 is the most ")


@pytest.mark.parametrize("ends", [{"stops": False}, {"streamed": False}])
def test_an_answer_without_a_limit_that_goes_on_is_as_long_as_can_be(ends: dict[str, Any]) -> None:
    text = msgspec.structs.replace(CEILING, text=True)
    assert billed(200, Outcome.CANCELLED, ceiling=text, **ends) == Told(70, 400)
    assert billed(200, Outcome.CANCELLED, ceiling=CEILING, **ends).nano_usd == 9000
    assert billed(200, Outcome.CANCELLED, ceiling=text, max_tokens=50, **ends) == Told(70, 50)
    assert billed(200, Outcome.CANCELLED, ceiling=text, cap=60, **ends) == Told(70, 60)
    lost = billed(200, Outcome.CANCELLED, ceiling=text, lost=True, **ends)
    assert lost == Told(70, USUAL_ANSWER)


@pytest.mark.parametrize(
    ("seen", "most"), [(0, 5000), (1, 5010), (399, 8990), (400, 9000), (401, 9000)]
)
def test_the_most_grows_with_what_came(seen: int, most: int) -> None:
    assert CEILING.after(seen) == most
    assert Ceiling(10, 0, 3).after(1) == 4  # rounded up
    assert Ceiling(7, 7, 1).after(0) == 7


def test_a_recording_that_nobody_timed_costs_the_most_that_it_can() -> None:
    def heard(outcome: Outcome, characters: int | None, *, lost: bool = False) -> Any:
        endpoint = SimpleNamespace(tokens=False, free=False, sound="form")
        sound = SimpleNamespace(characters=characters)
        played: Any = SimpleNamespace(
            target=SimpleNamespace(
                prices=SimpleNamespace(spoken=lambda *_: Bill(3, "estimated", "now")),
                abort_stops_billing=False,
                carries_out=None,
            ),
            prepared=SimpleNamespace(streamed=False, dialect=SimpleNamespace(name="x")),
            exchange=SimpleNamespace(
                request=SimpleNamespace(endpoint=endpoint, sound=sound, max_tokens=None),
                cap=None,
                ceilings={"lab/a": CEILING},
                caller=SimpleNamespace(overrides=SimpleNamespace(hurried=False)),
            ),
            marks=SimpleNamespace(send=1),
            lost=lost,
            step=SimpleNamespace(target="lab/a"),
        )
        called: Any = SimpleNamespace(
            error=PeerReset("x"), status=200, outcome=outcome, tokens=Tokens()
        )
        return Attempt._billed(played, called).nano_usd

    assert heard(Outcome.CANCELLED, None) == 9000
    assert heard(Outcome.CANCELLED, None, lost=True) == 3
    assert heard(Outcome.RESET, None) == 3
    assert heard(Outcome.CANCELLED, 50) == 3


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
    request = SimpleNamespace(
        endpoint=endpoint, tokens_in=70, fields=raw, found=None, max_tokens=None
    )
    prices = TokenPrices(Rates(input=Decimal(1), output=Decimal(2), source="list", **rates))
    called: Any = SimpleNamespace(error=None, tokens=tokens, outcome=Outcome.OK, status=200)
    target = SimpleNamespace(
        prices=prices, carries_out=lambda *_: carries_out, abort_stops_billing=True
    )
    exchange = SimpleNamespace(request=request, cap=None, ceilings=None)
    played: Any = SimpleNamespace(
        target=target,
        exchange=exchange,
        marks=SimpleNamespace(send=5),
        prepared=SimpleNamespace(dialect=SimpleNamespace(name=dialect), streamed=True),
    )
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
