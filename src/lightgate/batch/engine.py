"""The engine of a job: lines from a queue go through the gates to targets, answers to the files.

A line waits until a target's gates let it pass. What comes back is recorded before anything else is
done with it. A line that failed is tried again, elsewhere where it can be, under a budget for the
whole job; one whose twin was answered gets the same answer. Lines are read as they are needed, so
memory does not grow with the file. Time, ids, dice and senders are passed in.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import os
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from lightgate.batch.books import settled
from lightgate.batch.journal import ERRORS, OUT, key_of, key_of_bad
from lightgate.batch.lines import (
    BadLine,
    BatchLine,
    LineError,
    LineResult,
    anthropic_line,
    bad_result,
    openai_line,
)
from lightgate.batch.share import NS, BatchLane, By, LineAnswer, QuietHours, Sharing
from lightgate.batch.summary import BatchSummary, LaneSummary
from lightgate.clock.ids import Ids
from lightgate.clock.source import SYSTEM
from lightgate.route.admission.admission import NEVER_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lightgate.batch.journal import Checkpoint, DoneRecord
    from lightgate.clock.source import Clock
    from lightgate.ledger.journal.notes import AttemptNote, Settled

TURN: Final = 256  # lines that are passed over without letting answers in
LONGEST_WAIT_S: Final = 30.0  # after which gates are asked again in any case
BACKOFF_S: Final = 1.0  # before the second attempt of a line; doubles with each further one
LONGEST_BACKOFF_S: Final = 60.0
MOST_REFUSED: Final = 100  # refusals of one line, which are no attempts
RETRY_SHARE: Final = 0.1  # of the lines, that may be sent again after failures
FREE_RETRIES: Final = 20  # beside that
DISK_S: Final = 1.0  # between two looks at a disk that is full
DOUBT: Final = 1.5  # times the usual length, of an answer without a cap, that money is kept for
NANO: Final = Decimal("1e-9")
_Written = TypeVar("_Written")
_CAPS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")


class BatchOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a job is to do; instants in nanoseconds of the engine's clock.

    `attempts` are those of one line, refusals not counted. `once`: identical lines are asked once.
    `sync_s` is the time between two moments at which the files are made safe; 0 never.
    """

    by: By = "time"
    attempts: int = 5
    once: bool = True
    anthropic: bool = False  # results in Anthropic's form
    max_cost_nano: int | None = None
    deadline_ns: int | None = None
    quiet: QuietHours | None = None
    sync_s: float = 1.0


class Surroundings(NamedTuple):
    """What an engine needs of the world.

    `settle` gets the ledger's note of every line that was sent, `told` sentences for the user;
    `dice` gives numbers from 0 to 1.
    """

    clock: Clock = SYSTEM
    settle: Callable[[Settled], object] = lambda _: None
    dice: Callable[[], float] = lambda: 0.5
    told: Callable[[str], None] = lambda _: None


class _Caps(msgspec.Struct):
    """The fields of a request that say how long its answer may be."""

    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    max_output_tokens: int | None = None


_caps: Final = msgspec.json.Decoder(_Caps).decode


class _Asked:
    """A line under way: its attempts so far, and the identical lines that wait for its answer."""

    __slots__ = (
        "avoid", "cap", "cost_nano", "exchange_id", "key", "line", "notes", "refused", "tries",
        "twins",
    )  # fmt: skip

    def __init__(self, line: BatchLine, key: bytes, exchange_id: str) -> None:
        self.line = line
        self.key = key
        self.exchange_id = exchange_id
        self.tries = self.refused = 0
        self.cost_nano = 0
        self.avoid = ""
        self.notes: list[AttemptNote] = []
        self.twins: list[tuple[int, str]] = []
        try:
            caps = _caps(line.body)
        except msgspec.ValidationError:
            caps = _Caps()  # the target will say what is wrong with it
        self.cap = next((cap for cap in msgspec.structs.astuple(caps) if cap is not None), None)


class BatchEngine:
    """Runs one job; `summary` tells how it stands at any time.

    `total` is the number of lines in the file.
    """

    def __init__(
        self,
        lines: Iterator[BatchLine | BadLine],
        total: int,
        lanes: Sequence[BatchLane],
        files: Checkpoint,
        order: BatchOrder,
        around: Surroundings | None = None,
    ) -> None:
        around = around or Surroundings()
        self._lines = lines
        self._total = total
        self._files = files
        self._order = order
        self._clock = clock = around.clock
        self._ids = Ids(clock)
        self._settle = around.settle
        self._dice = around.dice
        self._told = around.told
        self.unwritten = 0  # answers that wait until the disk has room
        self._sharing = Sharing(lanes, order.by, order.deadline_ns)
        self._head: _Asked | None = None
        self._again: list[tuple[int, int, _Asked]] = []  # by the instant of the next attempt
        self._asked: dict[bytes, _Asked] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._bell = asyncio.Event()
        self._reserved_nano = 0
        self._order_of = 0
        self._retries = self._copied = self._requests = self._refused = 0
        self._stopped = self._reason = ""
        self._exhausted = False
        self._began_ns = clock.now_ns()
        self._tokens_before = files.tokens_out
        self._done_before = files.answered + files.failed
        self._defect: BaseException | None = None

    async def run(self) -> BatchSummary:
        """Work until every line is done, or nothing more can be."""
        safe = None
        if self._order.sync_s:
            safe = asyncio.get_running_loop().create_task(self._keep_safe())
        try:
            while not self._over():
                self._bell.clear()
                wait_ns = await self._fill()
                if self._over():
                    break
                wait_s = min(LONGEST_WAIT_S, wait_ns / NS)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._bell.wait()
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if safe is not None:
                safe.cancel()
                await asyncio.gather(safe, return_exceptions=True)
                self._make_safe()
        if self._defect is not None:
            raise self._defect
        return self.summary()

    def stop(self, why: str = "interrupted", reason: str = "") -> None:
        """Send nothing more; what is under way may end."""
        if not self._stopped:
            self._stopped, self._reason = why, reason
        self._bell.set()

    def cut(self) -> None:
        """End what is under way at once; its lines are open again."""
        self.stop()
        for task in list(self._tasks):
            task.cancel()

    # The queue

    def _over(self) -> bool:
        if self._defect is not None:
            return True
        if self._tasks:
            return False
        if self._stopped:
            return True
        return self._exhausted and self._head is None and not self._again

    async def _fill(self) -> int:
        """Send all that the gates let pass; return how long to wait before they are asked again."""
        while not self._stopped and self._defect is None:
            now_ns = self._clock.now_ns()
            quiet_ns = self._quiet_ns()
            if quiet_ns:
                return quiet_ns
            asked = await self._next(now_ns)
            if asked is None:
                return self._again[0][0] - now_ns if self._again else NEVER_NS
            found = self._choose(asked, now_ns)
            if isinstance(found, int):
                return found
            self._take_from_queue(asked)
            self._send(asked, found, now_ns)
        return NEVER_NS

    def _quiet_ns(self) -> int:
        quiet = self._order.quiet
        if quiet is None:
            return 0
        now = datetime.fromtimestamp(self._clock.wall_ns() / NS)  # noqa: DTZ006 - the user's hours
        return round(quiet.wait_s(now) * NS)

    async def _next(self, now_ns: int) -> _Asked | None:
        """Return the line that is next: one to be tried again, else one of the file."""
        if self._again and self._again[0][0] <= now_ns:
            return self._again[0][2]
        passed = 0
        while self._head is None and not self._exhausted:
            line = next(self._lines, None)
            if line is None:
                self._exhausted = True
            else:
                await self._meet(line)
            passed += 1
            if passed % TURN == 0:
                await asyncio.sleep(0)
        return self._head

    def _take_from_queue(self, asked: _Asked) -> None:
        if asked is self._head:
            self._head = None
        else:
            heapq.heappop(self._again)

    async def _meet(self, line: BatchLine | BadLine) -> None:
        """Take a line of the file: it is done, wrong, a twin of another one, or next."""
        files = self._files
        if isinstance(line, BadLine):
            key = key_of_bad(line)
            if not files.is_done(line.number, key):
                result = bad_result(line, self._result_id(self._ids.new()))
                await self._record(line.number, key, ERRORS, self._form(result))
            return
        key = key_of(line)
        if files.is_done(line.number, key):
            return
        if self._order.once:
            twin = self._asked.get(key)
            if twin is not None:
                twin.twins.append((line.number, line.custom_id))
                return
            place = files.keys.get(key)
            if place is not None:
                await self._copy(line.number, line.custom_id, key, files.result_at(place))
                return
        self._head = _Asked(line, key, self._ids.new())
        if self._order.once:
            self._asked[key] = self._head

    def _choose(self, asked: _Asked, now_ns: int) -> BatchLane | int:
        left = max(1, self._total - self._files.answered - self._files.failed - len(self._tasks))
        size = len(asked.line.body)
        found = self._sharing.choose(size, asked.cap, left, now_ns, asked.avoid)
        if isinstance(found, int) or self._affords(asked, found):
            return found
        if not self._tasks:
            self.stop("cost", "The next line could cost more than --max-cost leaves.")
        return NEVER_NS

    # Money

    def _affords(self, asked: _Asked, lane: BatchLane) -> bool:
        limit = self._order.max_cost_nano
        if limit is None:
            return True
        spent = self._files.cost_nano + self._reserved_nano
        return spent + self._most_nano(asked, lane) <= limit

    def _most_nano(self, asked: _Asked, lane: BatchLane) -> int:
        """Return what a line may cost: its cap, or more than the usual length."""
        tokens_in, tokens_out = lane.gates.need(len(asked.line.body), None)
        out = float(asked.cap) if asked.cap is not None else DOUBT * tokens_out
        return lane.cost_of(tokens_in, out) or 0

    # One attempt

    def _send(self, asked: _Asked, lane: BatchLane, now_ns: int) -> None:
        let = lane.sent(len(asked.line.body), asked.cap, now_ns)
        reserved = self._most_nano(asked, lane) if self._order.max_cost_nano is not None else 0
        self._reserved_nano += reserved
        self._requests += 1

        async def attempt() -> None:
            try:
                await self._write(lambda: self._files.sent(asked.line.number, lane.name))
                seq = len(asked.notes)
                answer = await lane.send(asked.line, asked.exchange_id, seq)
            except BaseException:
                lane.gates.forget(let)
                self._reserved_nano -= reserved
                raise
            lane.ended(let, answer, self._clock.now_ns(), first=not asked.tries)
            await self._take(asked, lane, answer)
            self._reserved_nano -= reserved

        task = asyncio.get_running_loop().create_task(attempt())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._defect = self._defect or task.exception()
        self._bell.set()

    async def _take(self, asked: _Asked, lane: BatchLane, answer: LineAnswer) -> None:
        """Record an answer, or put the line back into the queue."""
        if answer.note is not None:
            asked.notes.append(answer.note)
        asked.cost_nano += answer.cost_nano or 0
        if answer.end == "ok":
            await self._answer(asked, lane, answer)
            return
        if answer.end == "refused":
            self._refused += 1
            asked.refused += 1
        elif not answer.free:
            asked.tries += 1
        if not self._sharing.alive:
            lane = self._sharing.lanes[0]
            self.stop(lane.dead_kind, lane.dead)
            return  # the line stays open
        if self._tries_again(asked, answer):
            self._put_back(asked, lane, answer)
            return
        await self._answer(asked, lane, answer)

    def _tries_again(self, asked: _Asked, answer: LineAnswer) -> bool:
        if answer.useless:
            return True  # nothing was wrong with the line
        if answer.free or not answer.again:
            return answer.free
        if answer.end == "refused":
            return asked.refused < MOST_REFUSED
        budget = FREE_RETRIES + RETRY_SHARE * self._total
        return asked.tries < self._order.attempts and self._retries < budget

    def _put_back(self, asked: _Asked, lane: BatchLane, answer: LineAnswer) -> None:
        wait_s = answer.wait_s or 0.0
        if answer.end != "refused" and not answer.useless and not answer.free:
            self._retries += 1
            usual_s = min(LONGEST_BACKOFF_S, BACKOFF_S * 2.0 ** (asked.tries - 1))
            wait_s = max(wait_s, usual_s * (0.5 + self._dice()))
        asked.avoid = lane.name if answer.end == "failed" else ""
        self._order_of += 1
        due_ns = self._clock.now_ns() + round(wait_s * NS)
        heapq.heappush(self._again, (due_ns, self._order_of, asked))

    # Results

    async def _answer(self, asked: _Asked, lane: BatchLane, answer: LineAnswer) -> None:
        """Write the result of a line and of its twins, then the ledger's note."""
        line, ok = asked.line, answer.end == "ok"
        error = None
        if not ok and not answer.status:
            error = LineError(answer.kind or "failed", answer.message)
        result = LineResult(
            id=self._result_id(asked.exchange_id),
            custom_id=line.custom_id,
            status=answer.status,
            request_id=answer.request_id,
            body=answer.body,
            error=error,
        )
        facts = {
            "cost_nano": answer.cost_nano if not asked.cost_nano else asked.cost_nano,
            "tokens_in": answer.tokens_in,
            "tokens_out": answer.tokens_out,
            "target": lane.name,
            "exchange_id": asked.exchange_id,
            "model": asked.notes[-1].facts.model if asked.notes else line.model,
            "dialect": line.dialect,
            "wall_ns": self._clock.wall_ns(),
            "attempts": len(asked.notes),
        }
        file = OUT if ok else ERRORS
        written = self._form(result)
        done = await self._record(line.number, asked.key, file, written, **facts)
        if asked.notes:
            self._settle(settled(line, done, answer.status, asked.notes, answer.message))
        if self._order.once:
            self._asked.pop(asked.key, None)
        for number, custom_id in asked.twins:
            await self._copy(number, custom_id, asked.key, written, file)

    async def _copy(
        self, number: int, custom_id: str, key: bytes, written: bytes, file: int = OUT
    ) -> None:
        """Give a line the result of its twin, under its own id."""
        fields = msgspec.json.decode(written, type=dict[str, msgspec.Raw])
        fields["custom_id"] = msgspec.Raw(msgspec.json.encode(custom_id))
        if "id" in fields:
            fields["id"] = msgspec.Raw(msgspec.json.encode(self._result_id(self._ids.new())))
        await self._record(number, key, file, msgspec.json.encode(fields) + b"\n")
        self._copied += 1

    def _form(self, result: LineResult) -> bytes:
        return anthropic_line(result) if self._order.anthropic else openai_line(result)

    @staticmethod
    def _result_id(made: str) -> str:
        return f"batch_req_{made.replace('-', '')}"

    async def _record(
        self, number: int, key: bytes, file: int, result: bytes, **facts: object
    ) -> DoneRecord:
        """Write a result; when this returns, it is in its file."""
        files = self._files
        done = await self._write(lambda: files.record(number, key, file, result, **facts))
        await self._write(files.flush)
        return done

    async def _write(self, write: Callable[[], _Written]) -> _Written:
        """Write to the files; on a full disk as soon as there is room, and nothing else is sent."""
        waits = False
        try:
            while True:
                try:
                    return write()
                except OSError as error:
                    if not waits and not self.unwritten:
                        self._told(f"The results cannot be written: {error.strerror}. Waiting.")
                    self.unwritten += not waits
                    waits = True
                    await asyncio.sleep(DISK_S)
        finally:
            self.unwritten -= waits

    async def _keep_safe(self) -> None:
        """Make what was written safe against a loss of power, from time to time."""
        while True:
            await asyncio.sleep(self._order.sync_s)
            await asyncio.to_thread(self._make_safe)

    def _make_safe(self) -> None:
        for descriptor in self._files.descriptors:
            with contextlib.suppress(OSError):
                os.fsync(descriptor)

    # How it stands

    def summary(self) -> BatchSummary:
        """Return how the job stands."""
        files, now_ns = self._files, self._clock.now_ns()
        seconds = max(1e-9, (now_ns - self._began_ns) / NS)
        done = files.answered + files.failed
        here, left = done - self._done_before, max(0, self._total - done)
        late_ns = None if self._order.deadline_ns is None else now_ns - self._order.deadline_ns
        return BatchSummary(
            lines=max(self._total, done),  # the file may have grown
            answered=files.answered,
            failed=files.failed,
            open=left,
            copied=self._copied,
            resent=files.resent,
            requests=self._requests,
            retries=self._retries,
            refused=self._refused,
            seconds=round(seconds, 3),
            tokens_in=files.tokens_in,
            tokens_out=files.tokens_out,
            tokens_per_s=round((files.tokens_out - self._tokens_before) / seconds, 3),
            cost_usd=files.cost_nano * NANO,
            unpriced=files.unpriced,
            eta_s=round(left * seconds / here, 1) if here and left else None,
            targets=tuple(_lane_summary(lane) for lane in self._sharing.lanes),
            stopped=self._stopped if left else "",
            reason=self._reason if left else "",
            deadline_missed_s=None if late_ns is None or late_ns <= 0 else late_ns / NS,
        )


def _lane_summary(lane: BatchLane) -> LaneSummary:
    priced = lane.cost_nano > 0 or lane.cost_of(1.0, 1.0) is not None
    return LaneSummary(
        target=lane.name,
        answered=lane.answered,
        refused=lane.refused,
        failed=lane.failed,
        requests=lane.answered + lane.refused + lane.failed + lane.gates.in_flight,
        in_flight=lane.gates.in_flight,
        most_in_flight=lane.most_in_flight,
        tokens_in=lane.tokens_in,
        tokens_out=lane.tokens_out,
        cost_usd=lane.cost_nano * NANO if priced else None,
        service_s=round(lane.service_s, 4),
        stopped=lane.dead,
    )
