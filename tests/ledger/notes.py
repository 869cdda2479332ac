"""Notes for tests: what a worker would write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from lightgate.clock.marks import Marks
from lightgate.clock.outcome import End, Outcome
from lightgate.clock.tokens import Tokens, Usage, count
from lightgate.errors import AttemptError
from lightgate.ledger.journal.journal import Journal
from lightgate.ledger.journal.notes import AttemptNote, ExchangeNote, NoteFacts, Reserved, Settled

if TYPE_CHECKING:
    from pathlib import Path

    from lightgate.ledger.journal.notes import Note

T0 = 1_790_000_100_000_000_000  # wall clock; the start of a bucket of 5 minutes
MS = 1_000_000


class Called(msgspec.Struct, frozen=True, kw_only=True):
    """How a call ended, as `provider.call` says it."""

    outcome: Outcome = Outcome.OK
    error: AttemptError | None = None
    status: int | None = 200
    streamed: bool = True
    tokens: Tokens = Tokens()
    finish_reason: str | None = "stop"
    bytes_in: int = 900
    bytes_out: int = 700
    end: End | None = "marker"
    provider_request_id: str | None = None


def marks(bursts: int = 4, first_ms: int = 100, gap_ms: int = 10) -> Marks:
    made = Marks(5_000 * MS)
    made.send, made.headers = 5_001 * MS, 5_050 * MS
    made.tcp_ns, made.pool_wait_ns = 2 * MS, 1 * MS
    for at in range(bursts):
        stamp = made.send + (first_ms + at * gap_ms) * MS
        made.burst(stamp, stamp - 5_000, 1, 4)
    made.answer, made.event = made.first, made.first
    made.end = made.last
    return made


def facts(exchange_id: str, **changes: Any) -> NoteFacts:
    plain = NoteFacts(
        id=f"{exchange_id}-a",
        exchange_id=exchange_id,
        target="lab/s1",
        provider="lab",
        model="s1",
        dialect="openai-chat",
        seq=0,
        role="only",
        won=None,
        wall_ns=T0,
        cost_nano=1500,
        cost_source="list",
        price_as_of="2026-09-01",
    )
    return msgspec.structs.replace(plain, **changes)


def attempt_note(
    exchange_id: str, stamps: Marks | None = None, called: Called | None = None, **about: Any
) -> AttemptNote:
    stamps = stamps or marks()
    tokens = count(stamps, Usage(tokens_in=12, tokens_out=len(stamps.burst_ns)))
    ended = called or Called(tokens=tokens)
    return AttemptNote.of(facts(exchange_id, **about), stamps, ended)


def exchange_note(made: str, **changes: Any) -> ExchangeNote:
    plain = ExchangeNote(
        id=made,
        request_id=f"req-{made}",
        key_id="k-1",
        model_asked="fast",
        policy="ordered",
        plan="lab/s1",
        winner="lab/s1",
        cache="off",
        status=200,
        outcome="ok",
        error=None,
        dialect="openai-chat",
        streamed=True,
        wall_ns=T0,
        accepted_ns=4_990 * MS,
        first_byte_ns=4_999 * MS,
        received_ns=5_000 * MS,
        routed_ns=5_000 * MS + 100_000,
        sent_ns=5_001 * MS,
        first_in_ns=5_101 * MS,
        first_out_ns=5_102 * MS,
        last_in_ns=5_131 * MS,
        last_out_ns=5_131 * MS + 500_000,
        closed_ns=5_132 * MS,
        tokens_in=12,
        tokens_out=4,
        cost_nano=1500,
        cost_source="list",
        loser_cost_nano=None,
        tags=None,
        worker=0,
    )
    return msgspec.structs.replace(plain, **changes)


def settled(made: str, *attempts: AttemptNote, **changes: Any) -> Settled:
    return Settled(exchange_note(made, **changes), attempts or (attempt_note(made),))


def reserved(made: str, nano_usd: int = 9000, wall_ns: int = T0, key_id: str = "k-1") -> Reserved:
    return Reserved(
        made, key_id, wall_ns, nano_usd, ("lab/s1",), f"req-{made}", "fast", "openai-chat"
    )


def journal_of(tmp_path: Path, *notes: Note, **options: Any) -> Journal:
    journal = Journal(tmp_path / "journal", 1, **options)
    for note in notes:
        journal.write(note)
    return journal
