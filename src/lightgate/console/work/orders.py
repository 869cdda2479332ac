"""The endpoints that spend: to start a race, and to start, follow and stop a benchmark.

The guard lets in holders of the secret and of a session alone; see `lightgate.console.guard`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from lightgate.clock.ids import Ids
from lightgate.console.guard import AUTHOR
from lightgate.console.site.body import BodyTooLong, whole_body
from lightgate.console.site.live import LiveResponse
from lightgate.console.work.follow import RunFollower, RunProgress
from lightgate.console.work.race import RaceFrame
from lightgate.console.work.race_desk import Crowded, RaceAsked, RaceDesk
from lightgate.console.work.run_desk import RunAsked, RunDesk, RunStarted
from lightgate.console.work.runs import RunUnknown
from lightgate.errors import LightgateError, UsageError
from lightgate.ledger.audit import Author, ChangeNote, note_change

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from lightgate.clock.source import Clock
    from lightgate.console.guard import Access
    from lightgate.console.work.own_gateway import OwnGateway
    from lightgate.ledger.store.store import Ledger

FOLLOW_S: Final = 1.0  # between two looks at a run
MOST_BODY: Final = 256 * 1024  # bytes of an order
_Order = TypeVar("_Order", bound=msgspec.Struct)


class WorkDesk:
    """What the console has under way for one gateway."""

    def __init__(self, ledger: Ledger, own: OwnGateway, clock: Clock) -> None:
        self.own = own
        self._ledger = ledger
        self._clock = clock
        self._ids = Ids(clock)
        self.races = RaceDesk(own, ledger, clock)
        self.runs = RunDesk(own, clock)

    def page(self, order: WorkOrder) -> Callable[[Request], Awaitable[Response]]:
        """What answers an order over HTTP."""

        async def answer(request: Request) -> Response:
            try:
                return await order.carry_out(self, request)
            except LightgateError as error:
                return refused(error)

        return answer

    async def note(self, request: Request, change: ChangeNote) -> None:
        """Put what was started or stopped, and by whom, into the log of changes."""
        await run_in_threadpool(self._note, request.scope[AUTHOR], change)

    def _note(self, author: Author, change: ChangeNote) -> None:
        with self._ledger.writing() as connection:
            note_change(connection, author, change, ids=self._ids, clock=self._clock)

    async def close(self) -> None:
        """End what is under way."""
        await self.runs.close()
        await self.races.close()


Order = Callable[[WorkDesk, "Request"], Awaitable[Response]]


async def read_order(request: Request, kind: type[_Order]) -> _Order:
    """Read the JSON of an order; UsageError says what is wrong with it."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise UsageError("An order is JSON: content-type: application/json.")
    try:
        body = await whole_body(request, MOST_BODY)
    except BodyTooLong:
        raise UsageError(f"An order has at most {MOST_BODY:,} bytes.") from None
    except TimeoutError:
        raise UsageError("The order did not come in time.") from None
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"{error}.") from None
    except msgspec.DecodeError:
        raise UsageError("The order is not JSON.") from None


async def start_race(desk: WorkDesk, request: Request) -> Response:
    """Start a race and stream it; it ends when the reader leaves."""
    asked = await read_order(request, RaceAsked)
    desk.races.take_place()
    try:
        order, est_usd = await run_in_threadpool(desk.races.check, asked)
        desk.own.reached()
        terms = {"lanes": list(order.lanes), "max_tokens": order.max_tokens, "most_usd": est_usd}
        await desk.note(request, ChangeNote("race.start", "", "", None, terms))
    except BaseException:
        desk.races.live.leave()
        raise
    frames = desk.races.frames(order, est_usd, request.is_disconnected)
    return LiveResponse(frames, desk.races.live)


async def start_run(desk: WorkDesk, request: Request) -> Response:
    """Start a benchmark."""
    plan = await run_in_threadpool(desk.runs.check, await read_order(request, RunAsked))
    started = await desk.runs.start(plan)
    terms = {"line": started.line, "most_usd": started.est_usd}
    await desk.note(request, ChangeNote("run.start", started.id, "", None, terms))
    return Response(_encode(started), media_type="application/json")


async def stop_run(desk: WorkDesk, request: Request) -> Response:
    """Interrupt a benchmark; what it measured is kept."""
    id_ = request.path_params["id"]
    await desk.runs.stop(id_)
    await desk.note(request, ChangeNote("run.stop", id_, ""))
    return Response(status_code=204)


async def follow_run(desk: WorkDesk, request: Request) -> Response:
    """Stream how far a run is, every second until it has ended."""
    id_ = request.query_params.get("id", "")
    follower = await run_in_threadpool(RunFollower, desk.own.data, id_)
    first = await run_in_threadpool(follower.look)

    async def events() -> AsyncIterator[bytes]:
        told = first
        while True:
            yield b"data: %b\n\n" % _encode(told)
            if told.state != "running" or await request.is_disconnected():
                return
            await asyncio.sleep(FOLLOW_S)
            told = await run_in_threadpool(follower.look)

    return StreamingResponse(events(), media_type="text/event-stream")


class WorkOrder(NamedTuple):
    """An endpoint that spends or follows: its path, what it takes and what it answers with.

    `access` is as in the console's registry.
    """

    path: str
    method: str
    about: str
    carry_out: Order
    order: type[msgspec.Struct] | None = None
    record: type[msgspec.Struct] | None = None
    streams: bool = False
    access: Access = "admin"


WORK_ORDERS: Final = (
    WorkOrder(
        "/api/races",
        "POST",
        "Start a race and follow it: frames of a stream; leaving ends it.",
        start_race,
        RaceAsked,
        RaceFrame,
        streams=True,
    ),
    WorkOrder(
        "/api/runs",
        "POST",
        "Start a benchmark of targets through the gateway; one runs at a time.",
        start_run,
        RunAsked,
        RunStarted,
    ),
    WorkOrder(
        "/api/runs/{id}",
        "DELETE",
        "Interrupt a benchmark that runs; what it measured is kept.",
        stop_run,
    ),
    WorkOrder(
        "/api/run-live",
        "GET",
        "Follow the run that `id` names: how far it is, every second until it has ended.",
        follow_run,
        record=RunProgress,
        streams=True,
        access="reader",
    ),
)
_encode: Final = msgspec.json.Encoder(decimal_format="string").encode


def refused(error: LightgateError) -> Response:
    """The answer to an order that is not carried out."""
    status = 503
    if isinstance(error, Crowded):
        status = 429
    elif isinstance(error, RunUnknown):
        status = 404
    elif isinstance(error, UsageError):
        status = 400
    said = f"{error.message} {error.hint}".strip()
    return PlainTextResponse(f"{said}\n", status_code=status)
