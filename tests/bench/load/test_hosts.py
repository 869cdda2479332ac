"""Load from other hosts: their clocks are compared, every instant is put on ours, nothing is lost.

A host is a process in a time namespace of its own, whose monotonic clock really is another one; or
the actor of a Ray node, without Ray.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from bench.load.test_drive import Desk, jobs
from lightgate import __version__
from lightgate.bench.load.drive import Driven, Driving, Finished
from lightgate.bench.load.hosts import HostClock, HostPlace, Ping, host_of
from lightgate.bench.load.processes import CHILD, LoadProcesses, drive_processes, processes_for
from lightgate.bench.load.ray_hosts import (
    CarriedHost,
    HostActor,
    HostGone,
    check_hosts,
    place_of,
)
from lightgate.bench.load.shape import Constant, parse_rate
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.source import SYSTEM
from lightgate.errors import LightgateError
from lightgate.ledger.runs.hosts import HostHealth, worst_of

if TYPE_CHECKING:
    from bench.conftest import Serve

MS = 1_000_000
S = 1000 * MS


def ping(asked: int, told: int, answered: int, wall: int = 0) -> Ping:
    return Ping(asked, told, told + 7 * S, answered, answered + wall)


def test_the_quickest_answer_says_how_clocks_differ() -> None:
    slow, quick = ping(0, 900 * S, 40 * MS), ping(S, 901 * S + 3 * MS, S + 2 * MS)
    clock = HostClock.of([slow, quick, ping(2 * S, 905 * S, 2 * S + 9 * MS)])
    assert (clock.offset_ns, clock.bound_ns) == (900 * S + 2 * MS, 1 * MS)
    assert clock.ours(clock.theirs(12345)) == 12345


@pytest.mark.parametrize("there", [0, 1, 999, 1000])  # when the question was read, of 1,000
def test_an_offset_is_never_more_wrong_than_its_bound(there: int) -> None:
    true = 777_777
    clock = HostClock.of([Ping(5_000, 5_000 + there + true, 0, 6_000, 0)])
    assert abs(clock.offset_ns - true) <= clock.bound_ns == 500


def test_all_instants_move_and_no_duration_does() -> None:
    marks = Marks(plan=10)
    marks.send, marks.headers, marks.headers_since = 20, 25, 0
    marks.dns_ns, marks.dispatch_lag_ns = 3, 4
    marks.burst(30, 29, 1, 1)
    marks.burst(40, 0, 1, 1)
    HostClock(1000, 1, 0, 0).put_marks(marks)
    assert (marks.plan, marks.send, marks.headers, marks.first, marks.last) == (
        -990, -980, -975, -970, -960,
    )  # fmt: skip
    assert (marks.headers_since, marks.last_since) == (0, 0)  # nobody watched
    assert (list(marks.burst_ns), list(marks.burst_since_ns)) == ([-970, -960], [-971, 0])
    assert (marks.dns_ns, marks.dispatch_lag_ns, marks.event) == (3, 4, None)
    driven = HostClock(5, 1, 0, 0).put_driven(
        Driven(begin_ns=6, stopped_ns=7, ended_ns=8, started=1)
    )
    assert (driven.begin_ns, driven.stopped_ns, driven.ended_ns) == (1, 2, 3)


def test_a_drift_is_told_only_where_it_is_seen() -> None:
    first = HostClock(1000, 100, 0, 0)
    assert first.drift_ppm(HostClock(1150, 100, 0, 10 * S)) is None  # within the bounds
    assert first.drift_ppm(HostClock(3_001_000, 100, 0, 10 * S)) == pytest.approx(300)


def test_doubts_are_said() -> None:
    good = HostHealth(
        host="a", region="r", process=0, offset_ms=9e9, bound_ms=0.3, wall_offset_ms=5
    )
    assert good.doubts() == []
    bad = HostHealth(host="b", region="r", process=0, offset_ms=0, bound_ms=9, wall_offset_ms=-2000,
                     drift_ppm=-400, clock_steps=2)  # fmt: skip
    assert [line.split(" ", 3)[2] for line in bad.doubts()] == ["of", "of", "clock", "clock"]
    assert all("b" in line for line in bad.doubts())
    worse = HostHealth(host="a", region="r", process=0, offset_ms=1, bound_ms=2, wall_offset_ms=0)
    assert worst_of([good, worse, good, bad]) == (worse, bad)


def test_every_host_has_its_share() -> None:
    hosts = [carried(name, HostActor()) for name in "abc"]
    regions = [one.place.region for number in range(5) if (one := host_of(hosts, number))]
    assert regions == ["a", "b", "c", "a", "b"]
    assert host_of((), 3) is None
    assert processes_for(8, None, 3) == 3
    assert processes_for(5_000, None, 3) == 5
    assert processes_for(8, 6, 3) == 6


class ShiftedHost:
    """A host whose monotonic clock is `shift_s` ahead: a time namespace of the kernel."""

    def __init__(self, region: str, shift_s: int) -> None:
        self.place = HostPlace(f"host-{region}", region)
        self._shift_s = shift_s

    async def start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            "unshare", "--time", "--monotonic", str(self._shift_s), sys.executable, "-m", CHILD,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip


@pytest.fixture
def _namespaces() -> None:
    try:
        subprocess.run(["unshare", "--time", "true"], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("This machine does not let a test make time namespaces.")


@pytest.mark.usefixtures("_namespaces")
async def test_hosts_with_other_clocks_begin_together_and_are_put_on_ours(serving: Serve) -> None:
    hosts = (ShiftedHost("east", 5_000), ShiftedHost("west", 90_000))
    took: list[Finished] = []
    before = SYSTEM.now_ns()
    async with serving(Desk().script) as port:
        done = await drive_processes(
            jobs(port), Driving(concurrency=2, requests=24),
            LoadProcesses(processes=2, hosts=hosts), took.append,
        )  # fmt: skip
    after = SYSTEM.now_ns()
    assert len(took) == done.driven.started == 24
    assert {one.called.outcome for one in took} == {Outcome.OK}
    assert {one.region for one in took} == {"east", "west"}
    wall, now = SYSTEM.wall_ns(), SYSTEM.now_ns()
    for one in took:
        marks = one.marks
        assert marks.send is not None
        assert marks.end is not None
        assert before < marks.send < marks.end < after  # on our clock, hours apart before
        assert abs((wall - one.wall_ns) - (now - marks.send)) < 2 * S
    assert before < done.driven.begin_ns <= done.driven.ended_ns < after
    east, west = sorted(done.hosts, key=lambda host: host.region)
    assert west.offset_ms - east.offset_ms == pytest.approx(85_000_000, abs=500)
    first = {region: min(one.marks.send or 0 for one in took if one.region == region)
             for region in ("east", "west")}  # fmt: skip
    assert min(first.values()) >= done.driven.begin_ns - MS * (east.bound_ms + west.bound_ms)


@pytest.mark.usefixtures("_namespaces")
async def test_a_plan_is_kept_on_every_host(serving: Serve) -> None:
    hosts = (ShiftedHost("east", 5_000), ShiftedHost("west", 90_000))
    took: list[Finished] = []
    async with serving(Desk().script) as port:
        done = await drive_processes(
            jobs(port), Driving(requests=20), LoadProcesses(processes=2, hosts=hosts), took.append,
            Constant(parse_rate("100/s")),
        )  # fmt: skip
    planned = sorted((one.marks.plan or 0) - done.driven.begin_ns for one in took)
    bound = MS * sum(host.bound_ms for host in done.hosts)
    for number, offset in enumerate(planned):  # every 10 ms, whoever has it
        assert offset == pytest.approx(number * 10 * MS, abs=bound + 1000)


def carried(region: str, actor: Any) -> CarriedHost:
    """A host by its actor, as through Ray."""

    async def call(method: str, *arguments: Any) -> Any:
        return await getattr(actor, method)(*arguments)

    return CarriedHost(HostPlace(f"host-{region}", region), call)


async def test_actors_carry_the_pipes(serving: Serve) -> None:
    hosts = tuple(carried(name, HostActor()) for name in ("a", "b"))
    await check_hosts(hosts)
    took: list[Finished] = []
    async with serving(Desk().script) as port:
        done = await drive_processes(
            jobs(port), Driving(concurrency=4, requests=40),
            LoadProcesses(processes=3, hosts=hosts), took.append,
        )  # fmt: skip
    assert len(took) == len({one.job.id for one in took}) == 40
    assert {one.region for one in took} == {"a", "b"}
    assert done.lost == ()
    assert [host.process for host in done.hosts] == [0, 1, 2]


class DyingActor(HostActor):
    """An actor whose node goes away once its process has sent something."""

    async def pull(self, number: int) -> bytes:
        if len(self._processes) and getattr(self, "gone", False):
            raise HostGone("the node died")
        return await super().pull(number)

    async def push(self, number: int, data: bytes) -> None:
        await super().push(number, data)
        self.pushed = getattr(self, "pushed", 0) + 1
        if self.pushed > 40:
            self.gone = True
            await self.kill(number)


async def test_a_host_that_dies_is_counted_as_lost_and_the_others_go_on(serving: Serve) -> None:
    hosts = (carried("good", HostActor()), carried("bad", DyingActor()))
    took: list[Finished] = []
    async with serving(Desk().script) as port:
        done = await drive_processes(
            jobs(port), Driving(concurrency=4, requests=400),
            LoadProcesses(processes=2, hosts=hosts), took.append,
        )  # fmt: skip
    (lost,) = done.lost
    assert lost.process == 1
    assert len(took) + lost.unfinished == 400
    assert sum(one.region == "good" for one in took) > 100


async def test_another_version_is_refused() -> None:
    class Old(HostActor):
        async def facts(self) -> tuple[str, str, str]:
            return "0.0.1", "3.11", "old"

    with pytest.raises(LightgateError, match=f"has Lightgate 0.0.1, this machine {__version__}"):
        await check_hosts([carried("a", HostActor()), carried("b", Old())])

    class Empty(HostActor):
        async def facts(self) -> tuple[str, str, str]:
            raise HostGone("No module named 'lightgate'")

    with pytest.raises(LightgateError, match="No module named 'lightgate'"):
        await check_hosts([carried("a", Empty())])


def test_a_node_is_named_by_its_region_or_by_itself() -> None:
    node = {"NodeID": "abcdef012345", "NodeManagerHostname": "n1", "NodeManagerAddress": "10.0.0.1"}
    assert place_of(node) == HostPlace("n1-abcdef", "n1-abcdef")
    assert place_of({**node, "Labels": {"ray.io/region": "eu"}}) == HostPlace("n1-abcdef", "eu")


def test_without_ray_the_way_out_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    from lightgate.cli.main import main

    if "ray" in sys.modules or os.environ.get("RAY_ADDRESS"):
        pytest.skip("Ray is here.")
    words = ["bench", "x=http://127.0.0.1:9/v1#m", "--ray", "auto"]
    assert main(words) == 2
    assert "lightgate[ray]" in capsys.readouterr().err
    assert main([*words, "--turns", "3"]) == 2
    assert "--ray goes with single requests" in capsys.readouterr().err
