"""Limits of keys over several machines: what the store grants, and what each takes without it."""

from __future__ import annotations

import asyncio
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from gateway.shared.conftest import Machine, empty
from lightgate.clock.source import SYSTEM
from lightgate.gateway.shared import counters as counters_module
from lightgate.gateway.shared.counters import SharedCounters
from lightgate.gateway.shared.scripts import EPOCH, MEMBERS
from lightgate.gateway.spend.counter_file import CounterFileFailed
from lightgate.ledger.store.keys import KeyTerms, new_key

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.shared.conftest import Machines
    from lightgate.ledger.store.keys import KeyRecord
    from redis_server import RedisServer

CENT = 10_000_000  # nano-dollars


def key(**terms: object) -> KeyRecord:
    return new_key(KeyTerms(name="shared", **terms))[1]  # type: ignore[arg-type]


async def join(machines: list[Machine]) -> None:
    for machine in machines:
        await machine.beat()
        assert machine.store.state == "joined", machine.store.problem


async def crowd(machines: list[Machine], key: KeyRecord, count: int, **need: int) -> Counter[str]:
    asks = [machines[n % len(machines)].ask(key, **need) for n in range(count)]
    return Counter(await asyncio.gather(*asks))


async def test_a_budget_for_100_of_1000_at_once_over_four_machines_is_met_exactly(
    machines: Machines,
) -> None:
    record = key(budget_usd=Decimal(1))
    four = machines(4, record)
    await join(four)
    said = await crowd(four, record, 1000, nano_usd=CENT)
    assert said == {"": 100, "budget": 900}
    holder = max(four, key=lambda machine: machine.counters.own_part(record).held_nano)
    for _ in range(4):  # what a request did not take is another's again
        holder.counters.settle(record.id, CENT, 0, 0, 0)
    await holder.counters.tell()
    assert await crowd(four, record, 50, nano_usd=CENT) == {"": 4, "budget": 46}


async def test_only_a_key_with_limits_is_counted(machines: Machines) -> None:
    free, paid = key(), key(budget_usd=Decimal(1))
    (alone,) = machines(1, paid, free)
    assert (alone.counters.counts(paid.id), alone.counters.counts(free.id)) == (True, False)


async def test_a_machine_that_joins_is_let_in_at_once_by_the_one_that_was_alone(
    machines: Machines,
) -> None:
    """What the first might take alone is not kept back for it any more once there are two."""
    record = key(budget_usd=Decimal(1), rpm=1000)
    first, second = machines(2, record)
    await join([first])
    assert await first.ask(record, CENT) == ""
    await second.live.step()
    await first.live.beat()  # hears that there are two, and tells about its keys then
    assert first.store.members == 2
    await first.counters.tell()
    assert await crowd([second], record, 50, nano_usd=CENT) == {"": 50}


async def test_requests_and_tokens_of_a_minute_are_met_exactly(machines: Machines) -> None:
    often, long = key(rpm=100), key(tpm=1000)
    four = machines(4, often, long)
    await join(four)
    assert await crowd(four, often, 400) == {"": 100, "rpm": 300}
    assert await crowd(four, long, 400, tokens=10) == {"": 100, "tpm": 300}
    holder = max(four, key=lambda machine: machine.counters.own_part(long).held_tokens)
    for _ in range(25):  # half of what was reserved was not used
        holder.counters.settle(long.id, 0, 0, 10, 5)
    await holder.counters.tell()
    assert await crowd(four, long, 400, tokens=10) == {"": 12, "tpm": 388}


async def test_a_refusal_says_what_all_machines_have_left(machines: Machines) -> None:
    record = key(budget_usd=Decimal("0.03"), rpm=3)
    one, other = machines(2, record)
    await join([one, other])
    assert await one.ask(record, 2 * CENT) == ""
    denied = await other.counters.reserve(record, SYSTEM.wall_ns(), 0, 2 * CENT)
    assert denied is not None
    assert " left of its budget of $0.03" in denied.message
    left = other.counters.left_nano(record)  # less what the first might take without asking
    assert 0.95 * CENT < left < CENT
    standing = other.counters.standing(record.id)
    assert standing is not None
    assert (standing.held_nano, standing.requests) == (2 * CENT, 1)
    assert await other.ask(record, 0) == await one.ask(record, 0) == ""
    denied = await other.counters.reserve(record, SYSTEM.wall_ns(), 0, 0)
    assert denied is not None
    assert denied.reason == "rpm"
    assert 1 < denied.retry_after_s <= 60


async def test_nothing_is_counted_twice_or_forgotten_when_the_store_loses_its_data(
    machines: Machines, redis: RedisServer
) -> None:
    record = key(budget_usd=Decimal(1), rpm=1000)
    two = machines(2, record)
    await join(two)
    assert await crowd(two, record, 60, nano_usd=CENT) == {"": 60}
    two[0].counters.settle(record.id, 30 * CENT, 20 * CENT, 0, 0)
    await two[0].counters.tell()
    empty(redis)
    for machine in two:
        await machine.beat()
    standing = two[1].counters.standing(record.id)
    assert standing is not None
    assert (standing.spent_nano, standing.held_nano) == (20 * CENT, 30 * CENT)
    assert standing.requests == 60
    said = await crowd(two, record, 100, nano_usd=CENT)
    assert set(said) == {"", "budget"}
    assert 48 <= said[""] <= 50  # one may have an advance


async def test_what_a_machine_spent_before_its_restart_is_told_to_a_store_that_has_lost_it(
    machines: Machines, redis: RedisServer, tmp_path: Path
) -> None:
    record = key(budget_usd=Decimal(1))
    one, other = machines(2, record)
    await join([one, other])
    assert await crowd([one], record, 40, nano_usd=CENT) == {"": 40}
    one.counters.settle(record.id, 40 * CENT, 30 * CENT, 0, 0)
    await one.close()
    empty(redis)
    again = Machine(redis.url, "m0", tmp_path, (record,))
    await join([again, other])
    said = await crowd([other], record, 100, nano_usd=CENT)
    assert 64 <= said[""] <= 70  # the first one has an advance
    await again.close()


async def test_what_a_ledger_of_all_machines_knows_is_the_least_that_was_spent(
    machines: Machines, tmp_path: Path
) -> None:
    record = key(budget_usd=Decimal(1))
    two = machines(2, record)
    period = two[0].counters.own_part(record).period
    counters_module.write_known(tmp_path, {record.id: (period, 60 * CENT)})
    for machine in two:  # both were told the same sum, which counts once
        machine.counters.know_ledger(tmp_path)
    await join(two)
    assert await crowd(two, record, 100, nano_usd=CENT) == {"": 40, "budget": 60}


async def test_an_answer_that_cannot_be_read_leaves_nobody_waiting(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = key(budget_usd=Decimal(1))
    one = machines(1, record)[0]
    await join([one])
    monkeypatch.setattr(counters_module, "SPEND", "return 'nonsense'")
    assert (await crowd([one], record, 3, nano_usd=CENT))[""] == 1
    assert "cannot be read" in one.store.problem


async def test_a_machine_that_cannot_count_refuses_and_leaves_nobody_waiting(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = key(budget_usd=Decimal(1))
    one = machines(1, record)[0]
    await join([one])

    def fail(*_: object) -> None:
        raise CounterFileFailed("The counter file cannot grow: no space.")

    monkeypatch.setattr(SharedCounters, "own_part", fail)
    for _ in range(2):
        with pytest.raises(CounterFileFailed):
            await one.ask(record, CENT)
        one.store.lost("cut off")


async def test_a_request_whose_client_has_gone_holds_nothing(machines: Machines) -> None:
    record = key(budget_usd=Decimal("0.01"))
    one = machines(1, record)[0]
    await join([one])
    asked = asyncio.ensure_future(one.ask(record, CENT))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait({asked})
    assert one.counters.own_part(record).held_nano == 0
    assert await one.ask(record, CENT) == ""


async def test_a_store_that_has_lost_its_data_grants_nothing_until_all_have_told_theirs(
    machines: Machines, redis: RedisServer
) -> None:
    record = key(budget_usd=Decimal(1))
    two = machines(2, record)
    await join(two)
    assert await crowd(two, record, 80, nano_usd=CENT) == {"": 80}
    for machine in two:
        await machine.beat()
    redis.command("FLUSHALL")
    # Each takes up to its share of what was left: 20 cents for two.
    assert (await crowd([two[0]], record, 50, nano_usd=CENT))[""] <= 10
    assert (await crowd([two[1]], record, 50, nano_usd=CENT))[""] <= 10
    redis.command("SET", EPOCH, "1")
    for machine in two:
        await machine.beat()
    await crowd(two, record, 100, nano_usd=CENT)
    standing = two[0].counters.standing(record.id)
    assert standing is not None
    assert standing.held_nano <= 100 * CENT


async def test_a_worker_that_cannot_ask_takes_its_share_and_the_others_leave_it(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = key(budget_usd=Decimal(1), rpm=1000)
    four = machines(4, record)
    await join(four)
    await crowd(four, record, 4, nano_usd=CENT)
    for machine in four:
        await machine.beat()
    four[0].store.lost("cut off")
    # At first it takes its advance, or one request: the others may take all the rest.
    assert await crowd(four[:1], record, 100, nano_usd=CENT) == {"": 1, "share": 99}
    lane = four[1].live._lane
    await lane.run("ZINCRBY", MEMBERS, "-3000", four[0].store.member)
    later = SYSTEM.now_ns() + 3_000_000_000
    monkeypatch.setattr(four[0].store, "now_ns", lambda: later)
    # Once it has been silent for a while, its share is kept back for it.
    said = await crowd(four[1:], record, 300, nano_usd=CENT)
    assert 66 <= said[""] <= 72
    said = await crowd(four[:1], record, 100, nano_usd=CENT)
    assert 20 <= said[""] <= 24
    await four[0].store.join()
    await four[0].beat()
    standing = four[0].counters.standing(record.id)
    assert standing is not None
    assert 90 * CENT < standing.held_nano <= 100 * CENT


class _Ahead:
    """A clock that is a day ahead of the other machines' in wall time."""

    def now_ns(self) -> int:
        return SYSTEM.now_ns()

    def wall_ns(self) -> int:
        return SYSTEM.wall_ns() + 86_400_000_000_000


async def test_a_machine_whose_clock_is_ahead_leaves_the_others_what_it_has_spent(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = key(budget_usd=Decimal(1), budget_period="day")
    early, late = two = machines(2, record)
    await join(two)
    for machine in two:
        for _ in range(40):
            assert await machine.ask(record, CENT) == ""
            machine.counters.settle(record.id, CENT, CENT, 0, 0)
        await machine.beat()
    monkeypatch.setattr(early.counters, "_clock", _Ahead())
    for _ in range(10):  # of its new day
        assert await early.ask(record, CENT) == ""
        early.counters.settle(record.id, CENT, CENT, 0, 0)
    await early.beat()
    said = await crowd([late], record, 100, nano_usd=CENT)
    assert 15 <= said[""] <= 20
    assert said["budget"] == 100 - said[""]
