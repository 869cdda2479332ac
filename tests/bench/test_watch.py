from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import msgspec
import pytest

from lightgate.bench import watch as module
from lightgate.bench.simulated import targets
from lightgate.bench.watch import Watch
from lightgate.clock.outcome import Outcome
from lightgate.clock.timing import Timing
from lightgate.sim.listing import base_urls
from lightgate.sim.serve import Facts
from lightgate.sim.server import SimServer
from lightgate.sim.world import parse
from lightgate.wire.client import Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from bench.conftest import Shape
    from lightgate.bench.loop import Done
    from lightgate.provider.target import Target

    Measure = Callable[[Shape], Done]

WORLD = {
    "name": "quick",
    "title": "Answers at once",
    "source": "the tests",
    "providers": {
        name: {
            "dialect": name,
            "models": {
                "plain": {"exact": {"ttft_ms": 1, "gap_ms": 1}, "shape": {"tokens": 4}},
                "broken": {
                    "exact": {"ttft_ms": 1, "gap_ms": 0},
                    "faults": [{"name": "status", "arg": "503", "share": 1.0}],
                },
            },
        }
        for name in ("openai", "anthropic", "gemini")
    },
}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = Client(stamp="read")
    yield client
    await client.close()


@pytest.fixture
def watch(client: Client, new_target: Callable[[int], Target]) -> Watch:
    return Watch(client, [new_target(1)], visitors=1, seed=1)


def put(watch: Watch, number: int, *, ttft_ms: float = 100.0) -> None:
    timing = Timing(ttft_ms=ttft_ms, speed_tps=50.0, speed_total_tps=40.0, stall_ms=9.0, e2e_ms=500)
    for _ in range(number):
        watch._tracks["x/m"].timings.append(timing)


async def test_a_target_that_nobody_has_visited(watch: Watch) -> None:
    (row,) = watch.rows()
    assert (row.target, row.n, row.inflight, row.failures) == ("x/m", 0, 0, 0)
    assert (row.ttft_p50_ms, row.speed_p50_tps, row.e2e_p50_ms, row.grade) == (None,) * 4
    assert row.recent_ttft_ms == ()


async def test_a_quantile_needs_its_samples(watch: Watch) -> None:
    put(watch, 5)
    (row,) = watch.rows()
    assert (row.ttft_p50_ms, row.speed_p50_tps, row.grade) == (None, None, None)
    assert len(row.recent_ttft_ms) == 5
    put(watch, 1)
    (row,) = watch.rows()
    assert (row.ttft_p50_ms, row.speed_p50_tps, row.e2e_p50_ms) == (100.0, 50.0, 500)
    assert row.grade == "4"
    assert (row.ttft_p95_ms, row.speed_slow5_tps, row.stall_p95_ms) == (None, None, None)
    put(watch, 66)
    (row,) = watch.rows()
    assert (row.ttft_p95_ms, row.speed_slow5_tps, row.stall_p95_ms) == (100.0, 50.0, 9.0)


async def test_failures_are_counted_and_kept_out_of_the_numbers(
    watch: Watch, measured: Measure, shape: type[Shape]
) -> None:
    track = watch._tracks["x/m"]
    for outcome in (Outcome.OK, Outcome.EMPTY):
        done = measured(shape(outcome=outcome))
        module._note(track, done.marks, done.called)
    (row,) = watch.rows()
    assert row.n == 2
    assert len(row.recent_ttft_ms) == 1


async def test_the_fastest_comes_first(client: Client, new_target: Callable[[int], Target]) -> None:
    names = ("a/m", "b/m", "c/m")
    rows = [msgspec.structs.replace(new_target(1), name=name) for name in names]
    watch = Watch(client, rows, visitors=1, seed=1)
    for name, ttft_ms in (("b/m", 50.0), ("c/m", 20.0)):
        for _ in range(6):
            watch._tracks[name].timings.append(Timing(ttft_ms=ttft_ms))
    assert [row.target for row in watch.rows()] == ["c/m", "b/m", "a/m"]


async def test_visits_to_a_world_of_three_dialects(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MEAN_PAUSE_S", 0.001)
    world = parse(WORLD, "quick")
    server = SimServer(world, seed=1)
    port = await server.start()
    facts = Facts(
        port=port,
        host="127.0.0.1",
        pid=1,
        world="quick",
        seed=1,
        providers=base_urls(world, "127.0.0.1", port, {}),
        trouble_ports={},
    )
    watch = Watch(client, targets(facts, world), visitors=2, seed=1)
    visiting = asyncio.ensure_future(watch.run())
    async with asyncio.timeout(20):
        while any(row.n < 2 for row in watch.rows()):
            await asyncio.sleep(0.005)
    visiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await visiting
    await server.close()
    rows = {row.target: row for row in watch.rows()}
    assert len(rows) == 6
    for name, row in rows.items():
        assert row.inflight == 0
        assert row.failures == (row.n if name.endswith("broken") else 0), row.last_error
        assert ("503" in (row.last_error or "")) == name.endswith("broken")
