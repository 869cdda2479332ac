"""The admission of a request: its exchange, its plan, and the reservation of its worst case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.gateway.admit.overrides import forbidden
from lightgate.gateway.admit.plan import plan_for
from lightgate.gateway.admit.spare import check_spare, count_line, note_client
from lightgate.gateway.admit.worst import leave_out, reserve_plan, worst
from lightgate.gateway.exchange.exchange import Exchange
from lightgate.gateway.request.body import read_request_body
from lightgate.gateway.request.form import read_form
from lightgate.gateway.request.refusal import Refusal, Refusing
from lightgate.gateway.request.shorten import Shortening, shorten
from lightgate.gateway.served.asked import ModelUnknown, not_for_key
from lightgate.gateway.served.price import USUAL_ANSWER, Ceiling
from lightgate.gateway.spend.counters import MOST, limited
from lightgate.ledger.journal.notes import Reserved

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from lightgate.gateway.exchange.caller import Caller
    from lightgate.gateway.exchange.state import State
    from lightgate.gateway.request.body import ClientRequest
    from lightgate.gateway.shared.counters import SharedCounters
    from lightgate.gateway.spend.counters import SpendCounters
    from lightgate.gateway.spend.denial import Denied
    from lightgate.ledger.store.keys import KeyRecord
    from lightgate.route.plan.alias import Alias
    from lightgate.route.plan.plan import Plan, Step
    from lightgate.wire.door.inbound import Inbound
    from lightgate.wire.door.reply import Reply

    # A key, the wall time, tokens and nano-dollars: what may be counted against limits.
    Wishes = Generator[tuple[KeyRecord, int, int, int], Denied | None]

_STATUS: Final = {"budget": 402, "counters": 503}  # of other limits 429
_DISK_FULL: Final = Refusal(
    status=503,
    message="Nothing can be recorded: the disk takes no more.",
    code="journal",
    retry_after_s=5.0,
)
_JOURNAL_LOST: Final = Refusal(
    status=503,
    message="Nothing can be recorded: the journal was deleted and cannot be written anew.",
    code="journal",
    retry_after_s=5.0,
)


def open_exchange(
    state: State,
    inbound: Inbound,
    reply: Reply,
    caller: Caller,
    request: ClientRequest | None = None,
) -> Exchange:
    """Begin the exchange of a request, within its key's rights; Refusing says why not.

    `request` is given where a large body was read beside the loop.
    """
    if request is not None:
        pass
    elif caller.endpoint.sound == "form":
        content_type = inbound.header(b"content-type")
        request = read_form(caller.endpoint, inbound.body, content_type)
    else:
        request = read_request_body(caller.endpoint, inbound.body)
    key = caller.key
    if key is not None and key.models and request.model not in key.models:
        raise Refusing(forbidden(f"This key may not use the model {request.model!r}."))
    served = caller.served
    try:
        model = request.model
        alias = served.aliases.get(model) or served.loose.get(model) or served.alias(model)
    except ModelUnknown:
        if key is not None and key.models:
            raise not_for_key(request.model) from None
        raise
    if (alias.trim or alias.concise) and request.found is None:
        shorten(Shortening(alias.trim, alias.concise), request)
    exchange = Exchange(state, inbound, reply, caller, request, alias)
    if alias.max_tokens is not None or (key is not None and key.max_tokens is not None):
        exchange.cap = _cap(alias, key, request)
    return exchange


def admit(state: State, exchange: Exchange) -> None:
    """Find the plan, reserve its worst case and write that down; Refusing says why not."""
    plan = _plan(state, exchange)
    key, spend, endpoint = exchange.caller.key, state.spend, exchange.request.endpoint
    if endpoint.free or endpoint.sound or (key is not None and key.budget_usd is not None):
        wishes = _reserve(state, exchange, plan)
        try:
            wish = next(wishes)
            while spend is not None:
                wish = wishes.send(spend.admit(*wish))
        except StopIteration:
            pass
    else:  # what nearly every request is: one wish at most, and no generator for it
        tokens, nano_usd = _reserve_text(exchange, plan)
        if key is not None and spend is not None:
            denied = spend.admit(key, exchange.wall_ns, tokens, nano_usd)
            if denied is not None:
                raise Refusing(_refusal(denied))
    _note(state, exchange)


async def admit_shared(state: State, exchange: Exchange) -> None:
    """Admit a request; where its key has limits that other machines count too, they are asked."""
    shared = shared_limits(state, exchange.caller.key)
    if shared is None:
        admit(state, exchange)
        return
    wishes = _reserve(state, exchange, _plan(state, exchange))
    try:
        wish = next(wishes)
        while True:
            wish = wishes.send(await shared.reserve(*wish))
    except StopIteration:
        _note(state, exchange)


def shared_limits(state: State, key: KeyRecord | None) -> SharedCounters | None:
    """The counters to wait for, where a key has limits that machines share."""
    shared = state.shared_spend
    return shared if shared is not None and key is not None and limited(key) else None


def _plan(state: State, exchange: Exchange) -> Plan:
    """Find the plan of a request that may be let in; Refusing where nothing may be for now."""
    now = state.now_ns()
    learned = state.learned
    learned.retries.deposit(now)
    exchange.plan = plan = plan_for(state, exchange, now)
    if learned.breakers.troubled:
        _check_reachable(state, plan, now)
    if exchange.caller.batch:
        check_spare(state, plan, now)
    elif state.peaks is not None:
        note_client(state.peaks, state, plan, now)
    if state.journal.short and not state.journal.accepts():
        raise Refusing(_JOURNAL_LOST if state.journal.lost else _DISK_FULL)
    return plan


def _note(state: State, exchange: Exchange) -> None:
    """Write the reservation of an admitted request down."""
    request, caller = exchange.request, exchange.caller
    exchange.routed_ns = state.now_ns()
    reserved = exchange.reserved
    if reserved > MOST:  # noqa: PLR1730 - a call less, for every request
        reserved = MOST  # a hundred thousand prompts have no end of answers
    state.journal.write(
        Reserved(
            exchange.id,
            None if caller.key is None else caller.key.id,
            exchange.wall_ns,
            reserved,
            (exchange.plan.steps[0].target,),
            exchange.request_id.decode("ascii"),
            request.model,
            request.endpoint.dialect,
        )
    )
    if caller.batch:
        count_line(state, exchange)


async def admit_free(state: State, key: KeyRecord | None) -> None:
    """Count a request that costs nothing: it comes from the cache, or joins another."""
    if state.journal.short and not state.journal.accepts():
        raise Refusing(_JOURNAL_LOST if state.journal.lost else _DISK_FULL)
    if key is None or state.spend is None:
        return
    shared = shared_limits(state, key)
    wish = (key, state.wall_ns(), 0, 0)
    denied = state.spend.admit(*wish) if shared is None else await shared.reserve(*wish)
    if denied is not None:
        raise Refusing(_refusal(denied))


def _reserve(state: State, exchange: Exchange, plan: Plan) -> Wishes:
    """Reserve the most that the exchange may cost, and its tokens, as far as the key allows.

    Each wish is answered with the reason to refuse it, or None.
    """
    request, key = exchange.request, exchange.caller.key
    if request.endpoint.free:
        yield from _take(state, exchange, 0, 0)
    elif request.endpoint.sound:
        yield from _reserve_sound(state, exchange, plan.steps)
    elif key is not None and state.spend is not None and key.budget_usd is not None:
        out = _count_tokens(exchange)
        limit = exchange.cap or request.max_tokens
        yield from _reserve_budget(state.spend, exchange, key, None if limit is None else out)
    else:
        yield from _take(state, exchange, *_reserve_text(exchange, plan))


def _count_tokens(exchange: Exchange) -> int | None:
    """Note the tokens to reserve; returns the most of all answers, None: no limit is named."""
    request = exchange.request
    out = exchange.cap or request.max_tokens
    if request.answers > 1:
        out = (out or USUAL_ANSWER) * request.answers
    exchange.reserved_tokens = request.tokens_in + (USUAL_ANSWER if out is None else out)
    return out


def _reserve_text(exchange: Exchange, plan: Plan) -> tuple[int, int]:
    """The tokens and nano-dollars of a text that no budget depends on.

    Nothing depends on the money but what is written down should this process be killed.
    """
    out = _count_tokens(exchange)
    prices = exchange.served.targets[plan.steps[0].target].prices
    exchange.reserved = prices.worst(exchange.request.tokens_in, out)
    return exchange.reserved_tokens, exchange.reserved


def _take(state: State, exchange: Exchange, tokens: int, nano_usd: int) -> Wishes:
    """Count a request against the limits of its key."""
    key = exchange.caller.key
    if key is not None and state.spend is not None:
        denied = yield key, exchange.wall_ns, tokens, nano_usd
        if denied is not None:
            raise Refusing(_refusal(denied))


def _reserve_budget(
    spend: SpendCounters, exchange: Exchange, key: KeyRecord, out: int | None
) -> Wishes:
    """Reserve the most that an exchange may cost of its key's budget.

    An answer without a limit may take all that is left, where that is enough for a usual one: then
    no other request is under way, and the budget is overdrawn by this answer at most. A part of a
    kind that is not known takes all that is left, and no more than that is billed.
    """
    most, least, unbounded, beside = reserve_plan(exchange, out)
    tokens = exchange.reserved_tokens
    if unbounded:
        most = max(most, spend.left_nano(key))
    yield from _reserve_most(spend, exchange, key, tokens, (most, least))
    if unbounded:
        most = exchange.reserved // beside
        exchange.ceilings = dict.fromkeys(exchange.ceilings or (), Ceiling(most, most, 1))


def _reserve_most(
    spend: SpendCounters, exchange: Exchange, key: KeyRecord, tokens: int, costs: tuple[int, int]
) -> Wishes:
    """Reserve the most that an exchange may cost, or all that is left where that is the least."""
    most, least = costs
    denied = yield key, exchange.wall_ns, tokens, most
    if denied is not None and denied.reason == "budget" and least < most:
        left = spend.left_nano(key)
        if left >= least:
            most = left
            denied = yield key, exchange.wall_ns, tokens, left
    if denied is not None:
        raise Refusing(_refusal(denied))
    exchange.reserved = most


def _reserve_sound(state: State, exchange: Exchange, steps: Sequence[Step]) -> Wishes:
    """Reserve the most that an answer of sound may cost; a budget needs its price."""
    key, sound = exchange.caller.key, exchange.request.sound
    targets = exchange.served.targets
    costs = {step.target: targets[step.target].prices.worst_spoken(sound) for step in steps}
    lacking = {name: "price:sound" for name, cost in costs.items() if cost is None}
    if lacking and key is not None and key.budget_usd is not None:
        leave_out(exchange, lacking)
        steps = exchange.plan.steps
        if not steps:
            raise Refusing(
                forbidden(
                    f"This key has a budget and {next(iter(lacking))} has no known price for sound."
                    " Add `characters` or `audio_hour` under [prices] in lightgate.toml."
                )
            )
    exchange.reserved = worst(steps, [costs[s.target] or 0 for s in steps], checked=False)
    if key is None or key.budget_usd is None or state.spend is None:
        yield from _take(state, exchange, 0, exchange.reserved)
        return
    known = {name: cost for name, cost in costs.items() if cost is not None}
    exchange.ceilings = {name: Ceiling(cost, cost, 1) for name, cost in known.items()}
    usual = [targets[step.target].prices.least_spoken(sound) for step in steps]
    least = min(exchange.reserved, worst(steps, usual, checked=False))
    yield from _reserve_most(state.spend, exchange, key, 0, (exchange.reserved, least))


def _refusal(denied: Denied) -> Refusal:
    status, code = _STATUS.get(denied.reason, 429), denied.reason
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
