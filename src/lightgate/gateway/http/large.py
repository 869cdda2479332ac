"""Requests with a large body: read beside the loop, and not looked into again on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lightgate.gateway.aside import jobs
from lightgate.gateway.exchange.caller import owner_of
from lightgate.gateway.exchange.large import write_bodies
from lightgate.gateway.http.shared import share_ask
from lightgate.gateway.request.shorten import Shortening
from lightgate.route.form.size import size_of

if TYPE_CHECKING:
    from lightgate.gateway.aside.aside import Job
    from lightgate.gateway.exchange.caller import Caller
    from lightgate.gateway.exchange.exchange import Exchange
    from lightgate.gateway.exchange.state import State
    from lightgate.gateway.request.body import ClientRequest
    from lightgate.wire.door.inbound import Inbound


async def read_large(state: State, inbound: Inbound, caller: Caller) -> ClientRequest:
    """Read a request's body; UsageError says what is wrong with it."""
    owner, wants = owner_of(caller, inbound), _wants(state, caller)
    (request, places), _ = await state.aside.do(
        owner, jobs.read, (inbound.body,), caller.endpoint, wants
    )
    return jobs.with_fields(request, inbound.body, places)


async def look_into(state: State, exchange: Exchange) -> None:
    """Find out about a body what its model needs to know: shorter, its key, its count."""
    request, alias = exchange.request, exchange.alias
    if alias.trim or alias.concise:
        way = Shortening(alias.trim, alias.concise)
        await change(state, exchange, jobs.shortened, way)
        request = exchange.request
    ask = share_ask(exchange)
    if ask is not None and request.found is not None:
        request.found.shared, _ = await state.aside.do(
            owner_of(exchange.caller, exchange.inbound),
            jobs.share,
            (request.body,),
            request.endpoint,
            ask,
        )
    if request.endpoint.kind == "count":
        await write_bodies(exchange, alias.targets)


async def change(state: State, exchange: Exchange, job: Job, *more: object) -> None:
    """Let the request say something else: what a job makes of its body."""
    request, caller = exchange.request, exchange.caller
    (request, places), made = await state.aside.do(
        owner_of(caller, exchange.inbound),
        job,
        (request.body,),
        request.endpoint,
        _wants(state, caller),
        *more,
    )
    exchange.request = jobs.with_fields(request, made[0], places)
    exchange.size = size_of(exchange.request.tokens_in)


def _wants(state: State, caller: Caller) -> jobs.ReadWants:
    """What admission will want to know of a body."""
    key, served = caller.key, state.served
    limited = key is not None and key.budget_usd is not None and state.spend is not None
    return jobs.ReadWants(served.terms.limits.values, limited, bool(served.tiers))
