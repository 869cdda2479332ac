"""The console's application: the registry of what exists, and what each page is made of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from lightgate.clock.source import SYSTEM
from lightgate.console.guard import METHODS, REPORT_POLICY, Access, Guard, Terms
from lightgate.console.meters import Reading, exposition
from lightgate.console.speeds import live_speeds
from lightgate.console.totals import KnownNames
from lightgate.errors import LightgateError
from lightgate.gateway.process.lock import read_state
from lightgate.gateway.served.snapshot import read_snapshot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from lightgate.clock.source import Clock
    from lightgate.console.clerk import Clerk
    from lightgate.console.totals import Totals
    from lightgate.ledger.store.store import Ledger

    Page = Callable[["Desk", Request], Awaitable[Response]]

STALE_S: Final = 30.0  # without a whole pass over the journals for so long it is not ready
REPORT_DAYS: Final = 14
_STATIC: Final = resources.files("lightgate.console") / "static"
_KINDS: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_encode: Final = msgspec.json.Encoder(decimal_format="string").encode


class Desk(NamedTuple):
    """What the pages look at."""

    ledger: Ledger
    clerk: Clerk
    totals: Totals
    data: Path
    clock: Clock = SYSTEM


class Entry(NamedTuple):
    """A route of the registry; what has no entry does not exist."""

    path: str
    access: Access
    page: Page


async def live(desk: Desk, request: Request) -> Response:
    """Whether the process answers."""
    del desk, request
    return JSONResponse({"live": True})


async def ready(desk: Desk, request: Request) -> Response:
    """Whether what workers write reaches the ledger."""
    del request
    lag_s = desk.clerk.lag_s()
    well = lag_s is not None and lag_s < STALE_S
    return JSONResponse({"ready": well, "ship_lag_s": lag_s}, status_code=200 if well else 503)


async def metrics(desk: Desk, request: Request) -> Response:
    """Prometheus' text."""
    del request
    return Response(
        await run_in_threadpool(_exposition, desk),
        media_type="text/plain; version=0.0.4; charset=utf-8",
    )


async def speeds(desk: Desk, request: Request) -> Response:
    """The live speeds as JSON."""
    del request
    found = await run_in_threadpool(live_speeds, desk.ledger, desk.clock.wall_ns())
    return Response(_encode(found), media_type="application/json")


async def report(desk: Desk, request: Request) -> Response:
    """The speed report of the last two weeks, as `lightgate report` writes it."""
    by = request.query_params.get("by", "model")
    if by not in {"model", "provider", "target"}:
        return PlainTextResponse("A report is by model, provider or target.\n", status_code=400)
    text = await run_in_threadpool(_report, desk, by)
    return Response(
        text, media_type="text/html", headers={"content-security-policy": REPORT_POLICY}
    )


async def front(desk: Desk, request: Request) -> Response:
    """The page of live speeds."""
    del desk, request
    return Response((_STATIC / "page.html").read_bytes(), media_type="text/html")


async def static(desk: Desk, request: Request) -> Response:
    """A file that belongs to the page: the registry names each of them."""
    del desk
    name = request.url.path.rpartition("/")[2]
    return Response((_STATIC / name).read_bytes(), media_type=_KINDS[name.rpartition(".")[2]])


REGISTRY: Final = (
    Entry("/", "reader", front),
    Entry("/api/speeds", "reader", speeds),
    Entry("/health/live", "open", live),
    Entry("/health/ready", "open", ready),
    Entry("/metrics", "reader", metrics),
    Entry("/report", "reader", report),
    Entry("/static/icon.svg", "reader", static),
    Entry("/static/page.css", "reader", static),
    Entry("/static/page.js", "reader", static),
)


def build_app(desk: Desk, terms: Terms) -> ASGIApp:
    """The routes of the registry behind the guard."""
    routes = [Route(entry.path, _bound(entry.page, desk), methods=METHODS) for entry in REGISTRY]
    app = Starlette(routes=routes, exception_handlers={LightgateError: _failed})
    registry: dict[str, Access] = {entry.path: entry.access for entry in REGISTRY}
    return Guard(app, registry=registry, terms=terms)


def _bound(page: Page, desk: Desk) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return await page(desk, request)

    return endpoint


async def _failed(request: Request, error: Any) -> Response:
    del request
    return PlainTextResponse(f"{error.message}\n", status_code=503)


def _exposition(desk: Desk) -> bytes:
    desk.totals.look(desk.ledger, desk.clock.wall_ns(), known(desk.data))
    clerk, state = desk.clerk, read_state(desk.data)
    with desk.totals.lock:
        return exposition(Reading(desk.totals, clerk.totals, clerk.failures, clerk.lag_s(), state))


def known(data: Path) -> KnownNames:
    """The names that may be labels, from the snapshot in force."""
    try:
        return KnownNames(read_snapshot(data))
    except LightgateError:
        return KnownNames(None)


def _report(desk: Desk, by: str) -> str:
    from lightgate.ledger.store.queries import speed_rows
    from lightgate.report.pages.speed_page import speed_report_html
    from lightgate.report.tables.speed_report import Asked

    until = datetime.fromtimestamp(desk.clock.wall_ns() // 1_000_000_000, UTC)
    last = timedelta(days=REPORT_DAYS)
    since = until - last
    asked = msgspec.convert(
        {"by": by, "since": f"{since:%Y-%m-%dT%H:%M:%SZ}", "until": f"{until:%Y-%m-%dT%H:%M:%SZ}"},
        Asked,
    )
    return speed_report_html(speed_rows(desk.ledger, last, asked.by, until), asked)
