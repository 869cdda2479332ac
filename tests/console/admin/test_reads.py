"""What the pages Keys and Health are told: spend, budgets, workers, breakers, configuration."""

from __future__ import annotations

import json
import os
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from console.admin.test_orders import Browser
from ledger.notes import T0, attempt_note, settled
from lightgate.console.admin.health import CONFIG_FILE, ConfigInForce, ConfigValue, _lag_p99_ms
from lightgate.gateway.exchange.load import LAG_BOUNDS_NS
from lightgate.gateway.process.gauges import FOLDER, WorkerGauges
from lightgate.gateway.process.lock import ChildState, DataFolderLock, SupervisorState
from lightgate.gateway.served.key_desk import KeyDesk
from lightgate.ledger.audit import Author
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.store.keys import KeyTerms

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lightgate.console.app import ConsoleContext

DAY_NS = 86_400 * 10**9
ME = Author("cli", "me")


@pytest.fixture
async def browser(console: ConsoleContext) -> Browser:
    made = Browser(console)
    await made.sign_in()
    return made


async def told(browser: Browser, path: str, status: int = 200) -> Any:
    answer = await browser("GET", path)
    assert answer.status == status, answer.text
    return json.loads(answer.text) if status == 200 else answer.text


@pytest.fixture
def keys(console: ConsoleContext) -> dict[str, str]:
    """Two keys with spend on two days, of two models and with tags; and requests without a key."""
    desk = KeyDesk(console.ledger, console.data, console.clock)
    terms = (
        KeyTerms(name="app", budget_usd=Decimal(1), budget_period="day"),
        KeyTerms(name="etl"),
    )
    ids = {one.name: desk.create(one, ME).record.id for one in terms}
    journal = Journal(console.data / "journal", 0)
    rows = (
        ("app", "fast", '{"team":"search"}', 0, 3_000_000), ("app", "big", "x, y", 0, 5_000_000),
        ("app", "fast", '{"team":"search"}', 1, 7_000_000), ("etl", "fast", None, 0, 11_000_000),
        (None, "fast", None, 0, 13_000_000),
    )  # fmt: skip
    for number, (key, model, tags, days, nano) in enumerate(rows):
        wall_ns = T0 - days * DAY_NS
        note = attempt_note(f"r{number}", wall_ns=wall_ns, cost_nano=nano)
        journal.write(
            settled(
                f"r{number}", note, key_id=ids.get(key or ""), model_asked=model, tags=tags,
                wall_ns=wall_ns, cost_nano=nano, loser_cost_nano=1_000_000 if number == 0 else None,
            )
        )  # fmt: skip
    journal.close()
    assert console.ship_loop.work()
    return ids


async def test_keys_with_what_they_have_spent(browser: Browser, keys: dict[str, str]) -> None:
    found = await told(browser, "/api/keys")
    assert found["open"] is False
    app, etl = found["rows"]
    assert (app["name"], etl["name"]) == ("app", "etl")
    assert Decimal(app["spent_usd"]) == Decimal("0.009")  # of today: its budget begins every day
    assert Decimal(etl["spent_usd"]) == Decimal("0.011")
    assert [Decimal(one) for one in app["days"][-2:]] == [Decimal("0.007"), Decimal("0.009")]
    assert len(app["days"]) == 14
    assert app["last_used"] is not None
    assert (await told(browser, "/api/keys?state=revoked"))["rows"] == []
    await told(browser, "/api/keys?state=lost", 400)
    assert keys["app"] == app["id"]


@pytest.mark.parametrize(
    ("by", "today"),
    [
        ("key", {"app": "0.009", "etl": "0.011", "(no key)": "0.013"}),
        ("model", {"fast": "0.028", "big": "0.005"}),
        ("tag", {"team=search": "0.004", "x": "0.005", "y": "0.005", "(no tag)": "0.024"}),
    ],
)
async def test_spend_by_day(
    browser: Browser, keys: dict[str, str], by: str, today: dict[str, str]
) -> None:
    found = await told(browser, f"/api/spend?by={by}")
    last = max(row["day"] for row in found["rows"])
    sums = {
        row["group"]: Decimal(row["cost_usd"]) + Decimal(row["loser_cost_usd"])
        for row in found["rows"]
        if row["day"] == last
    }
    assert sums == {name: Decimal(text) for name, text in today.items()}
    assert {row["day"] for row in found["rows"]} == {last, found["rows"][0]["day"]}
    assert found["from_rows"] is (by == "tag")
    assert found["searched_to"] is None
    assert len((await browser("GET", f"/api/spend.csv?by={by}")).text.splitlines()) == 1 + len(
        found["rows"]
    )
    assert keys


async def test_spend_of_one_key_has_its_budget(browser: Browser, keys: dict[str, str]) -> None:
    for by in ("model", "tag"):
        found = await told(browser, f"/api/spend?by={by}&key={keys['app']}")
        assert sum(Decimal(row["loser_cost_usd"]) for row in found["rows"]) == Decimal("0.001")
        assert "(no tag)" not in {row["group"] for row in found["rows"]}
        (budget,) = found["budgets"]
        assert (budget["name"], budget["budget_usd"], budget["budget_period"]) == (
            "app", "1", "day",
        )  # fmt: skip
        assert Decimal(budget["spent_usd"]) == Decimal("0.009")
    await told(browser, "/api/spend?from=-200d", 400)


async def test_without_a_key_the_gateway_is_open(browser: Browser) -> None:
    assert (await told(browser, "/api/keys"))["open"] is True


# Health


@pytest.fixture
def up(console: ConsoleContext) -> Iterator[Path]:
    """Files of a gateway whose second worker does not serve, and whose first holds a target."""
    data = console.data
    gauges = WorkerGauges(
        worker=0, pid=os.getpid(), at_ns=console.clock.now_ns(), exchanges=3,
        in_flight={"lab/s1": 2, "lab/s2": 1}, breakers={"lab/s2": "open", "lab/s3": "half_open"},
        lags=(90, 9, 1, *(0,) * (len(LAG_BOUNDS_NS) - 2)), lag_total_ns=100_000_000, waiting=4,
        refused={"invalid_api_key": 2},
    )  # fmt: skip
    (data / FOLDER).mkdir()
    (data / FOLDER / "0.json").write_bytes(msgspec.json.encode(gauges))
    children = (
        ChildState(name="worker-0", pid=os.getpid(), ready=True, restarts=0),
        ChildState(name="worker-1", pid=None, ready=False, restarts=2),
    )
    with DataFolderLock(data) as folder:
        folder.write(
            SupervisorState(
                pid=os.getpid(), version="9.9", started="2026-11-16T00:00:00Z", host="127.0.0.1",
                port=8080, console_host="127.0.0.1", console_port=8081, children=children,
            )
        )  # fmt: skip
        yield data


async def test_health(browser: Browser, up: Path) -> None:
    console = browser.console
    console.ship_loop.work()
    found = await told(browser, "/api/health")
    assert (found["version"], found["gateway"], found["well"]) == ("9.9", "127.0.0.1:8080", False)
    assert found["problems"] == [
        "worker-1 does not serve now.", "The breaker of lab/s2 is open.",
        "The breaker of lab/s3 is half open.",
    ]  # fmt: skip
    (worker,) = found["workers"]
    assert (worker["in_flight"], worker["attempts"], worker["waiting"]) == (3, 3, 4)
    assert (worker["lag_p99_ms"], worker["lag_mean_ms"]) == (LAG_BOUNDS_NS[1] / 1e6, 1.0)
    assert worker["resident_bytes"] > 1_000_000
    targets = {row["target"]: row for row in found["targets"]}
    assert list(targets) == ["lab/s2", "lab/s3", "lab/s1"]  # the worst first
    assert (targets["lab/s1"]["breaker"], targets["lab/s1"]["in_flight"]) == ("closed", 2)
    assert [one["restarts"] for one in found["processes"]] == [0, 2]
    assert found["journal"]["lag_s"] == 0
    assert found["ledger"]["bytes"] > 0
    assert found["console_refused"] == {}
    await browser("GET", "/nothing")
    assert (await told(browser, "/api/health"))["console_refused"] == {"404": 1}
    assert up.name


async def test_health_without_a_gateway(browser: Browser) -> None:
    found = await told(browser, "/api/health")
    assert found["problems"] == [
        "No `lightgate up` runs on this data folder.",
        "The journals of the workers do not reach the ledger.",
    ]
    assert (found["workers"], found["started"], found["journal"]["lag_s"]) == ([], None, None)


@pytest.mark.parametrize(
    ("lags", "bound"),
    [
        ((), None),
        ((0, 0), None),
        ((99, 1), 0),
        ((98, 2), 1),
        ((0,) * len(LAG_BOUNDS_NS) + (5,), None),
    ],
)
def test_the_lag_that_99_of_100_kept(lags: tuple[int, ...], bound: int | None) -> None:
    assert _lag_p99_ms(lags) == (None if bound is None else LAG_BOUNDS_NS[bound] / 1e6)


async def test_the_configuration(browser: Browser, tmp_path: Path) -> None:
    nothing = await told(browser, "/api/config")
    assert (nothing["file"], nothing["rows"]) == (None, [])
    rows = [
        ConfigValue(key="gateway.port", value="1", source="flag --port"),
        ConfigValue(key="gateway.host", value="127.0.0.1", source="default"),
        ConfigValue(key="providers.lab.auth", value="bearer", source="catalogue"),
        ConfigValue(key="models.x.race", value="2", source="lightgate.toml:3"),
    ]
    kept = ConfigInForce(as_of="2026-11-16T00:00:00Z", file="lightgate.toml", rows=rows)
    (tmp_path / CONFIG_FILE).write_bytes(msgspec.json.encode(kept))
    found = await told(browser, "/api/config")
    assert (len(found["rows"]), found["file"]) == (4, "lightgate.toml")
    changed = await told(browser, "/api/config?only=changed&x=1")
    assert [row["key"] for row in changed["rows"]] == ["gateway.port", "models.x.race"]
    assert changed["ignored"] == ["x"]
    (tmp_path / CONFIG_FILE).write_bytes(b"{")
    assert (await told(browser, "/api/config"))["rows"] == []
