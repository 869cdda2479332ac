"""Letting a request in: who asks, for what, by which plan, and what it may cost at most."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from lightgate.gateway.admit.keys import presented_key
from lightgate.gateway.admit.overrides import Wishes, forbidden
from lightgate.gateway.admit.plan import plan_for
from lightgate.gateway.request.refusal import UNAUTHORIZED, Refusal, Refusing
from lightgate.gateway.spend.price import USUAL_ANSWER
from lightgate.ledger.journal.notes import Reserved
from lightgate.ledger.store.keys import KeyRecord
from lightgate.route.plan.alias import Alias
from lightgate.route.plan.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.gateway.admit.caller import Greeting
    from lightgate.gateway.process.state import State
    from lightgate.gateway.request.body import Wanted
    from lightgate.gateway.spend.denial import Denied
    from lightgate.route.plan.plan import Step
    from lightgate.wire.door.inbound import Inbound

_OWN_ORIGIN: Final = re.compile(
    rb"https?://(?:localhost|127\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}|\[::1\])(?::[0-9]{1,5})?"
)


class Guest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request with the right to be here: what it is before a plan is made for it."""

    id: str
    id_bytes: bytes
    request_id: bytes
    wall_ns: int
    key: KeyRecord | None
    alias: Alias
    wishes: Wishes
    cap: int | None
    extra: bytes

    @property
    def hurried(self) -> bool:
        """Whether the client asks for shorter deadlines than the configuration."""
        return self.wishes.timeout_ns is not None or self.wishes.ttft_timeout_ns is not None

    @property
    def session(self) -> str | None:
        """The conversation that the request belongs to; another key's is another one."""
        if self.wishes.session is None:
            return None
        return f"{'' if self.key is None else self.key.id}:{self.wishes.session}"

    @property
    def tags(self) -> str | None:
        """What its row in the ledger is marked with."""
        if self.wishes.tags is not None:
            return self.wishes.tags
        return self.key.tags if self.key is not None else None


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A request that was let in."""

    id: str
    id_bytes: bytes
    request_id: bytes
    wall_ns: int
    key: KeyRecord | None
    alias: Alias
    plan: Plan
    cap: int | None  # the limit on answer tokens that is written into the request; None: as it came
    extra: bytes  # header lines that the client may say to the provider
    timeout_ns: int
    hurried: bool  # the client asked for shorter deadlines than the configuration
    reserved: int  # nano-dollars
    reserved_tokens: int
    routed_ns: int
    tags: str | None
    cache: str = "off"  # or "miss": the answer may be kept and shared
    session: str | None = None  # the conversation, by key and the client's own word


def authorize(state: State, inbound: Inbound, wall_ns: int) -> KeyRecord | None:
    """The key of a request; None where the gateway has no keys. One answer to all who fail."""
    keyring = state.served.keyring
    if not len(keyring):
        _check_origin(inbound.header(b"origin"))
        return None
    presented = presented_key(inbound.headers)
    key = None if presented is None else keyring.find(presented, wall_ns)
    if key is None:
        raise Refusing(UNAUTHORIZED)
    return key


def _check_origin(origin: bytes | None) -> None:
    """Without keys the gateway is for this machine: no web page of elsewhere may spend there."""
    if origin is not None and _OWN_ORIGIN.fullmatch(origin) is None:
        raise Refusing(forbidden("A web page of another site may not use a gateway without keys."))


def receive(state: State, greeting: Greeting, wanted: Wanted) -> Guest:
    """Make a guest of who has greeted, within its rights; Refusing says why not."""
    key = greeting.key
    if key is not None and key.models and wanted.model not in key.models:
        raise Refusing(forbidden(f"This key may not use the model {wanted.model!r}."))
    alias = state.served.alias(wanted.model)
    id_ = state.ids.new()
    id_bytes = id_.encode()
    return Guest(
        id=id_,
        id_bytes=id_bytes,
        request_id=greeting.request_id or id_bytes,
        wall_ns=state.wall_ns(),
        key=key,
        alias=alias,
        wishes=greeting.wishes,
        cap=_cap(alias, key, wanted),
        extra=greeting.extra,
    )


def admit(state: State, guest: Guest, wanted: Wanted, cache: str = "off") -> Entry:
    """Find the plan, reserve its worst case and write that down; Refusing says why not."""
    alias, key, wishes, cap = guest.alias, guest.key, guest.wishes, guest.cap
    now = state.now_ns()
    state.retries.deposit(now)
    plan = plan_for(state, guest, wanted, _rightful(wishes.race, alias, key), now)
    _check_reachable(state, plan, now)
    out = cap or wanted.max_tokens
    if wanted.answers > 1:
        out = (out or USUAL_ANSWER) * wanted.answers
    reserved, tokens = _reserve(state, plan, wanted, key, out, checked=bool(alias.verify))
    entry = Entry(
        id=guest.id,
        id_bytes=guest.id_bytes,
        request_id=guest.request_id,
        wall_ns=guest.wall_ns,
        key=key,
        alias=alias,
        plan=plan,
        cap=cap,
        extra=guest.extra,
        timeout_ns=min(alias.timeout_ns, wishes.timeout_ns or alias.timeout_ns),
        hurried=guest.hurried,
        reserved=reserved,
        reserved_tokens=tokens,
        routed_ns=state.now_ns(),
        tags=guest.tags,
        cache=cache,
        session=guest.session,
    )
    state.journal.write(_reservation(entry, wanted))
    return entry


def admit_free(state: State, key: KeyRecord | None) -> None:
    """Count a request that costs nothing: it comes from the cache, or joins another."""
    if key is not None and state.spend is not None:
        refused = state.spend.admit(key, state.wall_ns(), 0, 0)
        if refused is not None:
            raise Refusing(_refused(refused))


def _reservation(entry: Entry, wanted: Wanted) -> Reserved:
    return Reserved(
        entry.id,
        None if entry.key is None else entry.key.id,
        entry.wall_ns,
        entry.reserved,
        (entry.plan.steps[0].target,),
        entry.request_id.decode("ascii"),
        wanted.model,
        wanted.path.dialect,
    )


def _reserve(
    state: State,
    plan: Plan,
    wanted: Wanted,
    key: KeyRecord | None,
    out: int | None,
    *,
    checked: bool,
) -> tuple[int, int]:
    """The most that it may cost, and its tokens, as far as the key allows."""
    tokens = wanted.tokens_in + (USUAL_ANSWER if out is None else out)
    if not state.journal.accepts:
        raise Refusing(
            Refusal(
                status=503,
                message="Nothing can be recorded: the disk takes no more.",
                code="journal",
                retry_after_s=5.0,
            )
        )
    served, steps = state.served, plan.steps
    if key is None or state.spend is None or key.budget_usd is None:
        # Nothing depends on it but what is written down should we be killed.
        worst = served.target(steps[0].target).prices.worst(wanted.tokens_in, out)
    else:
        targets = [served.target(step.target) for step in steps]
        costs = [target.prices.worst(wanted.tokens_in, out) for target in targets]
        worst = _worst(steps, costs, checked=checked)
        unknown = next((t.target.name for t in targets if not t.prices.known), None)
        if unknown is not None:
            raise Refusing(
                forbidden(
                    f"This key has a budget and {unknown} has no known price."
                    " Add it under [prices] in lightgate.toml."
                )
            )
    if key is None or state.spend is None:
        return worst, tokens
    refused = state.spend.admit(key, state.wall_ns(), tokens, worst)
    if refused is not None:
        raise Refusing(_refused(refused))
    return worst, tokens


def _worst(steps: Sequence[Step], costs: Sequence[int], *, checked: bool) -> int:
    """The dearest target's, once for each attempt that runs beside another.

    Where answers are checked every tier from the first on may have to be paid.
    """
    start = steps[0].tier
    # A tier that starts ahead is among those that are climbed.
    fanout = sum(1 for step in steps if step.start_ns is not None and step.tier == start) or 1
    if not checked:
        return fanout * max(costs)
    tiers: dict[int, int] = {}
    for step, cost in zip(steps, costs, strict=True):
        tiers[step.tier] = max(cost, tiers.get(step.tier, 0))
    climbed = sum(cost for tier, cost in tiers.items() if tier > start)
    return max(fanout * tiers[start] + climbed, *costs)


def _refused(refused: Denied) -> Refusal:
    status, code = (402, "budget") if refused.reason == "budget" else (429, refused.reason)
    return Refusal(
        status=status,
        message=refused.message,
        code=code,
        retry_after_s=refused.retry_after_s,
        exhausted=refused.reason == "budget",
    )


def _cap(alias: Alias, key: KeyRecord | None, wanted: Wanted) -> int | None:
    """The limit that must be written into the request, where the client's own is above it."""
    limit = alias.max_tokens
    own = None if key is None else key.max_tokens
    if own is not None and (limit is None or own < limit):
        limit = own
    if limit is None or wanted.path.kind == "embedding":
        return None
    return limit if wanted.max_tokens is None or wanted.max_tokens > limit else None


def _check_reachable(state: State, plan: Plan, now: int) -> None:
    """With every target held back, only as many requests try one as the retry budget allows."""
    soonest = None
    if state.breakers.troubled:
        soonest = state.breakers.soonest_ns([step.target for step in plan.steps], now)
    if soonest is None or state.retries.may(now):
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


def _rightful(asked: int | None, alias: Alias, key: KeyRecord | None) -> int | None:
    """The race that is asked for; a configured one goes as far as the key may."""
    if asked is None and key is not None and alias.race > 1:
        return min(alias.race, key.max_fanout) if key.may_race else 1
    return asked
