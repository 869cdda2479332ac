"""The settlement of an exchange: every field that is journaled, billed, counted and remembered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Tokens
from lightgate.errors import PeerReset
from lightgate.gateway.exchange.attempt import Attempt
from lightgate.gateway.exchange.settle import settle, settle_free
from lightgate.gateway.served.price import Bill
from lightgate.route.plan.alias import Alias
from lightgate.route.plan.plan import Plan, Step

TRACE = b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"


class Log:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *told: self.said.append((name, *told))


class Counters(Log):
    """Counts for the key of the exchange, and for no other."""

    def counts(self, key_id: str) -> bool:
        return key_id == "k-1"


def state(*, spend: bool = True) -> Any:
    learned = SimpleNamespace(
        spent_nano=0, observer=Log(), lengths=Log(), whole_times=Log(), forms=Log()
    )
    return SimpleNamespace(
        journal=Log(), learned=learned, spend=Counters() if spend else None, worker=3,
        now_ns=lambda: 999, peaks=None,
        prints=SimpleNamespace(of=lambda request, tenant: len(tenant)),
    )  # fmt: skip


def attempt(name: str, nano: int | None, *, error: Any = None, **tokens: Any) -> Any:
    marks = Marks()
    marks.send, marks.first, marks.last, marks.end = 210, 260, 280, 290
    called = SimpleNamespace(
        tokens=Tokens(**{"tokens_in": 7, "out": 5} | tokens), error=error, streamed=True,
        outcome=Outcome.OK if error is None else Outcome.RESET, status=200, finish_reason="stop",
        bytes_in=1, bytes_out=2, end="marker", provider_request_id=None,
    )  # fmt: skip
    target = SimpleNamespace(name=name, provider=SimpleNamespace(name="lab"), model="m")
    return SimpleNamespace(
        target=SimpleNamespace(target=target), called=called, marks=marks, rejected=False,
        bill=SimpleNamespace(nano_usd=nano, source="list", as_of="2026"), began_ns=205,
        step=Step(name, 0, None, "primary"),
        prepared=SimpleNamespace(dialect=SimpleNamespace(name="openai-chat")), cuts=[],
    )  # fmt: skip


def exchange(*attempts: Any, winner: Any = None, **more: Any) -> Any:
    alias = Alias(name="fast", targets=("lab/a", "lab/b"))
    endpoint = SimpleNamespace(dialect="openai-chat", free=False, sound="")
    facts: dict[str, Any] = {
        "id": "x", "request_id": b"r", "alias": alias, "plan": alias.in_order, "cache": "off",
        "attempts": list(attempts), "winner": winner, "ceilings": None, "wall_ns": 5000,
        "caller": SimpleNamespace(
            batch=False, key=SimpleNamespace(id="k-1"), tags="t", passed=((b"traceparent", TRACE),),
            overrides=SimpleNamespace(tags=None, session=None), session=None,
        ),
        "inbound": SimpleNamespace(accepted_ns=100, first_byte_ns=110, received_ns=200),
        "request": SimpleNamespace(model="fast", endpoint=endpoint, streamed=True, tokens_in=40),
        "reply": SimpleNamespace(finished=True, started=True), "refusal": None, "skipped": (),
        "routed_ns": 202, "first_in_ns": 260, "first_out_ns": 261, "last_out_ns": 291,
        "closed_ns": 292, "reserved": 900, "reserved_tokens": 90, "beside": 0, "decisive": None,
        "answered": False, "size": 1,
    }  # fmt: skip
    return SimpleNamespace(**facts | more)


def test_everything_of_an_answered_exchange_is_written() -> None:
    where, won, lost = state(), attempt("lab/a", 100), attempt("lab/b", 30)
    note = settle(where, exchange(won, lost, winner=won)).exchange
    assert (note.id, note.request_id, note.key_id, note.model_asked) == ("x", "r", "k-1", "fast")
    assert (note.policy, note.plan) == ("ordered", "lab/a > lab/b (configured order)")
    assert (note.winner, note.cache, note.status, note.outcome) == ("lab/a", "off", 200, "ok")
    assert (note.error, note.dialect, note.streamed) == (None, "openai-chat", True)
    assert (note.wall_ns, note.accepted_ns, note.first_byte_ns) == (5000, 100, 110)
    assert (note.received_ns, note.routed_ns, note.sent_ns) == (200, 202, 210)
    assert (note.first_in_ns, note.first_out_ns, note.last_in_ns) == (260, 261, 290)
    assert (note.last_out_ns, note.closed_ns) == (291, 292)
    assert (note.tokens_in, note.tokens_out, note.cost_nano) == (7, 5, 100)
    assert (note.cost_source, note.loser_cost_nano, note.tags) == ("list", 30, "t")
    assert (note.worker, note.traceparent) == (3, TRACE.decode())
    assert note.fingerprint == 3  # of "k-1"


def test_every_attempt_is_written_in_its_order() -> None:
    where, won, lost = state(), attempt("lab/a", 100), attempt("lab/b", None)
    settled = settle(where, exchange(lost, won, winner=won))
    facts = [one.facts for one in settled.attempts]
    assert [(one.id, one.exchange_id, one.target, one.seq) for one in facts] == [
        ("x.0", "x", "lab/b", 0),
        ("x.1", "x", "lab/a", 1),
    ]
    assert [(one.provider, one.model, one.dialect, one.role) for one in facts] == [
        ("lab", "m", "openai-chat", "primary")
    ] * 2
    assert [(one.won, one.wall_ns, one.cost_nano) for one in facts] == [
        (False, 5005, None),
        (True, 5005, 100),
    ]
    assert {(one.cost_source, one.price_as_of) for one in facts} == {("list", "2026")}
    assert settled.exchange.loser_cost_nano is None
    assert [said[:2] for said in where.journal.said] == [("settle", settled)]
    alone = settle(state(), exchange(won, winner=won)).attempts[0].facts
    assert alone.won is None


def test_an_attempt_under_way_cannot_be_settled() -> None:
    running = attempt("lab/a", 1)
    running.called = None
    with pytest.raises(RuntimeError, match="once it is over"):
        settle(state(), exchange(running))


def test_the_reservation_is_given_back_for_what_was_spent() -> None:
    where, won, lost = state(), attempt("lab/a", 100), attempt("lab/b", 30, out=None)
    settle(where, exchange(won, lost, winner=won))
    assert where.spend.said == [("settle", "k-1", 900, 130, 90, 12 + 7)]
    where = state()
    settle(where, exchange(attempt("lab/a", None, tokens_in=None)))
    assert where.spend.said == [("settle", "k-1", 900, 0, 90, 40 + 5)]
    settle(state(spend=False), exchange(won, winner=won))
    where, nobody = state(), exchange(won, winner=won)
    nobody.caller.key = None
    assert settle(where, nobody).exchange.key_id is None
    assert where.spend.said == []


@pytest.mark.parametrize(
    ("more", "tokens"),
    [({"free": True}, 0), ({"sound": "form"}, 5), ({}, 45)],
)
def test_which_tokens_count(more: dict[str, Any], tokens: int) -> None:
    where, facts = state(), exchange(attempt("lab/a", 1, tokens_in=None))
    vars(facts.request.endpoint).update(more)
    settle(where, facts)
    assert where.spend.said[0][-1] == tokens


@pytest.mark.parametrize(
    ("more", "status", "outcome"),
    [
        ({"reply": SimpleNamespace(finished=False, started=True)}, 200, "cancelled"),
        ({"reply": SimpleNamespace(finished=False, started=False)}, 499, "cancelled"),
        ({"last_out_ns": None}, 200, "cancelled"),
    ],
)
def test_a_client_that_left(more: dict[str, Any], status: int, outcome: str) -> None:
    won = attempt("lab/a", 100)
    note = settle(state(), exchange(won, winner=won, **more)).exchange
    assert (note.status, note.outcome) == (status, outcome)


def test_an_exchange_that_was_refused() -> None:
    refusal = SimpleNamespace(status=502, message="x" * 600)
    failed = attempt("lab/a", None, error=PeerReset("gone", early=True))
    note = settle(state(), exchange(failed, refusal=refusal, decisive=failed)).exchange
    assert (note.status, note.outcome, note.winner) == (502, "reset", None)
    assert (note.error, note.tokens_in, note.cost_nano) == ("x" * 500, None, None)
    assert (note.cost_source, note.last_in_ns, note.loser_cost_nano) == (None, None, None)
    none = settle(state(), exchange(refusal=refusal)).exchange
    assert (none.status, none.outcome, none.sent_ns) == (502, "http_error", None)


def test_what_is_remembered_of_an_answer() -> None:
    where, won, lost = state(), attempt("lab/a", 100), attempt("lab/b", 30)
    rejected = attempt("lab/b", 7)
    rejected.rejected = True
    plan = Plan((won.step, lost.step), "fastest", "by form")
    settle(where, exchange(won, lost, rejected, winner=won, plan=plan, beside=2))
    assert where.learned.spent_nano == 137
    assert where.learned.observer.said == [("settled", "k-1", plan, 2, 107, 30, 0.0)]
    assert where.learned.lengths.said == [("saw", "fast", "k-1", 1, 5)]
    assert (where.learned.whole_times.said, where.learned.forms.said) == ([], [])
    quiet = state()
    settle(quiet, exchange(won, winner=won))
    assert quiet.learned.observer.said == []  # the configured order: no budget had a part in it
    failed = state()
    settle(failed, exchange(attempt("lab/a", 1, error=PeerReset("x", early=True))))
    assert failed.learned.lengths.said == []


def test_a_client_without_a_key_is_remembered_under_no_name() -> None:
    where, won = state(), attempt("lab/a", 100)
    facts = exchange(won, winner=won, plan=Plan((won.step,), "fastest", "by form"))
    facts.caller.key = None
    settle(where, facts)
    assert [row[:3] for row in where.learned.lengths.said] == [("saw", facts.alias.name, "")]
    assert [row[:2] for row in where.learned.observer.said] == [("settled", "")]


def test_a_whole_answer_and_a_session_are_remembered() -> None:
    where, won = state(), attempt("lab/a", 100)
    won.called.streamed = False
    facts = exchange(won, winner=won)
    facts.caller.overrides.session, facts.caller.session = "s", "k-1:s"
    settle(where, facts)
    assert where.learned.whole_times.said == [("saw", "lab/a", 85, 5)]
    assert where.learned.forms.said == [("stick", "k-1:s", "lab/a", 999)]
    alone = state()
    one = exchange(won, winner=won, plan=Plan((won.step,), "x", "y"))
    settle(alone, one)
    assert alone.learned.whole_times.said == []


def test_a_service_level_is_judged_by_what_its_client_saw() -> None:
    from lightgate.route.form.slo import ServiceLevels

    leveled = Alias(name="fast", targets=("lab/a",), slo=ServiceLevels(ttft_p50=1))
    where, won = state(), attempt("lab/a", 1)
    settle(where, exchange(won, winner=won, alias=leveled, plan=leveled.in_order))
    assert where.learned.observer.said == [("answered", "fast", 60, (5, 20))]
    where, uncounted = state(), attempt("lab/a", 1)
    uncounted.called.tokens = Tokens()
    settle(where, exchange(uncounted, winner=uncounted, alias=leveled, plan=leveled.in_order))
    assert where.learned.observer.said == [("answered", "fast", 60, (0, 20))]
    assert where.learned.lengths.said == []
    for status, said in ((500, [("unanswered", "fast")]), (499, [])):
        where = state()
        refusal = SimpleNamespace(status=status, message="x")
        facts = exchange(alias=leveled, plan=leveled.in_order, refusal=refusal)
        settle(where, facts)
        assert where.learned.observer.said == said
    whole, where = attempt("lab/a", 1), state()
    whole.called.streamed = False
    settle(where, exchange(whole, winner=whole, alias=leveled, plan=leveled.in_order))
    assert where.learned.observer.said == []


@pytest.mark.parametrize(
    ("finished", "first_out", "status", "said"),
    [
        (True, 300, 200, (200, "ok", 300, 300, 999)),
        (True, 300, 404, (404, "http_error", 300, 300, 999)),
        (False, 300, 200, (499, "cancelled", 300, 300, None)),
        (True, None, 200, (499, "cancelled", 999, None, None)),
    ],
)
def test_an_exchange_that_no_target_was_asked_for(
    finished: bool, first_out: int | None, status: int, said: tuple[Any, ...]
) -> None:
    where = state()
    made: Any = SimpleNamespace(target="lab/a", tokens_in=7, tokens_out=5)
    facts = exchange(cache="hit", reply=SimpleNamespace(finished=finished, started=True))
    settle_free(where, facts, made, first_out, status)
    ((_, settled),) = where.journal.said
    note = settled.exchange
    assert settled.attempts == ()
    assert (note.status, note.outcome, note.routed_ns, note.first_out_ns, note.last_out_ns) == said
    assert (note.id, note.request_id, note.key_id, note.policy) == ("x", "r", "k-1", "ordered")
    assert (note.plan, note.winner, note.cache, note.error) == ("", "lab/a", "hit", None)
    assert (note.sent_ns, note.first_in_ns, note.last_in_ns, note.closed_ns) == (
        None,
        None,
        None,
        999,
    )
    assert (note.tokens_in, note.tokens_out, note.cost_nano) == (7, 5, 0)
    assert (note.tags, note.worker, note.traceparent) == ("t", 3, TRACE.decode())
    where = state()
    settle_free(where, facts, None, first_out)
    note = where.journal.said[0][1].exchange
    assert (note.winner, note.tokens_in, note.tokens_out) == (None, None, None)
    good = finished and first_out is not None  # an answer is a good one unless it is said not to be
    assert (note.status, note.outcome) == ((200, "ok") if good else (499, "cancelled"))


def test_an_answer_whose_end_is_about_to_be_sent_is_an_answer() -> None:
    won = attempt("lab/a", 100)
    reply = SimpleNamespace(finished=False, started=False)
    note = settle(state(), exchange(won, winner=won, reply=reply, answered=True)).exchange
    assert (note.status, note.outcome) == (200, "ok")


def test_a_line_of_a_batch_is_one_in_the_ledger_and_is_counted_no_more() -> None:
    worker, facts = state(), exchange(attempt("lab/a", 5))
    worker.peaks, facts.caller.batch = Log(), True
    note = settle(worker, facts)
    assert [one.facts.source for one in note.attempts] == ["batch"]
    assert worker.peaks.said == [("ended", facts.id)]


def test_the_price_that_a_client_is_told_is_what_is_billed() -> None:
    one: Any = object.__new__(Attempt)
    one.bill = Bill(700, "list", "2026")
    assert one.cost_header() == b"x-lightgate-cost-usd: 0.0000007\r\n"
    one.bill = Bill(None, None, None)
    assert one.cost_header() == b"x-lightgate-cost-usd: 0\r\n"


@pytest.mark.parametrize(
    ("prices", "won", "lost"),
    [((30,), None, 30), ((None,), None, None), ((), None, None), ((30,), 0, None),
     ((30, 5), None, 35), ((30, 5), 0, 5), ((30, None), 0, None), ((30, None, 7), 1, 37)],
)  # fmt: skip
def test_the_price_of_those_that_did_not_win(
    prices: tuple[int | None, ...], won: int | None, lost: int | None
) -> None:
    tried = [attempt("lab/a", nano) for nano in prices]
    winner = None if won is None else tried[won]
    note = settle(state(), exchange(*tried, winner=winner)).exchange
    assert note.loser_cost_nano == lost
