"""The edges of a settlement: what a plan and its losers leave, holding back, the last bytes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gateway.exchange.test_settlement import Log, attempt, exchange, state
from lightgate.errors import PeerReset
from lightgate.gateway.exchange import settle as module
from lightgate.gateway.exchange.attempt import Held
from lightgate.gateway.exchange.caller import NO_OVERRIDES, Caller
from lightgate.gateway.exchange.settle import (
    send_stream_end,
    settle,
    stream_end,
    waits_for_another,
)
from lightgate.route.plan.finish import ExpectedAnswer, Rival
from lightgate.route.plan.plan import Plan, StandInHedge, Step
from lightgate.route.plan.policy import USUAL_TOKENS


def test_all_that_losers_cost_is_added_and_nothing_is_not_unknown() -> None:
    won = attempt("lab/a", 100)
    for costs, paid in (((30, 12), 42), ((0,), 0), ((None, 5), 5), ((None,), None), ((), None)):
        losers = [attempt("lab/b", cost) for cost in costs]
        assert settle(state(), exchange(won, *losers, winner=won)).exchange.loser_cost_nano == paid


def test_what_the_plan_predicted_is_written() -> None:
    won = attempt("lab/a", 1)
    plan = Plan(
        (won.step,), "fastest", "by form", predicted_ttft_ns=50, predicted_low_ns=40,
        predicted_high_ns=70, in_flight=3,
    )  # fmt: skip
    note = settle(state(), exchange(won, winner=won, plan=plan)).exchange
    assert (note.predicted_ttft_ns, note.predicted_low_ns, note.predicted_high_ns) == (50, 40, 70)
    assert note.in_flight == 3
    assert note.plan == plan.story


def test_a_target_that_could_not_be_told_is_in_the_story() -> None:
    won = attempt("lab/b", 1)
    plan = Plan((Step("lab/a", 0, None, "primary"), won.step), "fastest", "by form")
    facts = exchange(won, winner=won, plan=plan, skipped=(("lab/a", "tools"),))
    note = settle(state(), facts).exchange
    assert note.plan != plan.story
    assert "tools" in note.plan


@pytest.mark.parametrize(
    ("key", "own", "tags"), [("k", None, "t"), (None, "own", "t"), (None, None, None)]
)
def test_tags_are_of_a_key_or_of_the_request_itself(
    key: str | None, own: str | None, tags: str | None
) -> None:
    won = attempt("lab/a", 1)
    facts = exchange(won, winner=won)
    facts.caller.key = None if key is None else SimpleNamespace(id=key)
    facts.caller.overrides.tags, facts.caller.passed = own, ()
    note = settle(state(), facts).exchange
    assert (note.tags, note.traceparent) == (tags, None)
    assert note.fingerprint == len(key or "")


@pytest.mark.parametrize(
    ("key", "own", "tags", "session"),
    [
        (None, None, None, ":s"), ("k", None, "of the key", "k:s"), ("k", "own", "own", "k:s"),
        (None, "own", "own", ":s"),
    ],
)  # fmt: skip
def test_a_caller_s_own_tags_come_before_those_of_its_key(
    key: str | None, own: str | None, tags: str | None, session: str
) -> None:
    known: Any = None if key is None else SimpleNamespace(id=key, tags="of the key")
    overrides = msgspec.structs.replace(NO_OVERRIDES, tags=own, session="s")
    nothing: Any = None
    caller = Caller(nothing, 0, nothing, known, overrides, b"", nothing)
    assert (caller.tags, caller.session) == (tags, session)
    assert not caller.batch


def test_an_exchange_without_a_winner_and_a_refusal_is_what_its_reply_is() -> None:
    for started, status in ((True, 200), (False, 499)):
        reply = SimpleNamespace(finished=False, started=started)
        assert settle(state(), exchange(reply=reply)).exchange.status == status


def test_only_lines_of_batches_are_told_to_the_peaks() -> None:
    worker = state()
    worker.peaks = Log()
    settle(worker, exchange(attempt("lab/a", 5)))
    assert worker.peaks.said == []


def test_a_hedge_of_a_stand_in_costs_the_premium_of_that_one() -> None:
    where, won = state(), attempt("lab/a", 1000)
    won.step = Step("lab/a", 0, None, "hedge", 0, StandInHedge(5, premium=0.5, reserve_nano=1.0))
    plan = Plan((won.step,), "fastest", "by form", premium=0.25)
    settle(where, exchange(won, winner=won, plan=plan))
    assert where.learned.observer.said[0][-1] == 500.0


def test_an_answer_without_tokens_or_an_end_teaches_no_length_and_no_time() -> None:
    where, won = state(), attempt("lab/a", 1, out=0)
    won.called.streamed, won.marks.end = False, None
    facts = exchange(won, winner=won)
    facts.caller.session = "s"  # which the client did not name
    settle(where, facts)
    learned = where.learned
    assert (learned.lengths.said, learned.whole_times.said, learned.forms.said) == ([], [], [])
    failed, where = attempt("lab/a", 1, error=PeerReset("gone", early=True)), state()
    failed.called.streamed = False
    settle(where, exchange(failed, winner=failed))
    assert (where.learned.lengths.said, where.learned.whole_times.said) == ([], [])


# Holding back


class Waiting:
    """An exchange in which one has spoken and others are silent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, until: int | None = 700) -> None:
        self.asked: list[Any] = []
        self.timers = Log()
        self.expected: int | None = 30
        self.until = until
        monkeypatch.setattr(module, "waits_ns", self._waits_ns)
        lengths = SimpleNamespace(expected=self._expected)
        self.state = SimpleNamespace(
            learned=SimpleNamespace(lengths=lengths, forms="forms"), timers=self.timers
        )
        self.spoke = attempt("lab/a", None)
        self.spoke.held_ns = 0
        self.silent = self._other("lab/b")
        self.facts = exchange(self.spoke, self.silent)
        self.facts.state, self.facts.assembles = self.state, False
        self.facts.request.max_tokens = 20
        self.facts.plan = msgspec.structs.replace(self.facts.plan, silence=0.5)

    def _waits_ns(self, *facts: Any) -> int | None:
        self.asked.append(facts)
        return self.until

    def _expected(self, *whose: Any) -> int | None:
        self.asked.append(whose)
        return self.expected

    def _other(self, name: str) -> Any:
        other = attempt(name, None)
        other.called, other.heard = None, False
        return other

    def holds(self) -> bool:
        return waits_for_another(self.facts, self.spoke, 600)


def test_the_first_to_speak_is_held_until_a_silent_one_would_be_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = Waiting(monkeypatch)
    assert waiting.holds()
    whose, (spoke, rivals, forms, answer, now) = waiting.asked
    assert whose == ("fast", "k-1", 1)
    assert (spoke, rivals) == (Rival("lab/a", 260), [Rival("lab/b", 205)])
    assert (forms, answer, now) == ("forms", ExpectedAnswer(1, 20, 0.5), 600)
    assert waiting.spoke.held_ns == 700
    ((name, held, until),) = waiting.timers.said
    assert (name, type(held), until) == ("wait", Held, 700)


def test_nobody_is_held_for_one_that_spoke_or_ended_or_would_be_no_sooner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waiting = Waiting(monkeypatch, until=None)
    assert not waiting.holds()
    assert (waiting.spoke.held_ns, waiting.timers.said) == (0, [])
    for change in ({"heard": True}, {"called": object()}):
        waiting = Waiting(monkeypatch)
        vars(waiting.silent).update(change)
        assert not waiting.holds()
        assert waiting.asked == []


@pytest.mark.parametrize(
    ("expected", "most", "tokens"),
    [(30, 20, 20), (30, 40, 30), (30, None, 30), (None, 7, 7), (None, None, USUAL_TOKENS),
     (None, USUAL_TOKENS + 1, USUAL_TOKENS)],
)  # fmt: skip
def test_an_answer_is_as_long_as_expected_and_no_longer_than_it_may_be(
    monkeypatch: pytest.MonkeyPatch, expected: int | None, most: int | None, tokens: int
) -> None:
    waiting = Waiting(monkeypatch)
    waiting.expected, waiting.facts.request.max_tokens = expected, most
    waiting.facts.assembles, waiting.facts.caller.key = True, None
    waiting.spoke.marks.first = None
    assert waiting.holds()
    whose, (spoke, _, _, answer, _) = waiting.asked
    assert whose == ("fast", "", 1)
    assert answer == ExpectedAnswer(1, tokens, 0.0)  # who wants the whole has no early use
    assert spoke.since_ns == 600


# The last bytes


class Written:
    """A reply that keeps how it was ended."""

    def __init__(self, *, started: bool) -> None:
        self.started = started
        self.said: list[Any] = []

    def start(self, status: int, lines: bytes, *, first: bytes) -> None:
        self.said.append((status, lines, first))

    def finish(self, *, last: bytes = b"") -> None:
        self.said.append(("finish", last))


def ending(*, started: bool, **more: Any) -> Any:
    facts = exchange(**more)
    facts.reply = Written(started=started)
    facts.state = SimpleNamespace(now_ns=lambda: 555)
    facts.headers = lambda _: b"x: y\r\n"
    return facts


def test_the_end_of_a_stream_is_the_marker_that_came_or_the_one_that_is_usual() -> None:
    one = SimpleNamespace(final=None, closing=lambda: b"usual", media=b"type\r\n")
    facts: Any = ending(started=True, first_out_ns=None, first_in_ns=300)
    assert stream_end(facts, one) == (b"", b"usual")  # type: ignore[arg-type]
    assert (facts.last_out_ns, facts.first_out_ns) == (555, 555)
    one.final = b"came"
    facts = ending(started=False, first_out_ns=400)
    assert stream_end(facts, one) == (b"type\r\nx: y\r\n", b"came")  # type: ignore[arg-type]
    assert (facts.last_out_ns, facts.first_out_ns) == (555, 400)
    facts = ending(started=True, first_out_ns=None, first_in_ns=None)
    stream_end(facts, one)  # type: ignore[arg-type]
    assert facts.first_out_ns is None


def test_the_end_of_a_stream_may_be_all_of_it() -> None:
    begun: Any = Written(started=True)
    send_stream_end(begun, b"lines", b"data")
    assert begun.said == [("finish", b"data")]
    new: Any = Written(started=False)
    send_stream_end(new, b"lines", b"data")
    assert new.said == [(200, b"lines", b"data"), ("finish", b"")]
