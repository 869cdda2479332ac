"""Batch APIs with files in and files out: OpenAI's, and Groq's, Together's and Mistral's kinds."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import quote

import msgspec

from lightgate.errors import Malformed
from lightgate.provider.batch.job import MOST_PAGES, SKEW_S, JobResult, JobState, JobStatus

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from lightgate.provider.batch.exchange import BatchExchange
    from lightgate.provider.batch.job import JobAsked, JobLine

TAG: Final = "lightgate_job"  # the name of the tag in a job's metadata
_OPENAI: Final = {
    "validating": JobState.RUNNING,
    "in_progress": JobState.RUNNING,
    "finalizing": JobState.RUNNING,
    "completed": JobState.COMPLETED,
    "failed": JobState.FAILED,
    "expired": JobState.EXPIRED,
    "cancelling": JobState.CANCELLING,
    "cancelled": JobState.CANCELLED,
}
_MISTRAL: Final = {
    "queued": JobState.RUNNING,
    "running": JobState.RUNNING,
    "success": JobState.COMPLETED,
    "failed": JobState.FAILED,
    "timeout_exceeded": JobState.EXPIRED,
    "cancellation_requested": JobState.CANCELLING,
    "cancelled": JobState.CANCELLED,
}


class _ResultLine(msgspec.Struct):
    """A line of an output or error file; `response.body` stays as it is."""

    custom_id: str
    response: dict[str, msgspec.Raw] | None = None
    error: Any = None


class FileJobs:
    """OpenAI's batch API; the classes below say how others differ."""

    upload_path: ClassVar[str] = "/files"
    jobs_path: ClassVar[str] = "/batches"
    purpose: ClassVar[str] = "batch"
    states: ClassVar[dict[str, JobState]] = _OPENAI
    outputs: ClassVar[tuple[str, str]] = ("output_file_id", "error_file_id")

    def __init__(self, exchange: BatchExchange) -> None:
        self._exchange = exchange
        self._root = exchange.root
        self.model = exchange.target.model

    async def upload(self, asked: JobAsked, lines: Sequence[JobLine]) -> str:
        """Send the lines as a file."""
        content = b"\n".join([self.line(line, asked.endpoint) for line in lines])
        name = f"{asked.tag}.jsonl"
        path = self._root + self.upload_path
        tree = await self._exchange.form(path, self.fields(name), name, (content,))
        return _text(tree, "id")

    async def submit(self, asked: JobAsked, lines: Sequence[JobLine]) -> JobStatus:  # noqa: ARG002 - they are in the file
        """Make the job of an uploaded file."""
        path = self._root + self.jobs_path
        answer = await self._exchange.ask("POST", path, self.wish(asked))
        return self.status(self.unwrapped(answer.tree))

    async def find(self, asked: JobAsked) -> list[JobStatus]:
        """Look through the latest jobs for the one with the tag, or with the uploaded file."""
        query = self.first_page
        for _ in range(MOST_PAGES):
            answer = await self._exchange.ask("GET", f"{self._root}{self.jobs_path}{query}")
            rows, query = self.page(answer.tree)
            jobs = [self.status(row) for row in rows]
            for job in jobs:
                if job.tag == asked.tag or (asked.file and job.file == asked.file):
                    return [job]
            made = [job.made_s for job in jobs if job.made_s is not None]
            if not query or (made and min(made) < asked.since_s - SKEW_S):
                break
        return []

    async def poll(self, id: str) -> JobStatus:  # noqa: A002 - the name of the field
        """Ask for the job."""
        path = f"{self._root}{self.jobs_path}/{quote(id, safe='')}"
        return self.status(self.unwrapped((await self._exchange.ask("GET", path)).tree))

    async def cancel(self, id: str) -> None:  # noqa: A002 - the name of the field
        """Ask for the end of the job."""
        path = f"{self._root}{self.jobs_path}/{quote(id, safe='')}/cancel"
        await self._exchange.ask("POST", path)

    async def results(self, status: JobStatus) -> AsyncGenerator[JobResult, None]:
        """Read the output file, then the error file; either may be missing."""
        for name in status.results:
            path = f"{self._root}/files/{quote(name, safe='')}/content"
            async for line in self._exchange.lines(path):
                yield read_result(line)

    # The differences

    first_page: ClassVar[str] = "?limit=100"

    def fields(self, name: str) -> dict[str, str]:  # noqa: ARG002 - for those that want it
        """The fields beside an uploaded file."""
        return {"purpose": self.purpose}

    def line(self, line: JobLine, endpoint: str) -> bytes:
        """One line of the input file."""
        row = {"custom_id": line.id, "method": "POST", "url": endpoint}
        return msgspec.json.encode({**row, "body": msgspec.Raw(line.body)})

    def wish(self, asked: JobAsked) -> dict[str, Any]:
        """The document of a submission."""
        return {
            "input_file_id": asked.file,
            "endpoint": asked.endpoint,
            "completion_window": "24h",
            "metadata": {TAG: asked.tag},
        }

    def unwrapped(self, tree: Any) -> Any:
        """The job in the answer to a submission."""
        return tree

    def page(self, tree: Any) -> tuple[list[Any], str]:
        """The jobs of a page, and the query of the next one."""
        rows = _rows(tree)
        last = tree.get("last_id") if isinstance(tree, dict) else None
        more = isinstance(tree, dict) and tree.get("has_more") is True
        if not more or not isinstance(last, str):
            return rows, ""
        return rows, f"{self.first_page}&after={quote(last, safe='')}"

    def status(self, tree: Any) -> JobStatus:
        """A job as the provider writes it."""
        word = _text(tree, "status")
        state = self.states.get(word.lower())
        if state is None:
            raise Malformed(f"The state of the batch job is {word!r}, which is not known here.")
        names = [tree.get(field) for field in self.outputs]
        told = tree.get("metadata")
        tag = told.get(TAG) if isinstance(told, dict) else None
        counts = tree.get("request_counts")
        counts = counts if isinstance(counts, dict) else {}
        return JobStatus(
            id=_text(tree, "id"),
            state=state,
            word=word,
            tag=tag if isinstance(tag, str) else "",
            file=self.input_file(tree),
            made_s=wall_s(tree.get("created_at")),
            total=_count(counts.get("total", tree.get("total_requests"))),
            done=_count(counts.get("completed", tree.get("completed_requests"))),
            results=tuple([name for name in names if isinstance(name, str) and name]),
            error=said_of(tree.get("errors")) or said_of(tree.get("error")),
        )

    def input_file(self, tree: Any) -> str:
        """The id of the file that a job was made of."""
        name = tree.get("input_file_id")
        return name if isinstance(name, str) else ""


class GroqJobs(FileJobs):
    """Groq's: its list has a cursor."""

    first_page = ""

    def page(self, tree: Any) -> tuple[list[Any], str]:
        """The cursor of the next page is in `paging`."""
        paging = tree.get("paging") if isinstance(tree, dict) else None
        cursor = paging.get("next_cursor") if isinstance(paging, dict) else None
        return _rows(tree), f"?cursor={quote(cursor, safe='')}" if cursor else ""


class TogetherJobs(FileJobs):
    """Together's: files have an endpoint and a purpose of their own, and jobs no metadata.

    A job is found again by its input file.
    """

    upload_path = "/files/upload"
    purpose = "batch-api"
    first_page = ""

    def fields(self, name: str) -> dict[str, str]:
        """Together wants to know the file's name and type."""
        return {"purpose": self.purpose, "file_name": name, "file_type": "jsonl"}

    def line(self, line: JobLine, endpoint: str) -> bytes:  # noqa: ARG002 - the job names it
        """A line has its id and its body alone."""
        return msgspec.json.encode({"custom_id": line.id, "body": msgspec.Raw(line.body)})

    def wish(self, asked: JobAsked) -> dict[str, Any]:
        """A submission without metadata."""
        return {
            "input_file_id": asked.file,
            "endpoint": asked.endpoint,
            "completion_window": "24h",
        }

    def unwrapped(self, tree: Any) -> Any:
        """A new job stands in `job`, with a warning beside it."""
        job = tree.get("job") if isinstance(tree, dict) else None
        return job if isinstance(job, dict) else tree


class MistralJobs(FileJobs):
    """Mistral's: a job names the model and how long it may take."""

    jobs_path = "/batch/jobs"
    states = _MISTRAL
    outputs = ("output_file", "error_file")
    first_page = "?page_size=100"

    def line(self, line: JobLine, endpoint: str) -> bytes:  # noqa: ARG002 - the job names it
        """The body names no model: the job does."""
        fields = msgspec.json.decode(line.body, type=dict[str, msgspec.Raw])
        fields.pop("model", None)
        return msgspec.json.encode({"custom_id": line.id, "body": fields})

    def wish(self, asked: JobAsked) -> dict[str, Any]:
        """A submission with a model."""
        return {
            "input_files": [asked.file],
            "model": self.model,
            "endpoint": asked.endpoint,
            "timeout_hours": 24,
            "metadata": {TAG: asked.tag},
        }

    def page(self, tree: Any) -> tuple[list[Any], str]:
        """One page is enough: the latest hundred jobs."""
        return _rows(tree), ""

    def input_file(self, tree: Any) -> str:
        """The first of its files; our jobs have one."""
        names = tree.get("input_files")
        return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""


def read_result(raw: bytes) -> JobResult:
    """A line of an output or error file."""
    try:
        line = msgspec.json.decode(raw, type=_ResultLine)
    except ValueError:
        raise Malformed("A line of the results is not what a batch API writes.") from None
    if line.response is None:
        code = line.error.get("code") if isinstance(line.error, dict) else None
        message = said_of(line.error)
        if code in {"batch_expired", "batch_cancelled"}:
            end = "expired" if code == "batch_expired" else "cancelled"
            return JobResult(id=line.custom_id, end=end, message=message)  # type: ignore[arg-type]  # one of both
        return JobResult(id=line.custom_id, end="error", message=message or "The line failed.")
    status = msgspec.json.decode(line.response.get("status_code", b"0"))
    asked = msgspec.json.decode(line.response.get("request_id", b"null"))
    status = status if isinstance(status, int) else 0
    good = 200 <= status < 300
    return JobResult(
        id=line.custom_id,
        end="answer" if good else "error",
        status=status,
        body=bytes(line.response.get("body", b"null")),
        request_id=asked if isinstance(asked, str) else "",
        message="" if good else f"The line was answered with {status}.",
    )


def said_of(errors: Any) -> str:
    """The sentences of an error, in any of the forms that providers use; empty where there is none.

    They are one text, a list, or an object with `data`; OpenAI's and Groq's differ in just that.
    """
    if isinstance(errors, str):
        return errors
    if isinstance(errors, dict):
        inner = errors.get("message") or errors.get("data") or errors.get("error")
        return said_of(inner)
    if not isinstance(errors, list):
        return ""
    said = [text for one in errors[:5] if (text := said_of(one))]
    more = f" (and {len(errors) - 5} more)" if len(errors) > 5 else ""
    return "; ".join(said) + more


def wall_s(value: Any) -> float | None:
    """A time as seconds since 1970; None where it is none. Providers write numbers or RFC 3339."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value).timestamp()
    except ValueError:
        return None


def _rows(tree: Any) -> list[Any]:
    rows = tree.get("data") if isinstance(tree, dict) else tree
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _text(tree: Any, field: str) -> str:
    value = tree.get(field) if isinstance(tree, dict) else None
    if not isinstance(value, str) or not value:
        raise Malformed(f"The answer of the batch API has no {field!r}.")
    return value


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
