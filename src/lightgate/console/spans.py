"""Spans of a trace: one for an exchange and one for each of its attempts, made of their notes.

They have no prompt, no answer and no provider's words.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.console.totals import operation_of
from lightgate.ledger.journal.notes import between

if TYPE_CHECKING:
    from lightgate.ledger.journal.notes import AttemptNote, ExchangeNote, Settled

NS_PER_S: Final = 1_000_000_000
_SAMPLED: Final = 1  # the bit of a traceparent's flags
_SCALE: Final = 1 << 64

Attributes = dict[str, Any]


class SpanFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One span; instants in nanoseconds since the epoch, ids as numbers."""

    name: str
    trace_id: int
    span_id: int
    parent_id: int | None
    parent_remote: bool
    server: bool  # the client's request, else a call of a provider
    start_ns: int
    end_ns: int
    first_token_ns: int | None
    failed: str | None  # the outcome, where it is a failure
    attributes: Attributes


def sampled(exchange: ExchangeNote, share: float) -> bool:
    """Whether an exchange is traced: as its client's mark says, else by the share of trace ids."""
    if exchange.traceparent is not None:
        return bool(int(exchange.traceparent[53:55], 16) & _SAMPLED)
    return trace_of(exchange)[0] % _SCALE < share * _SCALE


def trace_of(exchange: ExchangeNote) -> tuple[int, int | None]:
    """The trace of an exchange and the client's span; a trace of our own has the exchange's id."""
    given = exchange.traceparent
    if given is not None and int(given[3:35], 16) and int(given[36:52], 16):
        return int(given[3:35], 16), int(given[36:52], 16)
    return int.from_bytes(blake2b(exchange.id.encode(), digest_size=16).digest()), None


def spans_of(note: Settled) -> list[SpanFacts]:
    """The span of an exchange, then those of its attempts."""
    exchange = note.exchange
    trace_id, parent = trace_of(exchange)
    own = _span_id(exchange.id)
    received = exchange.received_ns
    offset = exchange.wall_ns - (received or exchange.wall_ns)  # from our clock to the wall's
    start = exchange.first_byte_ns or received or exchange.wall_ns
    end = exchange.last_out_ns or exchange.closed_ns or start
    model = exchange.model_asked
    operation = operation_of(exchange.dialect)
    spans = [
        SpanFacts(
            name=f"{operation} {model}",
            trace_id=trace_id,
            span_id=own,
            parent_id=parent,
            parent_remote=True,
            server=True,
            start_ns=start + offset,
            end_ns=max(start, end) + offset,
            first_token_ns=None
            if exchange.first_out_ns is None
            else exchange.first_out_ns + offset,
            failed=None if exchange.outcome == "ok" else exchange.outcome,
            attributes=_of_exchange(exchange, operation, len(note.attempts)),
        )
    ]
    return spans + [_attempt(attempt, trace_id, own, offset) for attempt in note.attempts]


def _attempt(attempt: AttemptNote, trace_id: int, parent: int, offset: int) -> SpanFacts:
    facts = attempt.facts
    ends = [at + offset for at in (attempt.end, attempt.last) if at is not None]
    outcome = attempt.outcome.value
    operation = operation_of(facts.dialect)
    return SpanFacts(
        name=f"{operation} {facts.model}",
        trace_id=trace_id,
        span_id=_span_id(facts.id),
        parent_id=parent,
        parent_remote=False,
        server=False,
        start_ns=facts.wall_ns,
        end_ns=max(facts.wall_ns, *ends) if ends else facts.wall_ns,
        first_token_ns=None if attempt.first is None else attempt.first + offset,
        failed=None if outcome in {"ok", "cancelled"} else outcome,
        attributes=_of_attempt(attempt, operation),
    )


def _of_exchange(exchange: ExchangeNote, operation: str, attempts: int) -> Attributes:
    return _known(
        {
            "gen_ai.operation.name": operation,
            "gen_ai.request.model": exchange.model_asked,
            "gen_ai.request.stream": exchange.streamed,
            "gen_ai.usage.input_tokens": exchange.tokens_in,
            "gen_ai.usage.output_tokens": exchange.tokens_out,
            "http.response.status_code": exchange.status or None,
            "error.type": None if exchange.outcome == "ok" else exchange.outcome,
            "lightgate.exchange.id": exchange.id,
            "lightgate.request.id": exchange.request_id,
            "lightgate.key.id": exchange.key_id,
            "lightgate.tags": exchange.tags,
            "lightgate.policy": exchange.policy,
            "lightgate.cache": exchange.cache,
            "lightgate.target": exchange.winner,
            "lightgate.attempts": attempts,
            "lightgate.outcome": exchange.outcome,
            "lightgate.overhead_ms": exchange.overhead_ms(),
            "lightgate.cost_usd": _dollars(exchange.cost_nano),
            "lightgate.loser_cost_usd": _dollars(exchange.loser_cost_nano),
            "lightgate.worker": exchange.worker,
        }
    )


def _of_attempt(attempt: AttemptNote, operation: str) -> Attributes:
    facts, outcome = attempt.facts, attempt.outcome.value
    ttft_ns = between(attempt.send, attempt.first) if attempt.streamed else None
    reason = attempt.finish_reason
    return _known(
        {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": facts.provider,
            "gen_ai.request.model": facts.model,
            "gen_ai.request.stream": attempt.streamed,
            "gen_ai.response.finish_reasons": None if reason is None else (reason,),
            "gen_ai.response.time_to_first_chunk": None if ttft_ns is None else ttft_ns / NS_PER_S,
            "gen_ai.usage.input_tokens": attempt.tokens_in,
            "gen_ai.usage.output_tokens": attempt.tokens_out,
            "gen_ai.usage.cache_read.input_tokens": attempt.tokens_cached,
            "gen_ai.usage.reasoning.output_tokens": attempt.tokens_reasoning,
            "http.response.status_code": attempt.status,
            "error.type": None if outcome in {"ok", "cancelled"} else outcome,
            "lightgate.attempt.id": facts.id,
            "lightgate.role": facts.role,
            "lightgate.won": facts.won is not False,
            "lightgate.outcome": outcome,
            "lightgate.speed_tps": attempt.metrics()[2],
            "lightgate.cost_usd": _dollars(facts.cost_nano),
            "lightgate.provider_request_id": attempt.provider_request_id,
        }
    )


def _known(attributes: Attributes) -> Attributes:
    return {name: value for name, value in attributes.items() if value is not None}


def _dollars(nano: int | None) -> float | None:
    return None if nano is None else nano / NS_PER_S


def _span_id(of: str) -> int:
    return int.from_bytes(blake2b(of.encode(), digest_size=8).digest())
