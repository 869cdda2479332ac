"""Single decisions of a cascade: what is held, what goes on, what is told, each with its facts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.gateway.exchange import cascade as module
from lightgate.gateway.exchange.cascade import HELD_BYTES, Ahead, Escalation, Hold, _ahead_of
from lightgate.route.plan.plan import Step

CHAT = "openai-chat"
CHUNK = b'data: {"choices":[{"delta":{"content":"Hi"},"finish_reason":null}]}\n\n'
END = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def fake(**facts: Any) -> Any:
    return SimpleNamespace(**facts)


def step(tier: int, start_ns: int | None = None, target: str = "a/m") -> Step:
    return Step(target, start_ns, None, "primary", tier)


class Log:
    """Stands where an exchange or an attempt is, and keeps what it is told."""

    def __init__(self, **facts: Any) -> None:
        self.said: list[Any] = []
        self.__dict__.update(facts)

    def __getattr__(self, name: str) -> Any:
        def told(*given: Any, **named: Any) -> Any:
            self.said.append((name, *given, *named.values()))
            return name

        return told


def ahead(**facts: Any) -> Ahead:
    made = Ahead(1, step(1, 5), CHAT)
    for name, value in facts.items():
        setattr(made, name, value)
    return made


def cascade(exchange: Any, **facts: Any) -> Any:
    """A cascade of three tiers, of which the first two are checked."""
    made: Any = object.__new__(Escalation)
    plain = {
        "exchange": exchange, "_ahead": None, "_kept": None, "_let_out": None, "_top": 2,
        "_turns": [fake(tier=0), fake(tier=1), fake(tier=2)], "_hold": Hold(CHAT),
        "doubtful": False,
    }  # fmt: skip
    for name, value in (plain | facts).items():
        setattr(made, name, value)
    return made


def test_what_is_held_is_read_and_taken_once() -> None:
    hold = Hold(CHAT)
    hold.add(CHUNK)
    hold.add(END)
    assert hold.size == len(CHUNK + END)
    data, answer = hold.take()
    assert data == CHUNK + END
    assert answer is not None
    assert answer.text == "Hi"
    assert hold.size == 0
    assert hold.take()[0] == b""
    hold.add(CHUNK.replace(b"Hi", b"Ho"))
    again = hold.take()[1]
    assert again is None or again.text == "Ho"


def test_what_is_started_ahead_runs_until_its_turn() -> None:
    attempt: Any = Log(called=None)
    made = ahead()
    assert (made.running, made.turned, made.waits(attempt)) == (False, False, False)
    made.attempt = attempt
    assert (made.running, made.waits(attempt), made.waits(fake())) == (True, True, False)
    attempt.called = object()
    assert not made.running
    attempt.called = None
    timer: Any = Log()
    made.timer = timer
    made.close()
    assert (made.timer, timer.said) == (None, [("cancel",)])
    assert (made.turned, made.running, made.waits(attempt)) == (True, False, False)
    made.close()
    assert attempt.said == [("lose",)]  # once


def test_the_step_that_a_plan_starts_ahead() -> None:
    def place(*steps: Step) -> int | None:
        return _ahead_of(fake(steps=steps))

    assert place(step(0), step(1)) is None
    assert place(step(0), step(0, 5), step(1, 5)) == 2
    assert place(step(1), step(0, 5)) is None
    assert place(step(0), step(1, 5), step(1, 6)) == 1


@pytest.mark.parametrize(
    ("which", "called", "lost", "word"),
    [
        ("none", None, False, b""),
        ("itself", None, False, b"x-lightgate-ahead: used\r\n"),
        ("other", object(), False, b"x-lightgate-ahead: failed\r\n"),
        ("other", object(), True, b"x-lightgate-ahead: closed\r\n"),
        ("other", None, False, b"x-lightgate-ahead: closed\r\n"),
        ("nobody", None, False, b"x-lightgate-ahead: running\r\n"),
    ],
)
def test_the_header_about_what_was_started_ahead(
    which: str, called: Any, lost: bool, word: bytes
) -> None:
    early = fake(called=called, lost=lost)
    asked = {"itself": early, "other": fake(), "nobody": None, "none": early}[which]
    made = cascade(None, _ahead=ahead(attempt=None if which == "none" else early))
    assert made.header(asked) == word
    assert cascade(None).header(asked) == b""


def test_tiers_between_the_first_and_the_top_are_held() -> None:
    made = cascade(None, _turns=[fake(tier=1)], _top=3)
    held = [made._holds(fake(step=step(tier))) for tier in range(5)]
    assert held == [False, True, True, False, False]
    let_out = fake(step=step(1))
    made._let_out = let_out
    assert not made._holds(let_out)


@pytest.mark.parametrize(
    ("kept", "first", "asked"),
    [
        (False, 1, ("serial", 1, 4)),
        (False, 3, ("serial", 3, 4)),
        (False, 4, ("give_up",)),
        (True, 1, ("serial", 1, 2)),
        (True, 2, ("give_up",)),
    ],
)
def test_with_an_answer_in_hand_no_tier_below_the_first_is_asked(
    kept: bool, first: int, asked: tuple[Any, ...]
) -> None:
    exchange = Log(plan=fake(steps=[step(1), step(2), step(0), step(0)]), reply=fake(finished=True))
    made = cascade(exchange, _turns=[fake(tier=1), fake(tier=2)], _kept=(1, b"") if kept else None)
    made._go_on(first)
    assert exchange.said == [asked]


def test_the_first_step_behind_all_that_were_asked_in_their_turn() -> None:
    steps = [step(0), step(0, target="b/m"), step(1), step(1, target="b/m")]
    early = fake(step=steps[2])
    attempts = [fake(step=steps[0]), fake(step=steps[1])]
    exchange = fake(plan=fake(steps=steps), attempts=[*attempts, early])
    assert cascade(exchange, _ahead=ahead(attempt=early))._behind() == 2
    assert cascade(exchange, _ahead=ahead(attempt=early, turned=True))._behind() == 3
    assert cascade(exchange)._behind() == 3


def test_what_is_said_goes_to_the_client_or_is_held() -> None:
    exchange = Log()
    early, first, top = (Log(step=step(tier)) for tier in (1, 0, 2))
    made = cascade(exchange, _ahead=ahead(attempt=early))
    made.deliver(top, b"x", ended=True)
    assert exchange.said.pop() == ("deliver", top, b"x", True)
    made.deliver(first, b"ab", ended=False)
    made.deliver(early, b"cde", ended=False)
    assert (made._hold.size, made._ahead.hold.size, exchange.said) == (2, 3, [])
    made._ahead.hold.size = HELD_BYTES - 1
    made.deliver(early, b"x", ended=False)
    assert early.said == []
    made.deliver(early, b"x", ended=False)
    assert early.said == [("pause",)]
    made._hold.size = HELD_BYTES - 1
    made.deliver(first, b"c", ended=False)
    assert exchange.said == []
    made.deliver(first, b"d", ended=False)  # too long to be held
    assert exchange.said == [("deliver", first, b"abcd", False)]
    assert made._let_out is first
    assert made._ahead.turned
    assert early.said == [("pause",), ("lose",)]


@pytest.mark.parametrize(
    ("winner", "kept", "said", "left"),
    [
        (None, False, [], None),
        ("held", False, [], None),
        ("top", False, [], "top"),
        ("held", True, ["kept"], None),
        (None, True, ["kept"], None),
        ("top", True, [], "top"),
    ],
)
def test_a_worker_that_stops_gives_a_kept_answer(
    winner: str | None, kept: bool, said: list[str], left: str | None
) -> None:
    attempts = {"held": fake(step=step(0)), "top": fake(step=step(2)), None: None}
    exchange = Log(winner=attempts[winner])
    made = cascade(exchange, _kept=("kept", b"") if kept else None)
    told: list[str] = []
    stops = fake(
        exchange=exchange,
        _holds=made._holds,
        _kept=made._kept,
        _deliver_kept=lambda what: told.append(what[0]),
    )
    Escalation.interrupt(stops)
    assert told == said
    assert exchange.winner is attempts[left]
    assert exchange.said == [("interrupt",)]


def test_a_second_try_is_pointless_but_for_what_was_started_ahead() -> None:
    exchange = Log()
    made = cascade(exchange, _ahead=ahead())
    assert made.pointless(made._ahead.step) == "pointless"
    made._ahead.attempt = fake()
    assert made.pointless(made._ahead.step) is False
    assert made.pointless(step(1, 5)) == "pointless"
    assert cascade(exchange).pointless(step(1)) == "pointless"


def test_the_attempt_of_a_step() -> None:
    exchange, first, other = Log(), step(0), step(1, target="b/m")
    assert cascade(exchange).make_attempt(first) == "make_attempt"
    assert exchange.said.pop() == ("make_attempt", first)
    early = fake(rejected=False, called=None)
    made = cascade(exchange, _ahead=ahead(attempt=early))
    assert made.make_attempt(first) is None  # while the other runs
    assert made.make_attempt(made._ahead.step) is early
    early.called = object()
    assert made.make_attempt(first) == "make_attempt"
    early.rejected = True
    assert made.make_attempt(other) is None
    assert made.make_attempt(made._ahead.step) is None
    assert made.make_attempt(first) == "make_attempt"
    made._ahead.turned = True
    assert made.make_attempt(other) == "make_attempt"
    exchange.said.clear()
    late = cascade(exchange, _ahead=ahead(timer=Log()))
    timer = late._ahead.timer
    assert late.make_attempt(late._ahead.step) == "make_attempt"
    assert timer.said == [("cancel",)]
    assert late._ahead.turned
    assert exchange.said == [("make_attempt", Step("a/m", None, None, "fallback", 1))]


def test_whether_another_attempt_is_allowed() -> None:
    early = fake(called=None)
    for allowed in (True, False):
        exchange = fake(may_go_on=lambda attempt, allowed=allowed: allowed)
        assert cascade(exchange).may_go_on(early) is allowed
        waiting = cascade(exchange, _ahead=ahead(attempt=early))
        assert waiting.may_go_on(early) is True
        assert waiting.may_go_on(fake()) is allowed
        waiting._ahead.turned = True
        assert waiting.may_go_on(early) is allowed


def test_attempts_are_carried_out_or_go_on() -> None:
    exchange: Any = Log(state=fake(now_ns=lambda: 77))
    early: Any = Log(called=None, heard=False, complete=False, step=step(1))
    cascade(exchange).carry_out(early, 9)
    assert exchange.said.pop() == ("carry_out", early, 9)
    made = cascade(exchange, _ahead=ahead(attempt=early))
    made.carry_out(early, 9)
    assert (made._ahead.turned, exchange.said, early.said) == (True, [], [])
    made.carry_out(early, 9)
    assert exchange.said.pop() == ("carry_out", early, 9)
    early.called = object()
    made = cascade(exchange, _ahead=ahead(attempt=early))
    made.carry_out(early, 9)
    assert exchange.said.pop() == ("over", early)
    early.called, early.heard = None, True
    made = cascade(exchange, _ahead=ahead(attempt=early))
    made._ahead.hold.add(b"said")
    made.carry_out(early, 9)
    assert (exchange.winner, exchange.first_in_ns) == (early, 77)
    assert early.said == [("resume",)]
    assert (made._hold.size, made._ahead.hold.size) == (4, 0)


def test_an_answer_is_handed_over_and_the_others_are_closed() -> None:
    first, other = Log(), Log()
    for streamed in (True, False):
        for finished in (True, False):
            exchange: Any = Log(
                attempts=[first, other], winner=None, first_in_ns=None,
                reply=Log(finished=finished), request=fake(streamed=streamed),
                answer=lambda attempt, came_ns: (b"head", b"body"),
            )  # fmt: skip
            other.said.clear()
            cascade(exchange)._hand_over(first, b"data", 5)
            assert other.said == []
            if finished:
                assert (exchange.said, exchange.reply.said) == ([], [])
            elif streamed:
                assert exchange.said == [("deliver", first, b"data", True)]
                assert (exchange.winner, exchange.first_in_ns) == (first, 5)
            else:
                assert exchange.reply.said == [("whole", 200, b"head", b"body")]
            cascade(exchange, _ahead=ahead())._hand_over(first, b"data", 5)
            assert (first.said, other.said) == ([], [("lose",)])


def test_the_bound_of_the_first_tier_is_learned_from_its_checks() -> None:
    bounds: Any = Log()
    exchange = fake(
        alias="alias", plan=fake(points=3.5), state=fake(learned=fake(bounds_of=lambda _: bounds))
    )
    made = cascade(exchange)
    for tier, word in ((0, "passed"), (0, "failed"), (0, "unchecked"), (1, "passed")):
        made._learn(fake(step=step(tier)), fake(state=word))
    assert bounds.said == [("answered", 0, 3.5, False), ("answered", 0, 3.5, True)]


@pytest.mark.parametrize(("tier", "checked"), [(0, True), (1, True), (2, False), (3, False)])
def test_the_answer_of_the_last_tier_is_not_checked(
    monkeypatch: pytest.MonkeyPatch, tier: int, checked: bool
) -> None:
    monkeypatch.setattr(module, "Escalation", lambda *given: given)
    tiers = fake(cascade=fake(tiers=("a", "b", "c")))
    exchange = fake(
        request=fake(endpoint=fake(dialect=CHAT)),
        state=fake(served=fake(tiers={"m": tiers})),
        alias=fake(name="m"),
        plan=fake(steps=(step(tier), step(0))),
    )
    found: Any = module.escalation_for(exchange)
    assert found == ((exchange, tiers) if checked else None)
    exchange.alias = fake(name="another")
    assert module.escalation_for(exchange) is None
