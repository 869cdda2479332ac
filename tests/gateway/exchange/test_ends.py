"""How an exchange ends, what an attempt's end is taken for, and what large bodies are told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from lightgate.clock.outcome import Outcome
from lightgate.errors import (
    Cancelled,
    DeadlineMissed,
    GatewayBehind,
    Malformed,
    Truncated,
    UsageError,
)
from lightgate.gateway.aside import jobs
from lightgate.gateway.exchange import exchange as exchange_module
from lightgate.gateway.exchange import large
from lightgate.gateway.exchange.attempt import Attempt
from lightgate.gateway.exchange.cascade import Escalation
from lightgate.gateway.exchange.exchange import CONNECT_S, Exchange
from lightgate.gateway.request.body import Written
from lightgate.provider.cloud.signer import digest_of

S = 1_000_000_000


def fake(**facts: Any) -> Any:
    return SimpleNamespace(**facts)


# The end of an exchange


class Closing:
    """An exchange that is about to be closed, and all that is done then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **facts: Any) -> None:
        self.said: list[Any] = []
        self.state = fake(
            now_ns=lambda: 9,
            exchanges=fake(discard=lambda one: self.said.append(("forget", one is self))),
            load=fake(keys={}, ended=lambda key: self.said.append(("ended", key))),
        )
        self.closed_ns: int | None = None
        self.cascade: Any = None
        self.sound = True
        self.caller = fake(key="key")
        self.attempts = [
            fake(called=None, abandon=lambda: self.said.append("abandon")),
            fake(called=fake(), abandon=lambda: self.said.append("never")),
        ]
        self.winner: Any = "winner"
        self.request = fake(streamed=True)
        self.reply = fake(on_lost=1, whole=lambda *told: self.said.append(told))
        self.on_over: Any = self.said.append
        monkeypatch.setattr(exchange_module, "settle", self._settle)
        monkeypatch.setattr(
            exchange_module, "send_stream_end", lambda reply, *last: self.said.append(last)
        )
        for name, value in facts.items():
            setattr(self, name, value)

    def _settle(self, state: Any, exchange: Any) -> str:
        assert (state, exchange, exchange.winner) == (self.state, self, "winner")
        return "settled"

    def close(self, last: tuple[bytes, bytes] | None = None) -> list[Any]:
        exchange: Any = self
        Exchange.close(exchange, last)
        return self.said


def test_an_exchange_is_closed_once_and_lets_go_of_its_attempts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exchange = Closing(monkeypatch)
    assert exchange.close() == [("forget", True), "abandon", "settled"]
    assert exchange.close() == [("forget", True), "abandon", "settled"]
    assert (exchange.attempts, exchange.winner, exchange.cascade) == ([], None, None)
    assert (exchange.closed_ns, exchange.reply.on_lost, exchange.sound) == (9, None, True)


def test_the_end_of_an_answer_is_sent_once_it_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Closing(monkeypatch, on_over=None)
    assert stream.close((b"lines", b"data"))[-1] == (b"lines", b"data")
    whole = Closing(monkeypatch, on_over=None, request=fake(streamed=False))
    assert whole.close((b"lines", b"body"))[-1] == (200, b"lines", b"body")


@pytest.mark.parametrize("doubtful", [False, True])
def test_an_answer_that_failed_its_checks_is_shared_with_nobody(
    monkeypatch: pytest.MonkeyPatch, doubtful: bool
) -> None:
    closed: list[str] = []
    cascade = fake(doubtful=doubtful, close=lambda: closed.append("closed"))
    exchange = Closing(monkeypatch, cascade=cascade)
    exchange.close()
    assert (exchange.sound, exchange.cascade, closed) == (not doubtful, None, ["closed"])


def test_requests_of_a_key_are_counted_no_more_where_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exchange = Closing(monkeypatch)
    exchange.state.load.keys = {"k": 1}
    assert exchange.close()[1] == ("ended", "key")


@pytest.mark.parametrize("limit_ns", [None, 0, 5 * S])
def test_an_attempt_has_the_time_that_is_left(limit_ns: int | None) -> None:
    said: list[Any] = []
    exchange = fake(
        state=fake(
            now_ns=lambda: 100 * S,
            client="client",
            timers=fake(wait=lambda *facts: said.append(facts)),
            learned=fake(observer=fake(began=lambda *facts: said.append(facts))),
        ),
        due_ns=102 * S + S // 2,
        alias=fake(idle_timeout_ns=3 * S + S // 4),
    )
    attempt: Any = fake(step=fake(target="a/m"), timed=False, start=lambda *f: said.append(f))
    Exchange.carry_out(exchange, attempt, limit_ns)
    assert (attempt.began_ns, attempt.timed) == (100 * S, limit_ns is not None)
    (client, limits) = said.pop()
    assert client == "client"
    assert (limits.connect_s, limits.first_byte_s) == (min(CONNECT_S, 2.5), None)
    assert (limits.idle_s, limits.total_s) == (3.25, 2.5)
    assert said.pop() == ("a/m", 100 * S)
    assert said == ([] if limit_ns is None else [(attempt, 100 * S + limit_ns)])


# What the end of a call is taken for


def judged(
    error: Any, *, overdue: bool = False, misshapen: Any = None, streamed: bool = True,
    assembles: bool = False, stood: bool = False,
) -> Any:  # fmt: skip
    cut: list[Any] = []
    attempt: Any = fake(
        exchange=fake(
            request=fake(streamed=streamed), assembles=assembles,
            state=fake(
                now_ns=lambda: 50,
                load=fake(stood_since=lambda since_ns: stood and since_ns == 20),
                learned=fake(whole_times=fake(cut=lambda *facts: cut.append(facts))),
            ),
        ),
        began_ns=20, _overdue=overdue, prepared=fake(origin=fake(authority="lab:80")),
        step=fake(target="a/m"), _misshapen=lambda called: misshapen,
        _plausible=lambda called: called,
    )  # fmt: skip
    found = Attempt._judged(attempt, Ended(error=error))  # type: ignore[arg-type] # as far as read
    return found, cut


class Ended(msgspec.Struct):
    """The end of a call, as far as it is judged."""

    error: Any = None
    outcome: Outcome = Outcome.OK


def test_an_answer_of_the_right_shape_is_what_it_is() -> None:
    found, cut = judged(None)
    assert (found, cut) == (Ended(), [])
    kept = Truncated("broken off")
    assert judged(kept)[0] == Ended(error=kept)


def test_an_answer_of_another_shape_has_the_outcome_of_what_is_wrong_with_it() -> None:
    found, _ = judged(None, misshapen=Malformed("no JSON"))
    assert found.outcome == Outcome(Malformed.outcome) != Outcome.OK
    assert found.error.message == "no JSON"


def test_an_attempt_that_was_closed_at_its_deadline_is_late() -> None:
    for streamed, assembles, cuts in ((True, False, []), (False, True, []),
                                      (False, False, [("a/m", 30)])):  # fmt: skip
        found, cut = judged(
            Cancelled("closed"), overdue=True, streamed=streamed, assembles=assembles
        )
        assert found.outcome is Outcome.TIMEOUT
        assert isinstance(found.error, DeadlineMissed)
        assert (found.error.phase, cut) == ("first_byte", cuts)
        assert found.error.message == "lab:80 sent no token in time."
    assert judged(Cancelled("closed"))[0].outcome is Outcome.OK  # as it was told
    other = Truncated("broken off")
    assert judged(other, overdue=True)[0].error is other


def test_a_deadline_that_passed_while_the_worker_stood_is_our_own_fault() -> None:
    for error, overdue in (
        (Cancelled("closed"), True),
        (DeadlineMissed("late", phase="total"), False),
    ):
        found, _ = judged(error, overdue=overdue, stood=True)
        assert isinstance(found.error, GatewayBehind)
        assert (found.outcome, "lab:80" in found.error.message) == (Outcome.TIMEOUT, True)
    kept = DeadlineMissed("late", phase="total")
    assert judged(kept)[0].error is kept
    assert judged(Truncated("x"), stood=True)[0].error.message == "x"


def test_a_stream_that_ends_without_a_marker_gets_that_of_its_translation() -> None:
    assert Attempt.closing(fake(_translator=None)) == b""
    assert Attempt.closing(fake(_translator=fake(finish=lambda: b"end"))) == b"end"


@pytest.mark.parametrize("waits", [False, True])
def test_a_first_token_beside_one_that_was_started_ahead_is_told_once(waits: bool) -> None:
    told: list[Any] = []
    state = fake(
        now_ns=lambda: 9, learned=fake(observer=fake(spoke=lambda *facts: told.append(facts)))
    )
    exchange = fake(state=state, size=2, winner=None, first_in_ns=None)
    owner = fake(exchange=exchange, _ahead=fake(turned=False, waits=lambda one: waits))
    attempt: Any = fake(heard=False, marks=fake(first=4), step=fake(target="a/m"), began_ns=3)
    for _ in range(2):
        assert Escalation.commit(owner, attempt)
    assert (told, attempt.heard) == ([("a/m", 2, 9, 3)], True)
    assert exchange.winner is (None if waits else attempt)
    assert exchange.first_in_ns == (None if waits else 4)
    silent: Any = fake(heard=False, marks=fake(first=None), step=fake(target="a/m"), began_ns=3)
    Escalation.commit(owner, silent)
    assert (len(told), silent.heard) == (1, True)


# Large answers and bodies


class Helper:
    """The process beside the loop; it keeps what it is told to do."""

    def __init__(self, *answers: Any) -> None:
        self.asked: list[Any] = []
        self._answers = list(answers)

    async def do(self, *order: Any) -> Any:
        self.asked.append(order)
        return self._answers.pop(0)


@pytest.mark.parametrize("tokens", [True, False])
async def test_a_large_answer_is_read_with_all_that_its_form_hangs_on(tokens: bool) -> None:
    helper = Helper((("facts", None), [b"told"]))
    endpoint = fake(dialect="anthropic-messages", tokens=tokens)
    exchange: Any = fake(
        request=fake(
            fields={"input": msgspec.Raw(b'"x"')}, endpoint=endpoint, model="m",
            include_usage=True,
        ),
        id="x-1", wall_ns=7_900_000_000, caller=fake(key=fake(id="k")), inbound=None,
        state=fake(aside=helper, served=fake(terms=fake(limits=fake(values=12)))),
    )  # fmt: skip
    prepared: Any = fake(dialect=fake(name="openai-chat"), forms={"f": "form"})
    found: Any = await large.read_large_answer(exchange, prepared, b"body")
    assert found == ("facts", None, b"told")
    [(owner, job, bodies, order)] = helper.asked
    assert (owner, job, bodies) == ("k", jobs.answer, (b"body",))
    forms: Any = {"f": "form"}
    assert order == jobs.AnswerOrder(
        dialect="openai-chat", client="anthropic-messages", model="m", id="x-1", created=7,
        include_usage=True, asked=None if tokens else {"input": b'"x"'}, forms=forms,
        values=12,
    )  # fmt: skip


class Writer:
    """Writes bodies here where the dialects are the same."""

    def __init__(self, name: str) -> None:
        self.name = name

    def copies(self, asked: str, told: str) -> bool:
        return asked == told

    def same(self, *facts: Any) -> Written:
        assert [getattr(facts[1], "name", None), *facts[2:]] == ["openai-chat", 5, True, "drop"]
        return Written(b"", pieces=(self.name.encode(),))


def served(name: str, dialect: str | None, *, signed: bool = False) -> Any:
    def answer_dialect(endpoint: Any) -> Any:
        del endpoint
        if dialect is None:
            raise UsageError("It has no such endpoint.")
        return fake(name=dialect)

    target = fake(signer=object() if signed else None)
    return fake(answer_dialect=answer_dialect, writer=Writer(name), target=target)


async def test_bodies_are_written_once_for_each_target_that_can_be_told() -> None:
    wrong = UsageError("It cannot be told.")
    helper = Helper(([Written(b"", dropped=("x",)), wrong], [b"for b", b""]))
    exchange: Any = fake(
        request=fake(
            streamed=False, written=None, body=b"body", endpoint=fake(dialect="openai-chat")
        ),
        assembles=True, cap=5, alias=fake(untranslatable="drop"), caller=fake(key=fake(id="k")),
        inbound=None, state=fake(aside=helper),
        served=fake(targets={
            "a": served("a", "openai-chat"), "b": served("b", "gemini"), "c": served("c", None),
            "d": served("d", "anthropic-messages"),
            "e": served("e", "openai-chat", signed=True),
        }),
    )  # fmt: skip
    await large.write_bodies(exchange, ["a", "b", "a", "c", "d", "e"])
    written = exchange.request.written
    assert set(written) == {("a", True), ("b", True), ("d", True), ("e", True)}
    assert written["a", True] == Written(b"", pieces=(b"a",))
    assert written["b", True] == Written(b"", dropped=("x",), pieces=(b"for b",))
    assert written["d", True] is wrong
    assert written["e", True].digest == digest_of((b"e",)) != ""
    [(owner, job, bodies, endpoint, orders)] = helper.asked
    assert (owner, job, bodies) == ("k", jobs.write, (b"body",))
    assert endpoint is exchange.request.endpoint
    assert [(one.target, one.dialect, one.cap, one.streamed, one.untranslatable)
            for one in orders] == [("b", "gemini", 5, True, "drop"),
                                   ("d", "anthropic-messages", 5, True, "drop")]  # fmt: skip
    await large.write_bodies(exchange, ["a", "b", "c"])  # all that can be are written
    assert len(helper.asked) == 1


async def test_bodies_for_whole_answers_are_others() -> None:
    exchange: Any = fake(
        request=fake(streamed=False, written={("a", True): "kept"},
                     endpoint=fake(dialect="gemini"), body=b""),
        assembles=False, cap=None, alias=fake(untranslatable="refuse"), caller=fake(key=None),
        inbound=fake(peer="10.0.0.1:5"), state=fake(aside=Helper(([Written(b"")], [b"whole"]))),
        served=fake(targets={"a": served("a", "openai-chat")}),
    )  # fmt: skip
    await large.write_bodies(exchange, ["a"])
    assert exchange.request.written == {
        ("a", True): "kept", ("a", False): Written(b"", pieces=(b"whole",)),
    }  # fmt: skip
    assert exchange.state.aside.asked[0][0] == "10.0.0.1"
