"""Form, in-flight counts and breakers of one machine, as the others hear of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.shared.test_counters import join
from lightgate.clock.source import SYSTEM
from lightgate.gateway.shared import live
from lightgate.gateway.shared.scripts import FORM, FORMS, LIVE, MEMBERS
from lightgate.route.health.failure import RATE_LIMITED, SERVER

if TYPE_CHECKING:
    import pytest

    from gateway.shared.conftest import Machine, Machines
    from redis_server import RedisServer

TARGET = "lab/plain"
SECOND = 1_000_000_000
AHEAD = 12_345 * SECOND  # of one machine's clock before the other's


def ahead(machine: Machine) -> None:
    """Put a machine's monotonic clock ahead: machines boot at different times."""
    machine.store.now_ns = lambda: SYSTEM.now_ns() + AHEAD


async def test_what_one_machine_has_measured_the_next_beat_of_another_knows(
    machines: Machines,
) -> None:
    one, other = machines(2)
    ahead(one)
    now = one.store.now_ns()
    for n in range(20):
        one.forms.first(TARGET, 0, now - (20 - n) * SECOND, 3 * SECOND)
    one.forms.finished(TARGET, now, 100, SECOND)
    await join([one, other])
    form = other.forms.form(TARGET)
    told = other.forms.predict(TARGET, 0, SYSTEM.now_ns())
    assert 2.5 < told.ttft_ns / SECOND < 3.5
    assert told.fresh > 0.9  # a sample of now, on the clock of this machine
    assert abs(form.last_ns + AHEAD - now) < 2 * SECOND  # the last sample is a second old
    assert 60 < told.speed_tps < 140


async def test_requests_in_flight_elsewhere_count_and_those_of_the_dead_do_not(
    machines: Machines,
) -> None:
    one, other = machines(2)
    ahead(one)
    for _ in range(7):
        one.forms.started(TARGET, one.store.now_ns())
    other.forms.started(TARGET, SYSTEM.now_ns())
    await join([one, other])
    assert 7 < other.forms.form(TARGET).flying(SYSTEM.now_ns()) <= 8
    later = SYSTEM.now_ns() + 4 * SECOND  # without another word of that machine
    other.forms.beside({}, later)
    assert other.forms.form(TARGET).flying(later) == 1


async def test_a_worker_of_the_same_machine_counts_by_its_file_alone(machines: Machines) -> None:
    one, other = machines(2)
    other.store.machine = one.store.machine
    one.forms.started(TARGET, one.store.now_ns())
    one.forms.first(TARGET, 0, one.store.now_ns(), SECOND)
    await join([one, other])
    assert TARGET not in other.forms.by_target


async def test_a_breaker_that_opened_rests_the_target_at_machines_that_had_no_answer(
    machines: Machines,
) -> None:
    one, idle, happy = machines(3)
    ahead(one)
    now = one.store.now_ns()
    for machine in (one, idle, happy):
        machine.forms.form(TARGET)
    for _ in range(3):
        one.breakers.failed(TARGET, now, SERVER, None, now)
    happy.breakers.succeeded(TARGET, SYSTEM.now_ns(), SYSTEM.now_ns())
    await join([one, idle, happy])
    assert one.breakers.states(one.store.now_ns()) == {TARGET: "open"}
    assert idle.breakers.states(SYSTEM.now_ns()) == {TARGET: "open"}
    assert happy.breakers.states(SYSTEM.now_ns()) == {}
    again = idle.breakers.opens_again_ns(TARGET) + AHEAD
    assert abs(again - one.breakers.opens_again_ns(TARGET)) < SECOND


async def test_a_hold_that_a_provider_asked_for_holds_everywhere(machines: Machines) -> None:
    one, other = machines(2)
    now = one.store.now_ns()
    other.forms.form(TARGET)
    other.breakers.succeeded(TARGET, now, now)
    one.breakers.failed(TARGET, now, RATE_LIMITED, 20.0, now)
    await join([one, other])
    assert other.breakers.states(SYSTEM.now_ns()) == {TARGET: "held"}
    assert 18 * SECOND < other.breakers.opens_again_ns(TARGET) - SYSTEM.now_ns() <= 20 * SECOND


async def test_what_cannot_be_read_is_passed_over(machines: Machines, redis: RedisServer) -> None:
    one = machines(1)[0]
    redis.command("ZADD", MEMBERS, "9999999999999", "broken:0")
    redis.command("SET", LIVE + "broken:0", "9999999999999:not msgpack")
    redis.command("SET", FORM + "broken:0", "9999999999999:not msgpack")
    await join([one])
    assert one.store.members == 2
    assert not one.forms.by_target


async def test_beside_forgets_those_that_say_nothing_and_changes_no_plan(
    machines: Machines,
) -> None:
    one = machines(1)[0]
    one.forms.form(TARGET)
    before = one.forms.version
    one.forms.beside({"x:0": (SECOND, {TARGET: 3})}, SECOND)
    assert one.forms.form(TARGET).flying(SECOND) == 3
    one.forms.beside({}, 10 * SECOND)
    assert one.forms.form(TARGET).flying(10 * SECOND) == 0
    assert one.forms.version == before


async def test_a_limit_in_flight_counts_the_requests_of_all_machines(machines: Machines) -> None:
    one = machines(1)[0]
    form = one.forms.form(TARGET)
    form.limit.refused(5, SECOND)  # four may be in flight
    one.forms.started(TARGET, SECOND)
    assert TARGET not in one.forms.crowded
    before = one.forms.version
    one.forms.beside({"x:0": (SECOND, {TARGET: 3})}, SECOND)
    assert TARGET in one.forms.crowded
    assert one.forms.version > before
    one.forms.beside({"x:0": (2 * SECOND, {TARGET: 2})}, 2 * SECOND)
    assert TARGET not in one.forms.crowded


async def test_a_worker_that_ends_is_gone_at_once(machines: Machines, redis: RedisServer) -> None:
    one, other = machines(2)
    await join([one, other])
    assert other.store.members == 2
    await one.live.leave()
    await other.live.step()
    assert other.store.members == 1
    assert b"m0" not in redis.command("KEYS", "*m0*")


async def test_form_of_more_machines_than_fit_into_a_beat_comes_in_the_next(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is passed over: what does not fit, or was told in the same instant, comes too."""
    monkeypatch.setattr(live, "MOST_FORMS", 3)
    *tellers, other = machines(9)
    await join(tellers)
    for number, machine in enumerate(tellers):
        machine.forms.first(f"lab/m{number}", 0, machine.store.now_ns() - SECOND, SECOND)
        machine.live._form_ns = 0
        await machine.beat()
    ties = [machine.store.member for machine in tellers[1:6]]  # one more than a beat's worth
    at = other.store.lane()
    await at.open()
    when = int(await at.run("ZSCORE", FORMS, ties[-1]))
    for member in ties:
        await at.run("ZADD", FORMS, str(when), member)
    heard = []
    for _ in range(4):
        await other.beat()
        heard.append(len(other.forms.by_target))
    assert heard[-1] == 8
    assert heard[0] < 8
