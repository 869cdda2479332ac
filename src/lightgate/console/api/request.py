"""One request: its exchange, every attempt with its instants, and why it went where it went."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from lightgate.errors import LightgateError
from lightgate.gateway.http.requests import CandidateShown
from lightgate.ledger.store.exchange import ExchangeRecord
from lightgate.ledger.store.queries import exchange_by_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.clock.attempt import AttemptRecord
    from lightgate.console.api.endpoint import ApiContext
    from lightgate.console.work.own_gateway import OwnGateway

INSTANTS: Final = ("plan", "send", "headers", "event", "first", "answer", "last", "end")
MOMENTS: Final = ("accepted", "first_byte", "received", "routed", "sent", "first_in", "first_out",
                  "last_in", "last_out", "closed")  # fmt: skip
_TRIES: Final = 8  # connections: each may reach another worker, and one of them has the candidates
_WAIT_S: Final = 2.0


class RequestUnknown(LightgateError):  # noqa: N818 - names the event
    """The ledger has no request with this id."""

    label = "unknown"


class AttemptLane(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt; `t_ms` are its instants in ms since the request's first byte.

    `bursts` is how many reads brought tokens; `ticks_ms` are their instants, like `t_ms`, as long
    as the console remembers them.
    """

    target: str
    role: str
    won: bool | None
    outcome: str
    status: int | None
    error: str | None
    finish_reason: str | None
    t_ms: dict[str, float | None]
    pool_wait_ms: float | None
    dns_ms: float | None
    tcp_ms: float | None
    tls_ms: float | None
    resent: bool
    ttft_ms: float | None
    speed_tps: float | None
    speed_total_tps: float | None
    e2e_ms: float | None
    stall_ms: float | None
    bursts: int | None
    ticks_ms: tuple[float, ...] | None
    tokens_in: int | None
    tokens_out: int | None
    tokens_cached: int | None
    tokens_reasoning: int | None
    tokens_source: str | None
    cost_usd: str | None
    cost_source: str | None
    price_as_of: str | None
    stamp_source: str | None
    first_bound_ms: float | None
    provider_request_id: str | None


class OneRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request; `t_ms` are the gateway's instants in ms since the first byte of it came.

    `candidates` are those of its plan, as long as a worker remembers them; `why` says what was
    expected and what came, or why there are none.
    """

    exchange: ExchangeRecord
    t_ms: dict[str, float | None]
    attempts: tuple[AttemptLane, ...]
    candidates: tuple[CandidateShown, ...]
    why: str


def one_request(context: ApiContext, id_: str) -> OneRequest:
    """Return a request by its own id or its client's; the gateway is asked for the candidates."""
    found, ticks = exchange_by_id(context.ledger, id_), context.ticks
    if found is None:
        raise RequestUnknown(f"No request with the id {id_[:128]} is in the ledger.")
    exchange, tries = found
    zero = _zero(exchange, tries)
    candidates, missing = _candidates(exchange.id, context.own)
    return OneRequest(
        exchange=exchange,
        t_ms={name: _since(zero, getattr(exchange, f"{name}_ns")) for name in MOMENTS},
        attempts=tuple(
            _lane(one, zero, None if ticks is None else ticks.of(one.id)) for one in tries
        ),
        candidates=candidates,
        why=" ".join(part for part in (_expected(exchange), _missing(exchange, missing)) if part),
    )


def _zero(exchange: ExchangeRecord, tries: list[AttemptRecord]) -> int:
    for instant in (exchange.first_byte_ns, exchange.received_ns):
        if instant is not None:
            return instant
    return min((one.t_plan_ns for one in tries if one.t_plan_ns is not None), default=0)


def _since(zero: int, instant: int | None) -> float | None:
    return None if instant is None else round((instant - zero) / 1e6, 3)


def _lane(one: AttemptRecord, zero: int, stamps: Sequence[int] | None) -> AttemptLane:
    names = set(AttemptLane.__struct_fields__) - {"t_ms", "cost_usd", "outcome", "ticks_ms"}
    return AttemptLane(
        **{name: getattr(one, name) for name in names},
        outcome=one.outcome.value,
        cost_usd=None if one.cost_usd is None else format(one.cost_usd, "f"),
        t_ms={name: _since(zero, getattr(one, f"t_{name}_ns")) for name in INSTANTS},
        ticks_ms=None if stamps is None else tuple(round((at - zero) / 1e6, 2) for at in stamps),
    )


def _expected(exchange: ExchangeRecord) -> str:
    if exchange.predicted_ttft_ms is None:
        return ""
    said = (
        f"The first token of the first target was expected in {exchange.predicted_ttft_ms:.0f} ms"
    )
    if exchange.predicted_low_ms is not None and exchange.predicted_high_ms is not None:
        low, high = exchange.predicted_low_ms, exchange.predicted_high_ms
        said += f" (80 % in {low:.0f} to {high:.0f})"
    return f"{said}."


def _missing(exchange: ExchangeRecord, missing: str) -> str:
    if exchange.cache == "hit":
        return "The answer came from the cache: no provider was asked."
    if exchange.cache == "join":
        return "The answer is that of an equal request that was under way; it was not sent."
    if not exchange.attempts:
        return "No provider was asked."
    if not missing or exchange.predicted_ttft_ms is not None:
        return missing
    return "The plan follows from the configuration alone: no target was weighed."


def _candidates(id_: str, own: OwnGateway | None) -> tuple[tuple[CandidateShown, ...], str]:
    """What the workers remember of a plan, or a sentence that says why there is nothing."""
    try:
        reached = None if own is None else own.reached()
    except LightgateError as error:
        return (), f"The candidates are not known. {error.message}"
    if reached is None:
        return (), "The candidates are not known: the gateway does not run."
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    shown = {"authorization": f"Bearer {reached.credential}"} if reached.credential else {}
    asked = urllib.request.Request(  # noqa: S310 - our own gateway
        f"{reached.base_url}/requests/{quote(id_, safe='')}", headers=shown
    )
    for _ in range(_TRIES):
        try:
            with opener.open(asked, timeout=_WAIT_S) as answer:
                told: Any = json.load(answer).get("candidates")
        except urllib.error.HTTPError:
            continue  # unknown to this worker
        except (OSError, ValueError):
            return (), "The candidates are not known: the gateway does not answer."
        if told:
            return tuple(msgspec.convert(told, list[CandidateShown], strict=False)), ""
    return (), "The candidates are not known any more: a gateway keeps those of 2,000 requests."
