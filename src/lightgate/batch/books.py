"""The ledger's notes of a job: one exchange for each line, with all of its attempts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Tokens
from lightgate.ledger.journal.notes import AttemptNote, ExchangeNote, NoteFacts, Settled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lightgate.batch.journal import DoneRecord
    from lightgate.batch.lines import BatchLine
    from lightgate.errors import AttemptError

POLICY: Final = "batch"
WORKER: Final = 0


def settled(
    line: BatchLine, done: DoneRecord, status: int, notes: Sequence[AttemptNote], error: str = ""
) -> Settled:
    """Make the note of a line that is done, from its record and its attempts."""
    last = notes[-1]
    return Settled(
        _exchange(done, status, last.outcome.value, error or None, line.model, last), tuple(notes)
    )


def remade(done: DoneRecord) -> Settled:
    """Make the note of a line again, of which the process died before it could write it down.

    The instants are lost; the ledger passes over an exchange that it has.
    """
    ok = done.file == 0
    facts = NoteFacts(
        f"{done.exchange_id}.{max(0, done.attempts - 1)}", done.exchange_id, done.target,
        done.target.partition("/")[0], done.model, done.dialect, max(0, done.attempts - 1),
        "only", None, done.wall_ns, done.cost_nano, None, None, "batch",
    )  # fmt: skip
    ended = _Remade(Outcome.OK if ok else Outcome.HTTP_ERROR, done)
    note = AttemptNote.of(facts, Marks(), ended)
    status = 200 if ok else 0
    made = _exchange(done, status, note.outcome.value, None, done.model, note)
    return Settled(made, (note,))


class _Remade:
    """How an attempt ended, as far as the record of its line says it."""

    def __init__(self, outcome: Outcome, done: DoneRecord) -> None:
        self.outcome = outcome
        self.error: AttemptError | None = None
        self.status = 200 if outcome is Outcome.OK else None
        self.streamed = False
        self.tokens = Tokens(tokens_in=done.tokens_in, out=done.tokens_out)
        self.finish_reason = None
        self.bytes_in = self.bytes_out = 0
        self.end = None
        self.provider_request_id = None


def _exchange(
    done: DoneRecord,
    status: int,
    outcome: str,
    error: str | None,
    model: str,
    last: AttemptNote,
) -> ExchangeNote:
    return ExchangeNote(
        done.exchange_id,
        done.exchange_id,
        None,
        model or last.facts.model,
        POLICY,
        "",
        done.target if outcome == Outcome.OK.value else None,
        "off",
        status,
        outcome,
        error,
        done.dialect,
        False,
        done.wall_ns,
        None,
        None,
        last.plan,
        last.plan,
        last.send,
        None,
        None,
        last.end,
        last.end,
        last.end,
        done.tokens_in,
        done.tokens_out,
        done.cost_nano,
        last.facts.cost_source,
        None,
        None,
        WORKER,
    )
