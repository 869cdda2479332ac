"""Answers that are given again: whose, which, for how long, and how much of them is kept."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lightgate.clock.outcome import Outcome
from lightgate.clock.source import ManualClock
from lightgate.errors import LightgateError
from lightgate.gateway.cache import disk as disk_module
from lightgate.gateway.cache.disk import DiskCache
from lightgate.gateway.cache.memory import (
    JITTER,
    AnswerEnding,
    KeepTerms,
    KeptAnswer,
    MemoryCache,
    Owner,
    Tempo,
    hit_lines,
    replay,
)
from lightgate.ledger.sqlite import FILE
from lightgate.ledger.store.answers import AnswerRow, find_answer, prune_answers, put_answers
from lightgate.ledger.store.store import Ledger
from lightgate.route.prompt.cache_key import Beside, CacheRule, cache_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

S = 1_000_000_000
RULE = CacheRule(mode="exact", ttl_ns=100 * S)
MEMORY = CacheRule(mode="exact", ttl_ns=100 * S, store="memory")
FINE = AnswerEnding(200, Outcome.OK, terminal=True, finish_reason="stop")
OWNER = Owner("key-1", "fast")
SURELY = 0.0  # a draw that never refreshes early: the logarithm of 1


def kept(
    body: bytes = b"data: a\n\ndata: b\n\n", *, took_ns: int = S, streamed: bool = True
) -> KeptAnswer:
    cuts = (9, len(body)) if streamed else (len(body),)
    times = (200_000, 900_000)[-len(cuts) :]
    return KeptAnswer(streamed, body, cuts, times, "lab/m", 3, 5, 70, took_ns, 1_700_000_000 * S)


def keep(
    answers: MemoryCache, key: bytes, value: KeptAnswer | None = None, *, now_ns: int = 0,
    ending: AnswerEnding = FINE, rule: CacheRule = RULE, draw: float = 0.0,
) -> bool:  # fmt: skip
    return answers.keep(key, value or kept(), ending, OWNER, KeepTerms(rule, now_ns, draw))


async def test_what_was_kept_is_found() -> None:
    answers = MemoryCache()
    assert await answers.find(b"k", RULE, 0, SURELY) is None
    assert keep(answers, b"k")
    found = await answers.find(b"k", RULE, 1, SURELY)
    assert found == kept()
    assert (answers.hits, answers.misses, answers.stored) == (1, 1, 1)


async def test_two_tenants_never_share() -> None:
    answers = MemoryCache()
    frame = Beside(streamed=True, targets=("lab/m",))
    mine, theirs, nobodys = (cache_key(t, "openai-chat", "m", {}, frame) for t in ("a", "b", ""))
    keep(answers, mine)
    assert await answers.find(mine, RULE, 1, SURELY) is not None
    assert await answers.find(theirs, RULE, 1, SURELY) is None
    assert await answers.find(nobodys, RULE, 1, SURELY) is None


@pytest.mark.parametrize("ending", [
    AnswerEnding(200, Outcome.OK, terminal=False, finish_reason="stop"),
    AnswerEnding(206, Outcome.OK, terminal=True),
    AnswerEnding(503, Outcome.OK, terminal=True),
    *(AnswerEnding(200, bad, terminal=True) for bad in Outcome if bad is not Outcome.OK),
    AnswerEnding(200, Outcome.OK, terminal=True, finish_reason="content_filter"),
    AnswerEnding(200, Outcome.OK, terminal=True, finish_reason="SAFETY"),
    AnswerEnding(200, Outcome.OK, terminal=True, finish_reason="pause_turn"),
])  # fmt: skip
async def test_what_is_not_complete_is_never_kept(ending: AnswerEnding) -> None:
    answers = MemoryCache()
    assert not keep(answers, b"k", ending=ending)
    assert (len(answers), answers.size) == (0, 0)


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls", "end_turn", "STOP", None])
def test_an_end_of_the_models_own_is_complete(reason: str | None) -> None:
    assert AnswerEnding(200, Outcome.OK, terminal=True, finish_reason=reason).complete


def test_nothing_and_too_much_are_not_kept() -> None:
    answers = MemoryCache(most_answer_bytes=2000)
    assert not answers.keep(b"k", None, FINE, OWNER, KeepTerms(RULE, 0, 0.0))
    assert not keep(answers, b"k", kept(b""))
    assert not keep(answers, b"k", kept(b"x" * 2000))
    assert keep(answers, b"k", kept(b"x" * 1000))


# How long


@given(draw=st.floats(0, 1, exclude_max=True))
def test_the_end_is_drawn_and_never_late(draw: float) -> None:
    async def case() -> None:
        answers = MemoryCache(beta=0.0)
        keep(answers, b"k", draw=draw)
        ends = int(100 * S * (1 - JITTER * draw))
        assert 90 * S <= ends <= 100 * S
        assert await answers.find(b"k", RULE, ends - 1, 0.5) is not None
        assert await answers.find(b"k", RULE, ends, 0.5) is None
        assert (len(answers), answers.size) == (0, 0)

    asyncio.run(case())


async def test_a_shorter_time_to_live_holds_at_once() -> None:
    answers = MemoryCache()
    keep(answers, b"k")
    short = CacheRule(mode="exact", ttl_ns=10 * S)
    assert await answers.find(b"k", short, 9 * S, SURELY) is not None
    assert await answers.find(b"k", short, 10 * S, SURELY) is None


async def test_one_caller_makes_it_anew_before_the_end() -> None:
    answers = MemoryCache()
    keep(answers, b"k", kept(took_ns=2 * S))
    # A draw of u refreshes from 2 s * -ln(1 - u) before the end on.
    draw = 1 - math.exp(-1.0)  # 2 s
    assert await answers.find(b"k", RULE, 97 * S, draw) is not None
    assert await answers.find(b"k", RULE, 98 * S + 1, draw) is None  # it is told to make it
    assert await answers.find(b"k", RULE, 98 * S + 2, 0.999) is not None  # the others are not
    assert answers.early == 1
    keep(answers, b"k", kept(b"data: new\n\ndata: er\n\n"), now_ns=99 * S)
    fresh = await answers.find(b"k", RULE, 150 * S, SURELY)
    assert fresh is not None
    assert fresh.body.startswith(b"data: new")


async def test_one_who_was_to_make_it_anew_and_failed_is_followed_by_another() -> None:
    answers = MemoryCache()
    keep(answers, b"k", kept(took_ns=2 * S))
    assert await answers.find(b"k", RULE, 90 * S, 0.9999) is None
    assert await answers.find(b"k", RULE, 93 * S, 0.9999) is not None
    assert await answers.find(b"k", RULE, 94 * S, 0.9999) is None


# How much


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3000), st.booleans()), max_size=60))
def test_memory_is_bounded_and_the_least_lately_used_goes(
    steps: list[tuple[int, int, bool]],
) -> None:
    async def case() -> None:
        answers = MemoryCache(8000, most_answer_bytes=4000)
        model: dict[bytes, int] = {}  # size by key, least lately used first
        for name, size, asks in steps:
            key = b"%d" % name
            if asks:
                found = await answers.find(key, RULE, 1, SURELY)
                assert (found is not None) == (key in model)
                if key in model:
                    model[key] = model.pop(key)
            else:
                value = kept(b"x" * size)
                assert keep(answers, key, value)
                model.pop(key, None)
                model[key] = value.size
                while sum(model.values()) > 8000:
                    del model[next(iter(model))]
            assert answers.size == sum(model.values()) <= 8000
            assert len(answers) == len(model)

    asyncio.run(case())


# Giving it again


class FakeOut:
    def __init__(self, now: Callable[[], int]) -> None:
        self.now = now
        self.said: list[tuple[int, str, bytes]] = []

    def start(self, status: int, headers: bytes, *, first: bytes = b"") -> None:
        assert (status, headers) == (200, b"h: 1\r\n")
        self.said.append((self.now(), "start", first))

    def send(self, data: bytes) -> None:
        self.said.append((self.now(), "send", data))

    def finish(self) -> None:
        self.said.append((self.now(), "finish", b""))

    def whole(self, status: int, headers: bytes, body: bytes) -> None:
        assert (status, headers) == (200, b"h: 1\r\n")
        self.said.append((self.now(), "whole", body))

    async def drain(self) -> None:
        self.said.append((self.now(), "drain", b""))


def sleeper(clock: ManualClock) -> Callable[[float], Awaitable[None]]:
    async def sleep(seconds: float) -> None:
        clock.advance(round(seconds * S))

    return sleep


async def test_at_once() -> None:
    clock = ManualClock()
    out = FakeOut(clock.now_ns)
    await replay(kept(), out, b"h: 1\r\n", Tempo("instant", clock.now_ns, sleeper(clock)))
    assert out.said == [(0, "start", kept().body), (0, "drain", b""), (0, "finish", b"")]


async def test_as_it_came() -> None:
    clock = ManualClock()
    out = FakeOut(clock.now_ns)
    await replay(kept(), out, b"h: 1\r\n", Tempo("recorded", clock.now_ns, sleeper(clock)))
    parts = [one for one in out.said if one[1] != "drain"]
    assert parts == [
        (200_000_000, "start", b"data: a\n\n"),
        (900_000_000, "send", b"data: b\n\n"),
        (900_000_000, "finish", b""),
    ]


@pytest.mark.parametrize(("pace", "at"), [("instant", 0), ("recorded", 900_000_000)])
async def test_a_whole_answer(pace: Any, at: int) -> None:
    clock = ManualClock()
    out = FakeOut(clock.now_ns)
    value = kept(b"{}", streamed=False)
    await replay(value, out, b"h: 1\r\n", Tempo(pace, clock.now_ns, sleeper(clock)))
    assert out.said == [(at, "whole", b"{}")]


async def test_a_long_answer_waits_for_a_slow_client() -> None:
    clock = ManualClock()
    out = FakeOut(clock.now_ns)
    value = kept(b"x" * 200_000)
    await replay(value, out, b"h: 1\r\n", Tempo("instant", clock.now_ns))
    assert b"".join(data for _, _, data in out.said) == value.body
    assert [word for _, word, _ in out.said].count("drain") == 4


def test_a_hit_says_so() -> None:
    lines = hit_lines(kept(), b"req", b"id", kept().kept_ns + 42 * S)
    assert b"x-lightgate-cache: hit\r\n" in lines
    assert b"x-lightgate-target: lab/m\r\n" in lines
    assert b"age: 42\r\n" in lines


# The second tier


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open("sqlite", tmp_path) as opened:
        yield opened


def row(key: bytes, kept_ns: int = 1, size: int = 100, expires_ns: int = 1000) -> AnswerRow:
    return AnswerRow(key, None, "fast", "lab/m", kept_ns, expires_ns, size, b"answer of " + key)


def test_rows_come_and_go(ledger: Ledger) -> None:
    put_answers(ledger, [row(b"a"), row(b"b"), row(b"a", kept_ns=2)])
    put_answers(ledger, [row(b"b", kept_ns=3)])
    found = find_answer(ledger, b"b", 999)
    assert found == row(b"b", kept_ns=3)
    assert find_answer(ledger, b"a", 1000) is None  # over
    assert find_answer(ledger, b"c", 0) is None


def test_the_table_is_bounded(ledger: Ledger) -> None:
    put_answers(
        ledger, [row(b"%d" % n, kept_ns=n, expires_ns=50 if n == 7 else 1000) for n in range(10)]
    )
    assert prune_answers(ledger, 60, 10_000) == 1  # what is over
    assert prune_answers(ledger, 60, 900) == 0
    assert prune_answers(ledger, 60, 500) == 5  # the oldest, to nine tenths
    left = [n for n in range(10) if find_answer(ledger, b"%d" % n, 60)]
    assert left == [5, 6, 8, 9]


@pytest.fixture
async def begin(tmp_path: Path) -> AsyncIterator[Callable[..., DiskCache]]:
    begun: list[DiskCache] = []

    def make(**more: Any) -> DiskCache:
        opens = more.pop("opens", lambda: Ledger.open("sqlite", tmp_path, busy_s=0.01))
        clock = more.pop("clock", None) or ManualClock(now_ns=S)
        disk = DiskCache(opens, clock=clock, patience_s=more.pop("patience_s", 60), **more)
        disk.start()
        begun.append(disk)
        return disk

    yield make
    for disk in begun:
        disk.close()
        assert not disk._thread.is_alive()


async def test_an_answer_outlives_its_worker(begin: Callable[..., DiskCache]) -> None:
    first = MemoryCache(second_tier=begin())
    keep(first, b"k")
    keep(first, b"private", rule=MEMORY)
    assert first.second_tier is not None
    first.second_tier.close()  # type: ignore[attr-defined]
    disk = begin()
    second = MemoryCache(second_tier=disk)
    assert disk.flushed(60)
    while not disk._known:
        await asyncio.sleep(0)
    assert await second.find(b"private", RULE, 0, SURELY) is None
    assert await second.find(b"k", MEMORY, 0, SURELY) is None  # this model's rule does not look
    assert await second.find(b"k", RULE, 0, SURELY) == kept()
    assert (second.hits, len(second)) == (1, 1)  # and in memory from now on


async def test_an_answer_on_disk_keeps_its_end(begin: Callable[..., DiskCache]) -> None:
    clock = ManualClock(now_ns=S)
    disk = begin(clock=clock)
    disk.put(b"k", OWNER, kept(), 100 * S)
    assert disk.flushed(60)
    clock.advance(40 * S)
    found = await disk.find(b"k")
    assert found == (kept(), 60 * S)
    answers = MemoryCache(second_tier=disk, beta=0.0)
    assert await answers.find(b"k", RULE, 0, SURELY) is not None
    assert await answers.find(b"k", MEMORY, 60 * S, SURELY) is None
    clock.advance(60 * S)
    assert await disk.find(b"k") is None


async def test_a_key_that_is_not_there_does_not_wait_for_the_disk() -> None:
    never = threading.Event()
    disk = DiskCache(lambda: pytest.fail("opened") if never.wait(60) else pytest.fail("late"))
    # The thread is not even running: an answer that needed it would never come.
    assert await disk.find(b"k") is None


async def test_a_store_that_hangs_delays_nobody(begin: Callable[..., DiskCache]) -> None:
    free = threading.Event()

    def opens() -> Ledger:
        free.wait(60)
        raise LightgateError("The store is gone.")

    disk = begin(opens=opens, patience_s=0.001, clock=ManualClock(now_ns=S))
    answers = MemoryCache(second_tier=disk)
    disk._known[b"k"] = 2_000_000_000 * S
    assert await answers.find(b"k", RULE, 0, SURELY) is None  # gives up after its patience
    wishes = len(disk._reads)
    assert await answers.find(b"k", RULE, 0, SURELY) is None  # and does not even ask again
    assert len(disk._reads) == wishes
    assert keep(answers, b"k")  # memory goes on
    assert await answers.find(b"k", RULE, 1, SURELY) is not None
    free.set()


async def test_what_waits_for_the_disk_is_bounded(
    begin: Callable[..., DiskCache], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_module, "MOST_WAITING_BYTES", 3 * kept().size)
    free = threading.Event()

    def opens() -> Ledger:
        free.wait(60)
        raise LightgateError("The store is gone.")

    disk = begin(opens=opens)
    for name in range(10):
        disk.put(b"%d" % name, OWNER, kept(), S)
    assert disk.dropped == 7
    assert len(disk._puts) == 3
    free.set()


async def test_a_locked_store_is_written_later(
    begin: Callable[..., DiskCache], tmp_path: Path, ledger: Ledger
) -> None:
    clock = ManualClock(now_ns=S)
    other = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    disk = begin(clock=clock)
    disk.put(b"k", OWNER, kept(), 100 * S)
    while not disk._rest_ns:
        await asyncio.sleep(0)
    assert find_answer(ledger, b"k", 0) is None
    other.close()
    clock.advance(6 * S)
    with disk._change:
        disk._change.notify_all()
    assert disk.flushed(60)
    assert find_answer(ledger, b"k", 0) is not None


@pytest.mark.usefixtures("ledger")  # made before: two that make its tables wait for each other
async def test_workers_learn_of_each_others_answers(begin: Callable[..., DiskCache]) -> None:
    clock = ManualClock(now_ns=S)
    one, two = begin(clock=clock), begin(clock=clock)
    one.put(b"k", OWNER, kept(), 100 * S)
    assert one.flushed(60)
    clock.advance(2 * S)
    while not two._known:
        with two._change:
            two._change.notify_all()
        await asyncio.sleep(0)
    assert await two.find(b"k") is not None


async def test_a_row_that_cannot_be_read_is_a_miss(
    begin: Callable[..., DiskCache], ledger: Ledger
) -> None:
    far = 2_000_000_000 * S
    put_answers(ledger, [row(b"k", kept_ns=kept().kept_ns, expires_ns=far)])
    disk = begin()
    while not disk._known:
        await asyncio.sleep(0)
    assert await disk.find(b"k") is None
    assert not disk._known


@pytest.mark.parametrize(
    ("body", "cuts"), [(b"", ()), (b"x" * 100, ()), (b"x" * 100, (10, 70, 100))]
)
def test_the_size_of_an_answer_is_its_body_and_its_parts(
    body: bytes, cuts: tuple[int, ...]
) -> None:
    made = KeptAnswer(True, body, cuts, cuts, "lab/m", 3, 5, 70, 1, 2)
    assert made.size == len(body) + 16 * len(cuts) + 512
