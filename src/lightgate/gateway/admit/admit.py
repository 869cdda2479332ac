"""The admission of a request: its exchange, its plan, and the reservation of its worst case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.gateway.admit.overrides import forbidden
from lightgate.gateway.admit.plan import plan_for
from lightgate.gateway.admit.shorten import shorten
from lightgate.gateway.exchange.exchange import Exchange
from lightgate.gateway.request.body import BYTES_PER_TOKEN, read_request_body
from lightgate.gateway.request.form import read_form
from lightgate.gateway.request.given import NOTHING, given_parts
from lightgate.gateway.request.refusal import Refusal, Refusing
from lightgate.gateway.served.asked import ModelUnknown, not_for_key
from lightgate.gateway.served.price import USUAL_ANSWER
from lightgate.ledger.journal.notes import Reserved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.gateway.exchange.caller import Caller
    from lightgate.gateway.exchange.state import State
    from lightgate.gateway.request.body import ClientRequest
    from lightgate.gateway.request.given import Given
    from lightgate.gateway.served.target import ServedTarget
    from lightgate.gateway.spend.denial import Denied
    from lightgate.ledger.store.keys import KeyRecord
    from lightgate.route.plan.alias import Alias
    from lightgate.route.plan.plan import Plan, Step
    from lightgate.wire.door.inbound import Inbound
    from lightgate.wire.door.reply import Reply

_DISK_FULL: Final = Refusal(
    status=503,
    message="Nothing can be recorded: the disk takes no more.",
    code="journal",
    retry_after_s=5.0,
)


def open_exchange(state: State, inbound: Inbound, reply: Reply, caller: Caller) -> Exchange:
    """Begin the exchange of a request, within its key's rights; Refusing says why not."""
    if caller.endpoint.sound == "form":
        content_type = inbound.header(b"content-type")
        request = read_form(caller.endpoint, inbound.body, content_type)
    else:
        request = read_request_body(caller.endpoint, inbound.body)
    key = caller.key
    if key is not None and key.models and request.model not in key.models:
        raise Refusing(forbidden(f"This key may not use the model {request.model!r}."))
    served = caller.served
    try:
        alias = served.aliases.get(request.model) or served.alias(request.model)
    except ModelUnknown:
        if key is not None and key.models:
            raise not_for_key(request.model) from None
        raise
    if alias.trim or alias.concise:
        shorten(alias, request)
    exchange = Exchange(state, inbound, reply, caller, request, alias)
    if alias.max_tokens is not None or (key is not None and key.max_tokens is not None):
        exchange.cap = _cap(alias, key, request)
    return exchange


def admit(state: State, exchange: Exchange) -> None:
    """Find the plan, reserve its worst case and write that down; Refusing says why not."""
    now = state.now_ns()
    state.learned.retries.deposit(now)
    exchange.plan = plan = plan_for(state, exchange, now)
    if state.learned.breakers.troubled:
        _check_reachable(state, plan, now)
    _reserve(state, exchange, plan)
    exchange.routed_ns = state.now_ns()
    request, key = exchange.request, exchange.caller.key
    state.journal.write(
        Reserved(
            exchange.id,
            None if key is None else key.id,
            exchange.wall_ns,
            exchange.reserved,
            (plan.steps[0].target,),
            exchange.request_id.decode("ascii"),
            request.model,
            request.endpoint.dialect,
        )
    )


def admit_free(state: State, key: KeyRecord | None) -> None:
    """Count a request that costs nothing: it comes from the cache, or joins another."""
    if state.journal.short and not state.journal.accepts():
        raise Refusing(_DISK_FULL)
    if key is not None and state.spend is not None:
        denied = state.spend.admit(key, state.wall_ns(), 0, 0)
        if denied is not None:
            raise Refusing(_refusal(denied))


def _reserve(state: State, exchange: Exchange, plan: Plan) -> None:
    """Reserve the most that the exchange may cost, and its tokens, as far as the key allows."""
    if state.journal.short and not state.journal.accepts():
        raise Refusing(_DISK_FULL)
    request, key, served, steps = exchange.request, exchange.caller.key, exchange.served, plan.steps
    if request.endpoint.free:
        admit_free(state, key)
        return
    if request.endpoint.sound:
        _reserve_sound(state, exchange, steps)
        return
    out = exchange.cap or request.max_tokens
    if request.answers > 1:
        out = (out or USUAL_ANSWER) * request.answers
    tokens = exchange.reserved_tokens = request.tokens_in + (USUAL_ANSWER if out is None else out)
    if key is None or state.spend is None or key.budget_usd is None:
        # Nothing depends on it but what is written down should we be killed.
        worst = served.targets[steps[0].target].prices.worst(request.tokens_in, out)
    else:
        worst = _most(exchange, steps, out)
    exchange.reserved = worst
    if key is not None and state.spend is not None:
        denied = state.spend.admit(key, exchange.wall_ns, tokens, worst)
        if denied is not None:
            raise Refusing(_refusal(denied))


def _reserve_sound(state: State, exchange: Exchange, steps: Sequence[Step]) -> None:
    """Reserve the most that an answer of sound may cost; a budget needs its price."""
    key, sound = exchange.caller.key, exchange.request.sound
    costs = []
    for step in steps:
        target = exchange.served.targets[step.target]
        cost = target.prices.worst_spoken(sound)
        if cost is None and key is not None and key.budget_usd is not None:
            raise Refusing(
                forbidden(
                    f"This key has a budget and {target.target.name} has no known price for sound."
                    " Add `characters` or `audio_hour` under [prices] in lightgate.toml."
                )
            )
        costs.append(cost or 0)
    exchange.reserved = _worst(steps, costs, checked=False)
    if key is not None and state.spend is not None:
        denied = state.spend.admit(key, exchange.wall_ns, 0, exchange.reserved)
        if denied is not None:
            raise Refusing(_refusal(denied))


def _most(exchange: Exchange, steps: Sequence[Step], out: int | None) -> int:
    """The most that the steps of a plan may cost together, in nano-dollars; all need a price."""
    request, costs = exchange.request, []
    given, tiered = given_parts(request.body), "service_tier" in request.fields
    for step in steps:
        target = exchange.served.targets[step.target]
        if not target.prices.known:
            raise Refusing(
                forbidden(
                    f"This key has a budget and {target.target.name} has no known price."
                    " Add it under [prices] in lightgate.toml."
                )
            )
        price = target.prices.worst_tier if tiered else target.prices.worst
        costs.append(price(_tokens_in(request, given, target), out))
    return _worst(steps, costs, checked=bool(exchange.alias.verify))


def _tokens_in(request: ClientRequest, given: Given, target: ServedTarget) -> int:
    """The most tokens of a prompt that a target can bill, as far as its bytes and parts tell."""
    if given is NOTHING:
        return request.tokens_in
    each = target.target.provider.part_tokens
    parts = given.images * each.image + given.files * each.file + given.sounds * each.sound
    return max(0, request.tokens_in - given.value_bytes // BYTES_PER_TOKEN) + parts


def _worst(steps: Sequence[Step], costs: Sequence[int], *, checked: bool) -> int:
    """The dearest target's price, once for each attempt that runs beside another.

    Where answers are checked every tier from the first on may have to be paid.
    """
    start = steps[0].tier
    # A tier that starts ahead is among those that are climbed.
    fanout = len([step for step in steps if step.start_ns is not None and step.tier == start]) or 1
    if not checked:
        return fanout * max(costs)
    tiers: dict[int, int] = {}
    for step, cost in zip(steps, costs, strict=True):
        tiers[step.tier] = max(cost, tiers.get(step.tier, 0))
    climbed = sum(cost for tier, cost in tiers.items() if tier > start)
    return max(fanout * tiers[start] + climbed, *costs)


def _refusal(denied: Denied) -> Refusal:
    status, code = (402, "budget") if denied.reason == "budget" else (429, denied.reason)
    return Refusal(
        status=status,
        message=denied.message,
        code=code,
        retry_after_s=denied.retry_after_s,
        exhausted=denied.reason == "budget",
    )


def _cap(alias: Alias, key: KeyRecord | None, request: ClientRequest) -> int | None:
    """The limit that must be written into the request, where the client's own is above it."""
    limit = alias.max_tokens
    own = None if key is None else key.max_tokens
    if own is not None and (limit is None or own < limit):
        limit = own
    if limit is None or not request.endpoint.tokens:
        return None
    return limit if request.max_tokens is None or request.max_tokens > limit else None


def _check_reachable(state: State, plan: Plan, now: int) -> None:
    """Let only as many requests try as the retry budget allows, with every target held back."""
    soonest = state.learned.breakers.soonest_ns([step.target for step in plan.steps], now)
    if soonest is None or state.learned.retries.may(now):
        return
    names = ", ".join(dict.fromkeys(step.target for step in plan.steps))
    raise Refusing(
        Refusal(
            status=503,
            message=f"Every target is resting after failures: {names}.",
            code="all_targets_down",
            retry_after_s=max(0.0, (soonest - now) / 1e9),
            exhausted=True,
        )
    )
