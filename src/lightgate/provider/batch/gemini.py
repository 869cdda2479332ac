"""Gemini's batches: a file of requests in, a file of answers out.

Requests could travel with the submission too, but then the answers come inside the job's own
document, all at once with every poll; from a file they are read a few at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from lightgate.errors import Malformed
from lightgate.provider.batch.files import said_of, wall_s
from lightgate.provider.batch.job import MOST_PAGES, SKEW_S, JobResult, JobState, JobStatus

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from lightgate.provider.batch.exchange import BatchExchange
    from lightgate.provider.batch.job import JobAsked, JobLine

_STATES: Final = {
    "UNSPECIFIED": JobState.RUNNING,
    "QUEUED": JobState.RUNNING,
    "PENDING": JobState.RUNNING,
    "RUNNING": JobState.RUNNING,
    "PAUSED": JobState.RUNNING,
    "UPDATING": JobState.RUNNING,
    "CANCELLING": JobState.CANCELLING,
    "SUCCEEDED": JobState.COMPLETED,
    "PARTIALLY_SUCCEEDED": JobState.COMPLETED,
    "FAILED": JobState.FAILED,
    "CANCELLED": JobState.CANCELLED,
    "EXPIRED": JobState.EXPIRED,
}
# HTTP statuses of google.rpc.Code, as google/rpc/code.proto maps them.
_STATUS: Final = {1: 499, 3: 400, 4: 504, 5: 404, 7: 403, 8: 429, 14: 503, 16: 401}
_JSONL: Final = "application/jsonl"


class _Line(msgspec.Struct):
    key: str
    response: msgspec.Raw = msgspec.Raw(b"")
    error: Any = None


class GeminiJobs:
    """The batches of one target."""

    def __init__(self, exchange: BatchExchange) -> None:
        self._exchange = exchange
        self._root = exchange.root
        self._model = quote(exchange.target.model, safe="")

    async def upload(self, asked: JobAsked, lines: Sequence[JobLine]) -> str:
        """Send the lines as a file, in the two steps of Google's resumable uploads."""
        rows = [{"key": line.id, "request": msgspec.Raw(line.body)} for line in lines]
        content = b"\n".join([msgspec.json.encode(row) for row in rows])
        parent, _, version = self._root.rpartition("/")
        begun = await self._exchange.ask(
            "POST",
            f"{parent}/upload/{version}/files",
            {"file": {"displayName": asked.tag}},
            headers=(
                ("x-goog-upload-protocol", "resumable"),
                ("x-goog-upload-command", "start"),
                ("x-goog-upload-header-content-length", str(len(content))),
                ("x-goog-upload-header-content-type", _JSONL),
            ),
        )
        path = self._exchange.path_of(begun.header(b"x-goog-upload-url"))
        steps = (("x-goog-upload-offset", "0"), ("x-goog-upload-command", "upload, finalize"))
        done = await self._exchange.send("POST", path, (content,), steps)
        file = done.tree.get("file") if isinstance(done.tree, dict) else None
        name = file.get("name") if isinstance(file, dict) else None
        if not isinstance(name, str):
            raise Malformed("The answer to an upload names no file.")
        return name

    async def submit(self, asked: JobAsked, lines: Sequence[JobLine]) -> JobStatus:  # noqa: ARG002 - they are in the file
        """Make the job of an uploaded file; its name is the tag."""
        path = f"{self._root}/models/{self._model}:batchGenerateContent"
        batch = {"displayName": asked.tag, "inputConfig": {"fileName": asked.file}}
        return _status((await self._exchange.ask("POST", path, {"batch": batch})).tree)

    async def find(self, asked: JobAsked) -> list[JobStatus]:
        """Look through the latest jobs for the one of this name."""
        query = "?pageSize=100"
        for _ in range(MOST_PAGES):
            tree = (await self._exchange.ask("GET", f"{self._root}/batches{query}")).tree
            tree = tree if isinstance(tree, dict) else {}
            rows = tree.get("operations") or tree.get("batches") or []
            jobs = [_status(row) for row in rows]
            for job in jobs:
                if job.tag == asked.tag:
                    return [job]
            token = tree.get("nextPageToken")
            made = [job.made_s for job in jobs if job.made_s is not None]
            if not token or (made and min(made) < asked.since_s - SKEW_S):
                break
            query = f"?pageSize=100&pageToken={quote(str(token), safe='')}"
        return []

    async def poll(self, id: str) -> JobStatus:  # noqa: A002 - the name of the field
        """Ask for the job."""
        path = f"{self._root}/{quote(id)}"
        return _status((await self._exchange.ask("GET", path)).tree)

    async def cancel(self, id: str) -> None:  # noqa: A002 - the name of the field
        """Ask for the end of the job; it may finish all the same."""
        await self._exchange.ask("POST", f"{self._root}/{quote(id)}:cancel")

    async def results(self, status: JobStatus) -> AsyncGenerator[JobResult, None]:
        """Read the file of answers."""
        for name in status.results:
            path = f"{self._root}/{quote(name)}:download?alt=media"
            async for raw in self._exchange.lines(path):
                yield _result(raw)


def _status(tree: Any) -> JobStatus:
    """A job: a long-running operation whose metadata is the batch, or the batch itself."""
    tree = tree if isinstance(tree, dict) else {}
    batch = tree.get("metadata") if isinstance(tree.get("metadata"), dict) else tree
    word, name = batch.get("state"), tree.get("name") or batch.get("name")
    short = str(word).removeprefix("BATCH_STATE_").removeprefix("JOB_STATE_")
    state = _STATES.get(short)
    if state is None or not isinstance(name, str):
        raise Malformed("The answer of the batch API is not a batch.")
    output = batch.get("output") or tree.get("response")
    file = output.get("responsesFile") if isinstance(output, dict) else None
    stats = batch.get("batchStats")
    stats = stats if isinstance(stats, dict) else {}
    total, waits = _number(stats.get("requestCount")), _number(stats.get("pendingRequestCount"))
    return JobStatus(
        id=name,
        state=state,
        word=str(word),
        tag=str(batch.get("displayName") or ""),
        made_s=wall_s(batch.get("createTime")),
        total=total,
        done=total - (waits or 0) if total is not None else None,
        results=(file,) if isinstance(file, str) and file else (),
        error=said_of(tree.get("error")),
    )


def _result(raw: bytes) -> JobResult:
    try:
        line = msgspec.json.decode(raw, type=_Line)
    except ValueError:
        raise Malformed("A line of the results is not what a Gemini batch has.") from None
    if line.error is None:
        return JobResult(id=line.key, end="answer", status=200, body=bytes(line.response))
    code = line.error.get("code") if isinstance(line.error, dict) else None
    status = _STATUS.get(code, 500) if isinstance(code, int) else 500
    message = said_of(line.error) or "The line failed."
    inner = {"code": status, "message": message, "status": "INTERNAL"}
    body = msgspec.json.encode({"error": inner})
    return JobResult(id=line.key, end="error", status=status, body=body, message=message)


def _number(value: Any) -> int | None:
    """A number that Google writes as a text."""
    return int(value) if str(value).isdecimal() else None
