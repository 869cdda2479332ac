"""What a worker has learned under another snapshot, its load by the clock, and its gauges."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lightgate.gateway.exchange.load import (
    BEAT_S,
    BEATS,
    LAG_BOUNDS_NS,
    SAY_NS,
    STOOD_NS,
    Load,
)
from lightgate.gateway.exchange.state import Learned
from lightgate.gateway.process.gauges import GaugeFile, WorkerGauges, read_gauges
from lightgate.gateway.request.refusal import Refusing
from lightgate.gateway.served.snapshot import LoadTerms
from lightgate.ledger.store.keys import KeyTerms, new_key

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.conftest import Start
    from own_time import OwnTime

MS = 1_000_000


async def test_another_snapshot_has_other_rules_and_priors(start: Start) -> None:
    rig = await start('[models.m]\ntargets = ["lab/plain"]\n')
    learned, served = rig.state.learned, rig.state.served
    learned.unstreamable.add("lab/plain")
    used: list[Any] = []
    learned.breakers = SimpleNamespace(use=used.append)  # type: ignore[assignment]
    learned.forms = SimpleNamespace(use=used.append)  # type: ignore[assignment]
    learned.use(served)
    assert used == [served.terms.breaker, served.priors]
    assert not learned.unstreamable
    fresh = Learned(served)
    assert (fresh.asked_ns, fresh.spent_nano, fresh.overbilled) == (0, 0, set())


async def test_what_was_paid_is_counted_for_the_share_of_probes(start: Start) -> None:
    rig = await start()
    assert (await rig.chat("lab/plain")).status == 200
    await rig.until(lambda: len(rig.settled()) == 1)
    paid = rig.settled()[0].exchange.cost_nano
    assert paid
    assert rig.state.learned.spent_nano == paid
    assert (await rig.chat("lab/plain")).status == 200
    await rig.until(lambda: len(rig.settled()) == 2)
    assert rig.state.learned.spent_nano == 2 * paid


async def test_what_has_no_price_counts_for_nothing(start: Start) -> None:
    rig = await start()
    assert (await rig.chat("lab/mixed")).status == 200
    await rig.until(lambda: len(rig.settled()) == 1)
    assert rig.settled()[0].exchange.cost_nano is None
    assert rig.state.learned.spent_nano == 0


async def test_a_beat_is_late_by_what_passed_after_it_was_due(own: OwnTime) -> None:
    late: list[int] = []

    class Watched(Load):
        def beat(self, lag_ns: int) -> None:
            late.append(lag_ns)

    load = Watched(own.now_ns)
    watching = asyncio.create_task(load.watch())
    await asyncio.sleep(0.31)
    watching.cancel()
    assert len(late) == 6
    assert all(0 <= one < 5 * MS for one in late)
    assert BEAT_S == 0.05


@pytest.mark.parametrize("place", range(len(LAG_BOUNDS_NS) + 1))
def test_beats_are_counted_by_how_late_they_were(place: int) -> None:
    load = Load(lambda: 7)
    low = -1 if place == 0 else LAG_BOUNDS_NS[place - 1]
    load.beat(low + 1)
    if place < len(LAG_BOUNDS_NS):
        load.beat(LAG_BOUNDS_NS[place])
    expected = [0] * (len(LAG_BOUNDS_NS) + 1)
    expected[place] = 2 if place < len(LAG_BOUNDS_NS) else 1
    assert load.lags == expected
    assert load.lag_ns == (LAG_BOUNDS_NS[place] if place < len(LAG_BOUNDS_NS) else low + 1)


def test_a_lag_is_never_below_nothing_and_adds_up() -> None:
    load = Load(lambda: 7)
    for lag in (-5, 3 * MS, 4 * MS):
        load.beat(lag)
    assert (load.lag_total_ns, load.lag_ns) == (7 * MS, 4 * MS)


def test_a_loop_that_stood_blames_nobody_for_what_passed_meanwhile() -> None:
    now = [100]
    load = Load(lambda: now[0])
    assert not load.stood_since(0)
    load.beat(STOOD_NS)
    assert not load.stood_since(0)
    load.beat(STOOD_NS + 1)
    assert [load.stood_since(at) for at in (99, 100)] == [True, False]


def test_a_worker_that_is_behind_says_so_once_in_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0]
    load = Load(lambda: now[0])
    for passed in (0, SAY_NS - 1, SAY_NS):
        now[0] = passed
        seen = []
        for lag in (*[100 * MS] * BEATS, *[100 * MS + 1] * BEATS, 50 * MS, 50 * MS - 1):
            load.beat(lag)
            seen.append((load.behind, load.picky))
        # more than 100 ms in every beat, until one is below 50
        assert seen == [(False, False)] * 7 + [(True, True)] * 2 + [(False, False)]
    assert caplog.messages == ["The worker is 100 ms behind; new requests get 503"] * 2


def test_limits_on_requests_under_way_of_all_and_of_a_key() -> None:
    load, key = Load(lambda: 0), new_key(KeyTerms(name="me"))[1]

    def refused(under_way: int) -> tuple[int, str] | None:
        try:
            load.check(under_way, key)
        except Refusing as refusing:
            return refusing.refusal.status, refusing.refusal.code
        return None

    assert (load.picky, refused(10**9)) == (False, None)
    load.use(LoadTerms(requests=3))
    assert load.picky
    assert [refused(2), refused(3), refused(4)] == [None, *[(503, "overloaded")] * 2]
    load.use(LoadTerms(requests_per_key=2))
    assert load.picky
    load.began(key)
    assert refused(0) is None
    load.began(key)
    assert refused(0) == (429, "concurrency")
    load.check(0, None)  # without a key there is no limit of it
    load.began(None)
    load.ended(None)
    load.ended(key)
    assert (refused(0), load.keys) == (None, {key.id: 1})
    load.ended(key)
    load.ended(key)  # one that was there before the limit
    assert load.keys == {}
    assert load.shed == {"lag": 0, "requests": 2, "key_requests": 1}
    load.use(LoadTerms())
    assert not load.picky


def gauged(data: Path) -> tuple[GaugeFile, WorkerGauges]:
    """A file of gauges of a worker that is played, and what it should hold."""
    form = SimpleNamespace(in_flight=2)
    forms = SimpleNamespace(by_target={"a/m": form, "b/m": SimpleNamespace(in_flight=0)})
    state: Any = SimpleNamespace(
        worker=4,
        store=None,
        now_ns=lambda: 77,
        exchanges={1, 2, 3},
        load=SimpleNamespace(lags=[1, 2], lag_total_ns=9, shed={"lag": 5}),
        learned=SimpleNamespace(
            forms=forms, breakers=SimpleNamespace(states=lambda now: {"c/m": "open"})
        ),
        cache=SimpleNamespace(memory=type("Memory", (), {"size": 60, "__len__": lambda _: 6})()),
        journal=SimpleNamespace(place=lambda: ("4-x.lgj", 800), waiting=[1, 2]),
        refused={"method": 8},
        turns=SimpleNamespace(long={"read": 3}),
        client=SimpleNamespace(open_connections=11),
    )
    crowd = SimpleNamespace(refused={"connections": 6}, connections=12, body_bytes=13)
    door: Any = SimpleNamespace(crowd=crowd)
    expected = WorkerGauges(
        worker=4,
        pid=os.getpid(),
        at_ns=77,
        place=1,
        exchanges=3,
        in_flight={"a/m": 2},
        breakers={"c/m": "open"},
        lags=(1, 2),
        lag_total_ns=9,
        shed={"lag": 5, "connections": 6},
        refused={"method": 8},
        turns={"read": 3},
        connections=12,
        provider_connections=11,
        body_bytes=13,
        journal="4-x.lgj",
        journal_bytes=800,
        waiting=2,
        cache_answers=6,
        cache_bytes=60,
    )
    return GaugeFile(data, state, door, place=1), expected


def test_the_gauges_of_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, expected = gauged(tmp_path / "a")
    assert read_gauges(tmp_path / "a") == []
    for _ in range(2):
        file.write(file.content())
    path = tmp_path / "a" / "gauges" / f"4-{os.getpid()}.json"
    assert read_gauges(tmp_path / "a") == [(path, expected)]
    assert msgspec.json.decode(file.content(), type=WorkerGauges) == expected
    (tmp_path / "a" / "gauges" / "broken.json").write_text("{")
    assert read_gauges(tmp_path / "a") == [(path, expected)]
    path.unlink()
    path.mkdir()  # it cannot be replaced: the metrics get older, and nothing is left behind
    file.write(b"{}")
    assert not (tmp_path / "a" / "gauges" / "4.new").exists()


async def test_learned_bounds_are_kept_of_a_bounded_number_of_models(start: Start) -> None:
    learned = (await start('[models.m]\ntargets = ["lab/plain"]\n')).state.learned
    tiers = (("simple", ("lab/plain",)), (None, ("lab/plain",)))
    alias: Any = SimpleNamespace(name="m", tiers=tiers)
    first = learned.bounds_of(alias)
    assert learned.bounds_of(alias) is first
    assert learned.bounds_of(SimpleNamespace(name="m", tiers=tiers[1:])) is not first  # type: ignore[arg-type]
    for number in range(4094):
        learned.bounds_of(SimpleNamespace(name=f"m{number}", tiers=tiers))  # type: ignore[arg-type]
    assert learned.bounds_of(alias) is first
    learned.bounds_of(SimpleNamespace(name="one more", tiers=tiers))  # type: ignore[arg-type]
    assert learned.bounds_of(alias) is not first
