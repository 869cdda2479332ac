from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as open_metrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from ledger.notes import MS, attempt_note, settled
from lightgate.config.load import parse_config
from lightgate.console import workers
from lightgate.console.labels import MOST, LabelNames
from lightgate.console.meter_list import METERS
from lightgate.console.totals import FIRST_TOKEN_S, MOST_KEYS, Totals
from lightgate.console.workers import ProcessFacts
from lightgate.gateway.exchange.load import LAG_BOUNDS_NS
from lightgate.gateway.process.gauges import FOLDER, WorkerGauges, read_gauges
from lightgate.gateway.process.lock import ChildState, DataFolderLock, SupervisorState
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import put_snapshot

if TYPE_CHECKING:
    from console.conftest import Get, Traffic
    from lightgate.console.app import ConsoleContext
    from lightgate.ledger.store.store import Ledger

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "prometheus.md"
CONFIG = """
[providers.lab]
base_url = "http://127.0.0.1:1/v1"
api_key = "none"
[models.fast]
targets = ["lab/s1"]
policy = "ordered"
[prices."lab/priced"]
input = 1
output = 2
"""
PLACE = ("lab", "s1")
BEATS = len(LAG_BOUNDS_NS) + 1


@pytest.fixture(autouse=True)
def snapshot(tmp_path: Path) -> None:
    put_snapshot(tmp_path, make_snapshot(parse_config(CONFIG), (), {}))


def samples(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Values by sample and label values."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def gauge_file(data: Path, console: ConsoleContext, **changes: Any) -> None:
    """What a worker leaves for the console."""
    given = {"worker": 0, "pid": 11, "at_ns": console.clock.now_ns(), **changes}
    (data / FOLDER).mkdir(exist_ok=True)
    path = data / FOLDER / f"{given['worker']}-{given['pid']}.json"
    path.write_bytes(msgspec.json.encode(WorkerGauges(**given)))


def supervisor(*children: ChildState) -> SupervisorState:
    return SupervisorState(
        pid=1, version="1", started="", host="h", port=1, console_host="h", console_port=2,
        children=children,
    )  # fmt: skip


async def test_what_is_counted(get: Get, console: ConsoleContext, traffic: Traffic) -> None:
    traffic(10)
    traffic(3, ok=False)
    console.ship_loop.work()
    told = samples((await get("/metrics")).text)
    assert told["lightgate_attempts_total"] == {(*PLACE, "ok"): 10, (*PLACE, "reset"): 3}
    assert told["lightgate_tokens_total"][*PLACE, "input"] == 120
    assert told["lightgate_tokens_total"][*PLACE, "output"] == 40
    assert told["lightgate_cost_usd_total"][PLACE] == pytest.approx(13 * 1500e-9)
    assert told["lightgate_exchanges_total"] == {("lab/s1", "ok"): 10, ("lab/s1", "failed"): 3}
    assert told["lightgate_shipped_notes_total"][()] == 14  # the first note opens the journal
    assert told["lightgate_info"]


async def test_the_histograms(get: Get, console: ConsoleContext, traffic: Traffic) -> None:
    traffic(10)
    console.ship_loop.work()
    told = samples((await get("/metrics")).text)
    name = "gen_ai_server_time_to_first_token_seconds"
    chat = ("chat", *PLACE)
    assert told[f"{name}_count"][chat] == 10
    assert told[f"{name}_sum"][chat] == pytest.approx(1.03, rel=0.01)
    counts = [told[f"{name}_bucket"][*chat, str(bound)] for bound in FIRST_TOKEN_S]
    assert counts == sorted(counts)
    assert told[f"{name}_bucket"][*chat, "0.08"] == 0
    assert told[f"{name}_bucket"][*chat, "0.25"] == 10
    assert told[f"{name}_bucket"][*chat, "+Inf"] == 10
    assert told["gen_ai_client_operation_duration_seconds_count"][chat] == 10
    # Four bursts of a token each, 10 ms apart: three tokens in 30 ms.
    per_token = "gen_ai_server_time_per_output_token_seconds"
    assert told[f"{per_token}_sum"][chat] == pytest.approx(0.1)
    assert told[f"{per_token}_bucket"][*chat, "0.01"] == 10
    assert told["lightgate_speed_tokens_per_second_sum"][PLACE] == pytest.approx(1000)
    assert told["gen_ai_client_token_usage_sum"][*chat, "input"] == 120
    assert told["gen_ai_client_token_usage_bucket"][*chat, "output", "4.0"] == 10
    assert told["lightgate_overhead_seconds_count"][PLACE] == 10


def totals(data: Path) -> Totals:
    return Totals(LabelNames(data))


async def test_hedges_races_and_losers(tmp_path: Path) -> None:
    counted = totals(tmp_path)
    won = attempt_note("x-1", role="hedge", won=True)
    lost = attempt_note("x-1", role="primary", won=False, id="x-1.0")
    racers = [attempt_note("x-2", role="racer", won=at == 1, id=f"x-2.{at}") for at in range(3)]
    counted.take([settled("x-1", lost, won), settled("x-2", *racers)])
    of = counted.targets[counted.names.target("lab/s1")]
    assert of.roles["hedge", "true"] == 1
    assert (of.roles["racer", "true"], of.roles["racer", "false"]) == (1, 2)
    assert of.cost_nano == 5 * 1500
    assert of.loser_nano == 3 * 1500
    assert of.speed.cumulative()[-1] == 2  # what no client got says nothing about a speed


async def test_the_cache_and_probes(tmp_path: Path) -> None:
    counted = totals(tmp_path)
    for at, use in enumerate(("hit", "hit", "miss", "join", "off")):
        counted.take([settled(f"x-{at}", cache=use)])
    counted.take([settled("x-9", policy="probe", key_id=None)])
    assert counted.shared == {("fast", "hit"): 2, ("fast", "miss"): 1, ("fast", "join"): 1}
    assert counted.exchanges == {("fast", "ok"): 5}  # a probe is no request of a client


async def test_keys_are_told_by_their_ids_and_there_are_only_so_many(
    tmp_path: Path, ledger: Ledger
) -> None:
    counted = totals(tmp_path)
    counted.begin(ledger)
    for at in range(MOST_KEYS + 30):
        counted.take([settled(f"x-{at}", key_id=f"key-{at}", cost_nano=5, loser_cost_nano=2)])
    assert len(counted.key_nano) == MOST_KEYS + 1
    assert counted.key_nano["key-0"] == 7
    assert counted.key_nano["other"] == 30 * 7
    counted.take([settled("y", key_id="key-3", cost_nano=5)])
    assert counted.key_nano["key-3"] == 12  # for ever its own series


async def test_the_dearest_keys_have_their_series_from_the_start(
    tmp_path: Path, ledger: Ledger, traffic: Traffic, console: ConsoleContext
) -> None:
    traffic(1)
    console.ship_loop.work()
    counted = totals(tmp_path)
    counted.begin(ledger)
    assert counted.key_nano == {"k-1": 0}


async def test_counters_begin_with_the_process_and_count_nothing_twice(
    get: Get, console: ConsoleContext, traffic: Traffic
) -> None:
    traffic(2)
    console.ship_loop.work()
    console.ship_loop.work()
    told = samples((await get("/metrics")).text)
    assert told["lightgate_attempts_total"][*PLACE, "ok"] == 2
    assert (await get("/metrics")).text.count("lightgate_attempts_total{") == 1


async def test_what_a_client_makes_up_is_no_label(
    get: Get, console: ConsoleContext, traffic: Traffic, tmp_path: Path
) -> None:
    """10,000 names: the number of series stays the same."""
    traffic(1, target="lab/made-up")
    traffic(1, target="nobody/made-up")
    traffic(1, target="lab/priced")
    console.ship_loop.work()
    before = samples((await get("/metrics")).text)
    for number in range(300):
        traffic(1, target=f'lab/x"{number}\n')
        traffic(1, target=f"nobody-{number}/x")
    console.ship_loop.work()
    after = samples((await get("/metrics")).text)
    assert {name: set(series) for name, series in before.items()} == {
        name: set(series) for name, series in after.items()
    }
    assert after["lightgate_attempts_total"]["lab", "other", "ok"] == 301
    assert after["lightgate_attempts_total"]["other", "other", "ok"] == 301
    assert after["lightgate_attempts_total"]["lab", "priced", "ok"] == 1
    known = LabelNames(tmp_path)
    places = {known.target(f"lab/{number}") for number in range(10_000)}
    assert len(places | {known.target(f"{number}/m") for number in range(10_000)}) == 2


async def test_names_of_long_lists_are_labels_up_to_a_limit(tmp_path: Path) -> None:
    priced = "".join(f'[prices."lab/m{at}"]\ninput = 1\noutput = 2\n' for at in range(MOST + 20))
    put_snapshot(tmp_path, make_snapshot(parse_config(CONFIG + priced), (), {}))
    known = LabelNames(tmp_path)
    found = {known.target(f"lab/m{at}") for at in range(MOST + 20)}
    assert len(found) == MOST + 1
    assert known.target("lab/s1") == PLACE  # a target of the configuration always is
    assert known.target("lab/m3") == ("lab", "m3")
    assert len({known.model(f"lab/m{at}") for at in range(MOST + 20)}) == MOST + 1


async def test_a_scrape_reads_no_rows_of_the_ledger(
    get: Get, console: ConsoleContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many names clients have made up, the ledger is not asked."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a scrape asked the ledger")

    monkeypatch.setattr(type(console.ledger), "reading", refuse)
    monkeypatch.setattr(type(console.ledger), "writing", refuse)
    assert (await get("/metrics")).status == 200


async def test_workers_are_told(get: Get, console: ConsoleContext, tmp_path: Path) -> None:
    gauge_file(
        tmp_path, console, exchanges=3, in_flight={"lab/s1": 2, "lab/?": 1, "lab/!": 4},
        breakers={"lab/?": "open"}, shed={"lag": 2, "connections": 1}, refused={"budget": 5},
        lags=(*(0,) * (BEATS - 2), 1, 1), lag_total_ns=7_000_000_000, connections=9,
        turns={"translate": 4},
    )  # fmt: skip
    gauge_file(tmp_path, console, worker=1, pid=12, breakers={"lab/s1": "half_open"}, exchanges=1)
    told = samples((await get("/metrics")).text)
    assert told["lightgate_exchanges_under_way"] == {("0",): 3, ("1",): 1}
    assert told["lightgate_in_flight"] == {
        (*PLACE, "0"): 2, ("lab", "other", "0"): 5, (*PLACE, "1"): 0,
    }  # fmt: skip
    states = told["lightgate_breaker_workers"]
    assert states[*PLACE, "closed"] == states[*PLACE, "half_open"] == 1
    assert states[*PLACE, "open"] == 0
    assert states["lab", "other", "open"] == 1
    assert told["lightgate_shed_total"] == {("lag",): 2, ("connections",): 1}
    assert told["lightgate_refused_total"] == {("budget",): 5}
    assert told["lightgate_loop_long_turns_total"] == {("translate",): 4}
    assert told["lightgate_loop_lag_seconds_bucket"]["5.0", "0"] == 1
    assert told["lightgate_loop_lag_seconds_count"]["0",] == 2
    assert told["lightgate_loop_lag_seconds_sum"]["0",] == 7
    assert told["lightgate_connections"]["0",] == 9


async def test_a_worker_that_is_replaced_takes_nothing_away(
    get: Get, console: ConsoleContext, tmp_path: Path
) -> None:
    gauge_file(tmp_path, console, pid=11, shed={"lag": 5}, exchanges=2)
    assert samples((await get("/metrics")).text)["lightgate_shed_total"]["lag",] == 5
    gauge_file(tmp_path, console, pid=11, shed={"lag": 6}, exchanges=1)
    console.clock.advance(MS)  # type: ignore[attr-defined] # the tests' clock
    gauge_file(tmp_path, console, pid=12, shed={"lag": 1}, exchanges=3)
    both = samples((await get("/metrics")).text)
    assert both["lightgate_shed_total"]["lag",] == 7
    assert both["lightgate_exchanges_under_way"] == {("0",): 3}  # the first of them has died
    console.clock.advance(10_000 * MS)  # type: ignore[attr-defined] # the tests' clock
    gauge_file(tmp_path, console, pid=12, shed={"lag": 2}, exchanges=3)
    later = samples((await get("/metrics")).text)
    assert later["lightgate_shed_total"]["lag",] == 8
    assert later["lightgate_exchanges_under_way"] == {("0",): 3}
    console.clock.advance(60_000 * MS)  # type: ignore[attr-defined] # the tests' clock
    gone = samples((await get("/metrics")).text)
    assert gone["lightgate_shed_total"]["lag",] == 8
    assert "lightgate_exchanges_under_way" not in gone
    assert not list((tmp_path / FOLDER).glob("0-11.json"))


async def test_a_worker_and_its_successor_have_one_series(
    get: Get, console: ConsoleContext, tmp_path: Path
) -> None:
    """With every replacement the series went over to another number, and back with the next."""
    beats = {"lags": (1,) * BEATS, "lag_total_ns": 10**9}
    gauge_file(tmp_path, console, worker=0, place=0, pid=11, exchanges=1, in_flight={"lab/s1": 1},
               **beats)  # fmt: skip
    gauge_file(tmp_path, console, worker=1, place=0, pid=12, exchanges=3, in_flight={"lab/s1": 2},
               **beats)  # fmt: skip
    told = samples((await get("/metrics")).text)
    assert told["lightgate_exchanges_under_way"] == {("0",): 4}  # both are at work
    assert told["lightgate_in_flight"] == {(*PLACE, "0"): 3}
    assert told["lightgate_loop_lag_seconds_count"] == {("0",): 2 * BEATS}
    assert told["lightgate_loop_lag_seconds_sum"] == {("0",): 2}


async def test_an_older_look_that_ends_later_takes_nothing_back(
    console: ConsoleContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two scrapes at once: a counter went down, and up again with the next look."""
    gauge_file(tmp_path, console, shed={"lag": 5})
    console.workers.look()
    second = threading.Thread(target=console.workers.look)

    def overtaken(data: Path) -> Any:
        found = read_gauges(data)
        monkeypatch.setattr(workers, "read_gauges", read_gauges)
        gauge_file(tmp_path, console, shed={"lag": 6})
        second.start()
        second.join(0.5)  # it waits for this one; where it does not, it is done by now
        return found

    monkeypatch.setattr(workers, "read_gauges", overtaken)
    console.workers.look()
    second.join()
    assert console.workers.shed["lag"] == 6


async def test_a_file_that_cannot_be_read_for_once_is_counted_once(
    console: ConsoleContext, tmp_path: Path
) -> None:
    gauge_file(tmp_path, console, shed={"lag": 5})
    console.workers.look()
    path = tmp_path / FOLDER / "0-11.json"
    content = path.read_bytes()
    path.write_bytes(b"{")
    console.workers.look()
    path.write_bytes(content)
    console.workers.look()
    assert console.workers.shed["lag"] == 5


async def test_a_file_that_cannot_be_removed_stops_nothing(
    console: ConsoleContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "unlink", refuse)
    gauge_file(tmp_path, console, shed={"lag": 5})
    for _ in range(2):
        console.workers.look()
        console.clock.advance(61_000 * MS)  # type: ignore[attr-defined] # the tests' clock
    console.workers.look()
    assert (console.workers.shed["lag"], console.workers.now) == (5, [])


async def test_a_process_and_its_successor_are_one_child(
    get: Get, console: ConsoleContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While both ran, each name was there twice: Prometheus refuses such an answer."""
    spent = {21: 7.0, 22: 1.0}

    def facts(pid: int) -> ProcessFacts | None:
        return ProcessFacts(4, 100, 1000, spent[pid]) if pid in spent else None

    monkeypatch.setattr(console.workers, "_facts", facts)

    async def told(*pids: int) -> dict[str, Any]:
        children = [
            ChildState(name="worker-0", pid=pid, ready=pid == 21, restarts=2) for pid in pids
        ]
        with DataFolderLock(console.data) as folder:
            folder.write(supervisor(*children))
            text = (await get("/metrics")).text
        assert text.count('lightgate_child_up{child="worker-0"}') == 1
        assert text.count('lightgate_process_cpu_seconds_total{child="worker-0"}') == 1
        found = samples(text)
        name = ("worker-0",)
        return {
            "up": found["lightgate_child_up"][name],
            "again": found["lightgate_child_restarts_total"][name],
            "files": found.get("lightgate_process_open_fds", {}).get(name),
            "most": found.get("lightgate_process_max_fds", {}).get(name),
            "cpu": found["lightgate_process_cpu_seconds_total"][name],
        }

    assert await told(21) == {"up": 1, "again": 2, "files": 4, "most": 100, "cpu": 7}
    assert await told(21, 22) == {"up": 1, "again": 2, "files": 8, "most": 200, "cpu": 8}
    assert await told(22) == {"up": 0, "again": 2, "files": 4, "most": 100, "cpu": 8}
    spent[22] = 3.0
    assert (await told(22))["cpu"] == 10
    del spent[22]  # it could not be read this time, for want of a descriptor
    assert (await told(22))["cpu"] == 10
    spent[22] = 4.0
    assert (await told(22))["cpu"] == 11
    del spent[22]
    assert await told(22) == {"up": 0, "again": 2, "files": None, "most": None, "cpu": 11}


async def test_journals_that_wait(
    get: Get, console: ConsoleContext, traffic: Traffic, tmp_path: Path
) -> None:
    traffic(3)
    (journal,) = (tmp_path / "journal").iterdir()
    gauge_file(tmp_path, console, journal=journal.name, journal_bytes=traffic.written)
    told = samples((await get("/metrics")).text)
    assert told["lightgate_journal_waiting_bytes"][()] == traffic.written > 0
    console.ship_loop.work()
    told = samples((await get("/metrics")).text)
    assert told["lightgate_journal_waiting_bytes"][()] == 0


async def test_children_are_told(get: Get, console: ConsoleContext) -> None:
    worker = ChildState(name="worker-0", pid=os.getpid(), ready=True, restarts=2)
    other = ChildState(name="console", pid=None, ready=False, restarts=0)
    with DataFolderLock(console.data) as folder:
        folder.write(supervisor(worker, other))
        told = samples((await get("/metrics")).text)
    assert told["lightgate_child_up"] == {("worker-0",): 1, ("console",): 0}
    assert told["lightgate_child_restarts_total"] == {("worker-0",): 2, ("console",): 0}
    if sys.platform == "linux":
        assert told["lightgate_process_open_fds"]["worker-0",] > 3
        most = told["lightgate_process_max_fds"]["worker-0",]
        assert most == 0 or most >= told["lightgate_process_open_fds"]["worker-0",]
        assert told["lightgate_process_resident_memory_bytes"]["worker-0",] > 1_000_000
        assert told["lightgate_process_cpu_seconds_total"]["worker-0",] > 0


async def full(get: Get, console: ConsoleContext, traffic: Traffic, **headers: str) -> str:
    """The answer of a console that has something to say about every metric."""
    traffic(2)
    console.ship_loop.work()
    roles = [attempt_note("y", role=role, won=True, id=role) for role in ("hedge", "racer")]
    fell = attempt_note("y", role="fallback", won=False, id="fallback")
    console.totals.take([settled("y", *roles, fell, cache="hit")])
    gauge_file(
        console.data, console, in_flight={"lab/s1": 1}, shed={"lag": 1}, refused={"budget": 1},
        lags=(1,) * BEATS, turns={"read": 1},
    )  # fmt: skip
    with DataFolderLock(console.data) as folder:
        folder.write(supervisor(ChildState(name="c", pid=os.getpid(), ready=True, restarts=0)))
        return (await get("/metrics", **headers)).text


async def test_every_metric_of_the_table_is_served_with_its_labels(
    get: Get, console: ConsoleContext, traffic: Traffic
) -> None:
    served = {}
    for family in text_string_to_metric_families(await full(get, console, traffic)):
        labels = {name for sample in family.samples for name in sample.labels} - {"le"}
        name = f"{family.name}_total" if family.type == "counter" else family.name
        served[name] = (family.type, labels, family.documentation)
    assert served == {m.name: (m.kind, set(m.labels), m.means) for m in METERS}


async def test_open_metrics_where_it_is_asked_for(
    get: Get, console: ConsoleContext, traffic: Traffic
) -> None:
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    text = await full(get, console, traffic, accept=accept)
    answer = await get("/metrics", accept=accept)
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    told = {family.name for family in open_metrics_families(text)}  # type: ignore[no-untyped-call] # has no types
    plain = {m.name.removesuffix("_total").removesuffix("_info") for m in METERS}
    assert told == plain
    usual = await get("/metrics")
    assert usual.headers["content-type"].startswith("text/plain; version=0.0.4")


def test_every_metric_has_its_row() -> None:
    lines = PAGE.read_text("utf-8").splitlines()
    found = [line for line in lines if line.startswith("| `")]
    expected = [
        f"| `{m.name}` | {m.kind} | {', '.join(f'`{label}`' for label in m.labels) or 'none'} |"
        f" {m.means} |"
        for m in METERS
    ]
    assert found == expected
