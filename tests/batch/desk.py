"""A job in virtual time with made targets, for tests of the engine."""

from __future__ import annotations

import asyncio
import io
import json
from typing import TYPE_CHECKING, Any

from lightgate.batch.engine import BatchEngine, BatchOrder, Surroundings
from lightgate.batch.journal import Checkpoint
from lightgate.batch.lines import LineReader
from lightgate.batch.share import BatchLane, LineAnswer
from lightgate.batch.virtual import LoopClock, VirtualLoop, run_virtual
from lightgate.clock.marks import Marks
from lightgate.clock.outcome import Outcome
from lightgate.clock.tokens import Tokens
from lightgate.ledger.journal.notes import AttemptNote, NoteFacts
from lightgate.provider.call import Called
from lightgate.route.admission.admission import Admission

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lightgate.batch.lines import BatchLine
    from lightgate.batch.summary import BatchSummary
    from lightgate.ledger.journal.notes import Settled


def prompts(count: int, text: str = "prompt {}") -> bytes:
    lines = [
        json.dumps({"custom_id": f"id-{n}", "body": {"p": text.format(n)}}) for n in range(count)
    ]
    return "\n".join(lines).encode()


def failure(kind: str = "server_error", status: int = 500, **facts: Any) -> LineAnswer:
    return LineAnswer(
        end="failed", status=status, kind=kind, message="It failed.", again=True, **facts
    )


def note_of(target: str, exchange_id: str, seq: int, cost: int | None) -> AttemptNote:
    facts = NoteFacts(
        f"{exchange_id}.{seq}", exchange_id, target, target, "m", "openai-chat", seq, "only", None,
        1, cost, None, None, "batch",
    )  # fmt: skip
    called = Called(
        outcome=Outcome.OK, error=None, status=200, streamed=False, tokens=Tokens(out=10),
        finish_reason=None, kinds=0, first_kinds=0, bytes_in=0, bytes_out=0,
    )  # fmt: skip
    return AttemptNote.of(facts, Marks(), called)


class Made:
    """A made target: `answers` may say what becomes of a line, else it is answered."""

    def __init__(
        self,
        name: str = "t",
        seconds: float = 1.0,
        cost: int = 1000,
        answers: Callable[[BatchLine, int], LineAnswer | None] = lambda _line, _seq: None,
    ) -> None:
        self.name = name
        self.seconds = seconds
        self.cost = cost
        self.asked: list[str] = []
        self.in_flight = self.most = 0
        self._answers = answers

    async def __call__(self, line: BatchLine, exchange_id: str, seq: int) -> LineAnswer:
        self.asked.append(line.custom_id)
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.in_flight -= 1
        answer = self._answers(line, len(self.asked))
        if answer is not None:
            if answer.note is None:
                answer.note = note_of(self.name, exchange_id, seq, answer.cost_nano)
            return answer
        return LineAnswer(
            end="ok",
            status=200,
            body=b'{"said": %s}' % line.body,
            tokens_in=10,
            tokens_out=10,
            cost_nano=self.cost,
            note=note_of(self.name, exchange_id, seq, self.cost),
        )

    def lane(self) -> BatchLane:
        return BatchLane(self.name, self, lambda _i, _o: self.cost, Admission())


class Desk:
    """One job with its files; `run` may be called again, as a process that is started again."""

    def __init__(self, folder: Path, text: bytes, *made: Made) -> None:
        self.folder = folder
        self.text = text
        self.grown = b""  # what came into the file after its lines were counted
        self.made = made or (Made(),)
        self.settled: list[Settled] = []
        self.told: list[str] = []
        self.engine: BatchEngine | None = None
        self.seconds = 0.0

    def run(
        self,
        until_s: float | None = None,
        cut: bool = False,
        retry_failed: bool = False,
        **order: Any,
    ) -> BatchSummary:
        """Run until the end; or stop, or be cut off, after some seconds."""
        loop = VirtualLoop()
        clock = LoopClock(loop)
        total = sum(1 for line in self.text.split(b"\n") if line.strip())
        options = BatchOrder(**{"sync_s": 0.0, **order})

        async def work() -> BatchSummary:
            with Checkpoint(
                self.folder / "out",
                self.folder / "errors",
                wall_ns=clock.wall_ns(),
                retry_failed=retry_failed,
            ) as files:
                lines = LineReader().lines(io.BytesIO(self.text + self.grown))
                around = Surroundings(clock, self.settled.append, lambda: 0.5, self.told.append)
                lanes = [one.lane() for one in self.made]
                engine = self.engine = BatchEngine(lines, total, lanes, files, options, around)
                if until_s is not None:
                    loop.call_later(until_s, engine.cut if cut else engine.stop)
                summary = await engine.run()
            self.seconds = loop.time()
            return summary

        return run_virtual(loop, work())

    def results(self, name: str = "out") -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / name).read_bytes().splitlines()]

    def ids(self, name: str = "out") -> list[str]:
        return [one["custom_id"] for one in self.results(name)]
