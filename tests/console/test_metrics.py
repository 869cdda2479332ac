from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ledger.notes import T0
from lightgate.config.load import parse_config
from lightgate.console.meters import METERS
from lightgate.console.totals import BOUNDS_S, KnownNames, Totals
from lightgate.gateway.process.lock import ChildState, DataFolderLock, SupervisorState
from lightgate.gateway.served.resolve import make_snapshot
from lightgate.gateway.served.snapshot import put_snapshot, read_snapshot

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


async def test_what_is_counted(get: Get, console: ConsoleContext, traffic: Traffic) -> None:
    traffic(10)
    traffic(3, ok=False)
    console.ship_loop.work()
    told = samples((await get("/metrics")).text)
    place = ("lab", "s1")
    assert told["lightgate_attempts_total"] == {(*place, "ok"): 10, (*place, "reset"): 3}
    assert told["lightgate_tokens_total"][*place, "input"] == 120
    assert told["lightgate_tokens_total"][*place, "output"] == 40
    assert told["lightgate_cost_usd_total"][place] == pytest.approx(13 * 1500e-9)
    assert told["lightgate_exchanges_total"] == {("lab/s1", "ok"): 10, ("lab/s1", "failed"): 3}
    assert told["lightgate_shipped_notes_total"][()] == 14  # the first note opens the journal
    assert told["lightgate_info"]


async def test_the_histograms(get: Get, console: ConsoleContext, traffic: Traffic) -> None:
    traffic(10)
    console.ship_loop.work()
    told = samples((await get("/metrics")).text)
    name = "gen_ai_server_time_to_first_token_seconds"
    assert told[f"{name}_count"]["lab", "s1"] == 10
    assert told[f"{name}_sum"]["lab", "s1"] == pytest.approx(1.03, rel=0.01)
    counts = [told[f"{name}_bucket"]["lab", "s1", f"{bound:g}"] for bound in BOUNDS_S["ttft_ms"]]
    assert counts == sorted(counts)
    assert told[f"{name}_bucket"]["lab", "s1", "0.08"] == 0
    assert told[f"{name}_bucket"]["lab", "s1", "0.25"] == 10
    assert told[f"{name}_bucket"]["lab", "s1", "+Inf"] == 10
    for other in ("gen_ai_client_operation_duration_seconds", "lightgate_overhead_seconds"):
        assert told[f"{other}_count"]["lab", "s1"] == 10


async def test_counters_only_grow_and_begin_with_the_process(
    ledger: Ledger, console: ConsoleContext, traffic: Traffic, tmp_path: Path
) -> None:
    traffic(5)
    console.ship_loop.work()
    known = KnownNames(read_snapshot(tmp_path))
    totals = Totals()
    totals.begin(ledger, console.clock.wall_ns())
    totals.look(ledger, console.clock.wall_ns(), known)
    assert not totals.outcomes
    traffic(2)
    console.ship_loop.work()
    for _ in range(3):  # looking again counts nothing twice
        totals.look(ledger, console.clock.wall_ns(), known)
    assert sum(totals.outcomes.values()) == 2
    from lightgate.ledger.store.retention import Keep, prune

    prune(ledger, Keep(raw_days=0, fine_days=0, rollup_days=0), now=lambda: T0 + 10**15)
    totals.look(ledger, console.clock.wall_ns(), known)
    assert sum(totals.outcomes.values()) == 2
    assert totals.times["ttft_ms", known.labels("lab/s1")].counts[-1] == 2


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
    answer = await get("/metrics")
    after = samples(answer.text)
    assert {name: set(series) for name, series in before.items()} == {
        name: set(series) for name, series in after.items()
    }
    assert after["lightgate_attempts_total"]["lab", "other", "ok"] == 301
    assert after["lightgate_attempts_total"]["other", "other", "ok"] == 301
    assert after["lightgate_attempts_total"]["lab", "priced", "ok"] == 1
    known = KnownNames(read_snapshot(tmp_path))
    places = {known.labels(f"lab/{number}") for number in range(10_000)}
    assert len(places | {known.labels(f"{number}/m") for number in range(10_000)}) == 2


async def test_children_are_told(get: Get, console: ConsoleContext) -> None:
    worker = ChildState(name="worker-0", pid=1, ready=True, restarts=2)
    other = ChildState(name="console", pid=None, ready=False, restarts=0)
    state = SupervisorState(pid=1, version="1", started="", host="h", port=1, console_host="h",
                  console_port=2, children=(worker, other))  # fmt: skip
    with DataFolderLock(console.data) as folder:
        folder.write(state)
        told = samples((await get("/metrics")).text)
    assert told["lightgate_child_up"] == {("worker-0",): 1, ("console",): 0}
    assert told["lightgate_child_restarts_total"] == {("worker-0",): 2, ("console",): 0}


async def test_every_metric_of_the_table_is_served_with_its_labels(
    get: Get, console: ConsoleContext, traffic: Traffic
) -> None:
    traffic(2)
    console.ship_loop.work()
    with DataFolderLock(console.data) as folder:
        folder.write(
            SupervisorState(pid=1, version="1", started="", host="h", port=1, console_host="h",
                  console_port=2, children=(ChildState(name="c", pid=1, ready=True, restarts=0),))
        )  # fmt: skip
        text = (await get("/metrics")).text
    served = {}
    for family in text_string_to_metric_families(text):
        labels = {name for sample in family.samples for name in sample.labels} - {"le"}
        name = f"{family.name}_total" if family.type == "counter" else family.name
        served[name] = (family.type, labels, family.documentation)
    assert served == {m.name: (m.kind, set(m.labels), m.means) for m in METERS}


def test_every_metric_has_its_row() -> None:
    lines = PAGE.read_text("utf-8").splitlines()
    found = [line for line in lines if line.startswith("| `")]
    expected = [
        f"| `{m.name}` | {m.kind} | {', '.join(f'`{label}`' for label in m.labels) or 'none'} |"
        f" {m.means} |"
        for m in METERS
    ]
    assert found == expected
