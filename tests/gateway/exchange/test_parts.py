"""Single steps of an exchange and of its attempts, each with what it looks at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.errors import Malformed, StreamError, TooLarge
from lightgate.gateway.exchange.attempt import Attempt
from lightgate.gateway.exchange.exchange import Exchange
from lightgate.gateway.exchange.stream import StreamAttempt
from lightgate.gateway.request.refusal import Refusal


def fake(**facts: Any) -> Any:
    return SimpleNamespace(**facts)


def test_the_attempt_that_says_how_it_went() -> None:
    won, lost, failed = fake(lost=False), fake(lost=True), fake(lost=False)
    decisive: Any = Exchange.decisive.fget  # type: ignore[attr-defined] # a property
    assert decisive(fake(winner=won, attempts=[won, failed])) is won
    assert decisive(fake(winner=None, attempts=[won, failed, lost])) is failed
    assert decisive(fake(winner=None, attempts=[lost])) is None


@pytest.mark.parametrize("started", [False, True])
def test_a_request_without_any_attempt_is_told_that_its_time_was_over(started: bool) -> None:
    told: list[Any] = []
    reply = fake(
        started=started,
        finish=lambda *, last: told.append(last),
        whole=lambda status, headers, body: told.append((status, body)),
    )
    endpoint = fake(dialect="openai-chat")
    made = fake(
        failures=[],
        refusal=None,
        reply=reply,
        state=fake(now_ns=lambda: 7),
        request=fake(endpoint=endpoint),
        decisive=None,
        headers=lambda attempt: b"",
    )
    Exchange._refuse(made)
    assert made.last_out_ns == 7
    assert (made.refusal.status, made.refusal.code) == (504, "timeout")
    assert made.refusal.message == "The request's time was over before it began."
    known = made.refusal
    Exchange._refuse(made)  # one that is known stays
    assert made.refusal is known
    assert len(told) == 2
    assert told[0] == told[1]
    if started:
        assert told[0] == known.event("openai-chat")
    else:
        assert told[0][0] == 504


@pytest.mark.parametrize(
    ("finished", "defect", "failed"),
    [(False, ValueError(), 1), (True, ValueError(), 0), (False, KeyboardInterrupt(), 0)],
)
def test_a_defect_of_our_own_ends_the_exchange(
    finished: bool, defect: BaseException, failed: int
) -> None:
    log: list[Any] = []
    reply = fake(finished=finished, fail=log.append)
    made = fake(reply=reply, close=lambda: log.append("closed"))
    attempt = fake(exchange=fake(broke=lambda error: Exchange.broke(made, error)))
    Attempt.broke(attempt, defect)
    assert log == [*[defect][:failed], "closed"]


def test_an_answer_that_is_not_handed_on_lets_go_of_its_time_alone() -> None:
    attempt = fake(held_ns=9)
    Attempt.release(attempt)
    assert attempt.held_ns == 0
    assert Attempt.conveys(attempt, lambda data: True) is None


def test_a_client_that_is_slower_than_the_provider_is_waited_for() -> None:
    waited: list[Any] = []
    attempt = fake(exchange=fake(wait=waited.append))
    Attempt.crowded(attempt)
    assert waited == [attempt]


def whole(**facts: Any) -> Any:
    plain: dict[str, Any] = {
        "_unread": None, "_whole": None, "_translator": None, "_body": [b"a", b"b"],
        "answer_body": b"assembled",
        "prepared": fake(streamed=False, without_key=lambda text: text.replace("key", "***")),
    }  # fmt: skip
    return fake(**(plain | facts))


def test_the_answer_as_one_body() -> None:
    streamed = fake(streamed=True, without_key=str.upper)
    doubled = fake(whole=lambda body: body * 2)
    assert Attempt.whole_body(whole()) == b"ab"
    assert Attempt.whole_body(whole(prepared=streamed)) == b"assembled"
    made = whole(_translator=doubled)
    assert Attempt.whole_body(made) == b"assembled" * 2
    made._translator = None
    assert Attempt.whole_body(made) == b"assembled" * 2  # once


@pytest.mark.parametrize("kind", [Malformed, StreamError])
def test_an_answer_that_is_none_is_told_without_the_key(kind: Any) -> None:
    def fails(body: bytes) -> bytes:
        raise kind("It has the key.")

    for made in (whole(_translator=fake(whole=fails)), whole(_unread=TooLarge("It has the key."))):
        with pytest.raises((kind, TooLarge)) as caught:
            Attempt.whole_body(made)
        assert caught.value.message == "It has the ***."


def test_an_error_inside_a_stream_is_told_once() -> None:
    refusal = Refusal(status=502, message="No.", code="x")
    request = fake(endpoint=fake(dialect="openai-chat"))
    same = fake(_translator=None, exchange=fake(request=request))
    assert Attempt.error_event(same, refusal) == refusal.event("openai-chat")
    for failed, closed, told in (
        (None, False, b"told"),
        (object(), False, b""),
        (None, True, b""),
    ):
        translator = fake(failed=failed, closed=closed, fail=lambda fault: b"told")
        assert Attempt.error_event(fake(_translator=translator), refusal) == told


def test_what_is_wrong_with_a_stream() -> None:
    prepared = fake(origin=fake(authority="a.test"))
    said = StreamAttempt._misshapen(fake(prepared=prepared), fake(streamed=False))
    assert str(said) == "a.test did not stream although it was asked to."
    called, fault = fake(streamed=True), object()
    for translator, error in ((None, None), (fake(failed=None), None), (fake(failed=fault), fault)):
        made = fake(_translator=translator, misread=lambda found: found)
        assert StreamAttempt._misshapen(made, called) is error


def misshapen(*, failed: Any, streamed: bool, dialect: str, body: Any) -> Any:
    made = fake(
        _translator=None if failed is None else fake(failed=failed),
        misread=lambda found: found,
        prepared=fake(dialect=fake(name=dialect)),
        exchange=fake(request=fake(endpoint=fake(dialect="openai-chat"))),
        whole_body=body,
    )
    return Attempt._misshapen(made, fake(streamed=streamed))


def test_what_is_wrong_with_a_whole_answer() -> None:
    broken = Malformed("No.")

    def fails() -> bytes:
        raise broken

    fault = object()
    assert misshapen(failed=fault, streamed=False, dialect="gemini", body=fails) is fault
    assert misshapen(failed=None, streamed=False, dialect="gemini", body=fails) is broken
    assert misshapen(failed=None, streamed=True, dialect="openai-chat", body=fails) is broken
    assert misshapen(failed=None, streamed=False, dialect="openai-chat", body=fails) is None
    assert misshapen(failed=None, streamed=True, dialect="gemini", body=bytes) is None


def test_usage_that_only_we_asked_for_is_hidden() -> None:
    hidden = b'{"choices": [], "usage": {"prompt_tokens": 1}}'
    for event, hides, found in (
        (hidden, True, True),
        (hidden, False, False),
        (b'{"choices": [], "usage": null}', True, False),
        (b'{"choices": [], "usage": ', True, False),
        (b'{"choices": [{"delta": "x \\"choices\\": []"}], "usage": {}}', True, False),
        (b'{"choices": []}', True, False),
    ):
        assert StreamAttempt._hides(fake(_hides_usage=hides), event) is found, event


def test_events_of_the_same_dialect_go_out_as_they_came() -> None:
    attempt: Any = fake(_hides=lambda event: event == b"usage")
    one = b"data: {}\n\n"
    assert StreamAttempt._same(attempt, one, [(b"", b"{}")], 1) is one
    assert StreamAttempt._same(attempt, b"data: usage\n\n", [(b"", b"usage")], 0) == b""
    assert StreamAttempt._same(attempt, b"data: usage\n\n", [(b"", b"usage")], 1) != b""
    for data, events in (
        (b"data:{}\n\n", [(b"", b"{}")]),
        (b"data: {}\n\n: x\n\n", [(b"", b"{}")]),
        (b"datax {}\n\n", [(b"", b"{}")]),
    ):
        assert StreamAttempt._same(attempt, data, events, 1) == one
    events = [(b"a", b"1\n2"), (b"", b"usage"), (b"", b"3")]
    assert StreamAttempt._same(attempt, b"", events, 1) == (
        b"event: a\ndata: 1\ndata: 2\n\ndata: 3\n\n"
    )


class Told:
    """Stands where a reply or an attempt is, and keeps what it is told."""

    def __init__(self, **facts: Any) -> None:
        self.said: list[Any] = []
        self.__dict__.update(facts)

    def __getattr__(self, name: str) -> Any:
        def told(*given: Any, **named: Any) -> Any:
            self.said.append((name, *given, *named.values()))
            return f"{name}!"

        return told


def delivering(*, streamed: bool = True, **reply: Any) -> tuple[Any, Any]:
    now = iter((10, 20, 30))
    plain = {"finished": False, "started": True, "crowded": False}
    made = Told(
        reply=Told(**(plain | reply)), cascade=None, request=fake(streamed=streamed),
        state=fake(now_ns=lambda: next(now)), first_out_ns=None, first_in_ns=5, last_out_ns=None,
        headers=lambda attempt: b"h", answer=lambda attempt, came_ns: (b"h", b"%d" % came_ns),
    )  # fmt: skip
    return made, Told(called=object(), media=b"m", marks=fake(end=7, last=None))


def test_bytes_are_handed_on_in_the_turn_in_which_they_came() -> None:
    made, attempt = delivering(finished=True)
    Exchange.deliver(made, attempt, b"x", ended=True)
    assert (made.reply.said, made.said, attempt.said) == ([], [], [])
    made, attempt = delivering(started=False)
    Exchange.deliver(made, attempt, b"x", ended=False)
    assert made.reply.said == [("start", 200, b"mh", b"x")]
    assert (made.first_out_ns, made.last_out_ns) == (10, 20)
    assert attempt.pass_on == "conveys!"
    made, attempt = delivering(crowded=True)
    made.first_in_ns = None
    Exchange.deliver(made, attempt, b"x", ended=False)
    assert made.reply.said == [("send", b"x")]
    assert (made.first_out_ns, made.last_out_ns) == (None, 10)
    assert made.said == [("wait", attempt)]
    for started, said in ((True, b"x"), (False, b"")):
        made, attempt = delivering(started=started)
        made.first_out_ns = 3
        Exchange.deliver(made, attempt, b"x", ended=True)
        assert made.reply.said[-1] == ("finish", said)
        assert (made.first_out_ns, made.last_out_ns) == (3, 10)


def test_an_answer_that_is_over_is_settled_before_it_is_sent() -> None:
    made, attempt = delivering()
    attempt.called = None
    Exchange.deliver(made, attempt, b"x", ended=True)
    assert attempt.final == b"x"
    assert attempt.said == [("ended_as", None), ("over", "ended_as!")]
    assert made.reply.said == []
    for ended, said in ((False, []), (True, [("whole", 200, b"h", b"7")])):
        made, attempt = delivering(streamed=False)
        Exchange.deliver(made, attempt, b"x", ended=ended)
        assert made.reply.said == said


@pytest.mark.parametrize(
    ("last", "assembles", "came_ns"), [(None, False, 7), (3, False, 3), (3, True, 7)]
)
def test_the_instant_at_which_a_whole_answer_was_there(
    last: int | None, assembles: bool, came_ns: int
) -> None:
    made, attempt = delivering(streamed=False)
    made.assembles, made._shy, made.winner, made.refusal = assembles, {"a/m"}, attempt, object()
    made.state.learned = fake(unstreamable=set())
    attempt.marks.last, attempt.called, attempt.step = last, fake(error=None), fake(target="a/m")
    Exchange.ended(made, attempt)
    assert made.said == [("close", (b"h", b"%d" % came_ns))]
    assert (made.answered, made.refusal) == (True, None)
    assert made.state.learned.unstreamable == {"a/m"}
    made.winner, made.state.learned.unstreamable = None, set()
    made.reply.finished, made.refusal = True, object()
    Exchange.ended(made, attempt)
    assert made.said[1:] == [("close", None)]
    assert made.refusal is None
    assert made.state.learned.unstreamable == set()
    attempt.called = fake(error="no")
    Exchange.ended(made, attempt)
    assert made.said[2:] == [("_break", attempt, "no"), ("close", None)]
