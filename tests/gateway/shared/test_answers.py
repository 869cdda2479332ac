"""Answers that machines share: found by another, never by another key, within their room."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec
import pytest

from gateway.shared.test_counters import CENT, crowd, join, key
from lightgate.clock.outcome import Outcome
from lightgate.clock.source import SYSTEM
from lightgate.gateway.cache.memory import (
    AnswerEnding,
    KeepTerms,
    KeptAnswer,
    MemoryCache,
    Owner,
)
from lightgate.gateway.shared.answers import SharedAnswerStore
from lightgate.gateway.shared.scripts import ANSWER, ANSWER_SIZES, ANSWERS, EPOCH
from lightgate.route.prompt.cache_key import CacheRule
from redis_server import RedisServer

if TYPE_CHECKING:
    from gateway.shared.conftest import Machine, Machines

RULE = CacheRule(mode="exact", ttl_ns=60_000_000_000, store="shared")
FINE = AnswerEnding(200, Outcome.OK, terminal=True)
OWNER = Owner("key", "model")


def answer(body: bytes = b"hello") -> KeptAnswer:
    return KeptAnswer(
        streamed=False, body=body, cuts=(len(body),), times_us=(5,), target="lab/plain",
        tokens_in=1, tokens_out=2, cost_nano=3, took_ns=4, kept_ns=SYSTEM.wall_ns(),
    )  # fmt: skip


class Cache:
    """The memory of a worker with the store behind it."""

    def __init__(self, machine: Machine, most_bytes: int = 1_000_000) -> None:
        self.tier = SharedAnswerStore(machine.store, most_bytes=most_bytes)
        self.memory = MemoryCache()
        self.memory.shared_tier = self.tier

    async def keep(self, name: bytes, kept: KeptAnswer, rule: CacheRule = RULE) -> None:
        self.memory.keep(name, kept, FINE, OWNER, KeepTerms(rule, SYSTEM.now_ns(), 0.0))
        if self.tier._writer is not None:
            await self.tier._writer

    async def find(self, name: bytes, rule: CacheRule = RULE) -> KeptAnswer | None:
        return await self.memory.find(name, rule, SYSTEM.now_ns(), 0.0)


async def test_an_answer_of_one_machine_is_found_by_another(machines: Machines) -> None:
    one, other = machines(2)
    here, there = Cache(one), Cache(other)
    await join([one, other])
    kept = answer()
    await here.keep(b"a", kept)
    assert await there.find(b"a") == kept
    assert await there.find(b"b") is None  # another virtual key: the cache key begins with it
    found = await asyncio.gather(*(there.tier.find(b"a") for _ in range(100)))
    assert all(each is not None and each[0] == kept for each in found)
    assert all(each is not None and each[1] <= RULE.ttl_ns for each in found)


@pytest.mark.parametrize("store", ["memory", "ledger"])
async def test_other_models_share_nothing(
    machines: Machines, redis: RedisServer, store: str
) -> None:
    one = machines(1)[0]
    here = Cache(one)
    await join([one])
    rule = msgspec.structs.replace(RULE, store=store)
    await here.keep(b"a", answer(), rule)
    assert redis.command("EXISTS", ANSWERS) == b":0\r\n"


async def test_all_answers_together_have_their_room_and_those_that_end_first_go_first(
    machines: Machines, redis: RedisServer
) -> None:
    one, other = machines(2)
    here, there = Cache(one, 5_000), Cache(other, 5_000)
    await join([one, other])
    for number in range(10):
        await here.keep(bytes((number,)), answer(bytes(1000)))
    found = [await there.find(bytes((number,))) is not None for number in range(10)]
    assert found == [False] * 7 + [True] * 3
    kept = redis.command("HGET", ANSWER_SIZES, "all").split(b"\r\n")[1]
    assert 3_000 < int(kept) <= 5_000
    assert redis.command("ZCARD", ANSWERS) == b":3\r\n"
    await here.keep(b"large", answer(bytes(6_000)))
    assert await there.find(b"large") is None
    assert await there.find(bytes((9,))) is not None


async def test_what_is_no_answer_and_what_has_ended_is_not_found(
    machines: Machines, redis: RedisServer
) -> None:
    one = machines(1)[0]
    here = Cache(one)
    await join([one])
    redis.command("SET", ANSWER + b"a".hex(), "not msgpack")
    assert await here.find(b"a") is None
    await here.keep(b"b", answer())
    redis.command("ZADD", ANSWERS, "1", ANSWER + b"b".hex())
    assert await here.tier.find(b"b") is None


@pytest.mark.parametrize("ahead_ns", [2 * RULE.ttl_ns, -2 * RULE.ttl_ns])
async def test_an_answer_ends_by_the_clock_of_the_store(machines: Machines, ahead_ns: int) -> None:
    """The clock of the machine that has kept it is ahead, or behind."""
    one, other = machines(2)
    here, there = Cache(one), Cache(other)
    await join([one, other])
    kept = msgspec.structs.replace(answer(), kept_ns=SYSTEM.wall_ns() + ahead_ns)
    await here.keep(b"a", kept)
    found = await there.tier.find(b"a")
    assert found is not None
    assert found[0] == kept
    assert 0 < found[1] <= RULE.ttl_ns


async def test_without_the_store_the_memory_answers_and_nothing_waits(machines: Machines) -> None:
    one = machines(1)[0]
    here = Cache(one)
    await here.keep(b"a", answer())
    assert await here.find(b"a") is not None
    assert await here.find(b"b") is None
    await join([one])
    one.store.lost("cut off")
    asked = asyncio.create_task(here.tier.find(b"a"))
    await asyncio.sleep(0)
    assert asked.done()


async def test_a_store_that_dies_while_it_is_read_is_a_miss(
    machines: Machines, redis: RedisServer
) -> None:
    one = machines(1)[0]
    here = Cache(one)
    await join([one])
    redis.command("CLIENT", "KILL", "TYPE", "normal")
    assert await here.tier.find(b"a") is None
    assert one.store.problem
    await join([one])
    assert await here.tier.find(b"a") is None


async def test_answers_leave_half_of_a_small_server_to_budgets(
    machines: Machines, redis: RedisServer
) -> None:
    del redis  # it says where no program is there
    record = key(budget_usd=Decimal(1))
    with RedisServer("--maxmemory", "16mb") as small:
        small.command("SET", EPOCH, "1")
        one, other = machines(2, record, url=small.url)
        here, there = Cache(one, 256_000_000), Cache(other)
        await join([one, other])
        for number in range(20):
            await here.keep(bytes((number,)), answer(bytes(1_000_000)))
        assert here.tier.dropped == 0
        assert await there.find(bytes((0,))) is None
        assert await there.find(bytes((19,))) is not None
        await join([one, other])
        assert one.store.problem == ""
        assert await crowd([one, other], record, 20, nano_usd=CENT) == {"": 20}
        for machine in (one, other):
            await machine.close()
