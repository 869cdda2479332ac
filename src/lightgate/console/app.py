"""The console's application: the registry of routes, and the content of each page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from lightgate.clock.source import SYSTEM
from lightgate.console.admin.guesses import WrongGuesses
from lightgate.console.admin.orders import ADMIN_ORDERS, AdminDesk
from lightgate.console.admin.sign_in import SignIns
from lightgate.console.admin.sources import AdminSources
from lightgate.console.api.pages import ApiPages, matched
from lightgate.console.guard import (
    METHODS,
    REPORT_POLICY,
    Access,
    ConsoleAccess,
    Credentials,
    Guard,
    reads,
)
from lightgate.console.site.endpoints import ENDPOINTS
from lightgate.console.site.pages import FILES, KINDS, PAGES, STATIC, page_html
from lightgate.console.work.orders import WORK_ORDERS, WorkDesk
from lightgate.console.work.own_gateway import OwnGateway
from lightgate.errors import LightgateError
from lightgate.gateway.process.lock import read_state
from lightgate.report.tables.speed_report import GROUPINGS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from lightgate.clock.source import Clock
    from lightgate.console.ship_loop import ShipLoop
    from lightgate.console.totals import Totals
    from lightgate.console.traces import Traces
    from lightgate.console.workers import Workers
    from lightgate.ledger.store.store import Ledger

    Page = Callable[["ConsoleContext", Request], Awaitable[Response]]

STALE_S: Final = 30.0  # without a whole pass over the journals for so long the console is not ready
REPORT_DAYS: Final = 14
_ENTER_FILES: Final = frozenset(("enter.js", "console.css", "icon.svg"))  # of the page /enter
ORDERS: Final = (*ADMIN_ORDERS, *WORK_ORDERS)
_PAGES: Final = {page.path: page for page in PAGES}


class ConsoleContext(NamedTuple):
    """The sources of the pages."""

    ledger: Ledger
    ship_loop: ShipLoop
    totals: Totals
    workers: Workers
    traces: Traces
    data: Path
    clock: Clock = SYSTEM
    notice: Callable[[], str] = lambda: ""  # what an operator should know, though all is well
    work: WorkDesk | None = None  # None: made with the application


class ConsoleRoute(NamedTuple):
    """A route of the registry; a path that is not there is answered with 404.

    A route that changes or spends something names its methods and has the access "admin".
    """

    path: str
    access: Access
    page: Page
    methods: tuple[str, ...] = METHODS


async def live(console: ConsoleContext, request: Request) -> Response:
    """Answer that the process is alive."""
    del console, request
    return JSONResponse({"live": True})


async def ready(console: ConsoleContext, request: Request) -> Response:
    """Answer whether the journals of the workers reach the ledger."""
    del request
    lag_s = console.ship_loop.lag_s()
    well = lag_s is not None and lag_s < STALE_S
    facts: dict[str, object] = {"ready": well, "ship_lag_s": lag_s}
    if console.ship_loop.problem:
        facts["ledger"] = console.ship_loop.problem
    notice = console.notice()
    if notice:
        facts["notice"] = notice
    return JSONResponse(facts, status_code=200 if well else 503)


async def metrics(console: ConsoleContext, request: Request) -> Response:
    """Answer with the metrics, in the format of Prometheus that the request asks for."""
    accept = request.headers.get("accept", "")
    text, kind = await run_in_threadpool(_exposition, console, accept)
    return Response(text, headers={"content-type": kind})


async def report(console: ConsoleContext, request: Request) -> Response:
    """Answer with the speed report of the last two weeks, as `lightgate report` writes it."""
    by = request.query_params.get("by", "model")
    if by not in GROUPINGS:
        said = f"A report is by {', '.join(GROUPINGS[:-1])} or {GROUPINGS[-1]}.\n"
        return PlainTextResponse(said, status_code=400)
    text = await run_in_threadpool(_report, console, by)
    return Response(
        text, media_type="text/html", headers={"content-security-policy": REPORT_POLICY}
    )


async def html_page(console: ConsoleContext, request: Request) -> Response:
    """Answer with a page; its scripts ask the API for what it shows."""
    del console
    return Response(page_html(_PAGES[request.url.path]), media_type="text/html")


async def enter(console: ConsoleContext, request: Request) -> Response:
    """Answer with the page that uses a sign-in link up: it stands alone, and says nothing."""
    del console, request
    return Response((STATIC / "enter.html").read_bytes(), media_type="text/html")


async def static(console: ConsoleContext, request: Request) -> Response:
    """Answer with a file of the page; the registry names each of them."""
    del console
    name = request.url.path.rpartition("/")[2]
    return Response((STATIC / name).read_bytes(), media_type=KINDS[name.rpartition(".")[2]])


REGISTRY: Final = (
    *(ConsoleRoute(path, "reader", html_page) for path in _PAGES),
    ConsoleRoute("/health/live", "open", live),
    ConsoleRoute("/health/ready", "open", ready),
    ConsoleRoute("/metrics", "reader", metrics),
    ConsoleRoute("/report", "reader", report),
    ConsoleRoute("/enter", "open", enter),
    *(
        ConsoleRoute(f"/static/{name}", "open" if name in _ENTER_FILES else "reader", static)
        for name in FILES
    ),
)


def build_app(console: ConsoleContext, access: ConsoleAccess) -> ASGIApp:
    """Build the routes of the registry and those of the API behind the guard."""
    work = console.work or WorkDesk(console.ledger, OwnGateway(console.data), console.clock)
    api = ApiPages(
        ENDPOINTS, console.ledger, work.own,
        totals=console.totals, ship_loop=console.ship_loop, clock=console.clock,
    )  # fmt: skip
    pages = api.pages()
    routes = [
        Route(entry.path, _bound(entry.page, console), methods=list(entry.methods))
        for entry in REGISTRY
    ]
    routes += [Route(matched(path), page, methods=METHODS) for path, page in pages.items()]
    credentials = Credentials(SignIns(console.data, console.clock), WrongGuesses(console.clock))
    desk = AdminDesk(console.ledger, console.data, *credentials, access=access, clock=console.clock)
    routes += [
        Route(order.path, desk.page(order), methods=[order.method]) for order in ADMIN_ORDERS
    ]
    routes += [
        Route(matched(order.path), work.page(order), methods=[order.method])
        for order in WORK_ORDERS
    ]
    app = Starlette(routes=routes, exception_handlers={LightgateError: _failed})
    registry: dict[str, dict[str, Access]] = {}
    for entry in REGISTRY:
        registry.setdefault(entry.path, {}).update(dict.fromkeys(entry.methods, entry.access))
    for path, allowed in api.accesses().items():
        registry.setdefault(matched(path), {}).update(reads(allowed))
    for order in ADMIN_ORDERS:
        registry.setdefault(order.path, {})[order.method] = order.access
    for work_order in WORK_ORDERS:
        registry.setdefault(matched(work_order.path), {})[work_order.method] = work_order.access
    guard = Guard(app, registry=registry, access=access, credentials=credentials)
    api.orders = ORDERS
    api.admin = AdminSources(
        console.data, console.ship_loop, console.workers, console.totals.names, console.notice,
        lambda: dict(guard.refused),
    )  # fmt: skip
    return guard


def _bound(page: Page, console: ConsoleContext) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return await page(console, request)

    return endpoint


async def _failed(request: Request, error: Any) -> Response:
    del request
    return PlainTextResponse(f"{error.message}\n", status_code=503)


def _exposition(console: ConsoleContext, accept: str) -> tuple[bytes, str]:
    from lightgate.console.meters import (  # a library, for those who scrape
        Scrape,
        Shipping,
        exposition,
    )

    totals, workers, ship_loop = console.totals, console.workers, console.ship_loop
    workers.look()
    totals.names.look()
    state = read_state(console.data)
    children = workers.children(() if state is None else state.children)
    shipping = Shipping(
        shipped=ship_loop.totals,
        failures=ship_loop.failures,
        lost=ship_loop.lost,
        lag_s=ship_loop.lag_s(),
        waiting_bytes=ship_loop.shipper.waiting_bytes(workers.written()),
    )
    with totals.lock, workers.lock:
        return exposition(
            Scrape(totals, workers, shipping, console.traces.counts, children), accept
        )


def _report(console: ConsoleContext, by: str) -> str:
    from lightgate.ledger.store.hourly import hourly_rows
    from lightgate.ledger.store.owners import rows_by
    from lightgate.report.pages.speed_page import speed_report_html
    from lightgate.report.tables.speed_report import SpeedQuestion, relaxed

    until = datetime.fromtimestamp(console.clock.wall_ns() // 1_000_000_000, UTC)
    last = timedelta(days=REPORT_DAYS)
    since = until - last
    asked = msgspec.convert(
        {"by": by, "since": f"{since:%Y-%m-%dT%H:%M:%SZ}", "until": f"{until:%Y-%m-%dT%H:%M:%SZ}"},
        SpeedQuestion,
    )
    rows = rows_by(console.ledger, last, asked.by, until)
    hourly = hourly_rows(console.ledger, last, until, console.totals.names.hourly or {})
    return speed_report_html(rows, relaxed(rows, asked), hourly)
