"""What an attempt holds back until it has the client, and what it hands over then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lightgate.dialect.assemble import assembler
from lightgate.errors import TooLarge
from lightgate.gateway.exchange import exchange as exchange_module
from lightgate.gateway.exchange import stream as stream_module
from lightgate.gateway.exchange import whole as whole_module
from lightgate.gateway.exchange.exchange import Exchange
from lightgate.gateway.exchange.stream import StreamAttempt
from lightgate.gateway.exchange.whole import AssembledAttempt


class Owner:
    """The exchange of an attempt: it gives the client away or not, and keeps what is delivered."""

    cascade = None

    def __init__(self, *, gives: bool) -> None:
        self.gives = gives
        self.asked = 0
        self.out: list[tuple[bytes, bool]] = []

    def commit(self, _attempt: Any) -> bool:
        self.asked += 1
        return self.gives

    def deliver(self, _attempt: Any, out: bytes, *, ended: bool) -> None:
        self.out.append((out, ended))


def streamed(*, gives: bool = True, **facts: Any) -> Any:
    """A streamed attempt whose dialect is the client's."""
    attempt: Any = object.__new__(StreamAttempt)
    values = {
        "exchange": Owner(gives=gives), "committed": False, "complete": False, "called": None,
        "_translator": None, "_hides_usage": False, "_held": [], "_held_size": 0,
        "_useful": False, "held_ns": 5,
    }  # fmt: skip
    for name, value in {**values, **facts}.items():
        setattr(attempt, name, value)
    return attempt


def event(text: bytes) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    return b"data: %b\n\n" % text, [(b"", text)]


def test_nothing_goes_out_before_something_useful_has_come() -> None:
    attempt = streamed()
    attempt.took(b"half an eve", [], 0)
    attempt.took(*event(b"{}"), 0)
    assert (attempt.exchange.out, attempt.exchange.asked) == ([], 0)
    attempt.took(*event(b'{"a":1}'), 1)
    assert attempt.exchange.out == [(b'data: {}\n\ndata: {"a":1}\n\n', False)]
    attempt.took(*event(b'{"b":2}'), 1)
    assert attempt.exchange.out[1:] == [(b'data: {"b":2}\n\n', False)]
    assert attempt.exchange.asked == 1


def test_what_another_attempt_may_still_beat_is_held_up_to_a_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, events = event(b"{}")
    monkeypatch.setattr(stream_module, "HELD_LIMIT", 2 * len(data))
    attempt = streamed(gives=False)
    attempt.took(data, events, 1)
    attempt.took(data, events, 1)
    with pytest.raises(TooLarge, match="bytes came before the first token"):
        attempt.took(data, events, 1)
    assert attempt.exchange.out == []
    attempt.exchange.gives = True
    attempt.release()
    assert (attempt.held_ns, attempt.exchange.out) == (0, [(3 * data, False)])


@pytest.mark.parametrize("complete", [False, True])
def test_a_translation_is_finished_with_the_answer(complete: bool) -> None:
    translator = SimpleNamespace(event=lambda _name, data: data.upper(), finish=lambda: b"!")
    attempt = streamed(_translator=translator, complete=complete)
    assert attempt._told([(b"", b"a"), (b"", b"b")]) == (b"AB!" if complete else b"AB")
    assert streamed()._told([(b"", b"a")]) == b""


class Assembly:
    """An answer that is put together from its events."""

    def __init__(self) -> None:
        self.events: list[bytes] = []

    @property
    def size(self) -> int:
        return sum(map(len, self.events))

    def event(self, _name: bytes, data: bytes) -> None:
        self.events.append(data)


def assembled(*, gives: bool = True, **facts: Any) -> Any:
    """An attempt that streams, for a client that wants its answer whole."""
    attempt: Any = object.__new__(AssembledAttempt)
    values = {
        "exchange": Owner(gives=gives), "committed": False, "complete": False, "called": None,
        "_assembly": Assembly(), "_translator": None, "_useful": False, "held_ns": 5,
        "heard": False, "_body": [],
    }  # fmt: skip
    for name, value in {**values, **facts}.items():
        setattr(attempt, name, value)
    return attempt


def test_a_whole_answer_is_delivered_at_its_end_and_not_before() -> None:
    attempt = assembled()
    attempt.took(b"", [(b"", b"a")], 1)
    assert (attempt.exchange.asked, attempt.exchange.out) == (1, [])
    attempt.complete = True
    attempt.took(b"", [(b"", b"b")], 1)
    assert attempt.exchange.out == [(b"", True)]
    assert attempt._assembly.events == [b"a", b"b"]
    attempt = assembled(gives=False, complete=True)
    attempt.took(b"", [(b"", b"a")], 1)
    assert attempt.exchange.out == []


def test_a_long_answer_with_log_probabilities_is_within_the_limit() -> None:
    """As many others beside each token as may be asked for, and 2,000 tokens."""
    one = {"token": " tok", "logprob": -0.123456, "bytes": [32, 116, 111, 107]}
    said = {"content": [{**one, "top_logprobs": [one] * 20}]}
    choice = {"index": 0, "delta": {"content": " tok"}, "logprobs": said}
    assembly = assembler("openai-chat")
    for _ in range(2000):
        assembly.event(b"", msgspec.json.encode({"choices": [choice]}))
    assert assembly.size < whole_module.ASSEMBLED_LIMIT


def test_a_whole_answer_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_module, "ASSEMBLED_LIMIT", 4)
    attempt = assembled()
    attempt.took(b"", [(b"", b"1234")], 1)
    with pytest.raises(TooLarge, match="larger than 4 bytes"):
        attempt.took(b"", [(b"", b"5")], 1)


@pytest.mark.parametrize(
    ("useful", "body", "heard", "asked"),
    [
        (True, [], False, 1),
        (False, [b"{}"], True, 1),
        (False, [], False, 0),
        (True, [b""], False, 1),
    ],
)
def test_an_attempt_that_is_let_go_asks_for_the_client_once(
    useful: bool, body: list[bytes], heard: bool, asked: int
) -> None:
    """An answer that came whole though it was to be streamed has no token to ask by."""
    attempt = assembled(_useful=useful, _body=body)
    attempt.release()
    assert (attempt.held_ns, attempt.heard, attempt.exchange.asked) == (0, heard, asked)


class Race:
    """An exchange with attempts beside each other, and a clock that the test sets."""

    def __init__(self, finish: str = "") -> None:
        self.now = 10
        self.heard: list[Any] = []
        self.lost: list[str] = []
        observer = SimpleNamespace(spoke=lambda *told: self.heard.append(told))
        self.exchange: Any = SimpleNamespace(
            winner=None, closed_ns=None, assembles=False, plan=SimpleNamespace(finish=finish),
            size=2, attempts=[], first_in_ns=None,
            state=SimpleNamespace(
                now_ns=lambda: self.now, learned=SimpleNamespace(observer=observer)
            ),
        )  # fmt: skip

    def attempt(self, name: str, first: int | None = 7, held_ns: int = 0) -> Any:
        made = SimpleNamespace(
            heard=False, marks=SimpleNamespace(first=first), step=SimpleNamespace(target=name),
            began_ns=3, held_ns=held_ns, called=None, lose=lambda: self.lost.append(name),
        )  # fmt: skip
        self.exchange.attempts.append(made)
        return made

    def commit(self, attempt: Any) -> bool:
        return Exchange.commit(self.exchange, attempt)


def test_the_first_attempt_that_speaks_has_the_client_and_the_others_lose() -> None:
    race = Race()
    one, other = race.attempt("a"), race.attempt("b")
    assert race.commit(one)
    assert (race.exchange.winner, race.exchange.first_in_ns, race.lost) == (one, 7, ["b"])
    assert race.heard == [("a", 2, 10, 3)]
    assert race.commit(one)
    assert not race.commit(other)
    assert len(race.heard) == 1


def test_an_attempt_that_is_held_back_does_not_have_the_client_yet() -> None:
    race = Race()
    one = race.attempt("a", held_ns=11)
    assert not race.commit(one)
    assert race.exchange.winner is None
    race.now = 11
    assert race.commit(one)
    assert len(race.heard) == 1  # it was heard the first time


def test_an_exchange_that_is_over_gives_nobody_the_client() -> None:
    race = Race()
    race.exchange.closed_ns = 9
    assert not race.commit(race.attempt("a"))
    assert (race.exchange.winner, race.heard) == (None, [])


@pytest.mark.parametrize("finish", ["", "whole"])
def test_where_the_whole_counts_another_may_be_waited_for(
    monkeypatch: pytest.MonkeyPatch, finish: str
) -> None:
    monkeypatch.setattr(exchange_module, "waits_for_another", lambda *_: True)
    race = Race(finish)
    one = race.attempt("a")
    assert race.commit(one)  # there is no other
    race = Race(finish)
    one, ended = race.attempt("a"), race.attempt("b", first=None)
    assert race.commit(one) is (finish == "")
    race.exchange.winner = None
    ended.called = object()
    assert race.commit(ended)
    assert [told[0] for told in race.heard] == ["a"]  # no first token of the other was heard
