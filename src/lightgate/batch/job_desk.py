"""Answers of a provider's batch job go into a run's files and into the ledger, each once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from lightgate.batch.books import settled
from lightgate.batch.journal import ERRORS, OUT, key_of
from lightgate.batch.lines import LineError, LineResult, anthropic_line, openai_line
from lightgate.clock.ids import Ids
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.source import SYSTEM
from lightgate.clock.tokens import Tokens, Usage
from lightgate.dialect.errors import Fault
from lightgate.dialect.translate import error_body
from lightgate.errors import AttemptError, HttpRefused
from lightgate.ledger.journal.notes import AttemptNote, NoteFacts
from lightgate.provider.call import Called

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightgate.batch.journal import Checkpoint, DoneRecord
    from lightgate.batch.lines import BatchLine
    from lightgate.batch.via import KeptLine
    from lightgate.batch.words import BatchWords, TargetAnswer
    from lightgate.clock.source import Clock
    from lightgate.ledger.journal.notes import Settled
    from lightgate.provider.batch.job import JobResult, JobStatus

NS: Final = 1_000_000_000
DISK_S: Final = 1.0  # between two looks at a disk that is full
TIER: Final = "batch"


class JobDesk:
    """Writes what became of lines; `settle` gets the ledger's note of each of them."""

    def __init__(
        self,
        files: Checkpoint,
        words: BatchWords,
        *,
        anthropic: bool = False,
        clock: Clock = SYSTEM,
        settle: Callable[[Settled], object] = lambda _: None,
    ) -> None:
        self._files = files
        self._words = words
        self._form = anthropic_line if anthropic else openai_line
        self._clock = clock
        self._settle = settle
        self._ids = Ids(clock)

    def key_of(self, line: BatchLine) -> bytes:
        """Return what a line shares with those that ask the same."""
        return key_of(line)

    def is_done(self, number: int, key: bytes) -> bool:
        """Whether a line has its result already."""
        return self._files.is_done(number, key)

    async def answer(self, kept: KeptLine, result: JobResult, status: JobStatus) -> bool:  # noqa: ARG002 - the protocol's
        """Record the end of a line; False for an answer that cannot be read."""
        read: TargetAnswer | None = None
        if result.end == "answer":
            try:
                read = self._words.read(kept.line, result.body, self._clock.wall_ns() / NS)
            except AttemptError:
                return False
        made = self._ids.new()
        written = self._form(self._result(kept.line, result, read, made))
        usage = read.usage if read is not None else Usage()
        facts: dict[str, object] = {
            "cost_nano": read.cost_nano if read is not None else 0,
            "tokens_in": usage.tokens_in,
            "tokens_out": usage.tokens_out,
            "target": self._words.target.name,
            "exchange_id": made,
            "model": self._words.target.model,
            "dialect": kept.line.dialect,
            "wall_ns": self._clock.wall_ns(),
            "attempts": 1,
        }
        file = OUT if read is not None else ERRORS
        done = await self._record(kept, file, written, facts)
        note = self._note(done, result, read)
        self._settle(settled(kept.line, done, result.status, (note,), result.message))
        return True

    def _result(
        self, line: BatchLine, result: JobResult, read: TargetAnswer | None, made: str
    ) -> LineResult:
        name = f"batch_req_{made.replace('-', '')}"
        if read is not None:
            return LineResult(
                id=name,
                custom_id=line.custom_id,
                status=result.status,
                request_id=result.request_id,
                body=read.body,
            )
        if not result.status:
            error = LineError("failed", result.message)
            return LineResult(id=name, custom_id=line.custom_id, error=error)
        body, spoken = result.body, self._words.dialect_of(line)
        if not body or spoken is None or spoken.name != line.dialect:
            body = error_body(line.dialect, Fault("error", result.message, result.status))
        return LineResult(
            id=name,
            custom_id=line.custom_id,
            status=result.status,
            request_id=result.request_id,
            body=body,
        )

    async def _record(
        self, kept: KeptLine, file: int, written: bytes, facts: dict[str, object]
    ) -> DoneRecord:
        """Write to the run's files; on a full disk as soon as there is room."""
        while True:
            try:
                return self._files.record(kept.line.number, kept.key, file, written, **facts)
            except OSError:
                await asyncio.sleep(DISK_S)

    def _note(self, done: DoneRecord, result: JobResult, read: TargetAnswer | None) -> AttemptNote:
        """Make the note of the line's only attempt; a job has no instants of single lines."""
        target = self._words.target
        facts = NoteFacts(
            f"{done.exchange_id}.0",
            done.exchange_id,
            target.name,
            target.provider.name,
            target.model,
            target.provider.dialect,
            0,
            "only",
            None,
            done.wall_ns,
            done.cost_nano,
            read.cost_source if read is not None else None,
            read.price_as_of if read is not None else None,
            "batch",
        )
        usage = read.usage if read is not None else Usage()
        refused = HttpRefused(result.message, code=result.status)
        called = Called(
            outcome=Outcome.OK if read is not None else Outcome.HTTP_ERROR,
            error=None if read is not None else refused,
            status=result.status,
            streamed=False,
            tokens=Tokens(
                tokens_in=usage.tokens_in,
                out=usage.tokens_out,
                reasoning=usage.tokens_reasoning,
                cached=usage.tokens_cached,
                source="usage" if usage.tokens_out is not None else None,
                cache_write=usage.tokens_cache_write,
                tier=TIER,
            ),
            finish_reason=read.finish if read is not None else None,
            kinds=0,
            first_kinds=0,
            bytes_in=len(result.body),
            bytes_out=0,
            provider_request_id=result.request_id or None,
        )
        return AttemptNote.of(facts, Marks(), called)
