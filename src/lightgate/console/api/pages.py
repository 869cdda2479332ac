"""The API over HTTP: JSON, CSV, the OpenAPI document, and the stream of changes."""

from __future__ import annotations

import itertools
import shlex
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from lightgate.console.api.endpoint import ApiContext, answer, csv_lines
from lightgate.console.api.memory import AnswerMemory
from lightgate.console.api.openapi import openapi
from lightgate.console.api.question import BadQuestion, read_question
from lightgate.console.api.request import RequestUnknown
from lightgate.console.api.requests import count_newer, read_cursor
from lightgate.console.site.live import LiveResponse, LiveStreams
from lightgate.console.work.runs import RunUnknown
from lightgate.errors import LightgateError, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from starlette.requests import Request

    from lightgate.clock.source import Clock
    from lightgate.console.admin.sources import AdminSources
    from lightgate.console.api.endpoint import ApiRoute
    from lightgate.console.api.openapi import ApiOrder
    from lightgate.console.guard import Access
    from lightgate.console.labels import LabelNames
    from lightgate.console.ship_loop import ShipLoop
    from lightgate.console.totals import Totals
    from lightgate.console.work.own_gateway import OwnGateway
    from lightgate.ledger.store.store import Ledger

LIVE_S: Final = 2.0
MOST_LIVE: Final = 32  # streams at once; each holds a connection


class ApiPages:
    """The endpoints of the API for one console."""

    def __init__(
        self, endpoints: Sequence[ApiRoute], ledger: Ledger, own: OwnGateway, *,
        totals: Totals, ship_loop: ShipLoop, clock: Clock,
    ) -> None:  # fmt: skip
        self._endpoints = {route.path: route for route in endpoints}
        self._ledger = ledger
        self._own = own
        self._totals = totals
        self._ship_loop = ship_loop
        self._clock = clock
        self.admin: AdminSources | None = None  # the application sets these two
        self.orders: Sequence[ApiOrder] = ()
        self._memory = AnswerMemory()
        self._live = LiveStreams(MOST_LIVE)
        self._document: bytes | None = None

    def pages(self) -> dict[str, Callable[[Request], Awaitable[Response]]]:
        """Every path of the API with what answers it."""
        found: dict[str, Callable[[Request], Awaitable[Response]]] = {}
        for route in self._endpoints.values():
            found[route.csv_path] = self._csv_of(route)  # before `{id}`, which would take it in
            found[route.path] = self._json_of(route)
        found["/api/openapi.json"] = self._openapi
        found["/api/live"] = self._stream
        return found

    def _json_of(self, route: ApiRoute) -> Callable[[Request], Awaitable[Response]]:
        async def page(request: Request) -> Response:
            try:
                body = await run_in_threadpool(self._answer, route, request)
            except LightgateError as error:
                return _refused(error)
            return Response(body, media_type="application/json")

        return page

    def _csv_of(self, route: ApiRoute) -> Callable[[Request], Awaitable[Response]]:
        async def page(request: Request) -> Response:
            query, id_ = request.url.query, request.path_params.get("id", "")
            try:
                lines = await run_in_threadpool(csv_lines, route, self._context(), query, id_)
            except LightgateError as error:
                return _refused(error)
            name = route.path.split("/")[2]
            headers = {"content-disposition": f'attachment; filename="lightgate-{name}.csv"'}
            return StreamingResponse(lines, media_type="text/csv", headers=headers)

        return page

    def _answer(self, route: ApiRoute, request: Request) -> bytes:
        query, id_ = request.url.query, request.path_params.get("id", "")
        if route.access == "admin":  # a change shows at once
            return answer(route, self._context(), query, id_)
        return self._remembered(route, query, id_)

    def accesses(self) -> dict[str, Access]:
        """Who may ask each path."""
        found: dict[str, Access] = dict.fromkeys(self.pages(), "reader")
        for route in self._endpoints.values():
            found |= {route.path: route.access, route.csv_path: route.access}
        return found

    def _remembered(self, route: ApiRoute, query: str, id_: str = "") -> bytes:
        return self._memory.get(
            (f"{route.path} {id_}", query),
            self._clock.now_ns(),
            lambda: answer(route, self._context(), query, id_),
        )

    def _context(self) -> ApiContext:
        gateway = self._own.address
        names = self._totals.names
        return ApiContext(
            self._ledger, self._clock.wall_ns(), names.hourly or {}, gateway,
            _try_line(gateway, names) if gateway else "", self.admin, self._totals.ticks,
            self._own.data, names.rates, self._own,
        )  # fmt: skip

    async def _openapi(self, request: Request) -> Response:
        del request
        if self._document is None:  # made once: 12 ms in which the console does nothing else
            told = openapi(list(self._endpoints.values()), self.orders)
            self._document = msgspec.json.encode(told)
        return Response(self._document, media_type="application/json")

    async def _stream(self, request: Request) -> Response:
        """Send the board, or how many requests are newer than a page, every two seconds."""
        topic = request.query_params.get("topic", "")
        if topic not in {"board", "requests"}:
            return PlainTextResponse("topic is one of board, requests.\n", status_code=400)
        if not self._live.take():
            return PlainTextResponse("Too many pages are live; close one.\n", status_code=503)
        tell = self._board_event if topic == "board" else self._newer_event
        query, live = request.url.query, False
        try:
            first = await run_in_threadpool(tell, query)
            live = request.method != "HEAD"
        except LightgateError as error:
            return _refused(error)
        finally:
            if not live:
                self._live.leave()
        if not live:
            return Response(media_type="text/event-stream")
        return LiveResponse(self._events(lambda: tell(query), first), self._live)

    async def _events(self, tell: Callable[[], bytes], first: bytes) -> AsyncIterator[bytes]:
        yield _event(0, first)
        for number in itertools.count(1):
            if await self._ship_loop.stopped(LIVE_S):
                return
            try:
                yield _event(number, await run_in_threadpool(tell))
            except LightgateError as error:
                yield b"event: trouble\n" + _event(number, msgspec.json.encode(error.message))

    def _board_event(self, query: str) -> bytes:
        return self._remembered(self._endpoints["/api/board"], _without(query, "topic"))

    def _newer_event(self, query: str) -> bytes:
        route, now_ns = self._endpoints["/api/requests"], self._clock.wall_ns()
        asked = read_question(_without(query, "topic", "after", "before"), route.parameters, now_ns)
        wanted = [part.partition("=")[2] for part in query.split("&") if part.startswith("after=")]
        newer = count_newer(self._ledger, asked, read_cursor(wanted[-1] if wanted else ""))
        return msgspec.json.encode({"newer": newer})


def matched(path: str) -> str:
    """A path as the router matches it: an id may have slashes."""
    return path.replace("{id}", "{id:path}")


def _try_line(gateway: str, names: LabelNames) -> str:
    """A command that sends a request for a model that can be asked for."""
    asked = {
        "model": names.example or "PROVIDER/MODEL",
        "messages": [{"role": "user", "content": "Say hello."}],
    }
    body = msgspec.json.encode(asked).decode()
    header = "-H 'content-type: application/json'"
    key = ' -H "authorization: Bearer $LIGHTGATE_KEY"' if names.keyed else ""
    return f"curl {gateway}/v1/chat/completions{key} {header} -d {shlex.quote(body)}"


def _without(query: str, *names: str) -> str:
    parts = (part for part in query.split("&") if part.partition("=")[0] not in names)
    return "&".join(parts)


def _event(number: int, data: bytes) -> bytes:
    return b"id: %d\ndata: %b\n\n" % (number, data)


def _refused(error: LightgateError) -> Response:
    status = 503
    if isinstance(error, BadQuestion | UsageError):
        status = 400
    elif isinstance(error, RequestUnknown | RunUnknown):
        status = 404
    return PlainTextResponse(f"{error.message}\n", status_code=status)
