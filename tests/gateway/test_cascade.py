"""Cascades through the gateway: where a request starts, and what an answer that fails leads to."""

from __future__ import annotations

import asyncio
import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from gateway.faulted import said
from gateway.security.conftest import Upstream, chat_body, chunk, events, whole
from lightgate.config.load import parse_config
from lightgate.config.values import CHECKS
from lightgate.errors import ConfigError
from lightgate.gateway.exchange.cascade import HELD_BYTES
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.tiers import tiers_of
from lightgate.ledger.store.keys import KeyTerms
from lightgate.route.cascade.verify import BUILT_IN
from lightgate.route.plan.alias import Alias
from lightgate.route.plan.course import RetryBudget

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from gateway.conftest import Rig, Start
    from gateway.security.conftest import Heard, Script
    from lightgate.ledger.journal.notes import Settled
    from sim.conftest import Answer

    Cascaded = Callable[..., Awaitable[Rig]]

EASY = "What is the capital of Mongolia?"
MIDDLING = "Write a Python function that returns the second largest number in a list."
HARD = (
    "Design a rate limiter for an API that runs in three regions, must survive the loss of one"
    " region, and may exceed its limit by at most two percent. Discuss the trade-offs between"
    " accuracy and latency."
)
NO = "I'm sorry, but I can't help with that."
TIERS = """
[providers.raw]
base_url = "http://127.0.0.1:{port}/v1"
api_key = "none"
abort_stops_billing = true
[models.smart]
policy = "cascade"
timeout = "5s"
hedge = "off"
verify = [{verify}]
tiers = [
  {{ upto = "simple", targets = [{small}] }},
  {{ upto = "medium", targets = ["raw/middle"] }},
  {{ targets = ["raw/large"] }},
]
{more}
"""
PRICE = '[prices."raw/{name}"]\ninput = {dollars}\noutput = {dollars}\n'
TERMS = KeyTerms(name="key", budget_usd=Decimal(1))
ALL = '"json_schema", "not_refused", "not_truncated"'
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
FAILED = b'{"error": {"message": "broken"}}'
STREAMED = pytest.mark.parametrize("stream", [True, False])


class Cast:
    """Who says what: a text and how it ends, or a script, by model."""

    def __init__(self) -> None:
        self.lines: dict[str, tuple[str, str] | Script] = {}
        self.asked: list[str] = []

    def script(self, heard: Heard) -> AsyncIterator[bytes]:
        asked = heard.json
        self.asked.append(asked["model"])
        line = self.lines.get(asked["model"], (f"I am {asked['model']}.", "stop"))
        if not isinstance(line, tuple):
            return line(heard)
        text, finish = line
        if asked.get("stream"):
            return events(
                *(chunk(word) for word in re.split("(?= )", text)),
                chunk("", choice={"finish_reason": finish}, usage=USAGE),
                b"data: [DONE]\n\n",
            )(heard)
        body = json.loads(chat_body(text, usage=USAGE))
        body["choices"][0]["finish_reason"] = finish
        return whole(json.dumps(body).encode())(heard)


@pytest.fixture
def cast(upstream: Upstream) -> Cast:
    made = Cast()
    upstream.script = made.script
    return made


@pytest.fixture
def cascaded(start: Start, upstream: Upstream, cast: Cast) -> Cascaded:
    """Starts a gateway with three tiers in front of the cast; a tier costs ten times the last."""

    async def begin(
        verify: str = ALL,
        small: str = '"raw/small"',
        more: str = "",
        unpriced: tuple[str, ...] = (),
        **rest: Any,
    ) -> Rig:
        text = TIERS.format(port=upstream.port, verify=verify, small=small, more=more)
        for name, dollars in (("small", 1), ("other", 1), ("middle", 10), ("large", 100)):
            if name not in unpriced:
                text += PRICE.format(name=name, dollars=dollars)
        return await start(text.replace("{", "{{").replace("}", "}}"), **rest)

    return begin


async def ask(rig: Rig, text: str = EASY, **fields: Any) -> Answer:
    messages = [{"role": "user", "content": text}]
    return await rig.chat("smart", messages=messages, **{"max_tokens": 100} | fields)


async def flown(rig: Rig, count: int = 1) -> list[Settled]:
    """The records, once all are written: a client may have its last byte before that."""
    await rig.until(lambda: len(rig.settled()) >= count)
    return rig.settled()


def rows(settled: Settled) -> list[tuple[str, bool | None, str, int | None]]:
    return [
        (note.facts.target, note.facts.won, note.outcome, note.facts.cost_nano)
        for note in settled.attempts
    ]


# Where a request starts


@STREAMED
@pytest.mark.parametrize("verify", ["", ALL])
@pytest.mark.parametrize(
    ("text", "level", "target"),
    [(EASY, "simple", "small"), (MIDDLING, "medium", "middle"), (HARD, "complex", "large")],
)
async def test_a_request_starts_in_the_tier_for_its_level(
    cascaded: Cascaded, cast: Cast, verify: str, text: str, level: str, target: str, *, stream: bool
) -> None:
    rig = await cascaded(verify)
    answer = await ask(rig, text, stream=stream)
    assert (answer.status, answer.end) == (200, "complete")
    assert said(answer, stream=stream) == f"I am {target}."
    assert answer.headers["x-lightgate-complexity"] == level
    assert answer.headers["x-lightgate-policy"] == "cascade"
    assert answer.headers["x-lightgate-target"] == f"raw/{target}"
    assert cast.asked == [target]
    [settled] = await flown(rig)
    assert f"({level}: " in settled.exchange.plan
    assert settled.exchange.policy == "cascade"
    if not stream:  # a whole answer says what it cost, before its call is over too
        cost = Decimal(answer.headers["x-lightgate-cost-usd"])
        assert cost > 0
        assert cost.scaleb(9) == settled.exchange.cost_nano


async def test_the_plan_says_why_and_who_follows(cascaded: Cascaded) -> None:
    rig = await cascaded("")
    await ask(rig)
    await ask(rig, MIDDLING)
    plans = [settled.exchange.plan for settled in await flown(rig, 2)]
    assert plans[0].startswith("raw/small > raw/middle > raw/large (simple: is a routine wish,")
    assert "tier 1 of 3" in plans[0]
    assert plans[1].startswith("raw/middle > raw/large > raw/small (medium: ")


@STREAMED
async def test_a_failure_climbs_too(cascaded: Cascaded, cast: Cast, *, stream: bool) -> None:
    for verify in ("", ALL):
        rig = await cascaded(verify, small='"raw/small", "raw/other"')
        cast.lines["small"] = cast.lines["other"] = whole(FAILED, status=b"500 No")
        cast.asked.clear()
        answer = await ask(rig, stream=stream)
        assert said(answer, stream=stream) == "I am middle."
        assert sorted(cast.asked) == ["middle", "other", "small"]


@STREAMED
async def test_below_is_asked_where_nobody_above_answers(
    cascaded: Cascaded, cast: Cast, *, stream: bool
) -> None:
    rig = await cascaded()
    cast.lines["middle"] = cast.lines["large"] = whole(FAILED, status=b"500 No")
    cast.lines["small"] = (NO, "stop")  # and not checked there
    answer = await ask(rig, MIDDLING, stream=stream)
    assert said(answer, stream=stream) == NO
    assert cast.asked == ["middle", "large", "small"]


# Verify, then escalate

SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "it",
        "schema": {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}},
    },
}


@STREAMED
@pytest.mark.parametrize(
    ("line", "fields", "check"),
    [
        ((NO, "stop"), {}, "not_refused"),
        (("Half of", "length"), {}, "not_truncated"),
        (('{"a": ', "stop"), {"response_format": SCHEMA}, "json_schema"),
        (('{"a": "x"}', "stop"), {"response_format": SCHEMA}, "json_schema"),
    ],
)
async def test_an_answer_that_fails_is_asked_for_one_tier_up(
    cascaded: Cascaded,
    cast: Cast,
    line: tuple[str, str],
    fields: dict[str, Any],
    check: str,
    *,
    stream: bool,
) -> None:
    rig = await cascaded()
    good = '{"a":1}' if fields else "Fine."
    cast.lines |= {"small": line, "middle": (good, "stop")}
    answer = await ask(rig, stream=stream, **fields)
    assert (answer.status, answer.end) == (200, "complete")
    assert said(answer, stream=stream) == good
    assert cast.asked == ["small", "middle"]
    assert answer.headers["x-lightgate-attempts"] == "2"
    assert answer.headers["x-lightgate-target"] == "raw/middle"
    [settled] = await flown(rig)
    assert rows(settled) == [
        ("raw/small", False, "ok", 15_000),
        ("raw/middle", True, "ok", 150_000),
    ]
    exchange = settled.exchange
    assert (exchange.cost_nano, exchange.loser_cost_nano) == (150_000, 15_000)
    assert f"raw/small failed {check}" in exchange.plan
    assert (exchange.status, exchange.outcome, exchange.error) == (200, "ok", None)
    assert not rig.state.learned.breakers.troubled


@STREAMED
async def test_a_good_answer_goes_out_as_it_came(
    cascaded: Cascaded, cast: Cast, *, stream: bool
) -> None:
    answers = [await ask(await cascaded(verify), stream=stream) for verify in ("", ALL)]
    assert answers[0].body == answers[1].body
    assert cast.asked == ["small", "small"]


@STREAMED
async def test_the_last_tier_is_not_checked(
    cascaded: Cascaded, cast: Cast, *, stream: bool
) -> None:
    rig = await cascaded()
    cast.lines = {name: (f"{NO} {name}", "stop") for name in ("small", "middle", "large")}
    answer = await ask(rig, stream=stream)
    assert said(answer, stream=stream).endswith("large")
    assert cast.asked == ["small", "middle", "large"]
    assert [row[1] for row in rows((await flown(rig))[0])] == [False, False, True]


@STREAMED
async def test_the_kept_answer_is_given_where_those_above_fail(
    cascaded: Cascaded, cast: Cast, *, stream: bool
) -> None:
    rig = await cascaded()
    cast.lines["small"] = ("Half of", "length")
    cast.lines["middle"] = whole(FAILED, status=b"500 No")
    cast.lines["large"] = whole(FAILED, status=b"400 No")
    answer = await ask(rig, stream=stream)
    assert (answer.status, answer.end) == (200, "complete")
    assert said(answer, stream=stream) == "Half of"
    assert answer.headers["x-lightgate-target"] == "raw/small"
    assert cast.asked == ["small", "middle", "large"]
    [settled] = await flown(rig)
    assert [row[:3] for row in rows(settled)] == [
        ("raw/small", True, "ok"),
        ("raw/middle", False, "http_error"),
        ("raw/large", False, "http_error"),
    ]
    exchange = settled.exchange
    assert (exchange.winner, exchange.cost_nano, exchange.error) == ("raw/small", 15_000, None)
    assert exchange.first_in_ns is not None
    assert exchange.last_in_ns is not None
    assert exchange.first_in_ns > exchange.last_in_ns  # the time above is not the gateway's


async def test_the_best_of_those_that_failed_is_kept(cascaded: Cascaded, cast: Cast) -> None:
    rig = await cascaded()
    cast.lines["small"] = cast.lines["middle"] = (NO, "stop")
    cast.lines["large"] = whole(FAILED, status=b"500 No")
    answer = await ask(rig)
    assert answer.headers["x-lightgate-target"] == "raw/middle"
    assert [row[1] for row in rows((await flown(rig))[0])] == [False, True, False]


async def test_a_held_answer_that_breaks_off_is_followed_by_another(
    cascaded: Cascaded, cast: Cast
) -> None:
    rig = await cascaded(small='"raw/small", "raw/other"')
    broken = events(chunk("Half"), b'data: {"error": {"message": "no", "code": 500}}\n\n')
    cast.lines = {"small": broken, "other": ("Whole.", "stop")}
    answer = await ask(rig)
    assert said(answer, stream=True) == "Whole."
    assert cast.asked == ["small", "other"]
    assert [row[1:3] for row in rows((await flown(rig))[0])] == [
        (False, "stream_error"),
        (True, "ok"),
    ]


async def test_checks_read_what_another_dialect_says(cascaded: Cascaded, cast: Cast) -> None:
    rig = await cascaded()
    cast.lines["small"] = ("Half of", "length")
    body = {"model": "smart", "max_tokens": 100, "messages": [{"role": "user", "content": EASY}]}
    for stream in (True, False):
        cast.asked.clear()
        answer = await rig.ask("/v1/messages", body | {"stream": stream})
        assert answer.status == 200
        assert cast.asked == ["small", "middle"]
        assert b"middle." in answer.body
        assert b"Half" not in answer.body


async def test_a_dialect_that_cannot_be_read_is_not_held(cascaded: Cascaded, cast: Cast) -> None:
    rig = await cascaded()
    cast.lines["small"] = whole(b'{"choices": [{"text": "Half", "finish_reason": "length"}]}')
    body = {"model": "smart", "prompt": EASY, "max_tokens": 100}
    answer = await rig.ask("/v1/completions", body)
    assert answer.json["choices"][0]["text"] == "Half"
    assert cast.asked == ["small"]


async def test_what_is_too_long_to_be_held_goes_out(cascaded: Cascaded, cast: Cast) -> None:
    rig = await cascaded()
    piece = chunk("x" * (HELD_BYTES // 32))
    end = chunk("", choice={"finish_reason": "length"})
    cast.lines["small"] = events(*[piece] * 40, end, b"data: [DONE]\n\n")
    answer = await ask(rig)
    assert answer.end == "complete"
    assert len(said(answer, stream=True)) == 40 * (HELD_BYTES // 32)
    assert cast.asked == ["small"]


# Money, time, and those who leave


async def test_every_tier_that_may_be_paid_is_reserved(cascaded: Cascaded, cast: Cast) -> None:
    reserved = []
    for verify in ("", ALL):
        rig = await cascaded(verify, terms={"key": TERMS})
        headers = {"authorization": f"Bearer {rig.keys['key']}"}
        cast.lines["small"] = (NO, "stop")
        await ask(rig, headers=headers)
        await ask(rig, HARD, headers=headers)
        paid = [note.exchange for note in await flown(rig, 2)]
        reserved.append([note.nano_usd for note in rig.reserved()])
        spend = rig.state.spend
        assert spend is not None
        standing = spend.standing(rig.state.served.snapshot.keys[0].id)
        assert standing is not None
        assert standing.held_nano == 0
        assert standing.spent_nano == sum(
            (note.cost_nano or 0) + (note.loser_cost_nano or 0) for note in paid
        )
    [(plain, top), (checked, checked_top)] = reserved
    assert checked * 100 == plain * 111  # 1 + 10 + 100 instead of the dearest
    assert top == checked_top


@STREAMED
@pytest.mark.parametrize(
    ("unpriced", "asked", "passed"),
    [
        (("middle",), ["small", "large"], True),
        (("middle", "large"), ["small"], False),
        (("large",), ["small", "middle"], True),
    ],
)
async def test_a_tier_without_a_price_is_passed_over_by_a_key_with_a_budget(
    cascaded: Cascaded,
    cast: Cast,
    stream: bool,
    unpriced: tuple[str, ...],
    asked: list[str],
    passed: bool,
) -> None:
    rig = await cascaded(unpriced=unpriced, terms={"key": TERMS})
    cast.lines["small"] = (NO, "stop")
    answer = await ask(rig, stream=stream, headers={"authorization": f"Bearer {rig.keys['key']}"})
    assert answer.status == 200
    assert said(answer, stream=stream) == (f"I am {asked[-1]}." if passed else NO)
    assert cast.asked == asked
    [settled] = await flown(rig)
    assert settled.exchange.outcome == "ok"


class Spent(RetryBudget):
    """A budget of which nothing is left."""

    def left(self, now_ns: int) -> float:
        return 0.0


async def test_an_escalation_is_no_retry(cascaded: Cascaded, cast: Cast) -> None:
    rig = await cascaded()
    cast.lines["small"] = (NO, "stop")
    rig.state.learned.retries = Spent()
    answer = await ask(rig)
    assert answer.headers["x-lightgate-target"] == "raw/middle"


async def test_the_deadline_ends_the_climb_with_what_is_there(
    cascaded: Cascaded, cast: Cast
) -> None:
    rig = await cascaded()
    silent = asyncio.Event()

    async def hang(_: Heard) -> AsyncIterator[bytes]:
        await silent.wait()
        yield b""

    cast.lines |= {"small": ("Half of", "length"), "middle": hang, "large": hang}
    answer = await ask(rig, headers={"x-lightgate-timeout-ms": "400"})
    assert said(answer, stream=True) == "Half of"
    assert answer.headers["x-lightgate-target"] == "raw/small"
    await rig.until(lambda: rig.upstream == 0)


@pytest.mark.parametrize("where", ["small", "middle"])
async def test_a_client_that_leaves_ends_it(
    cascaded: Cascaded, cast: Cast, upstream: Upstream, where: str
) -> None:
    rig = await cascaded()
    reached, silent = asyncio.Event(), asyncio.Event()

    async def begin(_: Heard) -> AsyncIterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + chunk("Half")
        reached.set()
        await silent.wait()

    cast.lines = {"small": (NO, "stop"), where: begin}
    line = await rig.line()
    body = {"model": "smart", "stream": True, "messages": [{"role": "user", "content": EASY}]}
    line.send("POST", "/v1/chat/completions", json.dumps(body).encode(), {})
    await reached.wait()
    await rig.until(lambda: any(exchange.winner for exchange in rig.exchanges))
    await line.close()
    await rig.until(lambda: upstream.open == 0)
    [settled] = await flown(rig)
    assert (settled.exchange.outcome, settled.exchange.status) == ("cancelled", 499)
    assert rows(settled)[-1][2] == "cancelled"
    assert cast.asked == ["small", "middle"][: len(settled.attempts)]


async def test_a_worker_that_stops_gives_what_was_kept(cascaded: Cascaded, cast: Cast) -> None:
    rig = await cascaded()
    reached, silent = asyncio.Event(), asyncio.Event()

    async def begin(_: Heard) -> AsyncIterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + chunk("Half")
        reached.set()
        await silent.wait()

    cast.lines |= {"small": (NO, "stop"), "middle": begin}
    asking = asyncio.create_task(ask(rig))
    await reached.wait()
    await rig.until(lambda: any(exchange.winner for exchange in rig.exchanges))
    for exchange in tuple(rig.exchanges):
        exchange.stop()
    answer = await asking
    assert said(answer, stream=True) == NO
    [settled] = await flown(rig)
    assert (settled.exchange.winner, settled.exchange.error) == ("raw/small", None)


async def test_an_answer_that_failed_is_not_kept_for_others(cascaded: Cascaded, cast: Cast) -> None:
    rig = await cascaded(more='[models.smart.cache]\nmode = "any"\nstore = "memory"')
    cast.lines["small"] = (NO, "stop")
    cast.lines["middle"] = cast.lines["large"] = whole(FAILED, status=b"500 No")
    doubtful = await ask(rig)
    assert doubtful.headers["x-lightgate-target"] == "raw/small"
    del cast.lines["middle"]
    again = await ask(rig)
    assert again.headers["x-lightgate-cache"] == "miss"
    assert again.headers["x-lightgate-target"] == "raw/middle"
    assert (await ask(rig)).headers["x-lightgate-cache"] == "hit"


# The user's own checks


def test_the_configuration_names_the_checks_that_there_are() -> None:
    assert tuple(BUILT_IN) == CHECKS


async def test_an_own_check_is_loaded_by_its_entry_point(
    cascaded: Cascaded, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Point:
        name = "says_ulaanbaatar"

        def load(self) -> Any:
            return lambda answer, _wants: "Ulaanbaatar" in answer.text

    for module in ("importlib.metadata", "lightgate.config.values"):
        monkeypatch.setattr(f"{module}.entry_points", lambda group: [Point()])
    rig = await cascaded('"says_ulaanbaatar"')
    cast.lines["middle"] = ("Ulaanbaatar.", "stop")
    answer = await ask(rig)
    assert said(answer, stream=True) == "Ulaanbaatar."
    assert "raw/small failed says_ulaanbaatar" in (await flown(rig))[0].exchange.plan


def test_an_own_check_that_cannot_be_loaded_stops_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Point:
        name = "broken"

        def load(self) -> Any:
            raise ImportError("no such module")

    for module in ("importlib.metadata", "lightgate.config.values"):
        monkeypatch.setattr(f"{module}.entry_points", lambda group: [Point()])
    text = TIERS.format(port=1, verify='"broken"', small='"raw/small"', more="")
    config = parse_config(text)
    with pytest.raises(ConfigError, match="'broken' cannot be loaded: ImportError"):
        make_snapshot(config, (), {})


def test_aliases_without_tiers_have_no_cascade() -> None:
    assert tiers_of([Alias(name="plain", targets=("a/b",))]) == {}


async def test_a_bound_learns_from_the_checks(cascaded: Cascaded, cast: Cast) -> None:
    rig = await cascaded('"not_truncated"', more="learned_bounds = true")
    cast.lines["middle"] = ("I am cut", "length")
    near = "Explain how a sewing machine makes a stitch, and why the thread does not tear."
    learned = rig.state.learned.bounds_of(rig.state.served.aliases["smart"])
    learned.bounds[1] = 3.4  # the request has a little less, and was never checked before

    for _ in range(8):
        await ask(rig, near)
    plans = [settled.exchange.plan for settled in await flown(rig, 8)]

    assert cast.asked[:2] == ["middle", "large"]  # checked, failed, asked again
    assert cast.asked[-1] == "large"
    assert cast.asked.count("middle") < 8  # later ones start above at once
    assert "tier 2 of 3" in plans[0]
    assert "tier 3 of 3 by" in plans[-1]


async def test_bounds_stay_where_they_are_unless_asked_for(cascaded: Cascaded, cast: Cast) -> None:
    rig = await cascaded('"not_truncated"')
    cast.lines["small"] = ("I am cut", "length")
    for _ in range(3):
        await ask(rig)
    await flown(rig, 3)

    learned = rig.state.learned.bounds_of(rig.state.served.aliases["smart"])
    assert learned.checked == 0
    assert cast.asked == ["small", "middle"] * 3
