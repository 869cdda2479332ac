"""Probes: when one is due and paid for, what is learned of its end, and what is written down."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.clock.outcome import Outcome
from lightgate.clock.source import ManualClock
from lightgate.clock.tokens import Tokens
from lightgate.errors import (
    DeadlineMissed,
    EmptyAnswer,
    HttpRefused,
    PeerReset,
    RateLimited,
    StreamError,
    UsageError,
)
from lightgate.gateway.process import probe as module
from lightgate.gateway.process.probe import (
    CAPS,
    DAY_NS,
    LONGEST_IN,
    QUIET_NS,
    REST,
    SELDOM,
    TOKENS_IN,
    UNKNOWN_NANO,
    Prober,
)
from lightgate.gateway.served.price import Bill
from lightgate.gateway.served.snapshot import ProbeTerms
from lightgate.provider.call import Called
from lightgate.provider.target import resolve
from lightgate.route.admission.headers import RateFact
from lightgate.route.form.size import size_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.clock.marks import Marks

S = 1_000_000_000
TARGET = "vllm/m"


class Observer:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.open: set[str] = set()
        self.old = [TARGET]
        self.closed: set[str] = set()  # by limits that they state
        self.forms = SimpleNamespace(stale=self._stale, closed=lambda _: self.closed)
        self.breakers = SimpleNamespace(allows=lambda name, _: name not in self.open)

    def _stale(self, now: int, every_ns: int, known: list[str]) -> list[str]:
        self.log.append(("stale", every_ns, known))
        return list(self.old)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *facts, **more: self.log.append((name, *facts, *more.values()))


class Prices:
    hourly = False
    known = True
    billed: int | None = 7

    def worst(self, tokens_in: int, cap: int) -> int:
        assert tokens_in == TOKENS_IN
        return cap

    def bill(self, tokens: Tokens) -> Bill:
        return Bill(self.billed, "list", "2026-01-01")

    def estimate(self, tokens_in: int, tokens_out: int) -> Bill:
        assert tokens_in == TOKENS_IN
        return Bill(tokens_out if self.known else None, "estimate", None)


class Stage:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock(now_ns=1000 * S, wall_ns=5 * DAY_NS + 3 * S)
        self.observer = Observer()
        self.written: list[Any] = []
        self.asked: list[Any] = []
        self.prices = Prices()
        self.limits: tuple[tuple[bytes, bytes], ...] = ()  # that an answer states
        with_key = resolve(TARGET, env={"VLLM_API_KEY": "k"})
        target = self.target = SimpleNamespace(target=with_key, prices=self.prices)
        self.terms = ProbeTerms(share=0.5, day_nano=100)
        alias = SimpleNamespace(targets=(TARGET, "b/m"), policy="fastest")
        served = SimpleNamespace(
            snapshot=SimpleNamespace(terms=SimpleNamespace(probes=self.terms)),
            asked_for=lambda: [alias],
            targets={TARGET: target},
        )
        learned = SimpleNamespace(asked_ns=1000 * S, spent_nano=1_000_000, usual_in=400.4)
        self.alias, self.served, self.learned = alias, served, learned
        self.state = SimpleNamespace(served=served, draining=False, learned=learned)
        self.end: Callable[[Marks], Called] = lambda _: self.called()
        stage = self

        class Played:
            limits: tuple[tuple[bytes, bytes], ...] = ()

            def __init__(self, prepared: Any, marks: Marks) -> None:
                self._prepared, self._marks = prepared, marks

            async def run(self, client: Any, deadlines: Any) -> Called:
                stage.asked.append((self._prepared, client, deadlines))
                stage.clock.advance(S)
                self.limits = stage.limits
                return stage.end(self._marks)

        monkeypatch.setattr(module, "Call", Played)
        journal: Any = SimpleNamespace(write=self.written.append)
        state: Any = self.state
        observer: Any = self.observer
        client: Any = "client"
        self.prober = Prober(state, client, observer, journal, worker=4, clock=self.clock)

    def called(self, error: Any = None, status: int | None = 200, **more: Any) -> Called:
        outcome = Outcome.OK if error is None else Outcome(error.outcome)
        facts = {"streamed": True, "tokens": Tokens(out=2), "finish_reason": "stop"}
        known = {"bytes_in": 1, "bytes_out": 2, "kinds": 0, "first_kinds": 0, **facts, **more}
        return Called(outcome=outcome, error=error, status=status, **known)

    async def probe(self) -> list[tuple[Any, ...]]:
        """Look, let the probe end, and say what the observer was told."""
        self.observer.log.clear()
        assert self.prober.look() == TARGET
        assert self.prober.look() is None  # one at a time
        assert self.prober._probing is not None
        await self.prober._probing
        return [row for row in self.observer.log if row[0] != "stale"]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def unpriced(stage: Stage, day_nano: int) -> None:
    """Let the target's price be unknown, and a day of probes cost so much at most."""
    stage.prices.known, stage.prices.billed = False, None
    stage.learned.spent_nano = 0  # of users' requests the price is not known either
    terms = ProbeTerms(share=0.5, day_nano=day_nano)
    stage.served.snapshot.terms.probes = stage.terms = terms


def keyless(stage: Stage) -> None:
    """Let the target be an engine of one's own: without a key, without a price."""
    unpriced(stage, 0)
    stage.target.target = resolve(TARGET, env={})


def asked(stage: Stage) -> list[str]:
    """The words of the last probe."""
    body = json.loads(stage.asked[-1][0].payload.partition(b"\r\n\r\n")[2])
    said: str = body["messages"][0]["content"]
    return said.split()


def spoke(marks: Marks) -> None:
    marks.send = 50
    marks.burst(50 + 30, 80, 1, 3)


async def test_a_probe_that_is_answered(stage: Stage) -> None:
    def end(marks: Marks) -> Called:
        spoke(marks)
        return stage.called()

    stage.end = end
    began = 1000 * S
    assert await stage.probe() == [
        ("began", TARGET, began),
        ("spoke", TARGET, 0, began + 30, began),
        ("succeeded", TARGET, began + S, began, (0, 0)),
    ]
    ((prepared, client, deadlines),) = stage.asked
    assert client == "client"
    assert (deadlines.connect_s, deadlines.first_byte_s) == (3.0, 10.0)
    assert b'"max_tokens":16' in prepared.payload
    assert b'"stream":true' in prepared.payload
    assert (stage.prober.sent, stage.prober.spent_nano, stage.prober._day_nano) == (1, 7, 7)
    (settled,) = stage.written
    exchange, (attempt,) = settled.exchange, settled.attempts
    assert (exchange.outcome, exchange.status, exchange.cost_nano) == ("ok", 200, 7)
    assert exchange.worker == 4
    assert attempt.facts.cost_nano == 7
    assert attempt.facts.id == f"{exchange.id}.0"
    assert attempt.facts.target == TARGET


@pytest.mark.parametrize(
    ("error", "more", "told"),
    [
        (PeerReset("x"), {"status": None}, "failed"),
        (HttpRefused("x", code=500), {"status": 500}, "failed"),
        (RateLimited("x", retry_after_s=3.0), {"status": 429}, "failed"),
        (StreamError("x", word="overloaded_error"), {}, "failed"),
        (DeadlineMissed("x", phase="idle"), {"status": 200}, "lost"),
        (DeadlineMissed("x", phase="connect"), {"status": None}, "failed"),
        (EmptyAnswer("x"), {"streamed": False}, "succeeded"),
        (EmptyAnswer("x"), {}, "failed"),
    ],
)
async def test_what_is_learned_of_a_probe_that_failed(
    stage: Stage, error: Any, more: dict[str, Any], told: str
) -> None:
    stage.end = lambda _: stage.called(error, **more)
    rows = await stage.probe()
    assert [row[0] for row in rows] == ["began", told]
    if told == "failed":
        what, wait_s = rows[1][5]
        assert wait_s == getattr(error, "retry_after_s", None)
        status = 529 if isinstance(error, StreamError) else more.get("status", 200)
        assert what == module.what(Outcome(error.outcome), status, error)  # type: ignore[attr-defined]
    if told == "lost":
        assert rows[1][1:] == (TARGET, 0, 1001 * S, 1000 * S, False)
    assert len(stage.written) == 1
    assert stage.written[0].exchange.error == "x"


async def test_a_request_that_cannot_be_made_says_nothing_about_the_target(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise UsageError("no")

    monkeypatch.setattr(module, "prepare", refuse)
    rows = await stage.probe()
    assert rows == [
        ("began", TARGET, 1000 * S),
        ("lost", TARGET, 0, 1000 * S, 1000 * S, True),
    ]
    assert (stage.prober.sent, stage.written) == (0, [])


async def test_a_target_without_a_word_gets_more_tokens_and_then_more_time(stage: Stage) -> None:
    stage.end = lambda _: stage.called()  # thought, and said nothing
    every = stage.terms.every_ns
    for place, cap in enumerate(CAPS):
        stage.prober._day_nano = stage.prober.spent_nano = -1000
        await stage.probe()
        assert b'"max_tokens":%d' % cap in stage.asked[-1][0].payload
        assert stage.prober.look() is None
        seldom = SELDOM if place == len(CAPS) - 1 else 1
        stage.clock.advance(every * seldom - 1)
        stage.learned.asked_ns = stage.clock.now_ns()
        assert stage.prober.look() is None
        stage.clock.advance(1)
    assert stage.prober._cap(TARGET) == CAPS[-1]


async def test_the_limits_that_a_probe_states_are_told(stage: Stage) -> None:
    stage.limits = (
        (b"x-ratelimit-limit-requests", b"60"),
        (b"x-ratelimit-remaining-requests", b"0"),
        (b"x-ratelimit-reset-requests", b"7s"),
    )
    told = [row for row in await stage.probe() if row[0] == "stated"]
    fact = RateFact("requests", 60.0, 0.0, 7.0, None)
    assert told == [("stated", TARGET, 1001 * S, 1000 * S, [fact], TOKENS_IN, False)]


@pytest.mark.parametrize(
    "change",
    [
        lambda stage: setattr(stage.state, "draining", True),
        lambda stage: setattr(stage.learned, "asked_ns", 1000 * S - QUIET_NS - 1),
        lambda stage: setattr(
            stage.served.snapshot.terms, "probes", ProbeTerms(on=False, share=0.5, day_nano=100)
        ),
        lambda stage: setattr(stage.alias, "policy", "ordered"),
        lambda stage: setattr(stage.alias, "targets", (TARGET,)),
        lambda stage: setattr(stage.observer, "old", []),
        lambda stage: setattr(stage.observer, "old", ["other/m"]),
        lambda stage: stage.observer.open.add(TARGET),
        lambda stage: stage.observer.closed.add(TARGET),
        lambda stage: unpriced(stage, 32 * UNKNOWN_NANO - 1),
        lambda stage: setattr(stage.prober, "spent_nano", 500_000 - 15),
        lambda stage: setattr(stage.learned, "spent_nano", 30),
        lambda stage: stage.prober.__dict__.update(_day=5, _day_nano=85),
    ],
)
async def test_when_no_probe_is_sent(stage: Stage, change: Callable[[Stage], None]) -> None:
    change(stage)
    assert stage.prober.look() is None
    assert stage.prober._probing is None


@pytest.mark.parametrize(
    "change",
    [
        lambda _: None,
        lambda stage: setattr(stage.learned, "asked_ns", 1000 * S - QUIET_NS),
        lambda stage: stage.prices.__dict__.update(known=False, hourly=True),
        lambda stage: unpriced(stage, 32 * UNKNOWN_NANO),
        keyless,
        lambda stage: setattr(stage.prober, "spent_nano", 500_000 - 16),
        lambda stage: setattr(stage.learned, "spent_nano", 32),
        lambda stage: stage.prober.__dict__.update(_day=5, _day_nano=84),
        lambda stage: setattr(stage.prober, "_day_nano", 85),  # of another day
        lambda stage: setattr(stage.observer, "old", ["other/m", TARGET]),
    ],
)
async def test_when_a_probe_is_sent(stage: Stage, change: Callable[[Stage], None]) -> None:
    change(stage)
    await stage.probe()
    assert len(stage.asked) == 1
    assert stage.observer.log[0] == ("stale", stage.terms.every_ns, ["b/m", TARGET])


def answers(stage: Stage) -> None:
    """Let every probe be answered with a word."""

    def end(marks: Marks) -> Called:
        spoke(marks)
        return stage.called()

    stage.end = end


async def test_a_probe_that_is_paid_for_is_short(stage: Stage) -> None:
    answers(stage)
    await stage.probe()
    assert len(asked(stage)) < TOKENS_IN
    unpriced(stage, 33 * UNKNOWN_NANO)
    await stage.probe()
    assert len(asked(stage)) < TOKENS_IN


@pytest.mark.parametrize(
    ("usual", "tokens"), [(0.0, TOKENS_IN), (400.4, 400), (50_000.0, LONGEST_IN)]
)
@pytest.mark.parametrize("by_the_hour", [False, True])
async def test_a_probe_of_an_own_engine_is_as_long_as_a_request(
    stage: Stage, usual: float, tokens: int, *, by_the_hour: bool
) -> None:
    answers(stage)
    keyless(stage)
    stage.prices.hourly = by_the_hour
    stage.learned.usual_in = usual
    stage.limits = ((b"x-ratelimit-remaining-requests", b"0"),)
    told = await stage.probe()
    first = asked(stage)
    # Counted by bytes, as requests are.
    assert len(" ".join(first)) / 4 == pytest.approx(tokens, abs=3)
    assert first[-2:] == ["say", "no."]
    assert [row[-2] for row in told if row[0] == "stated"] == [tokens]
    assert [row[2] for row in told if row[0] == "spoke"] == [size_of(tokens)]
    stage.clock.advance(REST * S)
    await stage.probe()
    again = asked(stage)
    assert (again[:20] == first[:20]) is (tokens == TOKENS_IN)  # else its cache would answer


async def test_an_own_engine_is_probed_for_a_tenth_of_its_time_at_most(stage: Stage) -> None:
    answers(stage)
    keyless(stage)
    await stage.probe()  # takes a second
    assert stage.prober._not_before == {TARGET: 1001 * S + REST * S}
    stage.clock.advance(REST * S - 1)
    assert stage.prober.look() is None
    stage.clock.advance(1)
    assert stage.prober.look() == TARGET


async def test_a_target_with_a_key_and_no_price_is_probed_rarely_and_within_the_day(
    stage: Stage,
) -> None:
    answers(stage)
    unpriced(stage, 2 * 32 * UNKNOWN_NANO)
    rest_ns = SELDOM * stage.terms.every_ns
    for _ in range(2):
        await stage.probe()
        stage.clock.advance(rest_ns - 1)
        assert stage.prober.look() is None
        stage.clock.advance(1)
        stage.learned.asked_ns = stage.clock.now_ns()
    assert stage.prober.look() is None  # the day's money is used up
    assert stage.prober.spent_nano == 0
    stage.clock.step_wall(DAY_NS)
    await stage.probe()


@pytest.mark.parametrize(
    ("more", "spent"),
    [
        ({}, 2),  # by the tokens that were seen
        ({"tokens": Tokens()}, 1),
        ({"tokens": Tokens(), "error": PeerReset("x")}, 16),  # at the cap
        ({"status": 500, "error": HttpRefused("x", code=500)}, 0),
    ],
)
async def test_a_probe_without_a_bill_is_estimated(
    stage: Stage, more: dict[str, Any], spent: int
) -> None:
    stage.prices.billed = None
    stage.end = lambda _: stage.called(**more)
    await stage.probe()
    assert (stage.prober.spent_nano, stage.prober._day_nano) == (spent, spent)
    assert stage.written[0].exchange.cost_nano == (spent or None)
    stage.prices.hourly = True
    stage.prober._not_before.clear()
    await stage.probe()
    assert stage.prober.spent_nano == spent  # a machine by the hour costs nothing more
