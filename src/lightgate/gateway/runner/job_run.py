"""One batch from its file to its results; killed at any point, it goes on where it was."""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from lightgate.batch.lines import BadLine, LineError, LineReader, LineResult, LineRules, bad_result
from lightgate.gateway.batches.records import (
    MESSAGE_OUTPUT,
    OUTPUT,
    BatchJob,
    FileProblem,
    StoredFile,
)
from lightgate.gateway.runner.results import CANCELLED, EXPIRED, ResultFiles
from lightgate.gateway.runner.sender import GatewayAnswer, judge
from lightgate.gateway.runner.window import WindowClosed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from concurrent.futures import Executor

    from lightgate.batch.lines import BatchLine
    from lightgate.gateway.batches.store import BatchStore
    from lightgate.gateway.runner.window import SendWindow

    Send = Callable[[BatchJob, BatchLine, str], Awaitable[GatewayAnswer]]

T = TypeVar("T")
AHEAD: Final = 64  # lines of one batch that are read ahead of their turn
TELL_S: Final = 0.5  # between two notes of how far it is
SHOWN_PROBLEMS: Final = 100
FREE_BYTES: Final = 64 * 1024 * 1024  # on the disk, below which no line is sent
FULL_S: Final = 2.0  # between two looks at a disk that is full
_log = logging.getLogger(__name__)


class RunnerTools:
    """What all batches of a process share."""

    def __init__(
        self, store: BatchStore, pool: Executor, window: SendWindow, send: Send, max_lines: int
    ) -> None:
        self.store = store
        self.window = window
        self.send = send
        self.max_lines = max_lines
        self.free_bytes: Callable[[], int] = self._free
        self._pool = pool

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Do something that takes a while, one such thing at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def _free(self) -> int:
        found = os.statvfs(self.store.folder)
        return found.f_bavail * found.f_frsize


class JobRun:
    """Carries out one batch; `told` says what has become of it meanwhile."""

    def __init__(self, job: BatchJob, tools: RunnerTools) -> None:
        self.job = job
        self._tools = tools
        self._files = ResultFiles(tools.store, job)
        self._rules = LineRules(form="json", url=job.endpoint, strict=True)
        self._flying = 0
        self._room = asyncio.Semaphore(AHEAD)
        self._changed = asyncio.Event()  # it was cancelled, or the process ends
        self._stopping = False
        self._trouble: Exception | None = None  # of a line; the batch is begun again then

    def told(self, job: BatchJob) -> None:
        """Take in the batch as the store has it now."""
        self.job = job
        if job.state == "cancelling":
            self._changed.set()

    def stop(self) -> None:
        """Send no more lines; the next process goes on."""
        self._stopping = True
        self._changed.set()

    async def run(self) -> None:
        """Do all that is left to do."""
        tools = self._tools
        try:
            await tools.in_thread(self._files.recover)
            if "in_progress" not in self.job.at and not await self._validate():
                return
            telling = asyncio.create_task(self._tell())
            try:
                await self._send_all()
            finally:
                telling.cancel()
            if not self._stopping:
                await self._finish()
        finally:
            self._files.close()

    # Before

    async def _validate(self) -> bool:
        """Look at every line; whether there is one to send."""
        total, valid, model, problems = await self._tools.in_thread(self._look)
        if total and valid:
            await self._change(lambda job: _begun(job, self._tools.store.now_s, total, model))
            return True
        if not total:
            problems = [FileProblem("empty_file", "The file has no lines.")]
        await self._change(lambda job: _with(job, {"total": total}))
        await self._end("failed", problems=tuple(problems))
        return False

    def _look(self) -> tuple[int, int, str | None, list[FileProblem]]:
        """Write the results of lines that cannot be sent; how many lines, and what is wrong."""
        files, most = self._files, self._tools.max_lines
        total = valid = 0
        models: set[str] = set()
        problems: list[FileProblem] = []
        for line in self._lines():
            total += 1
            bad = line if isinstance(line, BadLine) else None
            if total > most:
                custom_id = line.custom_id
                said = f"A batch may have {most} lines."
                bad = BadLine(line.number, custom_id, "too_many_lines", said)
            if bad is None:
                valid += 1
                if len(models) < 2 and not isinstance(line, BadLine):
                    models.add(line.model)
                continue
            files.write(files.name_of(bad), bad_result(bad, files.result_id(bad.number)))
            if len(problems) < SHOWN_PROBLEMS:
                problems.append(FileProblem(bad.code, bad.message, bad.number))
        return total, valid, models.pop() if len(models) == 1 else None, problems

    def _lines(self) -> Iterator[BatchLine | BadLine]:
        """Every line of the file; one that asks for a stream cannot be sent."""
        with self._tools.store.path(self.job.input_file).open("rb") as file:
            for line in LineReader(self._rules).lines(file):
                if not isinstance(line, BadLine) and _streams(line.body):
                    said = "A line of a batch cannot be streamed: leave `stream` out."
                    yield BadLine(line.number, line.custom_id, "invalid_body", said)
                else:
                    yield line

    # The lines

    @property
    def _over(self) -> bool:
        """Whether no line is sent any more."""
        job = self.job
        late = self._tools.store.now_s >= job.expires_s
        return self._stopping or job.state == "cancelling" or late

    async def _send_all(self) -> None:
        files, tasks = self._files, set[asyncio.Task[None]]()
        try:
            for line in self._lines():
                if isinstance(line, BadLine) or files.name_of(line) in files.done:
                    continue
                await self._room.acquire()
                if self._over or self._trouble is not None:
                    self._room.release()
                    break
                task = asyncio.create_task(self._carry_out(line))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            if tasks:
                await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
        if self._trouble is not None:
            raise self._trouble

    async def _carry_out(self, line: BatchLine) -> None:
        try:
            await self._ask(line)
        except WindowClosed:
            pass  # the process ends; the line is still to be sent
        except Exception as error:  # noqa: BLE001 - the wall of a background task
            self._trouble = error
        finally:
            self._room.release()

    async def _ask(self, line: BatchLine) -> None:
        """Send a line until its answer stands, and keep that."""
        tools, files, tries = self._tools, self._files, 0
        request_id = files.result_id(line.number)
        while True:
            await self._wait_for_disk()
            await tools.window.enter()
            try:
                if self._over:
                    return
                self._flying += 1
                try:
                    answer = await tools.send(self.job, line, request_id)
                finally:
                    self._flying -= 1
            finally:
                tools.window.leave()
            verdict = judge(answer, tries, alone=self._flying == 0)
            tries += verdict.counts
            if verdict.wait_s is None:
                break
            if verdict.crowded:
                tools.window.refused(verdict.wait_s)
            await self._pause(verdict.wait_s)
        if 200 <= answer.status < 300:
            tools.window.answered()
        await self._keep(line, _result(answer, line, request_id))

    async def _keep(self, line: BatchLine, result: LineResult) -> None:
        """Write a result; where the disk is full, wait until it takes it."""
        while True:
            try:
                self._files.write(self._files.name_of(line), result)
            except OSError as error:
                _log.warning("Results of a batch cannot be written: %s", error.strerror)
                if self._stopping:
                    return
                await asyncio.sleep(FULL_S)
            else:
                return

    async def _wait_for_disk(self) -> None:
        """Send nothing whose answer the disk may not take."""
        while self._tools.free_bytes() < FREE_BYTES and not self._over:
            await self._pause(FULL_S)

    async def _pause(self, seconds: float) -> None:
        """Wait, or until nothing is to be sent any more."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _tell(self) -> None:
        """Note how far the batch is, now and then."""
        told = -1
        while True:
            await asyncio.sleep(TELL_S)
            count = len(self._files.done)
            if count != told:
                told = count
                await self._change(partial(_with, changes=self._files.tally.changes()))

    # After

    async def _finish(self) -> None:
        job, store = self.job, self._tools.store
        code, message, state = "", "", "completed"
        if job.state == "cancelling":
            code, message, state = CANCELLED, "The batch was cancelled.", "cancelled"
        elif store.now_s >= job.expires_s:
            code, message, state = EXPIRED, "The batch's time was over.", "expired"
        elif len(self._files.done) < job.total:
            raise RuntimeError("A batch ended before all of its lines had.")
        await self._change(lambda now: _finalizing(now, store.now_s))
        if code:
            await self._tools.in_thread(lambda: self._write_rest(LineError(code, message)))
        await self._end(state)

    def _write_rest(self, error: LineError) -> None:
        """Write a result for every line that was not sent."""
        files = self._files
        for line in self._lines():
            if isinstance(line, BadLine) or files.name_of(line) in files.done:
                continue
            rest = LineResult(
                id=files.result_id(line.number), custom_id=line.custom_id, error=error
            )
            files.write(files.name_of(line), rest)

    async def _end(self, state: Any, **changes: Any) -> None:
        """Give the results to the owner and end the batch, in one step."""
        job, store = self.job, self._tools.store
        sizes = await self._tools.in_thread(self._files.sizes)
        now = store.now_s
        purpose = OUTPUT if job.kind == "openai" else MESSAGE_OUTPUT
        files = [
            StoredFile(
                id=file_id,
                owner=job.owner,
                purpose=purpose,
                filename=f"{job.id}_{'error' if file_id == job.error_file else 'output'}.jsonl",
                size=size,
                created_s=now,
                expires_s=now + job.keep_s,
            )
            for file_id, size in sizes.items()
            if size
        ]
        kept = {file.id for file in files}
        changes |= self._files.tally.changes()
        changes |= {"has_output": job.output_file in kept, "has_errors": job.error_file in kept}

        def ended(before: BatchJob) -> BatchJob:
            return _with(before.moved(state, now), changes)

        await self._tools.in_thread(lambda: store.change(job.id, ended, *files))
        if job.kind == "anthropic":  # its lines came in the request, and are in no list
            await self._tools.in_thread(lambda: store.drop_file(job.owner, job.input_file))

    async def _change(self, change: Callable[[BatchJob], BatchJob]) -> None:
        fresh = await self._tools.in_thread(lambda: self._tools.store.change(self.job.id, change))
        if fresh is not None:
            self.told(fresh)


def _with(job: BatchJob, changes: dict[str, Any]) -> BatchJob:
    return msgspec.structs.replace(job, **changes)


def _begun(job: BatchJob, now_s: int, total: int, model: str | None) -> BatchJob:
    known = _with(job, {"total": total, "model": model})
    return known.moved("in_progress", now_s) if job.state == "validating" else known


def _finalizing(job: BatchJob, now_s: int) -> BatchJob:
    """Move a batch on whose lines are done; one that was cancelled stays what it is."""
    return job.moved("finalizing", now_s) if job.state == "in_progress" else job


def _streams(body: bytes) -> bool:
    if b'"stream"' not in body:
        return False
    try:
        return bool(msgspec.json.decode(body, type=dict[str, Any]).get("stream"))
    except msgspec.DecodeError:
        return False


def _result(answer: GatewayAnswer, line: BatchLine, request_id: str) -> LineResult:
    if answer.status == 0:
        error = LineError("no_answer", "The gateway did not answer.")
        return LineResult(id=request_id, custom_id=line.custom_id, error=error)
    body = answer.body
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except msgspec.DecodeError:
        error = LineError("no_json", f"The answer (status {answer.status}) is not JSON.")
        return LineResult(id=request_id, custom_id=line.custom_id, error=error)
    return LineResult(
        id=request_id,
        custom_id=line.custom_id,
        status=answer.status,
        request_id=answer.request_id,
        body=body,
    )
