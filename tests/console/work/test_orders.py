from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from lightgate.clock.source import SYSTEM
from lightgate.console.app import ConsoleContext, build_app
from lightgate.console.guard import ConsoleAccess
from lightgate.console.labels import LabelNames
from lightgate.console.ship_loop import ShipLoop
from lightgate.console.totals import Totals
from lightgate.console.traces import Traces
from lightgate.console.work.orders import MOST_BODY, WORK_ORDERS, WorkDesk
from lightgate.console.work.race_desk import MOST_RACES, RaceAsked
from lightgate.console.workers import Workers
from lightgate.ledger.audit import read_audit

if TYPE_CHECKING:
    from collections.abc import Callable

    from console.work.conftest import RaceRig, Track

SECRET = "open sesame"
BEARER: dict[str, Any] = {"authorization": f"Bearer {SECRET}"}
SPENDING = [one for one in WORK_ORDERS if one.access == "admin"]
ORDER = {"prompt": "How fast are you?", "lanes": ["lab/quick"], "max_tokens": 4}


class Sent:
    """What an application has answered so far."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def text(self) -> str:
        return b"".join(one.get("body", b"") for one in self.messages[1:]).decode()

    @property
    def frames(self) -> list[Any]:
        return [json.loads(part[6:]) for part in self.text.split("\n\n") if part]


def console_of(made: RaceRig) -> ConsoleContext:
    data = made.rig.data
    totals = Totals(LabelNames(data))
    totals.begin(made.ledger)
    work = WorkDesk(made.ledger, made.gateway, SYSTEM)
    work.races = made.desk
    return ConsoleContext(
        made.ledger, ShipLoop(made.ledger, data, prune=lambda: None), totals,
        Workers(data, SYSTEM), Traces(None), data, work=work,
    )  # fmt: skip


async def post(
    made: RaceRig,
    body: Any,
    path: str = "/api/races",
    method: str = "POST",
    left: Callable[[Sent], bool] = lambda _: False,
    **headers: str,
) -> Sent:
    """Send an order to the application; `left` says when the reader leaves."""
    app = build_app(console_of(made), ConsoleAccess("127.0.0.1", SECRET))
    fields = {"host": "127.0.0.1:8081", "content-type": "application/json", **headers}
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
        "method": method, "scheme": "http", "path": path, "raw_path": path.encode(),
        "query_string": b"", "root_path": "", "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8081),
        "headers": [(n.replace("_", "-").encode(), v.encode()) for n, v in fields.items()],
    }  # fmt: skip
    sent, given = Sent(), iter([{"type": "http.request", "body": raw, "more_body": False}])

    async def receive() -> Any:
        found = next(given, None)
        if found is not None:
            return found
        while not left(sent):
            await made.ship()
            await asyncio.sleep(0.05)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.messages.append(message)

    await app(scope, receive, send)
    return sent


async def test_a_race_over_http(track: Track) -> None:
    made = await track()
    got = await post(made, ORDER, **BEARER)
    assert got.status == 200
    assert got.frames[0]["lanes"] == ["lab/quick"]
    assert got.frames[-1]["results"][0]["outcome"] == "ok"
    assert made.desk.live.count == 0
    with made.ledger.reading() as connection:
        (entry,) = read_audit(connection)
    assert (entry.action, entry.via, entry.after) == (
        "race.start", "bearer",
        {"lanes": ["lab/quick"], "max_tokens": 4, "most_usd": "0.000025"},
    )  # fmt: skip


async def test_a_reader_who_leaves_ends_the_race(track: Track) -> None:
    made = await track()
    far = {**ORDER, "lanes": ["lab/far", "lab/early"]}
    got = await post(made, far, left=lambda sent: '"burst"' in sent.text, **BEARER)
    assert "results" not in got.text
    await made.rig.until(lambda: len(made.rig.settled()) == 2)
    assert not made.rig.exchanges
    assert made.desk.live.count == 0
    outcomes = {one.exchange.model_asked: one.exchange.outcome for one in made.rig.settled()}
    assert outcomes["lab/far"] == "cancelled"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "not JSON"),
        (b"[]", "Expected `object`"),
        ({**ORDER, "colour": 1}, "unknown field `colour`"),
        ({**ORDER, "lanes": "lab/quick"}, "Expected `array`"),
        ({**ORDER, "prompt": ""}, "Type a prompt"),
        ({**ORDER, "prompt": "x" * MOST_BODY}, "at most 262,144 bytes"),
    ],
)
async def test_an_order_that_is_wrong(track: Track, body: Any, says: str) -> None:
    made = await track()
    got = await post(made, body, **BEARER)
    assert got.status == 400
    assert says in got.text
    assert not made.rig.settled()


async def test_crowds_wait(track: Track) -> None:
    made = await track()
    made.desk.live.count = 3
    assert (await post(made, ORDER, **BEARER)).status == 429


async def test_races_that_are_ordered_at_once_are_counted_before_they_begin(
    track: Track, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them had been checked before the first was counted: any number began."""
    made = await track()
    known, all_asked = made.desk.check, threading.Barrier(MOST_RACES)

    def check(asked: RaceAsked) -> Any:
        all_asked.wait(20)  # so many wait at the same time
        return known(asked)

    monkeypatch.setattr(made.desk, "check", check)
    got = await asyncio.gather(*(post(made, ORDER, **BEARER) for _ in range(MOST_RACES + 2)))
    assert sorted(one.status for one in got) == [200] * MOST_RACES + [429] * 2
    assert made.desk.live.count == 0


async def test_a_race_that_is_refused_gives_its_place_back(track: Track) -> None:
    made = await track()
    for _ in range(MOST_RACES + 1):
        assert (await post(made, {**ORDER, "prompt": ""}, **BEARER)).status == 400
    assert made.desk.live.count == 0


@pytest.mark.parametrize("order", SPENDING, ids=lambda one: f"{one.method} {one.path}")
async def test_nobody_spends_without_a_credential_or_from_another_site(
    track: Track, order: Any
) -> None:
    made = await track()
    path = order.path.replace("{id}", "some-id")

    async def status(**headers: Any) -> int:
        got = await post(made, ORDER, path=path, method=order.method, **headers)
        return got.status

    basic = "Basic eDpvcGVuIHNlc2FtZQ=="  # x:open sesame
    assert await status() == 401
    assert await status(authorization="Bearer wrong") == 401
    assert await status(cookie="lightgate-8081=made-up") == 401
    assert await status(**BEARER, host="evil.example") == 403
    assert await status(**BEARER, origin="http://evil.example") == 403
    assert await status(**BEARER, sec_fetch_site="cross-site") == 403
    assert await status(authorization=basic) == 403  # a browser that does not say for which page
    assert await status(authorization=basic, sec_fetch_site="same-origin") not in {401, 403}
    got = await post(made, ORDER, path=path, method="PUT", **BEARER)
    assert got.status == 405


async def test_the_openapi_document_has_every_order(track: Track) -> None:
    made = await track()
    got = await post(made, b"", path="/api/openapi.json", method="GET", **BEARER)
    paths = json.loads(got.text)["paths"]
    for order in WORK_ORDERS:
        told = paths[order.path][order.method.lower()]
        assert told["summary"] == order.about
        assert ("requestBody" in told) is (order.order is not None)
        assert "401" in told["responses"]
    assert {one.path for one in SPENDING} == {"/api/races", "/api/runs", "/api/runs/{id}"}
