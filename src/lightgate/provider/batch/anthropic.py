"""Anthropic's message batches: the requests travel with the submission, nothing marks a job.

A job has neither metadata nor a name, so a job whose answer was lost is looked for by its time and
its number of lines; whose it is is known for sure when its results are read, by the lines' ids.
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
    "in_progress": JobState.RUNNING,
    "canceling": JobState.CANCELLING,
    "ended": JobState.COMPLETED,
}
_ENDS: Final = {"expired": "expired", "canceled": "cancelled"}
_STATUS: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "overloaded_error": 529,
}


class _Line(msgspec.Struct):
    custom_id: str
    result: dict[str, msgspec.Raw]


class MessageJobs:
    """The message batches of one target."""

    def __init__(self, exchange: BatchExchange) -> None:
        self._exchange = exchange
        self._path = f"{exchange.root}/messages/batches"

    async def upload(self, asked: JobAsked, lines: Sequence[JobLine]) -> str:  # noqa: ARG002 - no files here
        """Nothing is uploaded."""
        return ""

    async def submit(self, asked: JobAsked, lines: Sequence[JobLine]) -> JobStatus:  # noqa: ARG002 - nothing to tag
        """Make a job of all lines."""
        rows = [{"custom_id": line.id, "params": msgspec.Raw(line.body)} for line in lines]
        answer = await self._exchange.ask("POST", self._path, {"requests": rows})
        return _status(answer.tree)

    async def find(self, asked: JobAsked) -> list[JobStatus]:
        """All jobs of as many lines that are not older than the submission."""
        found, query = [], "?limit=100"
        for _ in range(MOST_PAGES):
            tree = (await self._exchange.ask("GET", self._path + query)).tree
            rows = tree.get("data") if isinstance(tree, dict) else None
            jobs = [_status(row) for row in rows] if isinstance(rows, list) else []
            first_s = asked.since_s - SKEW_S
            young = [job for job in jobs if job.made_s is None or job.made_s >= first_s]
            found += [job for job in young if job.total == asked.size]
            if len(young) < len(jobs) or not jobs or tree.get("has_more") is not True:
                break
            query = f"?limit=100&after_id={quote(jobs[-1].id, safe='')}"
        return found

    async def poll(self, id: str) -> JobStatus:  # noqa: A002 - the name of the field
        """Ask for the job."""
        tree = (await self._exchange.ask("GET", f"{self._path}/{quote(id, safe='')}")).tree
        return _status(tree)

    async def cancel(self, id: str) -> None:  # noqa: A002 - the name of the field
        """Ask for the end of the job."""
        await self._exchange.ask("POST", f"{self._path}/{quote(id, safe='')}/cancel")

    async def results(self, status: JobStatus) -> AsyncGenerator[JobResult, None]:
        """Read the results from where the job says they are, if that is at the provider."""
        for url in status.results:
            async for raw in self._exchange.lines(self._exchange.path_of(url)):
                yield _result(raw)


def _status(tree: Any) -> JobStatus:
    word = tree.get("processing_status") if isinstance(tree, dict) else None
    state = _STATES.get(word) if isinstance(word, str) else None
    name = tree.get("id") if isinstance(tree, dict) else None
    if state is None or not isinstance(word, str) or not isinstance(name, str):
        raise Malformed("The answer of the batch API is not a message batch.")
    counts = tree.get("request_counts")
    numbers = [n for n in counts.values() if isinstance(n, int)] if isinstance(counts, dict) else []
    url = tree.get("results_url")
    gone = state.over and not url
    return JobStatus(
        id=name,
        state=state,
        word=word,
        made_s=wall_s(tree.get("created_at")),
        total=sum(numbers),
        done=sum(numbers) - counts["processing"] if numbers and "processing" in counts else None,
        results=(url,) if isinstance(url, str) and url else (),
        error="Its results are no longer kept." if gone else "",
    )


def _result(raw: bytes) -> JobResult:
    try:
        line = msgspec.json.decode(raw, type=_Line)
        kind = msgspec.json.decode(line.result["type"], type=str)
        if kind == "succeeded":
            body = bytes(line.result["message"])
            return JobResult(id=line.custom_id, end="answer", status=200, body=body)
        if kind in _ENDS:
            return JobResult(id=line.custom_id, end=_ENDS[kind])  # type: ignore[arg-type]  # its words
        error = bytes(line.result["error"])
        tree = msgspec.json.decode(error)
    except (ValueError, KeyError):
        raise Malformed("A line of the results is not what a message batch has.") from None
    inner = tree.get("error") if isinstance(tree, dict) else None
    word = inner.get("type") if isinstance(inner, dict) else None
    return JobResult(
        id=line.custom_id,
        end="error",
        status=_STATUS.get(word, 500) if isinstance(word, str) else 500,
        body=error,
        message=said_of(tree) or "The line failed.",
    )
