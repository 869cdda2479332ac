"""Requests with a large body: their targets' bodies are written beside the loop, then sent."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from lightgate.errors import LightgateError, UsageError
from lightgate.gateway.aside import jobs
from lightgate.gateway.exchange.caller import owner_of
from lightgate.gateway.request.refusal import of_error
from lightgate.provider.cloud.signer import digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lightgate.dialect.scanner import ScanFacts
    from lightgate.errors import AttemptError
    from lightgate.gateway.exchange.caller import Caller
    from lightgate.gateway.exchange.state import State
    from lightgate.gateway.request.body import ClientRequest, Written
    from lightgate.gateway.request.refusal import Refusal
    from lightgate.gateway.served.served import Served
    from lightgate.gateway.served.target import ServedTarget
    from lightgate.provider.prepare import Prepared
    from lightgate.route.plan.alias import Alias
    from lightgate.route.plan.plan import Plan
    from lightgate.wire.door.inbound import Inbound

NS: Final = 1_000_000_000


class LargeOwner(Protocol):
    """An exchange, as far as its answers are read here."""

    state: State
    inbound: Inbound
    caller: Caller
    request: ClientRequest
    id: str
    wall_ns: int


class LargeExchange(LargeOwner, Protocol):
    """An exchange, as far as its bodies are written here."""

    served: Served
    alias: Alias
    plan: Plan
    cap: int | None
    assembles: bool
    refusal: Refusal | None
    closed_ns: int | None
    due_ns: int

    def give_up(self) -> None:
        """Tell the client that no attempt came through."""

    def broke(self, defect: BaseException) -> None:
        """End the exchange because of a defect."""


async def read_large_answer(
    exchange: LargeOwner, prepared: Prepared, body: bytes
) -> tuple[ScanFacts, AttemptError | None, bytes]:
    """Read a whole answer: what the clock needs, and it in the client's dialect, or why not."""
    request = exchange.request
    told = {name: bytes(value) for name, value in request.fields.items()}
    order = jobs.AnswerOrder(
        dialect=prepared.dialect.name,
        client=request.endpoint.dialect,
        model=request.model,
        id=exchange.id,
        created=exchange.wall_ns // NS,
        include_usage=request.include_usage,
        asked=None if request.endpoint.tokens else told,
        forms=dict(prepared.forms),
        values=exchange.state.served.terms.limits.values,
    )
    owner = owner_of(exchange.caller, exchange.inbound)
    (facts, error), bodies = await exchange.state.aside.do(owner, jobs.answer, (body,), order)
    return facts, error, bodies[0]


def when_written(exchange: LargeExchange, go_on: Callable[[], object]) -> None:
    """Write what every target of the plan is to be told, then go on with the exchange."""

    async def run() -> None:
        try:
            await write_bodies(exchange, [step.target for step in exchange.plan.steps])
            if exchange.closed_ns is not None:
                return  # the client left
            if exchange.state.now_ns() < exchange.due_ns:
                go_on()
            else:
                exchange.give_up()
        except LightgateError as error:
            exchange.refusal = of_error(error)
            exchange.give_up()
        except Exception as error:  # noqa: BLE001 - the outer wall of a request
            exchange.broke(error)

    exchange.state.keep(exchange.state.loop.create_task(run()))


async def write_bodies(exchange: LargeExchange, targets: Iterable[str]) -> None:
    """Write the bodies for these targets that are not written yet.

    A body that is passed on as it is needs no look into it, and is put together here.
    """
    request, streamed = exchange.request, exchange.request.streamed or exchange.assembles
    if request.written is None:
        request.written = {}
    orders = []
    for name in dict.fromkeys(targets):
        target, place = exchange.served.targets[name], (name, streamed)
        if place in request.written:
            continue
        try:
            dialect = target.answer_dialect(request.endpoint)
        except UsageError:
            continue  # the attempt says so
        cap, untold = exchange.cap, exchange.alias.untranslatable
        if target.writer.copies(request.endpoint.dialect, dialect.name):
            made = target.writer.same(request, dialect, cap, streamed, untold)
            request.written[place] = await _digested(target, made)
            continue
        order = jobs.WriteOrder(name, target.writer, dialect.name, cap, streamed, untold)
        orders.append(order)
    if orders:
        told, bodies = await exchange.state.aside.do(
            owner_of(exchange.caller, exchange.inbound),
            jobs.write,
            (request.body,),
            request.endpoint,
            orders,
        )
        for order, one, body in zip(orders, told, bodies, strict=True):
            if not isinstance(one, UsageError):
                made = msgspec.structs.replace(one, body=b"", pieces=(body,))
                one = await _digested(exchange.served.targets[order.target], made)  # noqa: PLW2901 - the same with its body
            request.written[order.target, streamed] = one


async def _digested(target: ServedTarget, made: Written) -> Written:
    """A body with its digest where requests are signed: in a thread, for it may take 100 ms."""
    if target.target.signer is None:
        return made
    digest = await asyncio.to_thread(digest_of, made.pieces)
    return msgspec.structs.replace(made, digest=digest)
