"""The next tier ahead of its turn: held back, used at once, or closed in the same turn."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.faulted import said
from gateway.security.conftest import SSE, Upstream, chunk, whole
from gateway.test_cascade import (
    ALL,
    EASY,
    FAILED,
    MIDDLING,
    NO,
    PRICE,
    STREAMED,
    TERMS,
    TIERS,
    USAGE,
    Cast,
    flown,
    rows,
)
from lightgate.config.load import parse_config
from lightgate.errors import ConfigError
from lightgate.gateway.exchange import cascade
from lightgate.gateway.exchange.cascade import Escalation
from lightgate.route.form.forms import Forms
from lightgate.route.health.breaker import Breakers, Rules
from lightgate.route.plan.course import RetryBudget
from sim.conftest import Answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from gateway.conftest import Rig, Start
    from gateway.security.conftest import Heard
    from lightgate.ledger.journal.notes import Settled

    Begin = Callable[..., Awaitable[Rig]]

SOON, NEVER = 'ahead = "1us"', 'ahead = "1h"'
RAW = '[providers.raw]\nbase_url = "http://127.0.0.1:1/v1"\napi_key = "none"'
ERROR = b'data: {"error": {"message": "no", "code": 500}}\n\n'


class Voice:
    """A stream in the hands of a test: it says what it is told to, when it is told to."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self.asked = asyncio.Event()

    async def script(self, _: Heard) -> AsyncIterator[bytes]:
        self.asked.set()
        yield b"HTTP/1.1 200 OK\r\n%bconnection: close\r\n\r\n" % SSE
        while piece := await self._pieces.get():
            yield piece

    def say(self, *texts: str) -> None:
        for text in texts:
            self._pieces.put_nowait(chunk(text))

    def raw(self, piece: bytes) -> None:
        self._pieces.put_nowait(piece)

    def end(self, finish: str = "stop") -> None:
        last = chunk("", choice={"finish_reason": finish}, usage=USAGE)
        self.raw(last + b"data: [DONE]\n\n")
        self.raw(b"")


@pytest.fixture
def cast(upstream: Upstream) -> Cast:
    made = Cast()
    upstream.script = made.script
    return made


@pytest.fixture
def begin(start: Start, upstream: Upstream) -> Begin:
    """Starts a gateway whose next tier starts ahead, with a budget for it."""

    async def make(ahead: str = SOON, small: str = '"raw/small"', **rest: Any) -> Rig:
        text = TIERS.format(port=upstream.port, verify=ALL, small=small, more=ahead)
        for name, dollars in (("small", 1), ("other", 1), ("middle", 10), ("large", 100)):
            text += PRICE.format(name=name, dollars=dollars)
        rig = await start(text.replace("{", "{{").replace("}", "}}"), **rest)
        saved(rig, "")
        return rig

    return make


def saved(rig: Rig, key: str) -> None:
    """Past requests that leave room for many more attempts of the gateway's own choice."""
    for _ in range(100):
        rig.state.learned.budgets.deposit(key)
    rig.state.learned.budgets.paid(key, 1e12)


class Asking:
    """A client whose answer can be looked at while it comes."""

    def __init__(self, rig: Rig, line: Any, **fields: Any) -> None:
        text, headers = fields.pop("text", EASY), fields.pop("headers", {})
        body = {"model": "smart", "max_tokens": 100, "stream": True} | fields
        body["messages"] = [{"role": "user", "content": text}]
        line.send("POST", "/v1/chat/completions", json.dumps(body).encode(), headers)
        self.rig = rig
        self.line = line
        self.answer = Answer()
        self.reading = asyncio.create_task(line._read(self.answer))

    @classmethod
    async def of(cls, rig: Rig, **fields: Any) -> Asking:
        return cls(rig, await rig.line(), **fields)

    async def heard(self, word: bytes) -> None:
        await self.rig.until(lambda: word in self.answer.body)

    async def whole(self) -> Answer:
        await self.reading
        await self.line.close()
        return self.answer

    async def leave(self) -> None:
        self.reading.cancel()
        await self.line.close()


async def both(cast: Cast, rig: Rig, pair: tuple[str, str], **fields: Any) -> tuple[Any, ...]:
    """A request whose first two tiers are under way, both with a word that nobody has heard."""
    first, second = Voice(), Voice()
    cast.lines |= {pair[0]: first.script, pair[1]: second.script}
    asking = await Asking.of(rig, **fields)
    await first.asked.wait()
    await second.asked.wait()
    first.say("First")
    second.say("Second")
    await rig.until(
        lambda: sum(attempt.heard for f in rig.exchanges for attempt in f.attempts) == 2
    )
    assert asking.answer.body == b""
    return asking, first, second


def roles(settled: Settled) -> list[str]:
    return [note.facts.role for note in settled.attempts]


# Not at all


@pytest.mark.parametrize(
    ("table", "what"),
    [
        ('policy = "fastest"\ntargets = ["raw/a"]', 'ahead belongs to policy "cascade"'),
        ('policy = "cascade"\ntiers = [{ targets = ["raw/a"] }]', "ahead needs verify"),
    ],
)
def test_ahead_belongs_to_a_cascade_with_checks(table: str, what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"{RAW}\n[models.smart]\n{table}\n{SOON}")
    assert what in "".join(caught.value.problems)


@STREAMED
async def test_an_answer_that_is_there_in_time_is_the_only_one(
    begin: Begin, cast: Cast, *, stream: bool
) -> None:
    rig = await begin(NEVER)
    answer = await (await Asking.of(rig, stream=stream)).whole()
    assert said(answer, stream=stream) == "I am small."
    assert cast.asked == ["small"]
    assert "x-lightgate-ahead" not in answer.headers
    [settled] = await flown(rig)
    assert settled.exchange.plan.startswith("raw/small ~3.6e+06ms raw/middle > raw/large (simple")


async def test_an_answer_that_fails_early_is_followed_as_ever(begin: Begin, cast: Cast) -> None:
    rig = await begin(NEVER)
    cast.lines["small"] = (NO, "stop")
    answer = await (await Asking.of(rig)).whole()
    assert said(answer, stream=True) == "I am middle."
    assert "x-lightgate-ahead" not in answer.headers
    [settled] = await flown(rig)
    assert roles(settled) == ["primary", "fallback"]


@pytest.mark.parametrize("why", ["no budget", "hedge off", "top tier", "raced"])
async def test_nothing_starts_ahead_without_a_right_to(begin: Begin, cast: Cast, why: str) -> None:
    rig = await begin(SOON + ("\nrace = 2" if why == "raced" else ""), '"raw/small", "raw/other"')
    if why == "no budget":
        rig.state.learned.budgets.settle("", "hedge", 0, 1e12)
    first = Voice()
    cast.lines |= dict.fromkeys(("small", "other", "large"), first.script)
    headers = {"x-lightgate-hedge": "off"} if why == "hedge off" else {}
    text = "Prove that there are infinitely many primes, in detail." if why == "top tier" else EASY
    asking = await Asking.of(rig, headers=headers, text=text)
    await first.asked.wait()
    for exchange in rig.exchanges:
        if isinstance(exchange.cascade, Escalation):
            exchange.cascade.start_ahead()  # its time has come
    first.say("Fine.")
    first.end()
    first.end()
    await asking.whole()
    assert "middle" not in cast.asked
    [settled] = await flown(rig)
    assert ("no budget to start raw/middle ahead" in settled.exchange.plan) == (why == "no budget")


@pytest.mark.parametrize("why", ["", "resting", "sick", "incident"])
async def test_nothing_starts_ahead_at_a_target_in_trouble(
    begin: Begin, cast: Cast, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Each of the three is enough; without any of them the next tier starts."""
    rig = await begin(NEVER)
    first = Voice()
    cast.lines["small"] = first.script
    asking = await Asking.of(rig)
    await first.asked.wait()
    if why == "resting":
        monkeypatch.setattr(Breakers, "allows", lambda *_: False)
    elif why == "sick":
        monkeypatch.setattr(cascade, "sick", lambda *_: True)
    elif why == "incident":
        monkeypatch.setattr(Forms, "incident", lambda *_: True)
    for exchange in rig.exchanges:
        assert isinstance(exchange.cascade, Escalation)
        exchange.cascade.start_ahead()  # its time has come
    assert [len(exchange.attempts) for exchange in rig.exchanges] == [1 if why else 2]
    monkeypatch.undo()
    first.say("Fine.")
    first.end()
    await asking.whole()


# The first one passes


@STREAMED
async def test_the_one_ahead_is_closed_once_the_first_passes(
    begin: Begin, cast: Cast, upstream: Upstream, *, stream: bool
) -> None:
    rig = await begin()
    asking, first, _ = await both(cast, rig, ("small", "middle"), stream=stream)
    exchange = next(iter(rig.exchanges))
    ahead, prompt = exchange.attempts[1], exchange.request.tokens_in
    first.say(" and good.")
    first.end()
    await rig.until(lambda: ahead.lost)
    assert rig.upstream <= 1  # its connection is gone in the same turn
    answer = await asking.whole()
    assert (answer.status, answer.end) == (200, "complete")
    assert said(answer, stream=stream) == "First and good."
    assert answer.headers["x-lightgate-ahead"] == "closed"
    assert answer.headers["x-lightgate-attempts"] == "2"
    await rig.until(lambda: upstream.open == 0)
    [settled] = await flown(rig)
    lost = (prompt + 2) * 10_000  # as we count it: a loser has no usage; six letters are two tokens
    assert rows(settled) == [
        ("raw/small", True, "ok", 15_000),
        ("raw/middle", False, "cancelled", lost),
    ]
    assert roles(settled) == ["primary", "hedge"]
    note = settled.exchange
    assert (note.cost_nano, note.loser_cost_nano) == (15_000, lost)
    assert "raw/middle started ahead" in note.plan
    assert rig.state.learned.budgets.spent("")[1] == lost
    assert not rig.state.learned.breakers.troubled


async def test_what_is_too_long_to_be_held_closes_the_one_ahead(
    begin: Begin, cast: Cast, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightgate.gateway.exchange.cascade.HELD_BYTES", 2000)
    rig = await begin()
    asking, first, _ = await both(cast, rig, ("small", "middle"))
    first.say("x" * 3000)
    await asking.heard(b"xxx")
    await rig.until(lambda: upstream.open == 1)
    first.end("length")
    assert said(await asking.whole(), stream=True) == "First" + "x" * 3000


# The first one fails


async def test_the_one_ahead_goes_on_live_once_the_first_fails(begin: Begin, cast: Cast) -> None:
    rig = await begin()
    asking, first, second = await both(cast, rig, ("middle", "large"), text=MIDDLING)
    first.end("length")
    await asking.heard(b"Second")  # before it is whole
    second.say(" comes")
    await asking.heard(b"comes")
    second.end()
    answer = await asking.whole()
    assert (answer.end, said(answer, stream=True)) == ("complete", "Second comes")
    assert answer.headers["x-lightgate-ahead"] == "used"
    assert answer.headers["x-lightgate-target"] == "raw/large"
    assert cast.asked == ["middle", "large"]
    [settled] = await flown(rig)
    assert rows(settled) == [
        ("raw/middle", False, "ok", 150_000),
        ("raw/large", True, "ok", 1_500_000),
    ]
    assert roles(settled) == ["primary", "hedge"]
    plan = settled.exchange.plan
    assert "raw/large started ahead; raw/middle failed not_truncated" in plan
    assert rig.state.learned.budgets.spent("")[1] == 0  # what was needed was not spent on a guess


@STREAMED
async def test_the_one_ahead_is_checked_too_where_it_must_be(
    begin: Begin, cast: Cast, *, stream: bool
) -> None:
    rig = await begin()
    asking, first, second = await both(cast, rig, ("small", "middle"), stream=stream)
    first.end("length")
    await rig.until(lambda: next(iter(rig.exchanges)).winner is not None)
    second.say(" is cut")
    second.end("length")
    answer = await asking.whole()
    assert said(answer, stream=stream) == "I am large."
    [settled] = await flown(rig)
    assert [row[:3] for row in rows(settled)] == [
        ("raw/small", False, "ok"),
        ("raw/middle", False, "ok"),
        ("raw/large", True, "ok"),
    ]
    assert "raw/small failed not_truncated; raw/middle failed not_truncated" in (
        settled.exchange.plan
    )


@STREAMED
@pytest.mark.parametrize("how", ["500", "400", "silent"])
async def test_a_first_one_that_breaks_releases_the_one_ahead(
    begin: Begin, cast: Cast, how: str, *, stream: bool
) -> None:
    rig = await begin(small='"raw/small", "raw/other"')
    gate, second = asyncio.Event(), Voice()

    async def late(heard: Heard) -> AsyncIterator[bytes]:
        await gate.wait()
        async for piece in whole(FAILED, status=how.encode() + b" No")(heard):
            yield piece

    cast.lines |= {"small": late, "other": late, "middle": second.script}
    asking = await Asking.of(rig, stream=stream)
    await second.asked.wait()
    second.say("Second.")
    if how == "silent":
        exchange = next(iter(rig.exchanges))
        await rig.until(lambda: exchange.attempts[1].heard)
        exchange.attempts[0].give_up()  # its time for a first token is over
    gate.set()
    second.end()
    answer = await asking.whole()
    assert said(answer, stream=stream) == "Second."
    assert len(cast.asked) == 2, "nobody else of the first tier is asked"
    [settled] = await flown(rig)
    assert roles(settled) == ["primary", "hedge"]
    assert [row[1] for row in rows(settled)] == [False, True]


async def test_a_held_one_that_breaks_off_releases_the_one_ahead(begin: Begin, cast: Cast) -> None:
    rig = await begin()
    asking, first, second = await both(cast, rig, ("middle", "large"), text=MIDDLING)
    first.raw(ERROR)
    await asking.heard(b"Second")
    second.end()
    assert said(await asking.whole(), stream=True) == "Second"


# What becomes of the one ahead


@STREAMED
async def test_the_one_ahead_is_the_answer_where_it_is_whole_first(
    begin: Begin, cast: Cast, upstream: Upstream, *, stream: bool
) -> None:
    rig = await begin()
    pair = ("middle", "large")
    asking, _, second = await both(cast, rig, pair, text=MIDDLING, stream=stream)
    second.end()
    answer = await asking.whole()
    assert said(answer, stream=stream) == "Second"
    assert answer.headers["x-lightgate-ahead"] == "used"
    await rig.until(lambda: upstream.open == 0)
    [settled] = await flown(rig)
    assert [row[:3] for row in rows(settled)] == [
        ("raw/middle", False, "cancelled"),
        ("raw/large", True, "ok"),
    ]
    assert (settled.exchange.outcome, settled.exchange.error) == ("ok", None)


@pytest.mark.parametrize("first_ends", ["stop", "length", "error"])
async def test_one_ahead_that_fails_its_checks_first_is_kept(
    begin: Begin, cast: Cast, first_ends: str
) -> None:
    rig = await begin(small='"raw/small", "raw/other"')
    cast.lines["large"] = whole(FAILED, status=b"500 No")
    cast.lines["other"] = whole(FAILED, status=b"500 No")
    asking, first, second = await both(cast, rig, ("small", "middle"))
    second.end("length")
    exchange = next(iter(rig.exchanges))
    await rig.until(lambda: exchange.attempts[1].rejected)
    assert asking.answer.body == b""
    if first_ends == "error":
        first.raw(ERROR)
    else:
        first.end(first_ends)
    answer = await asking.whole()
    assert said(answer, stream=True) == ("First" if first_ends == "stop" else "Second")
    others = {"stop": [], "length": ["large"], "error": ["other", "large"]}
    assert cast.asked[2:] == others[first_ends]


@STREAMED
@pytest.mark.parametrize("first_ends", ["stop", "length"])
async def test_one_ahead_that_breaks_is_as_if_it_had_never_been(
    begin: Begin, cast: Cast, first_ends: str, *, stream: bool
) -> None:
    rig = await begin()
    asking, first, second = await both(cast, rig, ("small", "middle"), stream=stream)
    second.raw(ERROR)
    ahead = next(iter(rig.exchanges)).attempts[1]
    await rig.until(lambda: ahead.called is not None)
    first.end(first_ends)
    answer = await asking.whole()
    passed = first_ends == "stop"
    assert said(answer, stream=stream) == ("First" if passed else "I am large.")
    assert answer.headers["x-lightgate-ahead"] == "failed"
    assert cast.asked == ["small", "middle"] + ([] if passed else ["large"])
    [settled] = await flown(rig)
    assert rows(settled)[1][1:3] == (False, "stream_error")


async def test_one_that_breaks_off_after_its_release_ends_the_stream(
    begin: Begin, cast: Cast
) -> None:
    rig = await begin()
    asking, first, second = await both(cast, rig, ("middle", "large"), text=MIDDLING)
    first.end("length")
    await asking.heard(b"Second")
    second.raw(ERROR)
    answer = await asking.whole()
    assert "broke off" in answer.chunks[-1]["error"]["message"]
    [settled] = await flown(rig)
    assert (settled.exchange.winner, settled.exchange.outcome) == ("raw/large", "stream_error")


async def test_more_than_can_be_held_is_read_in_its_turn(
    begin: Begin, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lightgate.gateway.exchange.cascade.HELD_BYTES", 2000)
    rig = await begin()
    asking, first, second = await both(cast, rig, ("middle", "large"), text=MIDDLING)
    ahead = next(iter(rig.exchanges)).attempts[1]
    second.say("x" * 3000)
    await rig.until(lambda: ahead._trip is not None and ahead._trip.paused)
    second.say("y")
    second.end()
    first.end("length")
    answer = await asking.whole()
    assert said(answer, stream=True) == "Second" + "x" * 3000 + "y"


# Leaving, stopping, money


@pytest.mark.parametrize("when", ["held", "released"])
async def test_a_client_that_leaves_closes_both(
    begin: Begin, cast: Cast, upstream: Upstream, when: str
) -> None:
    rig = await begin()
    asking, first, _ = await both(cast, rig, ("middle", "large"), text=MIDDLING)
    if when == "released":
        first.end("length")
        await asking.heard(b"Second")
    await asking.leave()
    await rig.until(lambda: upstream.open == 0)
    [settled] = await flown(rig)
    assert settled.exchange.outcome == "cancelled"
    ends = [row[2] for row in rows(settled)]
    assert ends == ["ok" if when == "released" else "cancelled", "cancelled"]
    assert not rig.exchanges


async def test_a_worker_that_stops_closes_both(
    begin: Begin, cast: Cast, upstream: Upstream
) -> None:
    rig = await begin()
    asking, *_ = await both(cast, rig, ("small", "middle"))
    for exchange in tuple(rig.exchanges):
        exchange.stop()
    answer = await asking.whole()
    assert answer.status == 503
    await rig.until(lambda: upstream.open == 0)
    [settled] = await flown(rig)
    assert [row[1:3] for row in rows(settled)] == [(False, "cancelled")] * 2


async def test_a_key_pays_for_both_and_owes_nothing_after(begin: Begin, cast: Cast) -> None:
    rig = await begin(terms={"key": TERMS})
    key = rig.state.served.snapshot.keys[0].id
    saved(rig, key)
    headers = {"authorization": f"Bearer {rig.keys['key']}"}
    asking, first, _ = await both(cast, rig, ("small", "middle"), headers=headers)
    first.end()
    await asking.whole()
    [settled] = await flown(rig)
    exchange, spend = settled.exchange, rig.state.spend
    assert spend is not None
    standing = spend.standing(key)
    assert standing is not None
    assert standing.held_nano == 0
    assert exchange.loser_cost_nano is not None
    assert standing.spent_nano == (exchange.cost_nano or 0) + exchange.loser_cost_nano
    assert rig.state.learned.budgets.spent(key)[1] == exchange.loser_cost_nano
    [reserved] = rig.reserved()
    assert reserved.nano_usd >= standing.spent_nano


# Faults on either side

ENDS = ("fine", "cut", "refused", "limited", "wrong", "error", "truncated", "garbage", "hangs")


def ending(how: str, name: str, gate: asyncio.Event) -> Callable[[Heard], AsyncIterator[bytes]]:
    """An answer that waits for the other one to be asked, and then ends so."""
    status = {"refused": b"500 No", "limited": b"429 No", "wrong": b"400 No"}.get(how)
    head = b"HTTP/1.1 200 OK\r\n%bconnection: close\r\n\r\n" % SSE
    last = chunk("", choice={"finish_reason": "length" if how == "cut" else "stop"}, usage=USAGE)
    rest = {"error": ERROR, "truncated": b"", "garbage": b"data: {nothing\n\n", "hangs": b""}

    async def told(heard: Heard) -> AsyncIterator[bytes]:
        await gate.wait()
        if status is not None:
            async for piece in whole(FAILED, status=status)(heard):
                yield piece
            return
        yield head
        if how == "hangs":
            await asyncio.Event().wait()
        yield chunk(f"I am {name}.")
        yield rest.get(how, last + b"data: [DONE]\n\n")

    return told


@STREAMED
@pytest.mark.parametrize("first", ENDS)
async def test_every_pair_of_ends_leaves_one_answer_and_nothing_open(
    begin: Begin, cast: Cast, upstream: Upstream, first: str, *, stream: bool
) -> None:
    rig = await begin()
    for number, second in enumerate(ENDS, 1):
        forget_failures(rig)
        both_asked = asyncio.Event()
        cast.lines["small"] = ending(first, "small", both_asked)
        cast.lines["middle"] = ending(second, "middle", both_asked)
        cast.asked.clear()
        headers = {"x-lightgate-ttft-timeout-ms": "150", "x-lightgate-timeout-ms": "3000"}
        asking = await Asking.of(rig, stream=stream, headers=headers)
        await rig.until(lambda: len(cast.asked) == 2)
        both_asked.set()
        answer = await asking.whole()
        await rig.until(lambda: upstream.open == 0)
        settled = (await flown(rig, number))[-1]
        assert answer.end == "complete"
        if answer.status != 200:
            assert "wrong" in {first, second}, "only a request that is wrong has no answer"
            assert {first, second}.isdisjoint({"fine", "cut"}), second
            assert settled.exchange.winner is None
            continue
        winner = said(answer, stream=stream).removeprefix("I am ").removesuffix(".")
        assert winner in winners(first, second), second
        won = [note.facts.target for note in settled.attempts if note.facts.won]
        assert won == [f"raw/{winner}"], second
        assert (settled.exchange.winner, settled.exchange.outcome) == (won[0], "ok"), second
        assert (answer.headers["x-lightgate-ahead"] == "used") == (winner == "middle"), second


def winners(first: str, second: str) -> set[str]:
    """Who may have answered: a good one, or the last tier; or one that was kept, if that is cut."""
    pair = {"small": first, "middle": second}
    good = {name for name, how in pair.items() if how == "fine"}
    kept = {name for name, how in pair.items() if how == "cut" and "wrong" in pair.values()}
    return good or kept | {"large"}


def forget_failures(rig: Rig) -> None:
    """Each pair meets targets that nothing is known of."""
    state = rig.state
    state.learned.breakers = state.learned.observer.breakers = Breakers(Rules(), lambda: 0.5)
    state.learned.forms = state.learned.observer.forms = Forms(state.served.priors)
    state.learned.retries = RetryBudget()
