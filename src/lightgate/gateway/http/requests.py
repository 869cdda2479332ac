"""All that is known about one request, for the key that made it."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.gateway.request.refusal import Refusal, Refusing
from lightgate.ledger.store.exchange import dollars

if TYPE_CHECKING:
    from lightgate.gateway.exchange.state import State
    from lightgate.gateway.http.ledger_reads import LedgerReads
    from lightgate.ledger.store.keys import KeyRecord
    from lightgate.ledger.store.store import Ledger
    from lightgate.route.plan.candidates import Candidate

_encode: Final = msgspec.json.Encoder(decimal_format="number").encode

_PREFIXES: Final = ("chatcmpl-", "resp_", "msg_")  # what translated answers put before an id


class CandidateShown(msgspec.Struct, frozen=True):
    """One target that a plan could have begun with, in the units of the outside.

    `ttft_ms` and `end_ms` are what was expected, `samples` and `age_s` what that was made of;
    `failures` is the expected share of failed attempts, `cost_usd` the price of this request.
    `value` is what the policy ranks by; the least is the best.
    """

    target: str
    ttft_ms: float
    end_ms: float
    samples: int
    age_s: float | None
    in_flight: int
    failures: float
    cost_usd: Decimal | None
    value: float | None
    why: str

    @classmethod
    def of(cls, one: Candidate) -> CandidateShown:
        """Convert what the router believed."""
        return cls(
            one.target,
            round(one.ttft_s * 1e3, 3),
            round(one.end_s * 1e3, 3),
            one.samples,
            None if one.age_s is None else round(one.age_s, 3),
            one.in_flight,
            round(one.p_error, 4),
            None if one.nano is None else dollars(round(one.nano)),
            None if one.value is None else round(one.value, 4),
            one.why,
        )


async def look_up(
    state: State, reads: LedgerReads, id_: str, key: KeyRecord | None, *, of_all: bool = False
) -> bytes:
    """The exchange, its attempts and the candidates of its plan as JSON.

    They come from this worker's memory, else from the ledger, which knows no candidates.

    Another key's request is as unknown as one that never was, but to the console, whose reader
    sees the requests `of_all` keys.
    """
    owner = None if key is None else key.id
    for prefix in _PREFIXES:
        id_ = id_.removeprefix(prefix)
    recent, candidates = state.journal.recent, list[CandidateShown]()
    kept = recent.get(id_) or recent.named(id_, owner)
    if kept is not None:
        settled, plan = kept
        exchange: Any = settled.exchange.record(len(settled.attempts))
        attempts: list[Any] = [note.attempt() for note in settled.attempts]
        candidates = [CandidateShown.of(one) for one in (() if plan is None else plan.candidates)]
    else:
        exchange, attempts = await reads.read(lambda ledger: _from_ledger(ledger, id_), (None, []))
    if exchange is None or not (of_all or exchange.key_id == owner):
        raise Refusing(
            Refusal(
                status=404,
                message="No request with this id is known. A running one is known when it ends.",
                code="unknown_request",
            )
        )
    return _encode({"exchange": exchange, "attempts": attempts, "candidates": candidates})


def _from_ledger(ledger: Ledger, id_: str) -> tuple[Any, list[Any]]:
    from lightgate.ledger.store.queries import exchange_by_id

    return exchange_by_id(ledger, id_) or (None, [])
