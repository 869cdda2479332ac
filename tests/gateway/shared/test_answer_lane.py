"""Answers in a shared store, question by question; the store is played."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from lightgate.clock.source import ManualClock
from lightgate.gateway.cache.memory import KeptAnswer, Owner
from lightgate.gateway.shared import answers as module
from lightgate.gateway.shared.answers import SharedAnswerStore
from lightgate.gateway.shared.scripts import (
    ANSWER,
    ANSWER_SIZES,
    ANSWERS,
    GET_ANSWERS,
    PUT_ANSWER,
)
from lightgate.gateway.shared.store import StoreAway

S, MS = 1_000_000_000, 1_000_000
OWNER = Owner("key", "model")


def kept(clock: ManualClock, body: bytes = b"hello") -> KeptAnswer:
    return KeptAnswer(
        streamed=False, body=body, cuts=(len(body),), times_us=(5,), target="lab/plain",
        tokens_in=1, tokens_out=2, cost_nano=3, took_ns=4, kept_ns=clock.wall_ns(),
    )  # fmt: skip


class PlayedStore:
    """A store whose rows the test sets, and both connections to it."""

    def __init__(self) -> None:
        self.state, self.asked, self.memory_bytes = "joined", True, 0
        self.rows: dict[str, tuple[bytes, int]] = {}
        self.read: list[tuple[str, ...]] = []
        self.put: list[tuple[Any, ...]] = []
        self.fails: StoreAway | None = None
        self.said: list[str] = []

    def lane(self) -> PlayedStore:
        return self

    async def script(self, text: str, names: list[str], *told: Any) -> list[Any]:
        if text == PUT_ANSWER:
            if self.fails is not None:
                raise self.fails
            self.put.append((names, *told))
            return []
        assert (text, names[0]) == (GET_ANSWERS, ANSWERS)
        self.read.append(tuple(names[1:]))
        await asyncio.sleep(0)
        if self.fails is not None:
            raise self.fails
        return [self.rows.get(name) for name in names[1:]]

    def late(self) -> None:
        self.said.append("late")

    def lost(self, why: str) -> None:
        self.said.append(why)


class Bench:
    """The answers of one worker in front of a played store."""

    def __init__(self) -> None:
        self.clock, self.store = ManualClock(), PlayedStore()
        store: Any = self.store
        self.answers = SharedAnswerStore(store, most_bytes=999)

    async def written(self) -> None:
        if self.answers._writer is not None:
            await self.answers._writer

    def keep(self, key: bytes, left_ms: int) -> KeptAnswer:
        made = kept(self.clock)
        self.store.rows[ANSWER + key.hex()] = msgspec.msgpack.encode(made), left_ms
        return made


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_an_answer_is_found_under_its_key_with_the_time_that_it_has_left(
    bench: Bench,
) -> None:
    made = bench.keep(b"\x01\xff", 5)
    assert await bench.answers.find(b"\x01\xff") == (made, 5 * MS)
    assert bench.store.read == [(f"{ANSWER}01ff",)]
    bench.keep(b"\x01\xff", 0)
    assert await bench.answers.find(b"\x01\xff") is None  # it has ended
    assert await bench.answers.find(b"\x02") is None
    bench.store.rows[f"{ANSWER}02"] = b"\xc1", 5
    assert await bench.answers.find(b"\x02") is None  # nobody can read it


async def test_requests_that_read_at_the_same_time_are_asked_together(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_READ", 2)
    made = bench.keep(b"\x03", 1000)
    keys = [bytes([number]) for number in range(1, 4)]
    found = await asyncio.gather(*[bench.answers.find(key) for key in keys])
    assert found == [None, None, (made, S)]
    assert [len(question) for question in bench.store.read] == [2, 1]


async def test_a_store_that_may_not_be_asked_is_not(bench: Bench) -> None:
    bench.keep(b"a", 1000)
    bench.store.asked = False
    assert await bench.answers.find(b"a") is None
    assert bench.store.read == []


async def test_all_who_wait_hear_at_once_that_the_store_is_away(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_READ", 1)
    bench.store.fails = StoreAway("gone")
    assert await asyncio.gather(*[bench.answers.find(key) for key in (b"a", b"b")]) == [None, None]
    assert (len(bench.store.read), bench.store.said) == (1, ["gone"])
    late = StoreAway("slow")
    late.__cause__ = TimeoutError()
    bench.store.fails, bench.store.said = late, []
    assert await bench.answers.find(b"a") is None
    assert bench.store.said == ["late", "slow"]


async def test_a_client_that_left_does_not_keep_the_others_from_hearing(bench: Bench) -> None:
    made = bench.keep(b"b", 1000)
    left = asyncio.create_task(bench.answers.find(b"a"))
    other = asyncio.create_task(bench.answers.find(b"b"))
    await asyncio.sleep(0)
    left.cancel()
    assert await other == (made, S)


async def test_an_answer_is_written_with_its_end_and_the_room_of_all(bench: Bench) -> None:
    made = kept(bench.clock)
    bench.answers.put(b"\x01", OWNER, made, 2 * S + 1)
    await bench.written()
    ((names, data, ttl_ms, most),) = bench.store.put
    assert names == [ANSWERS, ANSWER_SIZES, f"{ANSWER}01"]
    assert (ttl_ms, most) == (2000, 999)
    assert msgspec.msgpack.decode(data, type=KeptAnswer) == made
    bench.answers.put(b"\x01", OWNER, made, MS - 1)  # over before it is there
    await bench.written()
    assert len(bench.store.put) == 1
    bench.store.state = "away"
    bench.answers.put(b"\x01", OWNER, made, S)
    assert (bench.answers._waiting_bytes, bench.answers.dropped) == (0, 0)


async def test_only_so_many_bytes_wait_to_be_written(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = kept(bench.clock)
    size = len(msgspec.msgpack.encode(made))
    monkeypatch.setattr(module, "MOST_WAITING_BYTES", 2 * size)
    for key in (b"a", b"b", b"c"):
        bench.answers.put(key, OWNER, made, S)
    assert (bench.answers.dropped, bench.answers._waiting_bytes) == (1, 2 * size)
    await bench.written()
    assert (len(bench.store.put), bench.answers._waiting_bytes) == (2, 0)


async def test_an_answer_that_cannot_be_written_is_dropped(bench: Bench) -> None:
    bench.store.fails = StoreAway("gone")
    bench.answers.put(b"a", OWNER, kept(bench.clock), S)
    await bench.written()
    assert (bench.answers.dropped, bench.store.said) == (1, ["gone"])
    full = StoreAway("no memory")
    full.refused = True
    bench.store.fails, bench.store.said = full, []
    bench.answers.put(b"a", OWNER, kept(bench.clock), S)
    await bench.written()
    assert (bench.answers.dropped, bench.store.said) == (2, [])  # it is there, without room
