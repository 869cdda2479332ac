"""Anthropic's message batches: the requests are in the body, the results at an address."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lightgate.sim.answer.request import BadSimRequest
from lightgate.sim.batch.endpoints import (
    SimReply,
    failed_body,
    read_lines,
    reply,
    submitted,
)
from lightgate.sim.weather import NS

if TYPE_CHECKING:
    from lightgate.sim.batch.endpoints import SimCall
    from lightgate.sim.batch.jobs import SimJob, SimJobs, SimLineEnd

_ROOT: Final = "v1/messages/batches"
_JSONL: Final = (b"content-type", b"application/x-jsonl")
_RESULT: Final = {
    "answer": "succeeded",
    "error": "errored",
    "expired": "expired",
    "cancelled": "canceled",
}


class AnthropicBatchApi:
    """The message batches of one provider."""

    def __init__(self, jobs: SimJobs) -> None:
        self.jobs = jobs

    def answer(self, call: SimCall) -> SimReply | None:
        """Answer a request about batches."""
        if call.path == _ROOT:
            return self._create(call) if call.method == b"POST" else reply(self._page(call))
        if not call.path.startswith(f"{_ROOT}/"):
            return None
        name, _, verb = call.path.removeprefix(f"{_ROOT}/").partition("/")
        job = self.jobs.jobs.get(name)
        if job is None:
            raise BadSimRequest(f"The message batch {name} was not found.", 404)
        if verb == "results":
            return self._results(job)
        if verb == "cancel":
            self.jobs.cancel(job)
        elif call.method == b"DELETE":
            if self.jobs.state(job).ended_ns is None:
                raise BadSimRequest("A batch that is processing cannot be deleted.")
            del self.jobs.jobs[name]
            return reply({"id": name, "type": "message_batch_deleted"})
        return reply(self._document(job, call.root))

    def _create(self, call: SimCall) -> SimReply:
        requests = call.tree().get("requests")
        if not isinstance(requests, list) or not requests:
            raise BadSimRequest("requests: at least one is needed.")
        raw = b"\n".join([msgspec.json.encode(one) for one in requests])
        lines, errors = read_lines(raw, self.jobs, "custom_id", "params")
        if errors:
            raise BadSimRequest(f"requests.{errors[0]['line']}: {errors[0]['message']}")
        lost = submitted(self.jobs)
        job = self.jobs.make(f"msgbatch_{self.jobs.new_id()}", lines, {"kind": "messages"})
        return reply(self._document(job, call.root), lost=lost)

    def _page(self, call: SimCall) -> Any:
        rows = list(self.jobs.jobs.values())[::-1]
        names = [job.id for job in rows]
        after = call.query.get("after_id")
        start = names.index(after) + 1 if after in names else 0
        limit = int(call.query.get("limit", 20))
        page = rows[start : start + limit]
        return {
            "data": [self._document(job, call.root) for job in page],
            "has_more": start + limit < len(rows),
            "first_id": page[0].id if page else None,
            "last_id": page[-1].id if page else None,
        }

    def _document(self, job: SimJob, root: str) -> dict[str, Any]:
        state = self.jobs.state(job)
        over = state.ended_ns is not None
        fates = [end.fate for end in self.jobs.results(job)]
        counts = {word: fates.count(fate) for fate, word in _RESULT.items()}  # type: ignore[arg-type]  # fates
        gone = self.jobs.gone(job)
        words = {"running": "in_progress", "cancelling": "canceling"}
        results = f"{root}/{_ROOT}/{job.id}/results"
        return {
            "id": job.id,
            "type": "message_batch",
            "processing_status": "ended" if over else words[state.phase],
            "request_counts": {"processing": 0 if over else len(job.lines), **counts},
            "created_at": _text(job, job.made_ns),
            "expires_at": _text(job, job.made_ns + round(self.jobs.spec.window_s * NS)),
            "ended_at": None if state.ended_ns is None else _text(job, state.ended_ns),
            "cancel_initiated_at": None
            if job.cancelled_ns is None
            else _text(job, job.cancelled_ns),
            "archived_at": _text(job, self.jobs.clock.now_ns()) if gone else None,
            "results_url": results if over and not gone else None,
        }

    def _results(self, job: SimJob) -> SimReply:
        if self.jobs.state(job).ended_ns is None or self.jobs.gone(job):
            raise BadSimRequest(f"The results of {job.id} are not available.", 404)
        lines = [_line(end) for end in self.jobs.results(job)]
        return SimReply(b"".join(lines), (_JSONL,))


def _line(end: SimLineEnd) -> bytes:
    result: dict[str, Any] = {"type": _RESULT[end.fate]}
    if end.fate == "answer":
        message = msgspec.json.decode(end.body)
        if isinstance(message.get("usage"), dict):
            message["usage"]["service_tier"] = "batch"
        result["message"] = message
    elif end.fate == "error":
        result["error"] = msgspec.Raw(failed_body("anthropic", end))
    return msgspec.json.encode({"custom_id": end.id, "result": result}) + b"\n"


def _text(job: SimJob, at_ns: int) -> str:
    wall_s = job.wall_s + (at_ns - job.made_ns) / NS
    return datetime.fromtimestamp(wall_s, UTC).isoformat().replace("+00:00", "Z")
